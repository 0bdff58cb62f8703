"""Comparisons written in Python: `tp.make_pairwise`."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from torchpairwise import _native as _native
from torchpairwise._checks import broadcast_batch, describe
from torchpairwise.comparisons.collections import Collection, Layout, checked_sample_ndim, collect
from torchpairwise.comparisons.declared import check_declared
from torchpairwise.comparisons.functions import Caller, mapped, refuse_state
from torchpairwise.comparisons.trees import TENSOR

__all__ = ["MODES", "CustomComparison", "LaidOut", "anchor", "bind_collections", "check_sides", "checked_mode", "make_pairwise"]

MODES = ("all_pairs", "paired", "condensed", "single")
_NUMBERS = itertools.count()


class _Evaluated(Protocol):
    """What the engine calls by its key."""

    def tile(self, rows: Tensor, columns: Tensor, parameters: Sequence[Tensor]) -> Tensor: ...


# Expressions hold their comparisons, and so do the graphs of their results (see `anchor`); this only finds them.
_COMPARISONS: weakref.WeakValueDictionary[str, _Evaluated] = weakref.WeakValueDictionary()


class CustomComparison(nn.Module):
    """A comparison f(x, y) written in Python; made by `make_pairwise`. `tp.lazy` streams it; a call gives the dense scores.

    It is a module: parameters of the function's modules are its own, for optimizers, `state_dict`, `to`, `train` and `eval`.

    Example:
        >>> import torch, torchpairwise as tp
        >>> largest_difference = tp.make_pairwise(lambda x, y: (x - y).abs().amax(-1))
        >>> largest_difference(torch.zeros(1, 2), torch.tensor([[3.0, 4.0], [1.0, 0.0]]))
        tensor([[4., 1.]])
    """

    def __init__(
        self, function: Callable[..., Tensor], mode: str, pairwise: str, symmetric: bool, zero_diagonal: bool, sample_ndim: Any
    ) -> None:
        super().__init__()
        self.function = function
        self.mode = mode
        self.pairwise = pairwise
        self.symmetric = symmetric
        self.zero_diagonal = zero_diagonal
        self.sample_ndim = sample_ndim
        caller = Caller(function)
        if not isinstance(function, nn.Module):
            self.modules_used = caller.modules_used
        self._register(caller)

    def _register(self, caller: Caller) -> None:
        self.name = getattr(self.function, "__name__", type(self.function).__name__)
        self._caller = (caller,)  # in a tuple: its modules are registered once, as those of this comparison
        self._laid_out: weakref.WeakValueDictionary[Any, LaidOut] = weakref.WeakValueDictionary()
        self.key = f"comparison{next(_NUMBERS)}"  # unique in this process
        _COMPARISONS[self.key] = self

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("key", "name", "_caller", "_laid_out")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._register(Caller(self.function))

    def __repr__(self) -> str:
        return f"CustomComparison({self.name}, mode={self.mode!r})"

    def operands(self) -> tuple[Tensor, ...]:
        """Parameters and buffers of the function's modules, in order; they take part in gradients."""
        return tuple(self._caller[0].state().values())

    def check_transforms(self) -> None:
        """Refuses the transforms of torch.func under which torch cannot call the function on tiles.

        Raises:
            NotImplementedError: `torch.vmap` around the call, or any transform around one with pairwise="vmap".
        """
        self._caller[0].check()
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

    def laid_out(self, rows: Layout | None, columns: Layout | None) -> CustomComparison | LaidOut:
        """What the engine calls for samples that were packed into vectors with these layouts; None means plain vectors."""
        if rows is None and columns is None:
            return self
        found = self._laid_out.get((rows, columns))
        if found is None:
            found = LaidOut(self, rows, columns)
            self._laid_out[rows, columns] = found
        return found

    def tile(self, rows: Tensor, columns: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """Scores of rows and columns whose leading dimensions broadcast: [*batch, r, 1, D] and [*batch, 1, c, D], or pairs [*batch, D].

        Raises:
            ValueError: the function returned another shape, drew random numbers or changed a buffer.
        """
        return self.streamed(Collection((rows,), TENSOR, (1,)), Collection((columns,), TENSOR, (1,)), parameters)

    def streamed(self, x: Collection, y: Collection, parameters: Sequence[Tensor]) -> Tensor:
        """Scores of a tile; a function that would give other scores when it is evaluated again is refused."""
        buffers = self._caller[0].changing(parameters)
        return refuse_state(self.name, lambda: self.scores(x, y, parameters), x.leaves[0].device, buffers)

    def scores(self, x: Collection, y: Collection, parameters: Sequence[Tensor]) -> Tensor:
        """Scores of samples whose leading dimensions broadcast.

        Raises:
            ValueError: the function returned another shape.
        """
        expected = torch.broadcast_shapes(x.lead, y.lead)
        caller = self._caller[0]
        state = dict(zip(caller.state(), parameters, strict=False))  # an anchor may follow

        def call(x: Any, y: Any) -> Tensor:
            return torch.func.functional_call(caller, state, (x, y)) if state else self.function(x, y)

        if self.pairwise == "vmap":
            empty = sum(leaf.sum() for leaf in (*x.leaves, *y.leaves)) if 0 in expected else None
            scores = mapped(call, x, y) if empty is None else torch.as_tensor(empty).mul(0.0).expand(expected)
            wish = "it must return a 0-dim tensor for two samples [D]"
        else:
            scores = call(x.tree, y.tree)
            wish = 'it must broadcast over rows and columns and reduce the last axis (or compare two samples, with pairwise="vmap")'
        if not isinstance(scores, Tensor) or scores.shape != expected:
            given = list(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ValueError(
                f"the comparison {self.name} returned {given} for x {x.describe()} and y {y.describe()}; expected a tensor "
                f"{list(expected)}: {wish}"
            )
        return scores

    def forward(
        self,
        X: Any,  # [*batch, N, *sample], with mode="single" [*batch, *sample]
        Y: Any = None,  # [*batch, M, *sample]
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
        chosen = checked_mode(self.mode if mode is None else mode)
        least = 0 if chosen == "single" else 1
        rows = collect(X, self.sample_ndim, "X", least)
        return self.compare(rows, None if Y is None or Y is X else collect(Y, self.sample_ndim, "Y", least), chosen)

    def check_mode(self, mode: str) -> None:
        """Raises where the declared facts do not allow a mode."""
        if mode == "condensed" and not (self.symmetric and self.zero_diagonal):
            raise ValueError(
                "mode='condensed' needs one collection, and a comparison made with symmetric=True and zero_diagonal=True; "
                "use mode='all_pairs'"
            )

    def compare(self, rows: Collection, columns: Collection | None, mode: str) -> Tensor:
        """Scores of collections in a mode; None compares the rows with each other."""
        check_sides(rows, columns, mode)
        self.check_mode(mode)
        other = rows if columns is None else columns
        parameters = self.operands()
        if mode == "all_pairs":
            return self.scores(rows.unsqueeze(-1), other.unsqueeze(-2), parameters)
        if mode == "condensed":
            n = rows.lead[-1]
            i, j = torch.triu_indices(n, n, 1, device=rows.leaves[0].device)
            return self.scores(rows.take(i), rows.take(j), parameters)
        return self.scores(rows, other, parameters)

    def check(self, X: Any, Y: Any = None, *, rtol: float = 1e-4, atol: float = 1e-6) -> None:
        """Tries on samples what streaming and the declared facts rely on.

        Equal scores when evaluated twice; scores that do not depend on which other samples are in the tile; with ``symmetric=True``
        f(x, y) = f(y, x); with ``zero_diagonal=True`` f(x, x) = 0.

        Arguments:
            X, Y: a few samples, as for a call in all pairs.
            rtol, atol: differences up to ``atol + rtol |score|`` are rounding.

        Raises:
            ValueError: something does not hold; the message says what, by how much and what to do.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.make_pairwise(lambda x, y: x[..., 0] - y[..., 0], symmetric=True).check(torch.tensor([[0.0], [1.0]]))
            Traceback (most recent call last):
            ...
            ValueError: the comparison <lambda> was declared symmetric=True, but f(x, y) and f(y, x) differ by up to 2; ...
        """
        rows = collect(X, self.sample_ndim, "X", 1)
        columns = rows if Y is None or Y is X else collect(Y, self.sample_ndim, "Y", 1)
        check_sides(rows, columns, "all_pairs")
        check_declared(self, rows, columns, rtol, atol)


class LaidOut:
    """A comparison of samples that are packed into vectors: it unpacks a tile and compares."""

    def __init__(self, comparison: CustomComparison, rows: Layout | None, columns: Layout | None) -> None:
        self.comparison = comparison
        self.layouts = (rows, columns)
        self.name = comparison.name
        self.key = f"comparison{next(_NUMBERS)}"
        _COMPARISONS[self.key] = self

    def __reduce__(self) -> Any:
        return CustomComparison.laid_out, (self.comparison, *self.layouts)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        from copy import deepcopy

        return deepcopy(self.comparison, memo).laid_out(*self.layouts)

    def check_transforms(self) -> None:
        """As of the comparison."""
        self.comparison.check_transforms()

    def tile(self, rows: Tensor, columns: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """Scores of packed samples; see `CustomComparison.tile`."""
        x, y = (_unpacked(packed, layout) for packed, layout in zip((rows, columns), self.layouts, strict=True))
        return self.comparison.streamed(x, y, parameters)


def _unpacked(packed: Tensor, layout: Layout | None) -> Collection:
    return Collection((packed,), TENSOR, (1,)) if layout is None else layout.unpack(packed)


def anchor(evaluated: CustomComparison | LaidOut, device: torch.device) -> tuple[Tensor, ...]:
    """One more operand, empty, which holds the comparison: whatever graph saves it for backward will find it there.

    There is none in torch.compile, where a tensor cannot hold an object; there the compiled function's own code does.
    """
    if torch.compiler.is_compiling():
        return ()
    tensor = torch.empty(0, device=device)
    tensor.comparison = evaluated  # type: ignore[attr-defined]
    return (tensor,)


def bind_collections(comparison: CustomComparison, rows: Collection, columns: Collection | None) -> tuple[Tensor, Tensor, torch.dtype, Any]:
    """Rows and columns as the engine takes them, the dtype of results, and what it calls by its key; None compares rows with rows.

    Raises:
        TypeError, ValueError: the two differ in dtype, device or batch.
    """
    x, dtype, row_layout = rows.pack()
    if columns is None:
        return x, x, dtype, comparison.laid_out(row_layout, row_layout)
    check_sides(rows, columns, "all_pairs")
    y, other, column_layout = columns.pack()
    if x.device != y.device:
        raise ValueError(f"X is on {x.device}, but Y is on {y.device}; move one of them")
    if other != dtype:
        raise TypeError(f"X has dtype {dtype}, but Y has {other}; convert one of them")
    return x, y, dtype, comparison.laid_out(row_layout, column_layout)


def check_sides(rows: Collection, columns: Collection | None, mode: str) -> None:
    """Raises where two collections cannot be compared in a mode."""
    if columns is None:
        return
    if mode == "condensed":
        raise ValueError("mode='condensed' compares one collection with itself; leave Y out, or use mode='all_pairs'")
    kept = None if mode == "single" else -1
    broadcast_batch(rows.lead[:kept], columns.lead[:kept], "Y")
    if mode == "paired" and rows.lead[-1] != columns.lead[-1]:
        raise ValueError(f"mode='paired' compares row i with row i; X has {rows.lead[-1]} rows and Y has {columns.lead[-1]}")


def make_pairwise(
    function: Callable[..., Tensor],
    *,
    symmetric: bool = False,
    zero_diagonal: bool = False,
    mode: str = "all_pairs",
    pairwise: str = "broadcast",
    sample_ndim: Any = 1,
    keops: bool = False,
) -> CustomComparison:
    """Makes a comparison from a function or module ``f(x, y)``, to be streamed like a built-in metric.

    Arguments:
        function: with pairwise="broadcast" it takes x [*batch, r, 1, D] and y [*batch, 1, c, D] and returns scores [*batch, r, c]; with
            pairwise="vmap" it takes two samples [D] and returns a 0-dim tensor. Samples may be arrays or trees, see `sample_ndim`.
        symmetric: you vouch that f(x, y) = f(y, x).
        zero_diagonal: you vouch that f(x, x) = 0. Both are what mode="condensed" needs.
        mode: what a call without `mode=` gives: "all_pairs", "paired", "condensed" or "single". `tp.lazy` is always all pairs.
        pairwise: "broadcast" or "vmap".
        sample_ndim: dimensions of a sample, 1 for vectors [D]. With another number, or with trees (tuples, lists, dicts) of tensors, the
            function takes x [*batch, r, 1, *sample] and y [*batch, 1, c, *sample], or trees of these; a tree of numbers gives one for
            each leaf. All leaves have the same batch and samples. As the head of `make_feature_pairwise` the features decide instead.
        keops: False; there is no KeOps backend yet.

    Returns:
        A `CustomComparison`. ``tp.lazy(X, Y, comparison)`` runs every consumer, step and mask on tiles of its scores.

    Raises:
        TypeError: `function` cannot be called.
        ValueError: an unknown mode, or a function that uses a tensor with gradient which is not a parameter of a module.

    Notes:
        Parameters and buffers of an nn.Module, and of modules that a function closes over, are operands and get gradients, streamed in
        first order. Backward evaluates tiles again, so the function must give the same scores each time: streamed, random numbers (dropout
        in training) and buffers that change are refused. Tiles are evaluated apart, so a score must depend on its own pair only.
        `CustomComparison.check` tries these and the declared facts on samples. Streamed scores are computed in float32 or float64, whatever
        the autocast state; a call for dense scores keeps the caller's. torch.compile traces streamed comparisons of vectors as one graph;
        arrays and trees break it.

    Example:
        >>> import torch, torchpairwise as tp
        >>> chebyshev = tp.make_pairwise(lambda x, y: (x - y).abs().amax(-1), symmetric=True, zero_diagonal=True)
        >>> tp.lazy(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]]), chebyshev).sum(-1)
        tensor([4.])
        >>> chebyshev(torch.tensor([[0.0], [1.0], [3.0]]), mode="condensed")
        tensor([1., 3., 2.])
        >>> best_token = tp.make_pairwise(lambda x, y: (x @ y.mT).amax((-1, -2)), sample_ndim=2)  # samples [tokens, D]
        >>> tp.lazy(torch.ones(4, 7, 2), torch.ones(5, 9, 2), best_token).max(-1).values
        tensor([2., 2., 2., 2.])
    """
    if not callable(function):
        raise TypeError(f"function is {describe(function)}; expected a callable f(x, y)")
    checked_mode(mode)
    if pairwise not in ("broadcast", "vmap"):
        raise ValueError(f"pairwise={pairwise!r}; expected 'broadcast' or 'vmap'")
    if keops:
        raise ValueError("keops=True: this version has no KeOps backend; leave it out, the function runs on tiles of tensors")
    if mode == "condensed" and not (symmetric and zero_diagonal):
        raise ValueError("mode='condensed' needs symmetric=True and zero_diagonal=True")
    return CustomComparison(function, mode, pairwise, symmetric, zero_diagonal, checked_sample_ndim(sample_ndim))


def checked_mode(mode: str) -> str:
    """The mode, or an error that lists all."""
    if mode not in MODES:
        raise ValueError(f"mode={mode!r}; expected {', '.join(map(repr, MODES[:-1]))} or {MODES[-1]!r}")
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
