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
# An error that does not fall by this share in so many iterations will not fall any more.
_STAGNATION_SHARE, _STAGNATION_COUNT = 0.95, 200


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


def solve(problem: Problem, settings: Settings, start: tuple[Tensor, Tensor] | None, symmetric: bool = False) -> Outcome:
    """Potentials of the rows and of the columns; those of a symmetric problem (equal points and weights) are equal."""
    state: Alternating | Averaged = Averaged(problem) if symmetric else Alternating(problem, start)
    levels = [] if start is not None or settings.scaling is None else _levels(problem, settings.epsilon, settings.scaling)
    levels = levels[: max(0, settings.max_iter - 1)]
    for level in levels:
        state.prepare(level)
        state.update(None)
    state.prepare(settings.epsilon)
    return _iterate(state, settings, len(levels))


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
    error, reference, last_gain, relaxation = best, best, iterations, Relaxation(best)
    while True:
        worst = float(best.max()) if best.numel() else 0.0
        if settings.callback is not None:
            settings.callback(iterations, worst)
        stuck = iterations - last_gain >= _STAGNATION_COUNT
        if worst <= settings.tol or iterations >= settings.max_iter or stuck:
            break
        relaxation.observe(error)
        state.update(relaxation.omega)
        iterations += 1
        error = state.measure()
        if bool((error < _STAGNATION_SHARE * reference).any()):
            reference, last_gain = torch.minimum(error, reference), iterations
        better = error < best
        kept = [torch.where(better.unsqueeze(-1), new, old) for new, old in zip(state.potentials, kept, strict=True)]
        best = torch.where(better, error, best)
    status = Status.CONVERGED
    if not worst <= settings.tol:
        status = Status.INFEASIBLE if state.blocked else Status.STAGNATED if stuck else Status.MAX_ITER
    return Outcome(kept[0], kept[1], kept[2], best, status, iterations)
