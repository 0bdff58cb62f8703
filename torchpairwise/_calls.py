"""The call of a consumer: checks, the native operation, and the shape and dtype of what it returns."""

from __future__ import annotations

import numbers
from typing import Any

import torch
from torch import Tensor

from torchpairwise._checks import describe, matching
from torchpairwise._description import Description
from torchpairwise._registry import CONSUMERS
from torchpairwise._steps import Step

__all__ = ["Calls"]


class Calls(Description):
    """What `Consumers` is written on."""

    __slots__ = ()

    def _run(
        self,
        name: str,
        axis: int | None,
        exclude_self: bool,
        values: Tensor | None = None,
        k: int = 0,
        largest: bool = False,
        fill: float = 0.0,
        low: float = 0.0,
        high: float = 0.0,
    ) -> tuple[Tensor, ...]:
        """The results of the native call, in the dtype of the computation; over both axes (None) those of the rows."""
        info = CONSUMERS[name]
        if not torch.compiler.is_compiling():
            for step in self._steps:
                if step.comparison is not None:
                    step.comparison.check_transforms()
        if info.empty == "" and name != "topk":
            for side, letter in ((-1, "M"), (-2, "N")):
                if axis in (side, None) and self.shape[side] == 0:
                    raise ValueError(f"{name} over an empty axis: {letter} (dim={side}) is 0 in scores {list(self.shape)}")
        operands, program, constants = self._lower(self._extra_masks(exclude_self))
        given = {"values": values, "k": k, "dim": self._native_dim(axis or -1), "largest": largest, "fill": fill, "low": low, "high": high}
        results = getattr(torch.ops.torchpairwise, name)(operands, program, constants, *[given[word] for word in info.inputs])
        return (results,) if isinstance(results, Tensor) else tuple(results)

    def _extra_masks(self, exclude_self: bool) -> tuple[Step, ...]:
        if not exclude_self:
            return ()
        if self.shape[-2] != self.shape[-1]:
            raise ValueError(f"exclude_self=True needs N == M; the scores are {list(self.shape)}")
        return (Step("off_diagonal"),)

    def _check_k(self, k: Any, axis: int, exclude_self: bool) -> None:
        if isinstance(k, bool) or not isinstance(k, (int, numbers.Integral, torch.SymInt)):
            raise TypeError(f"k is {describe(k)}; expected an integer")
        letter, size = ("M", self.shape[-1]) if axis == -1 else ("N", self.shape[-2])
        candidates = size - 1 if exclude_self and size > 0 else size
        if not 0 <= k <= candidates:  # type: ignore[operator]
            less = " less one for exclude_self" if exclude_self else ""
            raise ValueError(f"k={k} is out of range for {letter}={size}{less}; expected 0 <= k <= {candidates}")

    def _checked_values(self, values: Any, axis: int, vector_too: bool = False) -> Tensor:
        size = self.shape[axis]
        fits = isinstance(values, Tensor) and values.dim() >= 2 and values.shape[-2] == size
        if not fits:
            # Formatted only here: a size in a string would fix it in torch.compile.
            expected = f"expected a tensor [..., {size}, C]" + (f" or a vector [{size}]" if vector_too else "")
            if not isinstance(values, Tensor):
                raise TypeError(f"values is {describe(values)}; {expected}")
            raise ValueError(f"values has shape {list(values.shape)}; {expected} for scores {list(self.shape)}")
        return matching(values, "values", self._features, self._dtype)

    def _cast(self, result: Tensor) -> Tensor:
        return result.to(self._dtype) if result.is_floating_point() else result

    def _shaped(self, result: Tensor, axis: int | None, keepdim: bool) -> Tensor:
        result = self._cast(result)
        if not keepdim:
            return result
        return result[..., None, None] if axis is None else result.unsqueeze(axis)
