"""The axes that a consumer reduces, and results over both of them made from the results of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

__all__ = ["Dim", "best_row", "one_axis", "reduced_axis", "total_mean"]

Dim: TypeAlias = int | Sequence[int] | None


def one_axis(shape: Sequence[int], dim: Any) -> int:
    """-1 (over the columns) or -2 (over the rows) of a matrix of scores; dims count as in torch."""
    if isinstance(dim, int) and not isinstance(dim, bool):
        axis = dim if dim < 0 else dim - len(shape)
        if axis in (-1, -2):
            return axis
    raise ValueError(f"dim={dim!r}; expected -1 (over columns) or -2 (over rows) of scores {list(shape)}")


def reduced_axis(shape: Sequence[int], dim: Dim) -> int | None:
    """-1, -2, or None for both."""
    if dim is None:
        return None
    if isinstance(dim, int):
        return one_axis(shape, dim)
    if not isinstance(dim, (tuple, list)):
        raise ValueError(f"dim={dim!r}; expected -1, -2 or both as a tuple")
    axes = sorted(one_axis(shape, d) for d in dim)
    if axes == [-2, -1]:
        return None
    if len(axes) == 1:
        return axes[0]
    raise ValueError(f"dim={tuple(dim)}; expected -1, -2 or both of them once")


def total_mean(means: Tensor, counts: Tensor) -> Tensor:
    """The mean of all pairs from means and counts [*batch, N] of rows; rows without a pair take no part."""
    return torch.where(counts > 0, means * counts, 0.0).sum(-1) / counts.sum(-1)


def best_row(values: Tensor, largest: bool) -> Tensor:
    """The index of the row with the best of the rows' best scores [*batch, N], the lowest among equals; NaN ranks last."""
    nan = values.isnan()
    worst = float("-inf") if largest else float("inf")
    ranked = torch.where(nan, worst, values.detach())
    best = ranked.amax(-1, keepdim=True) if largest else ranked.amin(-1, keepdim=True)
    n = values.shape[-1]
    index = torch.arange(n, device=values.device)
    # A number comes before NaN even where it is infinite; NaN comes first only if there is nothing else.
    place = torch.where(ranked == best, torch.where(nan, index + n, index), 2 * n)
    lowest = place.amin(-1)
    return torch.where(lowest >= n, lowest - n, lowest)
