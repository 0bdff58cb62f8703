"""Comparisons written in Python: `tp.make_pairwise`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from torchpairwise import _native as _native

__all__ = ["CustomComparison", "make_pairwise"]

_NUMBERS = itertools.count()
# By key, for as long as the process lives: a backward pass may ask for a comparison whose last other reference is gone.
_COMPARISONS: dict[str, CustomComparison] = {}


class CustomComparison:
    """A comparison f(x, y) written in Python; made by `make_pairwise`. Call it for the dense scores, or give it to `tp.lazy`."""

    def __init__(self, function: Callable[..., Tensor], mode: str) -> None:
        self.function = function
        self.mode = mode
        self._register()

    def _register(self) -> None:
        self.name = getattr(self.function, "__name__", type(self.function).__name__)
        self.key = f"comparison{next(_NUMBERS)}"
        _COMPARISONS[self.key] = self

    def __getstate__(self) -> dict[str, Any]:
        return {"function": self.function, "mode": self.mode}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._register()

    def operands(self) -> tuple[Tensor, ...]:
        """Parameters and buffers of a module, in order; they take part in gradients."""
        return tuple(self._named().values())

    def _named(self) -> dict[str, Tensor]:
        if not isinstance(self.function, nn.Module):
            return {}
        return {**dict(self.function.named_parameters()), **dict(self.function.named_buffers())}

    def tile(self, rows: Tensor, columns: Tensor, parameters: list[Tensor]) -> Tensor:
        """Scores of rows [..., r, 1, D] against columns [..., 1, c, D]."""
        if isinstance(self.function, nn.Module):
            scores = torch.func.functional_call(self.function, dict(zip(self._named(), parameters, strict=True)), (rows, columns))
        else:
            scores = self.function(rows, columns)
        expected = torch.broadcast_shapes(rows.shape[:-1], columns.shape[:-1])
        if not isinstance(scores, Tensor) or scores.shape != expected:
            given = list(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ValueError(
                f"the comparison {self.name} returned {given} for x {list(rows.shape)} and y {list(columns.shape)}; expected a tensor "
                f"{list(expected)}: it must broadcast over rows and columns and reduce the last axis"
            )
        return scores

    def __call__(self, X: Tensor, Y: Tensor | None = None, *, mode: str | None = None) -> Tensor:
        """All scores [..., N, M], stored; `mode="single"` compares two samples [..., D]."""
        other = X if Y is None else Y
        chosen = self.mode if mode is None else mode
        if chosen == "single":
            return self.tile(X.unsqueeze(-2), other.unsqueeze(-2), list(self.operands())).squeeze(-1)
        if chosen != "all_pairs":
            raise ValueError(f"mode={chosen!r}; expected 'all_pairs' or 'single'")
        return self.tile(X.unsqueeze(-2), other.unsqueeze(-3), list(self.operands()))


def make_pairwise(function: Callable[..., Tensor], *, mode: str = "all_pairs") -> CustomComparison:
    """Makes a comparison from a function or module ``f(x, y)``.

    Arguments:
        function: takes x [..., r, 1, D] and y [..., 1, c, D], which broadcast, and returns scores [..., r, c]. The parameters of an
            nn.Module get gradients. It must give the same scores when it is called again: backward evaluates tiles anew.
        mode: what a call without `mode=` gives: "all_pairs" or "single".

    Returns:
        A `CustomComparison`; make it once, since it lives as long as the process. ``tp.lazy(X, Y, comparison)`` streams it
        through every consumer, node and mask on tiles of tensors.

    Raises:
        TypeError: `function` cannot be called.

    Example:
        >>> import torch, torchpairwise as tp
        >>> chebyshev = tp.make_pairwise(lambda x, y: (x - y).abs().amax(-1))
        >>> tp.lazy(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]]), chebyshev).sum(-1)
        tensor([4.])
    """
    if not callable(function):
        raise TypeError(f"function is {type(function).__name__}; expected a callable f(x, y)")
    if mode not in ("all_pairs", "single"):
        raise ValueError(f"mode={mode!r}; expected 'all_pairs' or 'single'")
    return CustomComparison(function, mode)


def _custom_tile(key: str, rows: Tensor, columns: Tensor, parameters: list[Tensor]) -> Tensor:
    if key not in _COMPARISONS:
        raise RuntimeError(f"the comparison {key!r} was made in another process; make it there again with tp.make_pairwise")
    return _COMPARISONS[key].tile(rows, columns, parameters)


_LIBRARY = torch.library.Library("torchpairwise", "IMPL")
_LIBRARY.impl("custom_tile", _custom_tile, "CompositeImplicitAutograd")
