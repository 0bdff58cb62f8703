"""What "equal" means in tests. `test_comparators.py` gives them wrong answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def error_in(got: Any, exact: np.ndarray, scale: Any) -> float:
    """The largest error in multiples of `scale`; infinite where NaN or an infinity stands in the wrong place."""
    value = got.detach().double().numpy() if isinstance(got, torch.Tensor) else np.asarray(got, np.float64)
    if value.shape != exact.shape:
        raise AssertionError(f"shape {value.shape}, expected {exact.shape}")
    special = ~np.isfinite(exact) | ~np.isfinite(value)
    wrong = special & ~((value == exact) | (np.isnan(value) & np.isnan(exact)))
    if wrong.any():
        return np.inf
    with np.errstate(invalid="ignore"):
        error = np.where(special, 0.0, np.abs(value - exact)) / np.broadcast_to(scale, exact.shape)
    return float(np.where(np.isnan(error), 0.0, error).max(initial=0.0))


def allowed_error(plain: Any, exact: np.ndarray, scale: Any, factor: float, dtype: torch.dtype) -> float:
    """`factor` times the error of plain torch, which counts as one rounding at least."""
    error = error_in(plain, exact, scale)
    return factor * ((error if np.isfinite(error) else 0.0) + torch.finfo(dtype).eps)


def check_budget(got: torch.Tensor, exact: np.ndarray, plain: Any, scale: Any, factor: float, label: str = "") -> None:
    """`got` is as near to `exact` as `factor` times the error of `plain` in the same dtype; `scale` is the size of what was added up."""
    allowed = allowed_error(plain, exact, scale, factor, got.dtype)
    error = error_in(got, exact, scale)
    assert error <= allowed, f"{label}: error {error:.3g} of the scale, allowed {allowed:.3g}"


def check_order(
    values: torch.Tensor, indices: torch.Tensor, exact: np.ndarray, keep: np.ndarray, largest: bool, tolerance: float, label: str = ""
) -> None:
    """A selection [..., k] of the scores [..., M] that may be wrong only where scores are closer than `tolerance`.

    Indices are valid and different, belong to the values, come best first and by the lower index among equal values; no score that was
    left out is better than one that was taken.
    """
    chosen, index = values.detach().double().numpy(), indices.numpy()
    assert index.dtype == np.int64 and index.shape == chosen.shape, label
    if index.size == 0:
        return
    size = exact.shape[-1]
    assert ((index >= 0) & (index < size)).all(), f"{label}: index out of range"
    assert (np.diff(np.sort(index, -1), axis=-1) > 0).all(), f"{label}: an index stands twice"
    sign = -1.0 if largest else 1.0
    key = np.where(keep, sign * exact, np.inf)
    taken, given = np.take_along_axis(key, index, -1), sign * chosen
    assert error_in(given, taken, 1.0) <= tolerance, f"{label}: values do not belong to the indices"
    with np.errstate(invalid="ignore"):
        step = np.diff(given, axis=-1)
        ordered = (step > 0) | np.isnan(given[..., 1:]) | ((given[..., 1:] == given[..., :-1]) & (np.diff(index, axis=-1) > 0))
    assert ordered.all(), f"{label}: not best first, or not the lower index among equals"
    left = key.copy()
    np.put_along_axis(left, index, np.inf, -1)
    worst = np.where(np.isnan(taken[..., -1]), np.inf, taken[..., -1])
    best_left = np.where(np.isnan(left), np.inf, left).min(-1)
    with np.errstate(invalid="ignore"):
        assert ((best_left >= worst - 2 * tolerance) | (best_left == worst)).all(), f"{label}: a better score was left out"


def check_equal(got: torch.Tensor, wanted: torch.Tensor, label: str = "") -> None:
    """The same shape, dtype and numbers; NaN equals NaN."""
    torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True, msg=lambda message: f"{label}: {message}")
