"""The small quadratic problems of `box_qp`: sequential minimal optimisation on a stored matrix, in NumPy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Small", "minimise"]

Array = NDArray[np.float64]
# Curvatures below this share of the largest diagonal entry count as this share, as for a matrix that is not quite positive semidefinite.
_LEAST_CURVATURE = 1e-12


class Small(NamedTuple):
    """min z^T A z / 2 + p^T z within lower <= z <= upper, where the entries in `tied` keep their sum."""

    A: Array  # [k, k]
    gradient: Array  # [k], A z + p at the start
    z: Array
    lower: Array
    upper: Array
    tied: NDArray[np.bool_]


class _Step(NamedTuple):
    """Moves z_i by the sign times a length, and for a pair (j >= 0) takes it from z_j; `limit` is how long the step may be."""

    i: int
    j: int
    sign: float
    slope: float
    curvature: float
    limit: float


def minimise(problem: Small, tol: float, max_steps: int) -> tuple[Array, bool]:
    """The minimum to within a violation of tol, and whether the objective falls without limit.

    Each step moves the pair, or the entry, for which second-order information promises the largest decrease (Fan, Chen and Lin 2005).
    """
    z, gradient = problem.z.copy(), problem.gradient.copy()
    diagonal = np.ascontiguousarray(problem.A.diagonal())
    least = _LEAST_CURVATURE * (float(diagonal.max(initial=0.0)) or 1.0)
    for _ in range(max_steps):
        pair = _best_pair(problem, z, gradient, diagonal, least, tol)
        single = _best_single(problem, z, gradient, diagonal, least, tol)
        candidates = [step for step in (pair, single) if step is not None]
        if not candidates:
            break
        step = max(candidates, key=lambda step: step.slope**2 / step.curvature)
        if step.curvature <= least and np.isinf(step.limit):
            return z, True
        length = min(step.slope / step.curvature, step.limit)
        z[step.i] = _moved(z[step.i], step.sign * length, problem.lower[step.i], problem.upper[step.i])
        direction = step.sign * problem.A[step.i]
        if step.j >= 0:
            z[step.j] = _moved(z[step.j], -length, problem.lower[step.j], problem.upper[step.j])
            direction = direction - problem.A[step.j]
        gradient += length * direction
    return z, False


def _best_pair(problem: Small, z: Array, gradient: Array, diagonal: Array, least: float, tol: float) -> _Step | None:
    """The best step along e_i - e_j among tied entries; None if no violation is above tol."""
    score = np.where(problem.tied & (z < problem.upper), -gradient, -np.inf)
    i = int(score.argmax())
    if score[i] == -np.inf:
        return None
    slope = np.where(problem.tied & (z > problem.lower), gradient + score[i], -np.inf)
    if not slope.max() > tol:
        return None
    curvature = np.maximum(diagonal[i] + diagonal - 2 * problem.A[i], least)
    j = int(np.where(slope > 0, slope * slope / curvature, -np.inf).argmax())
    limit = min(problem.upper[i] - z[i], z[j] - problem.lower[j])
    return _Step(i, j, 1.0, float(slope[j]), float(curvature[j]), float(limit))


def _best_single(problem: Small, z: Array, gradient: Array, diagonal: Array, least: float, tol: float) -> _Step | None:
    """The best step of one entry that is not tied; None if no violation is above tol."""
    if problem.tied.all():
        return None
    slope = np.where(gradient < 0, np.where(z < problem.upper, -gradient, 0.0), np.where(z > problem.lower, gradient, 0.0))
    slope = np.where(problem.tied, 0.0, slope)
    if not slope.max() > tol:
        return None
    curvature = np.maximum(diagonal, least)
    i = int((slope * slope / curvature).argmax())
    upwards = bool(gradient[i] < 0)
    limit = problem.upper[i] - z[i] if upwards else z[i] - problem.lower[i]
    return _Step(i, -1, 1.0 if upwards else -1.0, float(slope[i]), float(curvature[i]), float(limit))


def _moved(value: float, change: float, lower: float, upper: float) -> float:
    """The value after a change; on a bound exactly where it comes within rounding of one."""
    target = value + change
    rounding = 4 * np.finfo(np.float64).eps * max(abs(value), abs(change))
    if target >= upper - rounding:
        return upper
    return lower if target <= lower + rounding else target
