"""Pair masks: rules that keep or drop the pair (i, j). True means keep, everywhere.

A rule is evaluated tile by tile, so a mask never takes [N, M] memory, and tiles without a kept pair are skipped. Rules combine with ``&``,
``|`` and ``~``. They go to ``S.masked(mask)`` or ``S.softmax_matmul(V, mask=mask)``.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchpairwise._checks import describe
from torchpairwise._steps import UNLIMITED, Step

__all__ = ["PairMask", "RelativePosition", "band", "causal", "dilated", "prefix", "relative_position", "same_group", "segments"]


class PairMask:
    """True = keep. A rule over pairs, made by `causal`, `band` and `same_group` and combined with ``&``, ``|`` and ``~``.

    A mask holds no sizes: it fits every expression, and its vectors of labels fix N and M when it is applied. torch.compile traces
    ``&`` and ``|``, but not ``~``: make an inverted mask outside of the compiled function.

    Example:
        >>> import torch, torchpairwise as tp
        >>> others = tp.masks.causal() & ~tp.masks.band(0, 0)  # earlier columns only
        >>> tp.lazy(torch.ones(3, 1), metric="linear").masked(others).dense()
        tensor([[0., 0., 0.],
                [1., 0., 0.],
                [1., 1., 0.]])
    """

    __slots__ = ("steps",)

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = tuple(steps)

    def __and__(self, other: PairMask) -> PairMask:
        return self._combine(other, "and", "&")

    def __or__(self, other: PairMask) -> PairMask:
        return self._combine(other, "or", "|")

    def __invert__(self) -> PairMask:
        return PairMask((*self.steps, Step("not")))

    def __bool__(self) -> bool:
        raise TypeError("a pair mask has no truth value; combine masks with &, | and ~ instead of and, or and not")

    def _combine(self, other: PairMask, word: str, sign: str) -> PairMask:
        if not isinstance(other, PairMask):
            raise TypeError(
                f"mask {sign} other: other is {describe(other)}; expected another pair mask of tp.masks. Boolean vectors go to "
                f"S.mask_rows and S.mask_columns"
            )
        return PairMask((*self.steps, *other.steps, Step(word)))

    def sparsity(self, n_rows: int, n_columns: int) -> float:
        """The share of pairs that the mask drops, from 0 to 1; counted in tiles.

        Example:
            >>> import torchpairwise as tp
            >>> tp.masks.causal().sparsity(4, 4)
            0.375
        """
        kept = self._ones(n_rows, n_columns).sum().item()
        return 1.0 - kept / (n_rows * n_columns) if n_rows * n_columns else 0.0

    def plot(self, n_rows: int, n_columns: int, ax: Any = None) -> Any:
        """Draws the kept pairs with matplotlib, rows downwards; for sizes that fit a screen, since it stores all pairs.

        Arguments:
            n_rows, n_columns: N and M.
            ax: matplotlib axes; None makes new ones.

        Returns:
            The axes.

        Raises:
            ImportError: matplotlib is not installed.
        """
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise ImportError("plot() needs matplotlib; install it with: pip install matplotlib") from error
        ax = pyplot.subplots()[1] if ax is None else ax
        ax.imshow(self._ones(n_rows, n_columns).dense().cpu().numpy(), cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
        ax.set(xlabel="column j", ylabel="row i", title=f"{1 - self.sparsity(n_rows, n_columns):.1%} of the pairs kept")
        return ax

    def _ones(self, n_rows: int, n_columns: int) -> Any:
        from torchpairwise.expression import lazy  # it is built on masks

        device = next((labels.device for step in self.steps for labels in step.tensors), torch.device("cpu"))
        X, Y = (torch.zeros(size, 0, dtype=torch.float64, device=device) for size in (n_rows, n_columns))
        return (lazy(X, Y, "linear") + 1.0).masked(self)

    def __repr__(self) -> str:
        words = []
        for step in self.steps:
            shapes = [f"[{', '.join(map(str, t.shape))}]" for t in step.tensors]
            limits = ["unlimited" if x == UNLIMITED else f"{x:g}" for x in step.numbers]
            words.append(" ".join([step.word, *shapes, *limits]))
        return f"PairMask({'; '.join(words)})"


def causal(align: str = "lower_right") -> PairMask:
    """True = keep. Each row sees the columns up to its own.

    ``j <= i + (M - N)`` with ``align="lower_right"``, ``j <= i`` with ``align="upper_left"``

    Arguments:
        align: "lower_right" lets the last row see all columns, as a decoder with a cache needs (a single query sees all keys);
            "upper_left" lets the first row see the first column only. They differ where N != M.

    Raises:
        ValueError: `align` is neither.

    Notes:
        With "lower_right" and N > M the first N - M rows see nothing; see the consumers for what they give then.

    Example:
        >>> import torch, torchpairwise as tp
        >>> S = tp.lazy(torch.ones(2, 1), torch.ones(3, 1), "linear")
        >>> S.masked(tp.masks.causal()).dense()
        tensor([[1., 1., 0.],
                [1., 1., 1.]])
        >>> S.masked(tp.masks.causal(align="upper_left")).dense()
        tensor([[1., 0., 0.],
                [1., 1., 0.]])
    """
    if align not in ("lower_right", "upper_left"):
        raise ValueError(f"align={align!r}; expected 'lower_right' or 'upper_left'")
    return PairMask([Step("causal", (), (float(align == "lower_right"),))])


def band(lower: int | None = None, upper: int | None = None) -> PairMask:
    """True = keep. Pairs near the diagonal.

    ``-lower <= j - i <= upper``

    Arguments:
        lower: how many columns before its own index a row sees; None for no limit.
        upper: how many columns after it; None for no limit.

    Raises:
        TypeError: a limit is not an integer.
        ValueError: both limits are None.

    Example:
        >>> import torch, torchpairwise as tp
        >>> tp.lazy(torch.ones(3, 1), metric="linear").masked(tp.masks.band(1, 0)).dense()
        tensor([[1., 0., 0.],
                [1., 1., 0.],
                [0., 1., 1.]])
    """
    if lower is None and upper is None:
        raise ValueError("band() got neither lower nor upper; give at least one limit")
    limits = []
    for name, limit in (("lower", lower), ("upper", upper)):
        if limit is None:
            limits.append(UNLIMITED)
        elif isinstance(limit, (numbers.Integral, torch.SymInt)) and not isinstance(limit, bool):
            limits.append(float(limit))
        else:
            raise TypeError(f"band({name}=...) is {describe(limit)}; expected an integer, or None for no limit")
    return PairMask([Step("band", (), (limits[0], limits[1]))])


def same_group(
    rows: Tensor,  # [*batch, N]
    columns: Tensor | None = None,  # [*batch, M]
) -> PairMask:
    """True = keep. Pairs whose labels are equal.

    ``rows_i == columns_j``

    Arguments:
        rows: integer labels [*batch, N].
        columns: integer labels [*batch, M]; None compares the rows with themselves.

    Raises:
        TypeError: the labels are not integers.
        ValueError: the labels have no dimension, or rows and columns are on different devices.

    Example:
        >>> import torch, torchpairwise as tp
        >>> label = torch.tensor([0, 0, 1])
        >>> tp.lazy(torch.ones(3, 1), metric="linear").masked(tp.masks.same_group(label)).dense()
        tensor([[1., 1., 0.],
                [1., 1., 0.],
                [0., 0., 1.]])
    """
    columns = rows if columns is None else columns
    for name, labels in (("rows", rows), ("columns", columns)):
        if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.is_complex():
            raise TypeError(f"same_group({name}=...) is {describe(labels)}; expected a tensor of integer labels")
        if labels.dim() == 0:
            raise ValueError(f"same_group({name}=...) has no dimension; expected labels [..., {'N' if name == 'rows' else 'M'}]")
    if rows.device != columns.device:
        raise ValueError(f"same_group: rows are on {rows.device}, but columns on {columns.device}; move one of them")
    labels = rows.to(torch.int64)
    return PairMask([Step("same_group", (labels, labels if columns is rows else columns.to(torch.int64)))])


def segments(
    cu_rows: Tensor,  # [S + 1]
    cu_columns: Tensor | None = None,  # [S + 1]
) -> PairMask:
    """True = keep. Pairs of the same segment of packed sequences.

    Arguments:
        cu_rows: cumulative lengths [S + 1] of the row sequences, from 0 to N, as flash-attention's `cu_seqlens`.
        cu_columns: those of the column sequences, from 0 to M; None for the same as the rows.

    Raises:
        TypeError: not integers.
        ValueError: not a non-decreasing vector that starts at 0; another number of segments on the other side.

    Notes:
        Reads the last entries on the host, to know N and M.

    Example:
        >>> import torch, torchpairwise as tp
        >>> tp.lazy(torch.ones(3, 1), metric="linear").masked(tp.masks.segments(torch.tensor([0, 2, 3]))).dense()
        tensor([[1., 1., 0.],
                [1., 1., 0.],
                [0., 0., 1.]])
    """
    labels = _segment_labels(cu_rows, "cu_rows")
    if cu_columns is None:
        return same_group(labels)
    if isinstance(cu_columns, Tensor) and cu_columns.shape != cu_rows.shape:
        raise ValueError(f"segments: cu_rows has shape {list(cu_rows.shape)} and cu_columns {list(cu_columns.shape)}; expected the same")
    return same_group(labels, _segment_labels(cu_columns, "cu_columns"))


def _segment_labels(bounds: Tensor, name: str) -> Tensor:
    if not isinstance(bounds, Tensor) or bounds.is_floating_point() or bounds.is_complex() or bounds.dtype == torch.bool:
        raise TypeError(f"segments({name}) is {describe(bounds)}; expected a tensor of integers [S + 1]")
    if bounds.dim() != 1 or bounds.numel() < 1 or bounds[0] != 0 or (bounds.diff() < 0).any():
        raise ValueError(f"segments({name}) must be a non-decreasing vector [S + 1] that starts at 0; got {bounds.tolist()}")
    places = torch.arange(int(bounds[-1]), device=bounds.device)
    return torch.bucketize(places, bounds[1:].to(torch.int64), right=True)


def prefix(length: int) -> PairMask:
    """True = keep. The first columns, which every row sees; ``tp.masks.causal() | tp.masks.prefix(p)`` is the prefix language model's.

    ``j < length``

    Raises:
        TypeError: the length is not an integer.
        ValueError: it is negative.

    Example:
        >>> import torch, torchpairwise as tp
        >>> tp.lazy(torch.ones(2, 1), metric="linear").masked(tp.masks.causal() | tp.masks.prefix(1)).dense()
        tensor([[1., 0.],
                [1., 1.]])
    """
    return PairMask([Step("first_columns", (), (float(_whole(length, "prefix(length)", 0)),))])


def dilated(step: int) -> PairMask:
    """True = keep. Every `step`-th diagonal, the main one among them; with `band` a dilated window.

    ``(j - i) mod step == 0``

    Raises:
        TypeError: the step is not an integer.
        ValueError: it is less than 1.

    Example:
        >>> import torch, torchpairwise as tp
        >>> tp.lazy(torch.ones(3, 1), metric="linear").masked(tp.masks.band(2, 0) & tp.masks.dilated(2)).dense()
        tensor([[1., 0., 0.],
                [0., 1., 0.],
                [1., 0., 1.]])
    """
    return PairMask([Step("dilated", (), (float(_whole(step, "dilated(step)", 1)),))])


def _whole(value: Any, name: str, least: int) -> int:
    if not isinstance(value, (numbers.Integral, torch.SymInt)) or isinstance(value, bool):
        raise TypeError(f"{name} is {describe(value)}; expected an integer")
    if value < least:
        raise ValueError(f"{name} is {value}; expected at least {least}")
    return int(value)


@dataclass(frozen=True)
class RelativePosition:
    """The index rule of `relative_position`; for `S.bias_table(table, rule)`."""

    max_distance: int
    align: str

    def offset(self, n_rows: int, n_columns: int) -> int:
        """What is added to the number of a row."""
        return n_columns - n_rows if self.align == "lower_right" else 0


def relative_position(max_distance: int, align: str = "lower_right") -> RelativePosition:
    """Relative positions as indices of a table of 2 max_distance + 1 entries; larger distances share the outermost entries.

    ``min(max(j - i - o, -max_distance), max_distance) + max_distance`` with o = M - N (lower_right) or 0 (upper_left)

    Arguments:
        max_distance: at least 0.
        align: as of `causal`; it matters where N != M.

    Raises:
        TypeError, ValueError: an argument is no such number or word.

    Example:
        >>> import torchpairwise as tp
        >>> tp.masks.relative_position(2)
        RelativePosition(max_distance=2, align='lower_right')
    """
    if align not in ("lower_right", "upper_left"):
        raise ValueError(f"align={align!r}; expected 'lower_right' or 'upper_left'")
    return RelativePosition(_whole(max_distance, "relative_position(max_distance)", 0), align)
