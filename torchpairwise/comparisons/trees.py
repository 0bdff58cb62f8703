"""Trees of tensors: a tensor, or tuples, lists and dictionaries of trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from torchpairwise._checks import describe

__all__ = ["TENSOR", "Structure", "flatten", "map_leaves", "unflatten"]


@dataclass(frozen=True)
class Structure:
    """What remains of a tree without its leaves: the kind of a node, the keys of a dictionary, the nodes below."""

    kind: str  # tensor, tuple, list or dict
    keys: tuple[Any, ...] = ()
    children: tuple[Structure, ...] = ()

    def __str__(self) -> str:
        if self.kind == "tensor":
            return "tensor"
        if self.kind == "dict":
            return "{" + ", ".join(f"{key!r}: {child}" for key, child in zip(self.keys, self.children, strict=True)) + "}"
        return f"{self.kind}({', '.join(map(str, self.children))})"


TENSOR = Structure("tensor")


def flatten(tree: Any, name: str) -> tuple[list[Tensor], Structure]:
    """Leaves in order, and the structure.

    Raises:
        TypeError: a node is neither a tensor nor an ordinary tuple, list or dict; `name` and the place in the tree are named.
        ValueError: a tuple, list or dict is empty.
    """
    if isinstance(tree, Tensor):
        return [tree], TENSOR
    # Subclasses, such as named tuples and the outputs of some model libraries, would not be made again as they were.
    if type(tree) not in (tuple, list, dict):
        raise TypeError(f"{name} is {describe(tree)}; expected a tensor, or an ordinary tuple, list or dict of tensors; convert it to one")
    if not tree:
        raise ValueError(f"{name} is an empty {type(tree).__name__}; expected at least one tensor in it")
    keys = tuple(tree) if isinstance(tree, dict) else tuple(range(len(tree)))
    leaves: list[Tensor] = []
    children = []
    for key in keys:
        below, child = flatten(tree[key], f"{name}[{key!r}]")
        leaves += below
        children.append(child)
    return leaves, Structure(type(tree).__name__, keys if isinstance(tree, dict) else (), tuple(children))


def unflatten(leaves: Sequence[Any], structure: Structure) -> Any:
    """The tree of a structure with these leaves."""
    remaining = iter(leaves)

    def build(node: Structure) -> Any:
        if node.kind == "tensor":
            return next(remaining)
        below = [build(child) for child in node.children]
        if node.kind == "dict":
            return dict(zip(node.keys, below, strict=True))
        return tuple(below) if node.kind == "tuple" else below

    return build(structure)


def map_leaves(function: Callable[[Tensor], Tensor], tree: Any, name: str) -> Any:
    """The same tree with every leaf changed."""
    leaves, structure = flatten(tree, name)
    return unflatten([function(leaf) for leaf in leaves], structure)
