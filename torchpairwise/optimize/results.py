"""What the solvers return: records with a status that carries advice."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["BoxQPResult", "ConvergenceError", "DivergenceResult", "Potentials", "SinkhornResult", "Status"]


class Status(str, Enum):
    """How a solver ended; `advice` says what to do about it.

    Example:
        >>> from torchpairwise.optimize import Status
        >>> Status.CONVERGED == "converged"
        True
    """

    CONVERGED = "converged"
    MAX_ITER = "max_iter"
    STAGNATED = "stagnated"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"

    @property
    def advice(self) -> str:
        """What to do."""
        return _ADVICE[self.value]

    def __str__(self) -> str:
        return str(self.value)


_ADVICE = {
    "converged": "the measured error is within tol",
    "max_iter": "the error was still falling at max_iter; raise max_iter, start from an earlier answer (x0=), or ask for less (a larger "
    "tol; for transport a larger epsilon)",
    "stagnated": "the error stopped falling above tol, near what the dtype can resolve; use float64, a larger tol, or scale the problem "
    "(for transport a larger epsilon, for a box problem smaller features)",
    "infeasible": "nothing satisfies the constraints: forbidden pairs (infinite cost) leave mass nowhere to go; allow more of them, or "
    'let mass stay behind with marginal="kl", "tv" or "partial"',
    "unbounded": "the objective falls without limit inside the box; give finite bounds (for a support vector machine a finite C: "
    "the classes cannot be separated)",
}


class ConvergenceError(RuntimeError):
    """A solver did not converge, and was asked to raise (`raise_on_failure=True`)."""


def raise_unless_converged(name: str, status: Status, error: float, tol: float, iterations: int) -> None:
    """Raises `ConvergenceError` for every status but converged."""
    if status is not Status.CONVERGED:
        raise ConvergenceError(
            f"{name} ended with status {status} after {iterations} iterations, error {error:.3g}, tol {tol:.3g}: {status.advice}"
        )


class Potentials(NamedTuple):
    """Dual potentials of a transport problem: `f` [*batch, N] of the rows and `g` [*batch, M] of the columns, in units of cost."""

    f: Tensor
    g: Tensor


@dataclass(frozen=True, repr=False)
class SinkhornResult:
    """The answer of `sinkhorn`.

    Arguments:
        potentials: (f [*batch, N], g [*batch, M]) in units of cost; 0 for points of weight 0.
        cost: the optimum of the regularised problem [*batch], with gradients to cost, points, weights and epsilon.
        coupling: the transport plan as a lazy expression [*batch, N, M]: ``a_i b_j exp((f_i + g_j - C_ij) / epsilon)``. ``coupling @ V``,
            ``coupling.topk(k)``, ``coupling.sum(-1)`` stream it.
        marginal_error: mass by which the coupling misses its marginals, rows plus columns, as a share of the whole [*batch].
        converged: bool [*batch], exactly ``marginal_error <= tol``.
        status: a `Status`, the worst one of a batch; `status.advice` says what to do.
        iterations: how often both potentials were updated.
        scores, weights, epsilon: the problem; without gradients, unless it was solved with `differentiable=True`.
    """

    potentials: Potentials
    cost: Tensor
    coupling: Any
    marginal_error: Tensor
    converged: Tensor
    status: Status
    iterations: int
    scores: Any
    weights: tuple[Tensor, Tensor]
    epsilon: float | Tensor

    @property
    def solution(self) -> Any:
        """The coupling, under the name that all solvers share."""
        return self.coupling

    @property
    def residual_norm(self) -> Tensor:
        """The marginal error, under the name that all solvers share."""
        return self.marginal_error

    @property
    def transport_cost(self) -> Tensor:
        """``sum_ij P_ij C_ij`` of the coupling P, without the entropic term [*batch]; one more pass over the pairs."""
        largest = torch.finfo(self.scores.dtype).max
        return (self.coupling * self.scores.minimum(largest)).sum((-2, -1))

    @property
    def entropy(self) -> Tensor:
        """``-sum_ij P_ij log P_ij`` of the coupling P [*batch]; one more pass over the pairs."""
        f, g = self.potentials
        a, b = self.weights
        rows, columns = self.coupling.sum(-1), self.coupling.sum(-2)
        linear = (rows * (f / self.epsilon + _log(a))).sum(-1) + (columns * (g / self.epsilon + _log(b))).sum(-1)
        return self.transport_cost / self.epsilon - linear

    def __repr__(self) -> str:
        shape, error = list(self.coupling.shape), _largest(self.marginal_error)
        return f"SinkhornResult({shape}, status={self.status}, iterations={self.iterations}, marginal_error={error:.3g})"


@dataclass(frozen=True)
class DivergenceResult:
    """The answer of `sinkhorn_divergence` with `return_result=True`.

    Arguments:
        divergence: [*batch], with gradients.
        xy, xx, yy: the three problems, each a `SinkhornResult`.
    """

    divergence: Tensor
    xy: SinkhornResult
    xx: SinkhornResult
    yy: SinkhornResult

    @property
    def solution(self) -> Tensor:
        """The divergence, under the name that all solvers share."""
        return self.divergence

    @property
    def converged(self) -> Tensor:
        """Whether all three problems converged, bool [*batch]."""
        return self.xy.converged & self.xx.converged & self.yy.converged

    @property
    def status(self) -> Status:
        """The worst status of the three."""
        return max((part.status for part in self._parts), key=list(Status).index)

    @property
    def iterations(self) -> int:
        """Iterations of the three problems together."""
        return sum(part.iterations for part in self._parts)

    @property
    def marginal_error(self) -> Tensor:
        """The largest of the three [*batch]."""
        return torch.maximum(self.xy.marginal_error, torch.maximum(self.xx.marginal_error, self.yy.marginal_error))

    @property
    def residual_norm(self) -> Tensor:
        """The marginal error, under the name that all solvers share."""
        return self.marginal_error

    @property
    def _parts(self) -> tuple[SinkhornResult, SinkhornResult, SinkhornResult]:
        return self.xy, self.xx, self.yy


@dataclass(frozen=True)
class BoxQPResult:
    """The answer of `box_qp`.

    Arguments:
        solution: x [N], within the box exactly.
        objective: ``x^T Q x / 2 + q^T x``, 0-dim.
        gap: the largest violation of the optimality conditions, measured at the solution, 0-dim.
        multiplier: the multiplier t of the equality, 0-dim: ``(Q x + q + t v)_i = 0`` where x_i is inside of its bounds.
        converged: bool, exactly ``gap <= tol``.
        status: a `Status`; `status.advice` says what to do.
        iterations: working sets that were solved.
    """

    solution: Tensor
    objective: Tensor
    gap: Tensor
    multiplier: Tensor
    converged: Tensor
    status: Status
    iterations: int

    @property
    def residual_norm(self) -> Tensor:
        """The gap, under the name that all solvers share."""
        return self.gap


def _log(weights: Tensor) -> Tensor:
    """The logarithm, 0 for the weight 0."""
    return torch.where(weights > 0, weights, 1.0).log()


def _largest(values: Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0
