"""Collections of samples: trees of tensors [*lead, *sample] with common leading dimensions, and the matrix that the engine is given."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchpairwise._checks import describe, promoted
from torchpairwise.comparisons.trees import TENSOR, Structure, flatten, unflatten

__all__ = ["Collection", "Layout", "checked_sample_ndim", "collect"]


@dataclass(frozen=True)
class Layout:
    """How the leaves of samples stand in one vector [D]: structure, shape and dtype of each leaf, in order."""

    structure: Structure
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]

    def unpack(self, packed: Tensor) -> Collection:
        """The samples in [*lead, D]. Integer and boolean leaves get their dtype back; floating ones keep that of the computation."""
        parts = packed.split([math.prod(shape) for shape in self.shapes], -1)
        leaves = [
            (part if dtype.is_floating_point else part.to(dtype)).reshape(*packed.shape[:-1], *shape)
            for part, shape, dtype in zip(parts, self.shapes, self.dtypes, strict=True)
        ]
        return Collection(tuple(leaves), self.structure, tuple(len(shape) for shape in self.shapes))


@dataclass(frozen=True)
class Collection:
    """Samples: leaves [*lead, *sample], whose leading dimensions are the same; the last of them counts the samples, if any."""

    leaves: tuple[Tensor, ...]
    structure: Structure
    sample_ndims: tuple[int, ...]

    @property
    def lead(self) -> tuple[int, ...]:
        """The leading dimensions."""
        leaf = self.leaves[0]
        return tuple(leaf.shape[: leaf.dim() - self.sample_ndims[0]])

    @property
    def is_vectors(self) -> bool:
        """One tensor [*lead, D]."""
        return self.structure == TENSOR and self.sample_ndims == (1,)

    @property
    def tree(self) -> Any:
        """The samples as the tree that they came as."""
        return unflatten(self.leaves, self.structure)

    def map(self, change: Callable[[Tensor, int], Tensor]) -> Collection:
        """The collection with every leaf changed by ``change(leaf, sample_ndim)``."""
        leaves = tuple(change(leaf, n) for leaf, n in zip(self.leaves, self.sample_ndims, strict=True))
        return Collection(leaves, self.structure, self.sample_ndims)

    def with_lead(self, ndim: int) -> Collection:
        """At least `ndim` leading dimensions, new ones of size 1 in front."""
        missing = max(0, ndim - len(self.lead))
        return self.map(lambda leaf, _: leaf.reshape(*[1] * missing, *leaf.shape))

    def unsqueeze(self, position: int) -> Collection:
        """A new leading dimension of size 1, counted from the end of the leading dimensions: -1 is the last one."""
        return self.map(lambda leaf, n: leaf.unsqueeze(position - n))

    def take(self, index: Tensor) -> Collection:
        """The samples of these indices."""
        return self.map(lambda leaf, n: leaf.index_select(-1 - n, index))

    def pack(self) -> tuple[Tensor, torch.dtype, Layout | None]:
        """One vector a sample, in the dtype of the computation; the dtype of results; and the layout, None for plain vectors.

        Raises:
            TypeError: a leaf is complex.
            ValueError: leaves on several devices, or whole numbers that the dtype of the computation cannot hold.
        """
        if self.is_vectors:
            dtype = promoted(self.leaves[0])
            return self.leaves[0].to(_computed_in(dtype)), dtype, None
        floating = [leaf.dtype for leaf in self.leaves if leaf.is_floating_point()]
        dtype = floating[0] if floating else torch.get_default_dtype()
        for other in floating[1:]:
            dtype = torch.promote_types(dtype, other)
        compute = _computed_in(dtype)
        first = self.leaves[0]
        for leaf in self.leaves:
            if leaf.device != first.device:
                raise ValueError(f"leaves of a sample are on {first.device} and {leaf.device}; move one of them")
            _check_exact(leaf, compute)
        flat = [leaf.to(compute).reshape(*self.lead, math.prod(_sample(leaf, n))) for leaf, n in self._with_ndims()]
        layout = Layout(
            self.structure, tuple(_sample(leaf, n) for leaf, n in self._with_ndims()), tuple(leaf.dtype for leaf in self.leaves)
        )
        return flat[0] if len(flat) == 1 else torch.cat(flat, -1), dtype, layout

    def describe(self) -> str:
        """Shapes, for messages."""
        return str(unflatten([list(leaf.shape) for leaf in self.leaves], self.structure))

    def _with_ndims(self) -> list[tuple[Tensor, int]]:
        return list(zip(self.leaves, self.sample_ndims, strict=True))


def collect(tree: Any, sample_ndim: Any, name: str, least: int) -> Collection:
    """A caller's samples, checked.

    Arguments:
        tree: a tensor, or a tree of tensors.
        sample_ndim: dimensions of a sample, for all leaves or as a tree of the same structure.
        name: how messages call the samples.
        least: how many leading dimensions there must be, 1 for a collection and 0 for one sample.

    Raises:
        TypeError: not a tree of tensors, or complex numbers.
        ValueError: too few dimensions, or leaves whose leading dimensions differ.
    """
    leaves, structure = flatten(tree, name)
    ndims = _ndims_of(sample_ndim, structure, len(leaves))
    for leaf, n in zip(leaves, ndims, strict=True):
        if leaf.is_complex():
            raise TypeError(f"{name} has dtype {leaf.dtype}; complex features are not supported")
        if leaf.dim() < n + least:
            samples = f"a collection [..., samples{', *sample' if n else ''}]" if least else "one sample [..., *sample]"
            raise ValueError(
                f"{name} has shape {list(leaf.shape)}; expected at least {n + least} dimensions for {samples} with sample_ndim={n}"
            )
    collection = Collection(tuple(leaves), structure, ndims)
    for leaf, n in zip(leaves, ndims, strict=True):
        if tuple(leaf.shape[: leaf.dim() - n]) != collection.lead:
            raise ValueError(
                f"the leaves of {name} have shapes {collection.describe()}, whose leading dimensions are not all {list(collection.lead)}; "
                f"every leaf needs [*batch, samples, *sample] with the same batch and samples"
            )
    return collection


def checked_sample_ndim(value: Any) -> Any:
    """A number of dimensions, or a tree of such numbers."""
    if isinstance(value, bool) or not isinstance(value, (int, tuple, list, dict)) or (isinstance(value, int) and value < 0):
        raise ValueError(f"sample_ndim={value!r}; expected how many dimensions a sample has, 0 or more (3 for images [C, H, W])")
    if isinstance(value, int):
        return value
    for below in value.values() if isinstance(value, dict) else value:
        checked_sample_ndim(below)
    return value


def _ndims_of(sample_ndim: Any, structure: Structure, n_leaves: int) -> tuple[int, ...]:
    """The number of dimensions for each leaf."""
    if isinstance(sample_ndim, int):
        return (sample_ndim,) * n_leaves
    numbers: list[int] = []

    def walk(value: Any, node: Structure) -> None:
        if isinstance(value, int):
            numbers.extend([value] * _count(node))
            return
        keys = tuple(value) if isinstance(value, dict) else ()
        if type(value).__name__ != node.kind or len(value) != len(node.children) or (keys and set(keys) != set(node.keys)):
            raise ValueError(
                f"sample_ndim={sample_ndim!r} does not have the structure of the samples, {structure}; give one number for all"
            )
        below = [value[key] for key in node.keys] if isinstance(value, dict) else value
        for part, child in zip(below, node.children, strict=True):
            walk(part, child)

    walk(sample_ndim, structure)
    return tuple(numbers)


def _count(node: Structure) -> int:
    return 1 if node.kind == "tensor" else sum(map(_count, node.children))


def _sample(leaf: Tensor, ndim: int) -> tuple[int, ...]:
    return tuple(leaf.shape[leaf.dim() - ndim :])


def _computed_in(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype in (torch.float32, torch.float64) else torch.float32


def _check_exact(leaf: Tensor, compute: torch.dtype) -> None:
    """Whole numbers travel as floating ones; those that would be rounded are refused. torch.compile cannot look at values."""
    if leaf.is_floating_point() or leaf.dtype == torch.bool or leaf.numel() == 0 or torch.compiler.is_compiling():
        return
    limit = 2 ** (24 if compute == torch.float32 else 53)
    lowest, highest = torch.aminmax(leaf)
    if int(lowest) < -limit or int(highest) > limit:
        raise ValueError(f"a leaf {describe(leaf)} holds whole numbers beyond {limit}, which {compute} does not hold; number them anew")
