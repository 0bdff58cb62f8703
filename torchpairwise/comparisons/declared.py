"""Trials of what a comparison is declared or supposed to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchpairwise.comparisons.collections import Collection

if TYPE_CHECKING:
    from torchpairwise.comparisons.custom import CustomComparison

__all__ = ["check_declared"]


@torch.no_grad()
def check_declared(comparison: CustomComparison, rows: Collection, columns: Collection, rtol: float, atol: float) -> None:
    """Raises ValueError for the first of these that does not hold: the same scores twice and in other tiles, declared symmetry, declared
    zeros of the diagonal."""
    parameters = comparison.operands()

    def scores(x: Collection, y: Collection) -> Tensor:
        return comparison.streamed(x.unsqueeze(-1), y.unsqueeze(-2), parameters)

    def require_equal(first: Tensor, second: Tensor, broken: str, advice: str) -> None:
        if not torch.allclose(first, second, rtol=rtol, atol=atol, equal_nan=True):
            largest = (first - second).abs().max().item()
            raise ValueError(f"the comparison {comparison.name} {broken} differ by up to {largest:.3g}; {advice}")

    whole = scores(rows, columns)
    require_equal(
        whole, scores(rows, columns), "gives other scores when it is evaluated again: they", "remove what is random or counts calls"
    )
    for n, part in ((rows.lead[-1], "rows"), (columns.lead[-1], "columns")):
        for place in sorted({0, n // 2, n - 1} - {-1}):
            index = torch.tensor([place], device=whole.device)
            x, y = (rows.take(index), columns) if part == "rows" else (rows, columns.take(index))
            tile = whole.index_select(-2 if part == "rows" else -1, index)
            broken = f"scores a pair in dependence on the other {part} of its tile: scores"
            require_equal(tile, scores(x, y), broken, "let a score use its own pair only")
    if comparison.symmetric:
        exchanged = scores(columns, rows).mT
        require_equal(whole, exchanged, "was declared symmetric=True, but f(x, y) and f(y, x)", "leave symmetric=True out")
    if comparison.zero_diagonal:
        for side in (rows, columns):
            own = comparison.streamed(side, side, parameters)
            require_equal(own, torch.zeros_like(own), "was declared zero_diagonal=True, but f(x, x) and 0", "leave zero_diagonal=True out")
