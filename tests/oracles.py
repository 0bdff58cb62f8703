"""Independent answers in float64 NumPy, without torch: every metric, node, join, mask rule and consumer by its definition.

Scores are [..., N, M] and stored; `keep` is True where a pair is kept. Consumers reduce the last axis; `over_rows` turns a problem round.
Names are those of the registry, and `tests/test_registry.py` compares the tables here with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special
from numpy.typing import NDArray

Array = NDArray[np.float64]
Keep = NDArray[np.bool_]
Indices = NDArray[np.int64]

# Metrics. x [..., N, 1, D] meets y [..., 1, M, D].


def _pairs(X: Array, Y: Array) -> tuple[Array, Array]:
    return X[..., :, None, :], Y[..., None, :, :]


def linear(X: Array, Y: Array) -> Array:
    x, y = _pairs(X, Y)
    return (x * y).sum(-1)


def sqeuclidean(X: Array, Y: Array) -> Array:
    x, y = _pairs(X, Y)
    return ((x - y) ** 2).sum(-1)


def euclidean(X: Array, Y: Array) -> Array:
    return np.sqrt(sqeuclidean(X, Y))


def manhattan(X: Array, Y: Array) -> Array:
    x, y = _pairs(X, Y)
    return np.abs(x - y).sum(-1)


def rbf(X: Array, Y: Array, gamma: Any = None) -> Array:
    """`gamma` is a number or one width a feature; 1/D if not given."""
    x, y = _pairs(X, Y)
    return np.exp(-((x - y) ** 2 * _gamma(gamma, X)).sum(-1))


def laplacian(X: Array, Y: Array, gamma: Any = None) -> Array:
    x, y = _pairs(X, Y)
    return np.exp(-(np.abs(x - y) * _gamma(gamma, X)).sum(-1))


def cosine_similarity(X: Array, Y: Array) -> Array:
    x, y = _unit(X), _unit(Y)
    return np.clip(linear(x, y), -1.0, 1.0)


def cosine_distances(X: Array, Y: Array) -> Array:
    return 1.0 - cosine_similarity(X, Y)


def polynomial(X: Array, Y: Array, gamma: Any = None, coef0: float = 1.0, degree: float = 3.0) -> Array:
    return (_gamma(gamma, X) * linear(X, Y) + coef0) ** degree


def sigmoid(X: Array, Y: Array, gamma: Any = None, coef0: float = 1.0) -> Array:
    return np.tanh(_gamma(gamma, X) * linear(X, Y) + coef0)


def _gamma(gamma: Any, X: Array) -> Any:
    return 1.0 / max(1, X.shape[-1]) if gamma is None else gamma


def _unit(X: Array) -> Array:
    """Rows of length 1 whatever their scale; a zero row stays zero."""
    largest = np.abs(X).max(-1, keepdims=True, initial=0.0)
    scaled = X / np.where(largest == 0, 1.0, largest)
    norm = np.sqrt((scaled**2).sum(-1, keepdims=True))
    return scaled / np.where(norm == 0, 1.0, norm)


METRICS: dict[str, Callable[..., Array]] = {
    f.__name__: f
    for f in (linear, sqeuclidean, euclidean, manhattan, rbf, laplacian, cosine_similarity, cosine_distances, polynomial, sigmoid)
}

# Nodes: a row vector a_i stands as a [..., N, 1], a column vector as [..., 1, M].

NODES: dict[str, Callable[..., Array]] = {
    "scale": lambda s, a: s * a,
    "shift": lambda s, a: s + a,
    "add_rows": lambda s, a: s + a[..., :, None],
    "add_columns": lambda s, a: s + a[..., None, :],
    "weight_rows": lambda s, a: s * a[..., :, None],
    "weight_columns": lambda s, a: s * a[..., None, :],
    "exp": np.exp,
    "log": np.log,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "square": lambda s: s**2,
    "pow": lambda s, a: s**a,
    "abs": np.abs,
    "reciprocal": lambda s: 1.0 / s,
    "tanh": np.tanh,
    "rsqrt": lambda s: 1.0 / np.sqrt(s),
    "sin": np.sin,
    "cos": np.cos,
    "sigmoid": scipy.special.expit,
    "softplus": lambda s: np.logaddexp(s, 0.0),
    "relu": lambda s: np.maximum(s, 0.0),
    "greater": lambda s, a: (s > a) * 1.0,
    "greater_equal": lambda s, a: (s >= a) * 1.0,
    "less": lambda s, a: (s < a) * 1.0,
    "less_equal": lambda s, a: (s <= a) * 1.0,
    "equal": lambda s, a: (s == a) * 1.0,
    "not_equal": lambda s, a: (s != a) * 1.0,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "clamp": lambda s, a, b: np.minimum(np.maximum(s, a), b),
}

JOINS: dict[str, Callable[[Array, Array], Array]] = {
    "add": lambda s, t: s + t,
    "multiply": lambda s, t: s * t,
    **{f"{name}_of": NODES[name] for name in ("minimum", "maximum", "greater", "greater_equal", "equal", "not_equal")},
}

# Mask rules, pair by pair. Sizes come first; vectors may have batch dimensions.


def _rule(n: int, m: int, batch: tuple[int, ...], keep: Callable[[int, int], Any]) -> Keep:
    out = np.zeros((*batch, n, m), bool)
    for i in range(n):
        for j in range(m):
            out[..., i, j] = keep(i, j)
    return out


def causal(n: int, m: int, lower_right: float = 1.0) -> Keep:
    return _rule(n, m, (), lambda i, j: j <= i + (m - n if lower_right else 0))


def band(n: int, m: int, lower: float, upper: float) -> Keep:
    return _rule(n, m, (), lambda i, j: -lower <= j - i <= upper)


def same_group(n: int, m: int, rows: Indices, columns: Indices) -> Keep:
    batch = np.broadcast_shapes(rows.shape[:-1], columns.shape[:-1])
    return _rule(n, m, batch, lambda i, j: rows[..., i] == columns[..., j])


def mask_rows(n: int, m: int, flags: Keep) -> Keep:
    return _rule(n, m, flags.shape[:-1], lambda i, j: flags[..., i])


def mask_columns(n: int, m: int, flags: Keep) -> Keep:
    return _rule(n, m, flags.shape[:-1], lambda i, j: flags[..., j])


def off_diagonal(n: int, m: int) -> Keep:
    return _rule(n, m, (), lambda i, j: i != j)


MASKS: dict[str, Callable[..., Keep]] = {
    "causal": causal,
    "band": band,
    "same_group": same_group,
    "rows": mask_rows,
    "columns": mask_columns,
    "off_diagonal": off_diagonal,
}

# Consumers, row by row.


def _rows(reduce: Callable[[Array], float], S: Array, keep: Keep) -> Array:
    """`reduce` of the kept scores of every row."""
    keep = np.broadcast_to(keep, S.shape)
    out = np.empty(S.shape[:-1])
    for row in np.ndindex(*S.shape[:-1]):
        out[row] = reduce(S[row][keep[row]])
    return out


def _logsumexp(s: Array) -> float:
    top = s.max(initial=-np.inf)
    return float(top if not np.isfinite(top) else top + np.log(np.exp(s - top).sum()))


def sum(S: Array, keep: Keep) -> Array:
    return _rows(lambda s: float(s.sum()), S, keep)


def mean(S: Array, keep: Keep) -> Array:
    return _rows(lambda s: float(s.mean()) if s.size else np.nan, S, keep)


def logsumexp(S: Array, keep: Keep) -> Array:
    return _rows(_logsumexp, S, keep)


def matmul(S: Array, keep: Keep, V: Array) -> Array:
    """V [..., M, C]; what stands in V behind a mask does not count."""
    terms = np.where(keep[..., None], S[..., None] * V[..., None, :, :], 0.0)
    return terms.sum(-2)


def softmax_matmul(S: Array, keep: Keep, V: Array) -> Array:
    """0 for a row without kept pairs, and for one whose scores are all -inf."""
    total = logsumexp(S, keep)[..., None]
    weights = np.where(keep & (total > -np.inf), np.exp(S - np.where(np.isfinite(total), total, 0.0)), 0.0)
    return matmul(weights, keep, V)


def topk(S: Array, keep: Keep, k: int, largest: bool) -> tuple[Array, Indices]:
    """Best first, ties by the lower index; excluded pairs are worth +inf (-inf where the largest are wanted); NaN comes last."""
    key = np.where(keep, -S if largest else S, np.inf)
    values, indices = np.empty((*S.shape[:-1], k)), np.empty((*S.shape[:-1], k), np.int64)
    for row in np.ndindex(*S.shape[:-1]):
        order = sorted(range(S.shape[-1]), key=lambda j, row=row: (bool(np.isnan(key[row][j])), _number(key[row][j]), j))[:k]
        indices[row], values[row] = order, key[row][order]
    return (-values if largest else values), indices


def _number(x: float) -> float:
    return 0.0 if np.isnan(x) else float(x)


def minimum_of_rows(S: Array, keep: Keep) -> tuple[Array, Indices]:
    values, indices = topk(S, keep, 1, False)
    return values[..., 0], indices[..., 0]


def maximum_of_rows(S: Array, keep: Keep) -> tuple[Array, Indices]:
    values, indices = topk(S, keep, 1, True)
    return values[..., 0], indices[..., 0]


def dense(S: Array, keep: Keep, fill: float = 0.0) -> Array:
    return np.where(keep, S, fill)


def diagonal(S: Array, keep: Keep) -> Array:
    """Excluded pairs of the diagonal are 0, as in `dense`."""
    return np.diagonal(dense(S, keep), axis1=-2, axis2=-1)


CONSUMERS: dict[str, Callable[..., Any]] = {
    "sum": sum,
    "mean": mean,
    "logsumexp": logsumexp,
    "matmul": matmul,
    "softmax_matmul": softmax_matmul,
    "min": minimum_of_rows,
    "max": maximum_of_rows,
    "topk": topk,
    "diagonal": diagonal,
    "dense": dense,
}


def over_rows(x: NDArray[Any]) -> NDArray[Any]:
    """The same pairs with rows and columns exchanged: a consumer of it reduces over rows (dim=-2)."""
    return np.swapaxes(x, -1, -2)


def over_both(x: NDArray[Any]) -> NDArray[Any]:
    """All pairs as one row."""
    return x.reshape(*x.shape[:-2], -1)


def scores(metric: str, X: Array, Y: Array, gamma: float) -> Array:
    """The matrix of a metric whose width, if it has one, is `gamma`."""
    widths = {"gamma": gamma} if metric in ("rbf", "laplacian", "polynomial", "sigmoid") else {}
    return METRICS[metric](X, Y, **widths)
