"""Heads: what compares features. A built-in metric, a comparison of `make_pairwise`, or any function of two collections."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from torchpairwise._checks import describe
from torchpairwise._lowering import check_options
from torchpairwise._registry import metric_info
from torchpairwise.comparisons.bindable import Bound
from torchpairwise.comparisons.collections import Collection
from torchpairwise.comparisons.custom import CustomComparison
from torchpairwise.expression import lazy

__all__ = [
    "CollectionHead",
    "Head",
    "MetricHead",
    "PairHead",
    "StreamedHead",
    "as_head",
    "checked_head",
    "higher_is_better",
    "streamed_head",
]


class Head(ABC):
    """What the three kinds have in common."""

    @property
    @abstractmethod
    def own_mode(self) -> str | None:
        """The mode where neither a call nor the construction names one; None means that the head is told none."""

    @abstractmethod
    def check_mode(self, mode: str) -> None:
        """Raises where the head does not have a mode."""

    @abstractmethod
    def compare(self, rows: Collection, columns: Collection | None, mode: str | None) -> Any:
        """The result, stored; None compares the rows with each other."""


class StreamedHead(Head):
    """A head of pairs, which `tp.lazy` evaluates tile by tile."""

    @abstractmethod
    def bind(self, rows: Collection, columns: Collection | None) -> Bound:
        """What `tp.lazy` binds."""


class MetricHead(nn.Module, StreamedHead):
    """A metric of `tp.metrics` with its options; tensors among these are parameters or buffers of the head."""

    def __init__(self, metric: str, options: dict[str, Any]) -> None:
        super().__init__()
        info = metric_info(metric)
        check_options(info, options)
        self.metric = info.name
        self.symmetric = info.symmetric
        self.zero_diagonal = info.zero_diagonal
        self.numbers = {name: value for name, value in options.items() if not isinstance(value, Tensor)}
        for name, value in options.items():
            if isinstance(value, nn.Parameter):
                self.register_parameter(name, value)
            elif isinstance(value, Tensor):
                self.register_buffer(name, value)

    def options(self) -> dict[str, Any]:
        """The options as `tp.lazy` takes them."""
        return {**self.numbers, **dict(self.named_parameters()), **dict(self.named_buffers())}

    def extra_repr(self) -> str:
        return ", ".join([repr(self.metric), *(f"{name}={value!r}" for name, value in self.numbers.items())])

    @property
    def own_mode(self) -> str:
        return "all_pairs"

    def check_mode(self, mode: str) -> None:
        if mode == "condensed" and not (self.symmetric and self.zero_diagonal):
            raise ValueError(
                f"mode='condensed' needs a symmetric metric with zero diagonal, and {self.metric!r} is not one; use mode='all_pairs'"
            )

    def compare(self, rows: Collection, columns: Collection | None, mode: str | None) -> Tensor:
        x = self._vectors(rows, "X")
        y = x if columns is None else self._vectors(columns, "Y")
        if mode in ("paired", "single"):
            return lazy(x.unsqueeze(-2), y.unsqueeze(-2), self.metric, **self.options()).dense().squeeze((-2, -1))
        scores = lazy(x, y, self.metric, **self.options()).dense()
        if mode == "all_pairs":
            return scores
        i, j = torch.triu_indices(x.shape[-2], x.shape[-2], 1, device=x.device)
        return scores[..., i, j]

    def bind(self, rows: Collection, columns: Collection | None) -> Bound:
        x = self._vectors(rows, "X")
        return Bound(x, None if columns is None else self._vectors(columns, "Y"), self.metric, self.options(), None)

    def _vectors(self, features: Collection, name: str) -> Tensor:
        if not features.is_vectors:
            tree = features.structure.kind != "tensor"
            found = f"a tree of features {features.structure}" if tree else f"features with {features.sample_ndims[0]} dimensions"
            raise ValueError(
                f"the encoder made {found} of {name}, and metric={self.metric!r} compares one vector a sample; give "
                f"head=tp.make_pairwise(...) that says how to compare them, or let the encoder return one tensor [samples, D]"
            )
        return features.leaves[0]


class PairHead(StreamedHead):
    """A comparison of `make_pairwise`."""

    def __init__(self, comparison: CustomComparison) -> None:
        self.comparison = comparison

    @property
    def own_mode(self) -> str:
        return self.comparison.mode

    def check_mode(self, mode: str) -> None:
        self.comparison.check_mode(mode)

    def compare(self, rows: Collection, columns: Collection | None, mode: str | None) -> Tensor:
        assert mode is not None  # a comparison has a mode
        return self.comparison.compare(rows, columns, mode)

    def bind(self, rows: Collection, columns: Collection | None) -> Bound:
        return Bound(rows, columns, self.comparison, {}, None)


class CollectionHead(Head):
    """Any function of two collections of features; it is called once, and nothing is known of it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    @property
    def own_mode(self) -> str | None:
        return getattr(self.function, "mode", None)

    def check_mode(self, mode: str) -> None:
        """It may have any."""

    def compare(self, rows: Collection, columns: Collection | None, mode: str | None) -> Any:
        x = rows.tree
        y = x if columns is None else columns.tree
        return self.function(x, y) if mode is None else self.function(x, y, mode=mode)


def streamed_head(head: Any, mode: str | None) -> StreamedHead:
    """The head as one that can be streamed in a mode.

    Raises:
        TypeError: it takes whole collections.
        ValueError: the mode is not all pairs.
    """
    found = as_head(head)
    if not isinstance(found, StreamedHead):
        name = getattr(head, "__name__", type(head).__name__)
        raise TypeError(
            f"head={name} is a function of whole collections, which has no tiles to stream; wrap a function of pairs with "
            f"tp.make_pairwise, or call the comparison itself"
        )
    if mode != "all_pairs":
        raise ValueError(f"mode={mode!r} has no score matrix to stream; prepare with mode='all_pairs', or call for stored scores")
    return found


def as_head(head: Any) -> Head:
    """The kind that a head is of."""
    if isinstance(head, Head):
        return head
    return PairHead(head) if isinstance(head, CustomComparison) else CollectionHead(head)


def higher_is_better(metric: Any) -> bool:
    """Whether a larger score means nearer: True for similarities and kernels, False for distances and for functions, of which it is not
    known. `metric` is what `tp.lazy` takes."""
    head = getattr(metric, "head", metric)
    name = head.metric if isinstance(head, MetricHead) else head
    return isinstance(name, str) and metric_info(name).kind != "distance"


def checked_head(metric: Any, head: Any, options: dict[str, Any]) -> Any:
    """The one head that the arguments of `make_feature_pairwise` name.

    Raises:
        TypeError: no head, two heads, a callable as metric, or options without a metric.
        ValueError: an unknown metric.
    """
    if metric is not None and not isinstance(metric, str):
        hint = "; give a comparison or function as head=" if callable(metric) else ""
        raise TypeError(f"metric is {describe(metric)}; expected the name of a metric{hint}")
    if (metric is None) == (head is None):
        given = "neither metric= nor head=" if metric is None else f"metric={metric!r} and head="
        raise TypeError(f"{given} was given; expected exactly one, a metric's name or head=")
    if metric is not None:
        return MetricHead(metric, options)
    if options:
        raise TypeError(f"option {sorted(options)[0]!r} was given with head=; options belong to metric=, a head holds its own parameters")
    if not callable(head):
        hint = "; a metric's name is given as metric=" if isinstance(head, str) else ""
        raise TypeError(f"head is {describe(head)}; expected a comparison of tp.make_pairwise or a callable{hint}")
    return head
