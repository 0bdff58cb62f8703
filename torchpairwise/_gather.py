"""Parts of a lazy score matrix: the steps and masks of some of its rows or columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchpairwise._checks import describe
from torchpairwise._registry import MASKS, NODES, TABLES
from torchpairwise._steps import UNLIMITED, Step, Steps

__all__ = ["as_index", "batch_entry", "gathered"]


def as_index(index: Any, size: int, name: str) -> slice | Tensor | int:
    """What was written between brackets for one axis: a slice of step 1, an int, or an int64 tensor of places from 0 to size - 1.

    Raises:
        IndexError: a place outside of the axis, or a boolean vector of another size.
        TypeError: anything that names no places.
    """
    if isinstance(index, slice):
        start, stop, step = index.indices(size)
        return slice(start, max(start, stop)) if step == 1 else torch.arange(start, stop, step)
    if isinstance(index, int) and not isinstance(index, bool):
        if not -size <= index < size:
            raise IndexError(f"index {index} is out of range for {size} {name}")
        return index % size
    if isinstance(index, (list, tuple, range)):
        index = torch.as_tensor(list(index), dtype=torch.int64 if len(index) == 0 else None)
    if not isinstance(index, Tensor) or index.is_floating_point() or index.is_complex():
        raise TypeError(f"index of the {name} is {describe(index)}; expected an int, a slice, or a tensor of integers or booleans")
    if index.dtype == torch.bool:
        if index.shape != (size,):
            raise IndexError(f"index of the {name} has shape {list(index.shape)}; expected booleans [{size}]")
        return index.nonzero().squeeze(-1)
    index = index.to(torch.int64)
    if not torch.compiler.is_compiling() and index.numel() and (index.min() < -size or index.max() >= size):
        raise IndexError(f"index of the {name} runs from {int(index.min())} to {int(index.max())}; there are {size}")
    return torch.where(index < 0, index + size, index)


def gathered(steps: Sequence[Step], masks: Sequence[Step], side: str, index: slice | Tensor, sizes: tuple[int, int]) -> tuple[Steps, Steps]:
    """The steps and masks of the rows or columns (`side`) that `index` names, in its order; the sizes are those before."""
    part = _Part(side, index, sizes, steps[0].tensors[0].device)
    return tuple(part.step(step) for step in steps), tuple(part.rule(step) for step in masks)


class _Part(NamedTuple):
    side: str
    places: slice | Tensor
    sizes: tuple[int, int]
    device: torch.device

    def step(self, step: Step) -> Step:
        tensors = list(step.tensors)
        place = 0 if self.side == "rows" else 1
        if step.word == "lookup":
            tensors[1] = self._take(tensors[1], place - 2)
        elif step.word in TABLES:
            tensors[1 + place] = self._take(tensors[1 + place], -1)
        elif step.word in NODES:
            if NODES[step.word].signature == self.side[0]:
                tensors[0] = self._take(tensors[0], -1)
        elif len(tensors) >= 2:  # sources and comparisons
            tensors[place] = self._take(tensors[place], -2)
        return step._replace(tensors=tuple(tensors), mask=tuple(self.rule(rule) for rule in step.mask))

    def rule(self, step: Step) -> Step:
        """Rules about places become rules about labels, which hold the places in the whole matrix."""
        if step.word in ("and", "or", "not"):
            return step
        if "#" in MASKS[step.word].signature and "R" not in MASKS[step.word].signature:
            step = self._labelled(step)
        if step.word in ("rows", "columns"):
            return step._replace(tensors=(self._take(step.tensors[0], -1),)) if step.word == self.side else step
        tensors = list(step.tensors)
        place = 0 if self.side == "rows" else 1
        tensors[place] = self._take(tensors[place], -1)
        return step._replace(tensors=tuple(tensors))

    def _take(self, x: Tensor, dim: int) -> Tensor:
        if isinstance(self.places, slice):
            return x.narrow(dim, self.places.start, self.places.stop - self.places.start)
        places = self.places.to(x.device)
        if places.dim() == 1:
            return x.index_select(dim, places)
        # Places of each batch entry [*batch, n].
        batch = torch.broadcast_shapes(x.shape[:dim], places.shape[:-1])
        places = places.expand(*batch, places.shape[-1])
        if dim == -1:
            return x.expand(*batch, x.shape[-1]).gather(-1, places)
        return x.expand(*batch, *x.shape[-2:]).gather(-2, places.unsqueeze(-1).expand(*places.shape, x.shape[-1]))

    def _labelled(self, step: Step) -> Step:
        n_rows, n_columns = self.sizes
        rows, columns = (torch.arange(size, device=self.device) for size in self.sizes)
        if step.word == "dilated":
            every = int(step.numbers[0])
            return Step("same_group", (rows % every, columns % every))
        if step.word in ("first_rows", "first_columns"):
            side, places = ("rows", rows) if step.word == "first_rows" else ("columns", columns)
            return Step(side, (places < step.numbers[0],))
        limits = step.numbers
        if step.word == "causal":
            limits = (UNLIMITED, float(n_columns - n_rows) if step.numbers[0] else 0.0)
        return Step("between", (rows, columns), limits)


def batch_entry(steps: Sequence[Step], masks: Sequence[Step], place: Sequence[int]) -> tuple[Steps, Steps]:
    """The steps and masks of one entry of the batch."""

    def entry(x: Tensor, n_core: int) -> Tensor:
        n_batch = x.dim() - n_core
        own = place[len(place) - n_batch :]
        return x[tuple(0 if x.shape[d] == 1 else own[d] for d in range(n_batch))] if n_batch else x

    def one(step: Step) -> Step:
        signature = _signature(step)
        tensors = (*(entry(x, _CORE[letter]) for letter, x in zip(signature, step.tensors, strict=False)), *step.tensors[len(signature) :])
        return step._replace(tensors=tensors, mask=tuple(one(rule) for rule in step.mask))

    return tuple(one(step) for step in steps), tuple(one(step) for step in masks)


# Dimensions of an operand after the batch, by the letter of a signature; X and Y are features.
_CORE = {"X": 2, "Y": 2, "I": 2, "s": 0, "r": 1, "c": 1, "R": 1, "C": 1, "t": 1}


def _signature(step: Step) -> str:
    """The letters of a step's tensors; the parameters of a comparison have none."""
    for records in (NODES, TABLES, MASKS):
        if step.word in records:
            return str(records[step.word].signature).replace("#", "")
    return "XY" if len(step.tensors) >= 2 else ""
