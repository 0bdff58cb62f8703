"""The same computations in plain dense torch, as a user without the library writes them: [..., N, M] stored, autograd for derivatives.

Its error in a dtype, measured against the oracle, is the unit of error budgets; in float64 its gradients are the oracle of gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _pairs(X: Tensor, Y: Tensor) -> tuple[Tensor, Tensor]:
    return X.unsqueeze(-2), Y.unsqueeze(-3)


def linear(X: Tensor, Y: Tensor) -> Tensor:
    return X @ Y.mT


def sqeuclidean(X: Tensor, Y: Tensor) -> Tensor:
    x, y = _pairs(X, Y)
    return (x - y).square().sum(-1)


def euclidean(X: Tensor, Y: Tensor) -> Tensor:
    return sqrt(sqeuclidean(X, Y))


def manhattan(X: Tensor, Y: Tensor) -> Tensor:
    x, y = _pairs(X, Y)
    return (x - y).abs().sum(-1)


def rbf(X: Tensor, Y: Tensor, gamma: Any = None) -> Tensor:
    x, y = _pairs(X, Y)
    return (-((x - y).square() * _gamma(gamma, X)).sum(-1)).exp()


def laplacian(X: Tensor, Y: Tensor, gamma: Any = None) -> Tensor:
    x, y = _pairs(X, Y)
    return (-((x - y).abs() * _gamma(gamma, X)).sum(-1)).exp()


def cosine_similarity(X: Tensor, Y: Tensor) -> Tensor:
    return _unit(X) @ _unit(Y).mT


def cosine_distances(X: Tensor, Y: Tensor) -> Tensor:
    return 1 - cosine_similarity(X, Y)


def polynomial(X: Tensor, Y: Tensor, gamma: Any = None, coef0: Any = 1.0, degree: float = 3.0) -> Tensor:
    return (_gamma(gamma, X) * (X @ Y.mT) + coef0) ** degree


def sigmoid(X: Tensor, Y: Tensor, gamma: Any = None, coef0: Any = 1.0) -> Tensor:
    return (_gamma(gamma, X) * (X @ Y.mT) + coef0).tanh()


def _gamma(gamma: Any, X: Tensor) -> Any:
    return 1.0 / max(1, X.shape[-1]) if gamma is None else gamma


def _unit(X: Tensor) -> Tensor:
    square = X.square().sum(-1, keepdim=True)
    zero = square == 0
    return torch.where(zero, 0.0, X / torch.where(zero, 1.0, square).sqrt())


def sqrt(s: Tensor) -> Tensor:
    """With derivative 0 at 0."""
    zero = s == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, s).sqrt())


METRICS: dict[str, Callable[..., Tensor]] = {
    f.__name__: f
    for f in (linear, sqeuclidean, euclidean, manhattan, rbf, laplacian, cosine_similarity, cosine_distances, polynomial, sigmoid)
}

_COMPARISONS = {
    **{"greater": torch.gt, "greater_equal": torch.ge, "less": torch.lt, "less_equal": torch.le},
    **{"equal": torch.eq, "not_equal": torch.ne},
}


def _comparison(holds: Any) -> Callable[..., Tensor]:
    """0 or 1, as a function of the scores whose gradient is 0."""
    return lambda s, a: s * 0.0 + holds(s, a).to(s.dtype)


NODES: dict[str, Callable[..., Tensor]] = {
    "scale": lambda s, a: s * a,
    "shift": lambda s, a: s + a,
    "add_rows": lambda s, a: s + a.unsqueeze(-1),
    "add_columns": lambda s, a: s + a.unsqueeze(-2),
    "weight_rows": lambda s, a: s * a.unsqueeze(-1),
    "weight_columns": lambda s, a: s * a.unsqueeze(-2),
    "exp": torch.exp,
    "log": torch.log,
    "log1p": torch.log1p,
    "sqrt": sqrt,
    "square": torch.square,
    "pow": lambda s, a: s**a,
    "abs": torch.abs,
    "reciprocal": torch.reciprocal,
    "tanh": torch.tanh,
    "rsqrt": torch.rsqrt,
    "sin": torch.sin,
    "cos": torch.cos,
    "sigmoid": torch.sigmoid,
    "softplus": lambda s: torch.logaddexp(s, torch.zeros_like(s)),
    "relu": torch.relu,
    **{name: _comparison(f) for name, f in _COMPARISONS.items()},
    "minimum": lambda s, a: torch.minimum(s, torch.as_tensor(a, dtype=s.dtype)),
    "maximum": lambda s, a: torch.maximum(s, torch.as_tensor(a, dtype=s.dtype)),
    "clamp": lambda s, a, b: s.clamp(a, b),
}

JOINS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "multiply": torch.mul,
    "minimum_of": torch.minimum,
    "maximum_of": torch.maximum,
    **{f"{name}_of": _comparison(_COMPARISONS[name]) for name in ("greater", "greater_equal", "equal", "not_equal")},
}

# Consumers of the last axis. `keep` has the shape of the scores; pairs that are left out get gradient 0 by selection.


def sum(S: Tensor, keep: Tensor) -> Tensor:
    return torch.where(keep, S, 0.0).sum(-1)


def mean(S: Tensor, keep: Tensor) -> Tensor:
    return sum(S, keep) / keep.sum(-1)


def _filled(S: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    """Scores with -inf where a pair is left out, rows without pairs holding 0; and which rows those are."""
    empty = ~keep.any(-1, keepdim=True)
    return torch.where(empty, 0.0, torch.where(keep, S, -math.inf)), empty


def logsumexp(S: Tensor, keep: Tensor) -> Tensor:
    filled, empty = _filled(S, keep)
    return torch.where(empty.squeeze(-1), -math.inf, filled.logsumexp(-1)) if S.shape[-1] else S.sum(-1) - math.inf


def matmul(S: Tensor, keep: Tensor, V: Tensor) -> Tensor:
    return torch.where(keep, S, 0.0) @ V


def softmax_matmul(S: Tensor, keep: Tensor, V: Tensor) -> Tensor:
    filled, empty = _filled(S, keep)
    return torch.where(empty, 0.0, filled.softmax(-1)) @ V


def topk(S: Tensor, keep: Tensor, k: int, largest: bool) -> tuple[Tensor, Tensor]:
    filled = torch.where(keep, S, -math.inf if largest else math.inf)
    values, indices = torch.sort(filled, stable=True, dim=-1, descending=largest)
    return values[..., :k], indices[..., :k]


def minimum_of_rows(S: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    values, indices = topk(S, keep, 1, False)
    return values[..., 0], indices[..., 0]


def maximum_of_rows(S: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    values, indices = topk(S, keep, 1, True)
    return values[..., 0], indices[..., 0]


def dense(S: Tensor, keep: Tensor) -> Tensor:
    return torch.where(keep, S, 0.0)


def diagonal(S: Tensor, keep: Tensor) -> Tensor:
    return dense(S, keep).diagonal(dim1=-2, dim2=-1)


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
