"""What `tp.lazy` takes besides tensors: features that were prepared, and comparisons that prepare them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

__all__ = ["Bound", "Preparation", "Preparer"]


class Bound(NamedTuple):
    """The arguments of `tp.lazy` that something stands for."""

    X: Any
    Y: Any
    metric: Any
    options: dict[str, Any]
    chunk_size: int | None


class Preparation(ABC):
    """Features with their comparison; ``tp.lazy(preparation)`` binds them."""

    @abstractmethod
    def bind(self) -> Bound:
        """Features, metric and options; raises where they cannot become a lazy matrix."""


class Preparer(ABC):
    """A comparison that computes features first; ``tp.lazy(X, Y, preparer)`` binds what it prepares."""

    @abstractmethod
    def prepare_lazy(self, X: Any, Y: Any) -> Preparation:
        """The features of X and Y; where they could not be bound, it raises before computing them."""
