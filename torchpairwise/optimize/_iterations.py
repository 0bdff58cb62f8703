"""The loop of Sinkhorn's algorithm: epsilon scaling, over-relaxation with its safeguard, and stopping."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from torchpairwise.optimize._problem import Problem, cost_scale
from torchpairwise.optimize._updates import Alternating, Averaged
from torchpairwise.optimize.results import Status

__all__ = ["Outcome", "Settings", "solve"]

# Iterations over which a rate of convergence is measured, at least; and as a multiple of 1 / (2 - omega), the iterations in which
# over-relaxed errors fall by a constant factor. On 14 problems of 2 to 400 points, half of this took a third more iterations.
_PERIOD, _PERIOD_OF_SLOWNESS = 6, 2
# The distance of omega from 2 shrinks at most by this factor in a period, since a rate says more about the present omega than about others.
_APPROACH = 0.5
# The largest over-relaxation: with omega the error cannot fall faster than omega - 1 an iteration.
_LARGEST_OMEGA = 1.99
_LARGEST_RATE = 1 - 1e-6
# Each epsilon on the way takes iterations until the error is this small, but not more than so many: one each leaves potentials that small
# epsilons mend slowly (2083 iterations in place of 1505 on the same problems).
_LEVEL_ERROR, _LEVEL_ITERATIONS = 0.03, 6
# Stagnation: in so many iterations the error has not fallen by this share, and potentials have not moved by more than rounding (in units of
# the dtype's resolution). With a small epsilon the error may stay the same for long while potentials travel; where rounding of potentials
# alone is an error of so many times tol, they only tremble.
_STAGNATION_COUNT, _STAGNATION_SHARE, _STAGNATION_MOVE, _HOPELESS = 200, 0.95, 64, 10


class Settings(NamedTuple):
    """What the caller chose."""

    epsilon: float
    tol: float
    max_iter: int
    scaling: float | None
    callback: Callable[[int, float], object] | None


class Outcome(NamedTuple):
    """Potentials, the shift of partial problems [*batch, 1], the measured error [*batch], how it ended, and the iterations."""

    f: Tensor
    g: Tensor
    shift: Tensor
    error: Tensor
    status: Status
    iterations: int


class Relaxation:
    """Chooses omega for each problem of a batch from the measured rate of convergence.

    Near the solution the iteration is block Gauss-Seidel with rate r, and over-relaxed by omega its rate s satisfies
    (s + omega - 1)^2 = s omega^2 r (Young 1954). So r follows from the measured s, and the best omega is 2 / (1 + sqrt(1 - r)).
    Over-relaxed steps are long, and so is the error after them, which measures a step. Each period of them therefore ends with a plain
    iteration, and rates compare the errors after those. Where that error grows, omega is lowered, and with it its limit.
    """

    def __init__(self, like: Tensor) -> None:
        self._chosen = torch.ones_like(like)
        self._limit = torch.full_like(like, _LARGEST_OMEGA)
        self._start = torch.full_like(like, torch.inf)  # the error when the period began
        self._count, self._period = 0, _PERIOD
        self.omega = self._chosen

    def observe(self, error: Tensor) -> None:
        """Takes the error [*batch] after an iteration, and sets omega for the next one."""
        self._count += 1
        self.omega = torch.ones_like(error) if self._count == self._period - 1 else self._chosen
        if self._count < self._period:
            return
        rate = (error / self._start).pow(1 / self._period).nan_to_num(0.0, 0.0, 0.0)
        grown = (rate > 1) & (self._chosen > 1)
        self._limit = torch.where(grown, 1 + 0.9 * (self._chosen - 1), self._limit)
        rate = rate.clamp(max=_LARGEST_RATE)
        excess = self._chosen - 1
        plain = ((rate + excess).square() / (rate * self._chosen.square()).clamp(min=1e-12)).clamp(max=_LARGEST_RATE)
        best = torch.minimum(2 / (1 + (1 - plain).sqrt()), torch.minimum(self._limit, 2 - _APPROACH * (2 - self._chosen)))
        # A rate at or below omega - 1 says that omega is past its best.
        chosen = torch.where(rate > 1.02 * excess, torch.maximum(best, self._chosen), 1 + 0.97 * excess)
        self._chosen = torch.where(grown, self._limit, chosen)
        slowness = float((1 / (2 - self._chosen)).max()) if error.numel() else 1.0
        self._start, self._count, self._period = error.clone(), 0, max(_PERIOD, int(_PERIOD_OF_SLOWNESS * slowness))
        self.omega = self._chosen


class Progress:
    """Tells whether iterations still change anything."""

    def __init__(self, settings: Settings, error: Tensor, potentials: tuple[Tensor, ...], iteration: int) -> None:
        self._settings = settings
        self._error, self._potentials, self._iteration = error, potentials, iteration

    def ended(self, error: Tensor, potentials: tuple[Tensor, ...], iteration: int) -> bool:
        """True if neither the errors nor the potentials have changed since long ago."""
        fallen = bool((error < _STAGNATION_SHARE * self._error).any())
        if not fallen and iteration - self._iteration < _STAGNATION_COUNT:
            return False
        if not fallen and not self._moved(potentials):
            return True
        self._error, self._potentials, self._iteration = torch.minimum(error, self._error), potentials, iteration
        return False

    def _moved(self, potentials: tuple[Tensor, ...]) -> bool:
        rounding = torch.finfo(potentials[0].dtype).eps * max(float(part.abs().amax()) for part in potentials)
        if rounding / self._settings.epsilon > _HOPELESS * self._settings.tol > 0:
            return False
        moved = max(float((new - old).abs().amax()) for new, old in zip(potentials, self._potentials, strict=True))
        return moved > _STAGNATION_MOVE * rounding


def solve(problem: Problem, settings: Settings, start: tuple[Tensor, Tensor] | None, symmetric: bool = False) -> Outcome:
    """Potentials of the rows and of the columns; those of a symmetric problem (equal points and weights) are equal."""
    state: Alternating | Averaged = Averaged(problem) if symmetric else Alternating(problem, start)
    levels = [] if start is not None or settings.scaling is None else _levels(problem, settings.epsilon, settings.scaling)
    iterations = 0
    for level in levels:
        if iterations >= settings.max_iter - 1:
            break
        state.prepare(level)
        for _ in range(_LEVEL_ITERATIONS):
            state.update(None)
            iterations += 1
            if iterations >= settings.max_iter - 1 or float(state.measure().max()) <= _LEVEL_ERROR:
                break
    state.prepare(settings.epsilon)
    return _iterate(state, settings, iterations)


def _levels(problem: Problem, epsilon: float, scaling: float) -> list[float]:
    """Epsilons from the scale of the costs down to the one asked for, which is left out."""
    scale = cost_scale(problem.scores)
    levels = []
    while scale is not None and scale > epsilon:
        levels.append(scale)
        scale *= scaling
    return levels


def _iterate(state: Alternating | Averaged, settings: Settings, iterations: int) -> Outcome:
    """Iterates until every error of the batch is within tol; returns the best potentials."""
    best = state.measure()
    kept = [part.clone() for part in state.potentials]
    error, relaxation, progress = best, Relaxation(best), Progress(settings, best, state.potentials, iterations)
    while True:
        worst = float(best.max()) if best.numel() else 0.0
        if settings.callback is not None:
            settings.callback(iterations, worst)
        stuck = progress.ended(error, state.potentials, iterations)
        if worst <= settings.tol or iterations >= settings.max_iter or stuck or state.blocked:
            break
        relaxation.observe(error)
        state.update(relaxation.omega)
        iterations += 1
        error = state.measure()
        better = error < best
        kept = [torch.where(better.unsqueeze(-1), new, old) for new, old in zip(state.potentials, kept, strict=True)]
        best = torch.where(better, error, best)
    status = Status.CONVERGED
    if not worst <= settings.tol:
        status = Status.INFEASIBLE if state.blocked else Status.STAGNATED if stuck else Status.MAX_ITER
    return Outcome(kept[0], kept[1], kept[2], best, status, iterations)
