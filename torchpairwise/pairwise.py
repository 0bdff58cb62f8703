"""Comparisons written in Python: `tp.make_pairwise`."""

from __future__ import annotations

import functools
import inspect
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchpairwise import _native as _native
from torchpairwise._checks import broadcast_batch, describe

__all__ = ["CustomComparison", "make_pairwise"]

_MODES = ("all_pairs", "paired", "condensed", "single")
_NUMBERS = itertools.count()
# Expressions hold their comparisons, and so do the graphs of their results (see `anchor`); this only finds them.
_COMPARISONS: weakref.WeakValueDictionary[str, CustomComparison] = weakref.WeakValueDictionary()


class CustomComparison:
    """A comparison f(x, y) written in Python; made by `make_pairwise`. `tp.lazy` streams it; a call gives the dense scores.

    Example:
        >>> import torch, torchpairwise as tp
        >>> largest_difference = tp.make_pairwise(lambda x, y: (x - y).abs().amax(-1))
        >>> largest_difference(torch.zeros(1, 2), torch.tensor([[3.0, 4.0], [1.0, 0.0]]))
        tensor([[4., 1.]])
    """

    def __init__(self, function: Callable[..., Tensor], mode: str, pairwise: str, symmetric: bool, zero_diagonal: bool) -> None:
        self.function = function
        self.mode = mode
        self.pairwise = pairwise
        self.symmetric = symmetric
        self.zero_diagonal = zero_diagonal
        self._register()

    def _register(self) -> None:
        self.name = getattr(self.function, "__name__", type(self.function).__name__)
        self._caller = _Caller(self.function)
        self.key = f"comparison{next(_NUMBERS)}"  # unique in this process
        _COMPARISONS[self.key] = self

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("key", "name", "_caller")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._register()

    def __repr__(self) -> str:
        return f"CustomComparison({self.name}, mode={self.mode!r})"

    def operands(self) -> tuple[Tensor, ...]:
        """Parameters and buffers of the function's modules, in order; they take part in gradients."""
        return tuple(self._caller.state().values())

    def anchor(self, device: torch.device) -> tuple[Tensor, ...]:
        """One more operand, empty, which holds this object: whatever graph saves it for backward will find the comparison.

        There is none in torch.compile, where a tensor cannot hold an object; there the compiled function's own code does.
        """
        if torch.compiler.is_compiling():
            return ()
        tensor = torch.empty(0, device=device)
        tensor.comparison = self  # type: ignore[attr-defined]
        return (tensor,)

    def check_transforms(self) -> None:
        """Refuses the transforms of torch.func under which torch cannot call the function on tiles.

        Raises:
            NotImplementedError: `torch.vmap` around the call, or any transform around one with pairwise="vmap".
        """
        self._caller.check()
        layers = torch._C._functorch.get_interpreter_stack() or []
        if any(layer.key() == torch._C._functorch.TransformType.Vmap for layer in layers):
            raise NotImplementedError(
                f"torch.vmap over a lazy matrix of the comparison {self.name}; give X and Y batch dimensions instead, they broadcast"
            )
        if layers and self.pairwise == "vmap":
            raise NotImplementedError(
                f'torch.func transforms over a lazy matrix of the comparison {self.name}, which has pairwise="vmap"; '
                f"write it as a broadcast function"
            )

    def tile(self, rows: Tensor, columns: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """Scores of rows and columns whose leading dimensions broadcast: [*batch, r, 1, D] and [*batch, 1, c, D], or pairs [*batch, D].

        Raises:
            ValueError: the function returned another shape.
        """
        expected = torch.broadcast_shapes(rows.shape[:-1], columns.shape[:-1])
        state = dict(zip(self._caller.state(), parameters, strict=False))  # an anchor may follow

        def call(x: Tensor, y: Tensor) -> Tensor:
            return torch.func.functional_call(self._caller, state, (x, y)) if state else self.function(x, y)

        if self.pairwise == "vmap":
            scores = (rows.sum() + columns.sum()).mul(0).expand(expected) if 0 in expected else _mapped(call, rows, columns)
            wish = "it must return a 0-dim tensor for two samples [D]"
        else:
            scores = call(rows, columns)
            wish = 'it must broadcast over rows and columns and reduce the last axis (or compare two samples, with pairwise="vmap")'
        if not isinstance(scores, Tensor) or scores.shape != expected:
            given = list(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ValueError(
                f"the comparison {self.name} returned {given} for x {list(rows.shape)} and y {list(columns.shape)}; expected a tensor "
                f"{list(expected)}: {wish}"
            )
        return scores

    def __call__(
        self,
        X: Tensor,  # [*batch, N, D], with mode="single" [*batch, D]
        Y: Tensor | None = None,  # [*batch, M, D]
        *,
        mode: str | None = None,
    ) -> Tensor:
        """Scores that are stored.

        Arguments:
            X, Y: the samples; Y=None compares X with itself.
            mode: "all_pairs" [*batch, N, M]; "paired", row i with row i [*batch, N]; "condensed", the pairs i < j of X in the order of
                `scipy.spatial.distance.pdist` [*batch, N (N - 1) / 2]; "single", one sample [*batch, D] with one other [*batch].
                None takes the comparison's own mode.

        Raises:
            TypeError: not tensors.
            ValueError: an unknown mode, shapes that do not fit it, or "condensed" with Y or without symmetry.
        """
        chosen = _checked_mode(self.mode if mode is None else mode)
        other = X if Y is None else Y
        for name, value in (("X", X), ("Y", other)):
            if not isinstance(value, Tensor):
                raise TypeError(f"{name} is {describe(value)}; expected a tensor")
            least = 1 if chosen == "single" else 2
            if value.dim() < least:
                raise ValueError(f"{name} has shape {list(value.shape)}; mode={chosen!r} expects at least {least} dimensions")
        parameters = self.operands()
        if chosen == "all_pairs":
            return self.tile(X.unsqueeze(-2), other.unsqueeze(-3), parameters)
        if chosen == "condensed":
            if Y is not None or not (self.symmetric and self.zero_diagonal):
                raise ValueError(
                    "mode='condensed' needs one collection, and a comparison made with symmetric=True and zero_diagonal=True; "
                    "use mode='all_pairs'"
                )
            i, j = torch.triu_indices(X.shape[-2], X.shape[-2], 1, device=X.device)
            return self.tile(X[..., i, :], X[..., j, :], parameters)
        if chosen == "paired" and X.shape[-2] != other.shape[-2]:
            raise ValueError(f"mode='paired' compares row i with row i; X has {X.shape[-2]} rows and Y has {other.shape[-2]}")
        broadcast_batch(X.shape[:-1], other.shape[:-1], "Y")
        return self.tile(X, other, parameters)


class _Caller(nn.Module):
    """A function with the modules that it uses, so that their parameters can be given from outside for the time of a call."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        held = list(_held(function))
        modules = [value for _, value in held if isinstance(value, nn.Module)]
        self._tensors = tuple((name, value) for name, value in held if isinstance(value, Tensor))
        self.check()
        self._function = (function,)  # in a tuple, so that a module is not registered twice
        self._modules_used = nn.ModuleList(modules)

    def check(self) -> None:
        """Raises if a tensor that the function uses requires a gradient by now, which would be lost."""
        for name, value in self._tensors:
            if value.requires_grad:
                raise ValueError(
                    f"the function uses {name}, a tensor that requires a gradient, which only a module can pass on; "
                    f"give an nn.Module that holds it as a parameter"
                )

    def state(self) -> dict[str, Tensor]:
        """Parameters and buffers by name."""
        return {**dict(self.named_parameters()), **dict(self.named_buffers())}

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self._function[0](x, y)


def _held(function: Any) -> Iterator[tuple[str, Any]]:
    """Names and values that a function uses and that may hold parameters."""
    if isinstance(function, nn.Module):
        yield "module", function
    elif isinstance(function, functools.partial):
        yield from _held(function.func)
        yield from [*_numbered(function.args), *function.keywords.items()]
    elif inspect.ismethod(function):
        yield "self", function.__self__
        yield from _held(function.__func__)
    elif inspect.isfunction(function):
        used = inspect.getclosurevars(function)
        yield from [*used.nonlocals.items(), *used.globals.items()]
        yield from [*_numbered(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
    else:
        yield from getattr(function, "__dict__", {}).items()


def _numbered(values: Sequence[Any]) -> list[tuple[str, Any]]:
    """Positional values with a name for messages."""
    return [(f"argument {index}", value) for index, value in enumerate(values)]


def _mapped(function: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    """`function` of two samples [D], for all pairs of leading dimensions that broadcast, without repeating any sample."""
    n = max(x.dim(), y.dim()) - 1
    x, y = (t.reshape(*[1] * (n + 1 - t.dim()), *t.shape) for t in (x, y))
    mapped = function
    for d in reversed(range(n)):
        both = x.shape[d] == y.shape[d]
        mapped = torch.vmap(mapped, (0 if both or x.shape[d] != 1 else None, 0 if both or y.shape[d] != 1 else None))
    alone_x = [d for d in range(n) if x.shape[d] == 1 != y.shape[d]]
    alone_y = [d for d in range(n) if y.shape[d] == 1 != x.shape[d]]
    return mapped(x.squeeze(alone_x), y.squeeze(alone_y))


def make_pairwise(
    function: Callable[..., Tensor],
    *,
    symmetric: bool = False,
    zero_diagonal: bool = False,
    mode: str = "all_pairs",
    pairwise: str = "broadcast",
    keops: bool = False,
) -> CustomComparison:
    """Makes a comparison from a function or module ``f(x, y)``, to be streamed like a built-in metric.

    Arguments:
        function: with pairwise="broadcast" it takes x [*batch, r, 1, D] and y [*batch, 1, c, D] and returns scores [*batch, r, c]; with
            pairwise="vmap" it takes two samples [D] and returns a 0-dim tensor.
        symmetric: you vouch that f(x, y) = f(y, x).
        zero_diagonal: you vouch that f(x, x) = 0. Both are what mode="condensed" needs.
        mode: what a call without `mode=` gives: "all_pairs", "paired", "condensed" or "single". `tp.lazy` is always all pairs.
        pairwise: "broadcast" or "vmap".
        keops: False; there is no KeOps backend yet.

    Returns:
        A `CustomComparison`. ``tp.lazy(X, Y, comparison)`` runs every consumer, step and mask on tiles of its scores.

    Raises:
        TypeError: `function` cannot be called.
        ValueError: an unknown mode, or a function that uses a tensor with gradient which is not a parameter of a module.

    Notes:
        Parameters and buffers of an nn.Module, and of modules that a function closes over, are operands and get gradients, streamed in
        first order. Backward evaluates tiles again, so the function must give the same scores each time: no dropout, no random
        numbers (pairwise="vmap" refuses them). Tiles are evaluated apart, so a score must depend on its own pair only.

    Example:
        >>> import torch, torchpairwise as tp
        >>> chebyshev = tp.make_pairwise(lambda x, y: (x - y).abs().amax(-1), symmetric=True, zero_diagonal=True)
        >>> tp.lazy(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]]), chebyshev).sum(-1)
        tensor([4.])
        >>> chebyshev(torch.tensor([[0.0], [1.0], [3.0]]), mode="condensed")
        tensor([1., 3., 2.])
    """
    if not callable(function):
        raise TypeError(f"function is {describe(function)}; expected a callable f(x, y)")
    _checked_mode(mode)
    if pairwise not in ("broadcast", "vmap"):
        raise ValueError(f"pairwise={pairwise!r}; expected 'broadcast' or 'vmap'")
    if keops:
        raise ValueError("keops=True: this version has no KeOps backend; leave it out, the function runs on tiles of tensors")
    if mode == "condensed" and not (symmetric and zero_diagonal):
        raise ValueError("mode='condensed' needs symmetric=True and zero_diagonal=True")
    return CustomComparison(function, mode, pairwise, symmetric, zero_diagonal)


def _checked_mode(mode: str) -> str:
    if mode not in _MODES:
        raise ValueError(f"mode={mode!r}; expected {', '.join(map(repr, _MODES[:-1]))} or {_MODES[-1]!r}")
    return mode


def _custom_tile(key: str, rows: Tensor, columns: Tensor, parameters: list[Tensor]) -> Tensor:
    comparison = _COMPARISONS.get(key)
    if comparison is None:
        raise RuntimeError(
            f"the comparison {key!r} is gone, or was made in another process; keep what tp.make_pairwise returned, or make it there again"
        )
    return comparison.tile(rows, columns, parameters)


_LIBRARY = torch.library.Library("torchpairwise", "IMPL")
_LIBRARY.impl("custom_tile", _custom_tile, "CompositeImplicitAutograd")
