"""Quadratic problems in a box with one equality: `box_qp`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchpairwise._checks import as_number, describe
from torchpairwise.optimize._rows import Operator, as_operator
from torchpairwise.optimize._untraced import untraced
from torchpairwise.optimize._working_set import Small, minimise
from torchpairwise.optimize.results import BoxQPResult, Status, raise_unless_converged

__all__ = ["box_qp"]

# Entries that are optimised at a time: enough that few rounds are needed, small enough that their rows [256, N] take little memory.
_WORKING_SET = 256
# A small problem is solved until its violation is this share of that of the whole, in at most so many steps for each of its entries.
_INNER_SHARE, _INNER_STEPS = 0.1, 100
# Rounds without a smaller violation after which rounding is to blame.
_STAGNATION_ROUNDS = 100


@untraced
def box_qp(
    Q: Any,  # [N, N]
    q: Tensor,  # [N]
    *,
    lower: float | Tensor = float("-inf"),
    upper: float | Tensor = float("inf"),
    equality: tuple[Tensor, float] | None = None,
    tol: float = 1e-3,
    max_iter: int = 2000,
    x0: Tensor | None = None,
    raise_on_failure: bool = False,
    callback: Callable[[int, float], object] | None = None,
) -> BoxQPResult:
    """Minimises ``x^T Q x / 2 + q^T x`` subject to ``lower <= x <= upper`` and, if given, ``vector @ x == number``.

    Arguments:
        Q: symmetric, positive semidefinite [N, N]: a lazy expression such as ``tp.lazy(X, metric="rbf")``, a tensor, or an object with
            `shape`, `dtype`, `device`, `rows(indices)` and `matmul(vector)`.
        q: [N], of the dtype of Q.
        lower, upper: bounds, numbers or tensors [N]; infinite by default.
        equality: (vector [N], number).
        tol: converged when `gap` is at most this, in units of the gradient ``Q x + q`` (divided by the entries of the vector).
        max_iter: rounds, each of which solves for up to 256 entries.
        x0: where to start, such as the solution for other bounds; it is moved to the nearest point of the box, and to the equality.
        raise_on_failure: raise instead of returning a result that did not converge.
        callback: called with the round and the gap.

    Returns:
        A `BoxQPResult`. Check `converged` before using it. There are no gradients.

    Raises:
        ValueError: sizes that do not fit, NaN, a lower bound above an upper one, an equality that no point of the box satisfies.
        TypeError: a matrix or a vector of another type or dtype.
        ConvergenceError: not converged, with `raise_on_failure=True`.

    Notes:
        Each round takes the entries that violate the optimality conditions most, solves for them by sequential minimal optimisation with
        second-order selection (Fan, Chen and Lin 2005), and streams their rows of Q once to update the gradient. Half of the entries stay
        for the next round, with their rows: memory is two blocks [256, N] and a few vectors. At the end the gradient is computed anew, so
        that the gap is that of the solution. For a vector of +1 and -1 the gap is that of LIBSVM.

    Example:
        >>> import torch, torchpairwise as tp
        >>> X, y = torch.tensor([[0.0], [1.0], [2.0], [3.0]]), torch.tensor([-1.0, -1.0, 1.0, 1.0])
        >>> Q = tp.lazy(X, metric="linear").weight_rows(y).weight_columns(y)
        >>> dual = tp.optimize.box_qp(Q, -torch.ones(4), lower=0.0, upper=10.0, equality=(y, 0.0))
        >>> bool(dual.converged), dual.solution, dual.objective, dual.multiplier
        (True, tensor([0., 2., 2., 0.]), tensor(-2.), tensor(-3.))
    """
    operator = as_operator(Q)
    scaled = _bind(operator, q, lower, upper, equality)
    if not as_number(tol, "tol") >= 0:
        raise ValueError(f"tol={tol}; expected a number >= 0")
    if isinstance(max_iter, bool) or not isinstance(max_iter, int) or max_iter < 0:
        raise ValueError(f"max_iter={max_iter!r}; expected an integer >= 0")
    with torch.no_grad():
        result = _Solver(scaled, _start(scaled, x0)).solve(tol, max_iter, callback)
    if raise_on_failure:
        raise_unless_converged("box_qp", result.status, float(result.gap), tol, result.iterations)
    return result


class _Scaled(NamedTuple):
    """The problem in z = scale x, in float64, where scale is the vector of the equality: tied entries keep the sum `number`."""

    operator: Operator
    q: Tensor
    lower: Tensor
    upper: Tensor
    scale: Tensor
    tied: Tensor
    number: float


def _bind(operator: Operator, q: Any, lower: Any, upper: Any, equality: Any) -> _Scaled:
    n = operator.shape[0]
    q = _vector(q, "q", n, operator)
    low, high = _bound(lower, "lower", n, operator), _bound(upper, "upper", n, operator)
    if bool((low > high).any()):
        place = int((low > high).nonzero()[0])
        raise ValueError(f"lower[{place}] is {float(low[place])}, above upper[{place}] = {float(high[place])}")
    vector, number = torch.zeros_like(q), 0.0
    if equality is not None:
        if not isinstance(equality, (tuple, list)) or len(equality) != 2:
            raise TypeError(f"equality is {describe(equality)}; expected (vector, number)")
        vector, number = _vector(equality[0], "equality[0]", n, operator), as_number(equality[1], "equality[1]")
    tied = vector != 0
    scale = torch.where(tied, vector, 1.0)
    first, second = low * scale, high * scale
    return _Scaled(operator, q / scale, torch.minimum(first, second), torch.maximum(first, second), scale, tied, number)


def _vector(value: Any, name: str, size: int, operator: Operator) -> Tensor:
    if not isinstance(value, Tensor) or value.shape != (size,):
        raise ValueError(f"{name} is {describe(value)}; expected a tensor [{size}] for Q {list(operator.shape)}")
    if value.device != operator.device:
        raise ValueError(f"{name} is on {value.device}, but Q is on {operator.device}; move one of them")
    if not bool(value.isfinite().all()):
        raise ValueError(f"{name} has entries that are not finite")
    return value.detach().double()


def _bound(value: Any, name: str, size: int, operator: Operator) -> Tensor:
    if isinstance(value, Tensor) and value.dim() == 1 and value.shape[0] == size:
        bound = value.detach().to(operator.device, torch.float64)
    elif isinstance(value, Tensor) and value.dim() > 0:
        raise ValueError(f"{name} has shape {list(value.shape)}; expected a number or a tensor [{size}]")
    else:
        bound = torch.full((size,), float(value), dtype=torch.float64, device=operator.device)
    if bool(bound.isnan().any()) or bool((bound == (torch.inf if name == "lower" else -torch.inf)).any()):
        raise ValueError(f"{name} has entries that are NaN or leave no number; expected numbers or an infinity on the open side")
    return bound


def _start(problem: _Scaled, x0: Any) -> Tensor:
    """A point of the box that satisfies the equality: x0, or 0, with as few entries changed as it takes."""
    n = problem.q.shape[0]
    z = torch.zeros_like(problem.q) if x0 is None else _vector(x0, "x0", n, problem.operator) * problem.scale
    z = torch.minimum(torch.maximum(z, problem.lower), problem.upper)
    if not bool(problem.tied.any()):
        if problem.number != 0:
            raise ValueError(f"equality[0] is all 0 and equality[1] is {problem.number}; no x satisfies that")
        return z
    missing = problem.number - float(z[problem.tied].sum())
    room = torch.where(problem.tied, problem.upper - z if missing > 0 else z - problem.lower, 0.0).clamp(max=abs(missing))
    taken = (abs(missing) - (room.cumsum(0) - room)).clamp(min=0.0).minimum(room)
    if float(taken.sum()) < abs(missing) * (1 - 1e-9):
        reached = float(z[problem.tied].sum()) + (float(taken.sum()) if missing > 0 else -float(taken.sum()))
        raise ValueError(f"no point of the box satisfies the equality: vector @ x comes no nearer to {problem.number:g} than {reached:g}")
    return z + taken if missing > 0 else z - taken


class _Violation(NamedTuple):
    """The gap, and what each entry contributes to it: how much it wants to rise, and to fall (-inf where it cannot)."""

    gap: float
    rise: Tensor
    fall: Tensor


class _Solver:
    """Rounds of working sets. `gradient` is ``A z + p`` of the scaled problem, in float64."""

    def __init__(self, problem: _Scaled, z: Tensor) -> None:
        self.problem, self.z = problem, z
        self.gradient = self._fresh_gradient() if bool((z != 0).any()) else problem.q.clone()
        self.members = torch.zeros(0, dtype=torch.int64, device=z.device)
        self.block = torch.zeros(0, z.shape[0], dtype=problem.operator.dtype, device=z.device)

    def solve(self, tol: float, max_iter: int, callback: Callable[[int, float], object] | None) -> BoxQPResult:
        """Rounds until the gap is within tol."""
        iterations, fresh, best, last_gain = 0, True, float("inf"), 0
        status = Status.MAX_ITER
        while True:
            violation = self._violation()
            if violation.gap <= tol and not fresh:
                self.gradient, fresh = self._fresh_gradient(), True
                violation = self._violation()
            if callback is not None:
                callback(iterations, violation.gap)
            if violation.gap < 0.99 * best:
                best, last_gain = violation.gap, iterations
            if violation.gap <= tol or iterations >= max_iter:
                break
            unbounded, moved = self._round(violation, tol)
            iterations, fresh = iterations + 1, False
            if unbounded or not moved or iterations - last_gain >= _STAGNATION_ROUNDS:
                status = Status.UNBOUNDED if unbounded else Status.STAGNATED
                break
        if not fresh:
            self.gradient = self._fresh_gradient()
        return self._result(tol, status, iterations)

    def _fresh_gradient(self) -> Tensor:
        operator, scale = self.problem.operator, self.problem.scale
        return operator.matmul((self.z / scale).to(operator.dtype)).double() / scale + self.problem.q

    def _violation(self) -> _Violation:
        """Optimal: no tied entry wants to rise more than another wants not to fall; others have no slope into the box."""
        problem = self.problem
        can_rise, can_fall = self.z < problem.upper, self.z > problem.lower
        rise = torch.where(can_rise, -self.gradient, -torch.inf)
        fall = torch.where(can_fall, self.gradient, -torch.inf)
        tied = problem.tied
        gap = 0.0
        if bool(tied.any()):
            gap = max(gap, float(rise[tied].max() + fall[tied].max()))
        if not bool(tied.all()):
            gap = max(gap, float(torch.maximum(rise, fall)[~tied].max()))
        return _Violation(gap, rise, fall)

    def _round(self, violation: _Violation, tol: float) -> tuple[bool, bool]:
        """Solves for one working set; tells whether the objective is unbounded, and whether anything moved."""
        problem, operator = self.problem, self.problem.operator
        self._choose(violation)
        members, block = self.members, self.block
        inverse = 1 / problem.scale
        A = block[:, members].double() * inverse[members] * inverse[members].unsqueeze(-1)
        small = Small(
            (0.5 * (A + A.T)).cpu().numpy(),
            *[vector[members].cpu().numpy() for vector in (self.gradient, self.z, problem.lower, problem.upper, problem.tied)],
        )
        target = max(0.5 * tol, _INNER_SHARE * violation.gap) if len(members) < len(self.z) else 0.5 * tol
        solved, unbounded = minimise(small, target, _INNER_STEPS * len(members))
        change = torch.from_numpy(solved - small.z).to(self.z.device)
        self.z[members] = torch.from_numpy(solved).to(self.z.device)
        weights = (change * inverse[members]).to(operator.dtype)
        self.gradient += (weights @ block).double() * inverse
        return unbounded, bool((change != 0).any())

    def _choose(self, violation: _Violation) -> None:
        """The entries that violate most, rising and falling ones by turns, and half of the former working set."""
        n = len(self.z)
        size = min(n, _WORKING_SET)
        kept = self.members[-(size // 2) :] if n > size else self.members[:0]
        tied = self.problem.tied
        single = torch.maximum(violation.rise, violation.fall)
        orders = [
            torch.where(chosen, score, -torch.inf) for chosen, score in ((tied, violation.rise), (tied, violation.fall), (~tied, single))
        ]
        taken = torch.zeros(n, dtype=torch.bool, device=self.z.device)
        taken[kept] = True
        ranked = torch.stack([order.topk(size).indices for order in orders], -1).flatten()
        scores = torch.stack([order.topk(size).values for order in orders], -1).flatten()
        candidates = dict.fromkeys(ranked[(scores > -torch.inf) & ~taken[ranked]].tolist())
        fresh = torch.tensor(list(candidates)[: size - len(kept)], dtype=torch.int64, device=self.z.device)
        block = self.block[len(self.block) - len(kept) :]
        self.members = torch.cat([kept, fresh])
        self.block = torch.cat([block, self.problem.operator.rows(fresh)]) if len(fresh) else block

    def _result(self, tol: float, status: Status, iterations: int) -> BoxQPResult:
        problem, violation = self.problem, self._violation()
        tied, dtype = problem.tied, problem.operator.dtype
        free = tied & (self.z < problem.upper) & (self.z > problem.lower)
        multiplier = self.z.new_zeros(())
        if bool(free.any()):
            multiplier = -self.gradient[free].mean()
        elif bool(tied.any()):
            ends = torch.stack([violation.rise[tied].max(), -violation.fall[tied].max()])
            multiplier = ends[ends.isfinite()].mean()
        gap = torch.tensor(violation.gap, dtype=torch.float64, device=self.z.device)
        objective = 0.5 * (self.z * (self.gradient + problem.q)).sum()
        first, second = problem.lower / problem.scale, problem.upper / problem.scale
        x = torch.minimum(torch.maximum(self.z / problem.scale, torch.minimum(first, second)), torch.maximum(first, second)) + 0.0  # no -0
        return BoxQPResult(
            x.to(dtype),
            objective.to(dtype),
            gap,
            multiplier.to(dtype),
            gap <= tol,
            Status.CONVERGED if violation.gap <= tol else status,
            iterations,
        )
