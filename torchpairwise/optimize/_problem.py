"""A checked transport problem: its weights, the rules of its marginals, and its two streamed passes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchpairwise._checks import as_number, broadcast_batch, describe
from torchpairwise.optimize._scores import DenseScores, Scores, as_scores

__all__ = ["Marginals", "Problem", "Side", "bind_problem", "read_marginals"]

# Sums that differ by at most this share count as equal: weights that were normalised in float32 do not add up exactly, and those in half
# precision (the second number) less so.
_SUM_TOLERANCE, _HALF_SUM_TOLERANCE = 1e-5, 1e-2
_HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Side:
    """How an update of potentials follows from the raw one (which makes the marginal exact): ``clamp(factor * raw, low, high)``."""

    factor: float = 1.0
    low: float = -math.inf
    high: float = math.inf


@dataclass(frozen=True)
class Marginals:
    """What the marginals of the coupling have to be: exact, held by a penalty of weight rho, or at most the weights."""

    kind: str = "balanced"  # balanced, kl, tv, partial
    rho: tuple[float, float] = (math.inf, math.inf)
    mass: float | None = None

    def side(self, index: int, epsilon: float) -> Side:
        """The rule of the rows (0) or of the columns (1)."""
        rho = self.rho[index]
        if self.kind == "partial":
            return Side(high=0.0)
        if math.isinf(rho):
            return Side()
        return Side(factor=rho / (rho + epsilon)) if self.kind == "kl" else Side(low=-rho, high=rho)

    def exact(self, index: int) -> bool:
        """Whether the marginal of the rows (0) or of the columns (1) has to be the weights."""
        return self.kind != "partial" and math.isinf(self.rho[index])

    def gain(self, potential: Tensor, index: int) -> Tensor:
        """What a unit of weight at this potential adds to the dual value: minus the conjugate of the penalty, at minus the potential."""
        rho = self.rho[index]
        if self.kind == "kl" and not math.isinf(rho):
            return -rho * torch.expm1(-potential / rho)
        return potential


def read_marginals(marginal: str | None, rho: Any, mass: Any) -> Marginals:
    """Checks `marginal`, `rho` and `mass`."""
    if marginal not in (None, "kl", "tv", "partial"):
        raise ValueError(f"marginal={marginal!r}; expected None (exact), 'kl', 'tv' or 'partial'")
    if marginal in ("kl", "tv"):
        if rho is None:
            raise ValueError(f"marginal={marginal!r} needs rho=, the price of a unit of mass, in units of cost")
        pair = rho if isinstance(rho, (tuple, list)) else (rho, rho)
        numbers = tuple(as_number(value, "rho", "a number > 0, or two") for value in pair)
        if len(numbers) != 2 or not all(value > 0 for value in numbers):
            raise ValueError(f"rho={rho!r}; expected a number > 0 or two (inf keeps that marginal exact)")
    elif rho is not None:
        raise ValueError(f"rho was given with marginal={marginal!r}; it belongs to 'kl' and 'tv'")
    if marginal == "partial":
        if mass is None or not as_number(mass, "mass") > 0:
            raise ValueError(f"marginal='partial' needs mass= > 0, the mass to transport; mass={mass!r}")
        return Marginals("partial", mass=float(mass))
    if mass is not None:
        raise ValueError(f"mass was given with marginal={marginal!r}; it belongs to 'partial'")
    return Marginals() if marginal is None else Marginals(marginal, (numbers[0], numbers[1]))


@dataclass(frozen=True)
class Problem:
    """A transport problem without gradients. `keep_*` is None where no weight is 0."""

    scores: Scores
    a: Tensor  # [*batch, N]
    b: Tensor  # [*batch, M]
    log_a: Tensor
    log_b: Tensor
    keep_a: Tensor | None
    keep_b: Tensor | None
    marginals: Marginals
    batch: tuple[int, ...]

    def exponents(self, epsilon: float) -> Scores:
        """``-C / epsilon``, absent at points of weight 0."""
        return masked(self.scores * (-1.0 / epsilon), self.keep_a, self.keep_b)

    def start(self) -> tuple[Tensor, Tensor]:
        """Potentials 0 [*batch, N] and [*batch, M]."""
        n, m = self.scores.shape[-2:]
        return self.a.new_zeros(*self.batch, n), self.a.new_zeros(*self.batch, m)


def masked(scores: Scores, keep_a: Tensor | None, keep_b: Tensor | None) -> Scores:
    """Scores without the points of weight 0."""
    if keep_a is not None:
        scores = scores.mask_rows(keep_a)
    return scores if keep_b is None else scores.mask_columns(keep_b)


def log_weights(weights: Tensor) -> Tensor:
    """The logarithm of weights, 0 with gradient 0 for the weight 0."""
    return torch.where(weights > 0, weights, 1.0).log()


def bind_problem(C: Any, a: Any, b: Any, marginals: Marginals, name: str = "C") -> tuple[Scores, Tensor, Tensor, Problem]:
    """Checks cost and weights; returns them with gradients, and the problem without."""
    scores = as_scores(C, name)
    batch = tuple(scores.shape[:-2])
    n, m = scores.shape[-2:]
    given = (a, b)
    a, b = _weights(a, "a", n, "rows", scores), _weights(b, "b", m, "columns", scores)
    batch = broadcast_batch(broadcast_batch(batch, a.shape[:-1], "a"), b.shape[:-1], "b")
    half = scores.dtype == torch.float32 and any(isinstance(x, Tensor) and x.dtype in _HALF for x in given)
    _check_masses(a.detach(), b.detach(), marginals, _HALF_SUM_TOLERANCE if half else _SUM_TOLERANCE)
    fixed_a, fixed_b = a.detach(), b.detach()
    if marginals.exact(0) and marginals.exact(1):
        # Rounding of the sums would otherwise be an error that no coupling can go below.
        fixed_b = fixed_b * (fixed_a.double().sum(-1, keepdim=True) / fixed_b.double().sum(-1, keepdim=True)).to(b.dtype)
    problem = Problem(
        scores.detach(), fixed_a, fixed_b, log_weights(fixed_a), log_weights(fixed_b), _kept(fixed_a), _kept(fixed_b), marginals, batch
    )
    return scores, a, b, problem


def _kept(weights: Tensor) -> Tensor | None:
    keep = weights > 0
    return None if bool(keep.all()) else keep


def _weights(weights: Any, name: str, size: int, side: str, scores: Scores) -> Tensor:
    dtype = scores.dtype
    if weights is None:
        if size == 0:
            raise ValueError(f"there are no {side} to transport: the cost is {list(scores.shape)}")
        return torch.full((size,), 1.0 / size, dtype=dtype, device=scores.device)
    if not isinstance(weights, Tensor) or weights.dim() == 0 or weights.shape[-1] != size:
        raise ValueError(f"{name} is {describe(weights)}; expected weights [..., {size}], one for each of the {side} of the cost")
    if weights.device != scores.device:
        raise ValueError(f"{name} is on {weights.device}, but the cost is on {scores.device}; move one of them")
    if weights.dtype in _HALF:
        weights = weights.float()
    if weights.dtype != dtype:
        raise TypeError(f"{name} has dtype {weights.dtype}, but the cost has {dtype}; convert one of them")
    fixed = weights.detach()
    wrong = ~(fixed >= 0) | fixed.isinf()
    if bool(wrong.any()):
        place = wrong.nonzero()[0].tolist()
        raise ValueError(f"{name}{place} is {float(fixed[tuple(place)])}; expected finite weights >= 0")
    return weights


def _check_masses(a: Tensor, b: Tensor, marginals: Marginals, tolerance: float) -> None:
    sum_a, sum_b = a.double().sum(-1), b.double().sum(-1)
    for name, total in (("a", sum_a), ("b", sum_b)):
        if bool((total <= 0).any()):
            raise ValueError(f"all weights of {name} are 0; at least one has to be positive")
    sum_a, sum_b = torch.broadcast_tensors(sum_a, sum_b)
    if marginals.kind == "partial":
        room = torch.minimum(sum_a, sum_b)
        assert marginals.mass is not None
        if bool((marginals.mass > room * (1 + tolerance)).any()):
            raise ValueError(
                f"mass={marginals.mass} is too much: a sums to {_shown(sum_a)} and b to {_shown(sum_b)}; give at most the smaller sum"
            )
        return
    if not (marginals.exact(0) and marginals.exact(1)):
        return
    apart = (sum_a - sum_b).abs() > tolerance * torch.maximum(sum_a, sum_b)
    if bool(apart.any()):
        raise ValueError(
            f"a sums to {_shown(sum_a)} and b to {_shown(sum_b)}; balanced transport needs equal sums. Divide each by its sum, or let mass "
            f'stay behind with marginal="kl", "tv" or "partial"'
        )


def _shown(sums: Tensor) -> str:
    return f"{float(sums):.7g}" if sums.dim() == 0 else str([round(value, 7) for value in sums.flatten().tolist()])


def cost_scale(scores: Scores) -> float | None:
    """The largest cost of a batch, where epsilon scaling starts; None if it is infinite (forbidden pairs) or there is none."""
    if isinstance(scores, DenseScores):
        finite = scores.scores[scores.scores.isfinite()]
        return float(finite.max()) if finite.numel() else None
    largest = float(scores.max().max())
    return largest if math.isfinite(largest) else None
