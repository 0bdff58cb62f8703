"""The updates of Sinkhorn's algorithm in the log domain; each takes one streamed pass over the pairs.

    raw_f_i = -epsilon logsumexp_j((g_j - C_ij) / epsilon + log b_j)

is the potential that makes the mass of row i exact; rules of marginals and over-relaxation make the update of it:

    f <- clamp(f + omega (factor raw_f - f), low, high)

With omega = 1 these are Sinkhorn's iterations (Cuturi 2013; unbalanced: Chizat et al. 2018, Sejourne et al. 2019; partial: block ascent in
the dual of the problem of Benamou et al. 2015, section 5, where a potential and the multiplier of the mass, `shift`, are chosen together);
omega > 1 over-relaxes them (Thibault et al. 2021, Lehmann et al. 2022).
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchpairwise.optimize._problem import Problem, Side

__all__ = ["Alternating", "Averaged"]


class Half:
    """One side of a problem: what a pass over the pairs says about its potential."""

    def __init__(self, problem: Problem, index: int) -> None:
        self.weights = problem.a if index == 0 else problem.b
        self.keep = problem.keep_a if index == 0 else problem.keep_b
        self.total = self.weights.sum(-1)
        self.exact = problem.marginals.exact(index)
        self.marginals, self.index = problem.marginals, index
        self.side = Side()
        self.epsilon = 1.0
        self.blocked = False

    def prepare(self, epsilon: float) -> None:
        """Takes the epsilon of the next passes."""
        self.epsilon, self.side = epsilon, self.marginals.side(self.index, epsilon)

    def read(self, logsumexp: Tensor) -> Tensor:
        """The result of a pass, -inf at points of weight 0 and at points without an allowed pair.

        Raises:
            ValueError: a cost is NaN or -inf.
        """
        if bool((logsumexp.isnan() | (logsumexp == torch.inf)).any()):
            raise ValueError("a cost is NaN or -inf; costs have to be numbers, or inf for a forbidden pair")
        none = logsumexp == -torch.inf
        self.blocked = self.blocked or (self.exact and bool((none if self.keep is None else none & self.keep).any()))
        return logsumexp

    def relaxed(self, potential: Tensor, logsumexp: Tensor, shift: Tensor, omega: Tensor | None) -> Tensor:
        """The next potential; 0 where there is no pair."""
        aim = self.side.factor * (-self.epsilon * logsumexp - shift)
        if omega is not None:
            aim = potential + omega.unsqueeze(-1) * (aim - potential)
        return torch.where(logsumexp == -torch.inf, 0.0, aim.clamp(self.side.low, self.side.high))

    def shift(self, logsumexp: Tensor) -> Tensor:
        """The multiplier of the mass m [*batch, 1] that makes the masses min(w, w exp(shift / epsilon + logsumexp)) add up to m.

        With the k points of the largest logsumexp at their weights, exp(shift / epsilon) = (m - their weights) / (masses of the others).
        """
        log_mass, order = logsumexp.sort(dim=-1, descending=True)
        weights = self.weights.expand_as(logsumexp).gather(-1, order)
        full = weights.cumsum(-1) - weights
        others = torch.logcumsumexp((log_mass + weights.log()).flip(-1), -1).flip(-1)
        left = self.marginals.mass - full  # type: ignore[operator]
        candidates = torch.where(left > 0, left.log() - others, -torch.inf)
        # Point k is the first that is not full: its mass stays below its weight.
        below = (candidates + log_mass <= 0) & (left > 0) & (log_mass > -torch.inf)
        first = torch.where(below.any(-1, keepdim=True), below.int().argmax(-1, keepdim=True), -1)
        smallest = torch.where(log_mass > -torch.inf, log_mass, torch.inf).amin(-1, keepdim=True)
        return self.epsilon * torch.where(first >= 0, candidates.gather(-1, first.clamp(min=0)), -smallest)

    def masses(self, potential: Tensor, logsumexp: Tensor, shift: Tensor) -> Tensor:
        """The masses of the coupling."""
        return self.weights * torch.exp((potential + shift) / self.epsilon + logsumexp)

    def error(self, potential: Tensor, logsumexp: Tensor, shift: Tensor) -> Tensor:
        """How far the masses are from those of the update, as a share of the whole [*batch]."""
        aim = self.weights
        if not self.exact:
            aim = self.masses(self.relaxed(potential, logsumexp, shift, None), logsumexp, shift)
        return (self.masses(potential, logsumexp, shift) - aim).abs().sum(-1) / self.total


class Alternating:
    """Updates g from f and then f from g. `update` may be called after `measure`."""

    def __init__(self, problem: Problem, start: tuple[Tensor, Tensor] | None) -> None:
        self.problem = problem
        self.rows, self.columns = Half(problem, 0), Half(problem, 1)
        self.column_pass: Tensor | None = None
        f, g = problem.start() if start is None else start
        self.shift = torch.zeros_like(f[..., :1])
        if start is not None and problem.marginals.mass is not None:
            self.shift = f.amax(-1, keepdim=True)
            f = f - self.shift
        self.f, self.g = f, g
        self.row_error: Tensor | None = None

    @property
    def potentials(self) -> tuple[Tensor, Tensor, Tensor]:
        """f, g and the shift."""
        return self.f, self.g, self.shift

    @property
    def blocked(self) -> bool:
        """Whether a point that has to send or receive mass has no allowed pair."""
        return self.rows.blocked or self.columns.blocked

    def prepare(self, epsilon: float) -> None:
        """Takes the epsilon of the next passes."""
        self.epsilon = epsilon
        self.exponents = self.problem.exponents(epsilon)
        self.rows.prepare(epsilon)
        self.columns.prepare(epsilon)
        self.row_error, self.column_pass = None, None

    def measure(self) -> Tensor:
        """The error of the potentials, rows, columns and mass [*batch]; after an update it takes one pass, which the next update uses."""
        if self.row_error is None:
            self.row_error = self.rows.error(self.f, self._row_pass(), self.shift)
        self.column_pass = self._column_pass()
        error = self.row_error + self.columns.error(self.g, self.column_pass, self.shift)
        mass = self.problem.marginals.mass
        if mass is not None:
            error = error + (self.columns.masses(self.g, self.column_pass, self.shift).sum(-1) - mass).abs() / self.rows.total
        return error

    def update(self, omega: Tensor | None) -> None:
        """One iteration."""
        column_pass = self._column_pass() if self.column_pass is None else self.column_pass
        partial = self.problem.marginals.mass is not None
        self.shift = self.columns.shift(column_pass) if partial else self.shift
        self.g = self.columns.relaxed(self.g, column_pass, self.shift, omega)
        row_pass = self._row_pass()
        self.shift = self.rows.shift(row_pass) if partial else self.shift
        self.f = self.rows.relaxed(self.f, row_pass, self.shift, omega)
        self.row_error, self.column_pass = self.rows.error(self.f, row_pass, self.shift), None

    def _column_pass(self) -> Tensor:
        return self.columns.read(self.exponents.add_rows(self.f / self.epsilon + self.problem.log_a).logsumexp(-2))

    def _row_pass(self) -> Tensor:
        return self.rows.read(self.exponents.add_columns(self.g / self.epsilon + self.problem.log_b).logsumexp(-1))


class Averaged:
    """Updates f = g of a problem between equal points and weights to the mean of itself and its update (Feydy et al. 2019)."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.rows = Half(problem, 0)
        self.f = problem.start()[0]
        self.shift = torch.zeros_like(self.f[..., :1])

    @property
    def potentials(self) -> tuple[Tensor, Tensor, Tensor]:
        """f, g = f and the shift 0."""
        return self.f, self.f, self.shift

    @property
    def blocked(self) -> bool:
        """Whether a point that has to send mass has no allowed pair."""
        return self.rows.blocked

    def prepare(self, epsilon: float) -> None:
        """Takes the epsilon of the next passes."""
        self.epsilon = epsilon
        self.exponents = self.problem.exponents(epsilon)
        self.rows.prepare(epsilon)
        self.row_pass: Tensor | None = None

    def measure(self) -> Tensor:
        """The error of the potential, rows and columns [*batch], by a pass that the next update uses."""
        self.row_pass = self._row_pass()
        return 2 * self.rows.error(self.f, self.row_pass, self.shift)

    def update(self, omega: Tensor | None) -> None:
        """One iteration; an average needs no over-relaxation."""
        row_pass = self._row_pass() if self.row_pass is None else self.row_pass
        self.f = 0.5 * (self.f + self.rows.relaxed(self.f, row_pass, self.shift, None))
        self.row_pass = None

    def _row_pass(self) -> Tensor:
        return self.rows.read(self.exponents.add_columns(self.f / self.epsilon + self.problem.log_b).logsumexp(-1))
