"""Independent answers in float64 NumPy: plain broadcasting over the whole matrix, no torch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def scores(metric: str, X: Array, Y: Array, gamma: float) -> Array:
    """The matrix of a metric by its definition."""
    x, y = X[..., :, None, :], Y[..., None, :, :]
    dot, square, absolute = (x * y).sum(-1), ((x - y) ** 2).sum(-1), np.abs(x - y).sum(-1)
    if metric.startswith("cosine"):
        norms = np.sqrt((x * x).sum(-1)) * np.sqrt((y * y).sum(-1))
        similarity = np.where(norms == 0, 0.0, dot / np.where(norms == 0, 1.0, norms))
        return similarity if metric == "cosine_similarity" else 1 - similarity
    return {
        "linear": lambda: dot,
        "sqeuclidean": lambda: square,
        "euclidean": lambda: np.sqrt(square),
        "manhattan": lambda: absolute,
        "rbf": lambda: np.exp(-gamma * square),
        "laplacian": lambda: np.exp(-gamma * absolute),
        "polynomial": lambda: (gamma * dot + 1) ** 3,
        "sigmoid": lambda: np.tanh(gamma * dot + 1),
    }[metric]()


def sum(S: Array, keep: NDArray[np.bool_]) -> Array:
    return np.where(keep, S, 0.0).sum(-1)


def mean(S: Array, keep: NDArray[np.bool_]) -> Array:
    with np.errstate(invalid="ignore"):
        return sum(S, keep) / np.broadcast_to(keep, S.shape).sum(-1)


def logsumexp(S: Array, keep: NDArray[np.bool_]) -> Array:
    kept = np.where(keep, S, -np.inf)
    top = kept.max(-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(kept - top).sum(-1)) + top[..., 0]


def matmul(S: Array, keep: NDArray[np.bool_], V: Array) -> Array:
    return np.where(keep, S, 0.0) @ V


def softmax_matmul(S: Array, keep: NDArray[np.bool_], V: Array) -> Array:
    total = logsumexp(S, keep)[..., None]
    weights = np.where(keep, np.exp(np.where(keep, S, 0.0) - np.where(np.isfinite(total), total, 0.0)), 0.0)
    return weights @ V


def topk(S: Array, keep: NDArray[np.bool_], k: int, largest: bool) -> tuple[Array, NDArray[np.int64]]:
    """Ties by the lower index; excluded pairs last, by index."""
    key = np.where(keep, -S if largest else S, np.inf)
    indices = np.argsort(key, -1, kind="stable")[..., :k]
    values = np.take_along_axis(key, indices, -1)
    return (-values if largest else values), indices
