"""Pair masks: rules that keep or drop the pair (i, j). True means keep, everywhere.

A rule is evaluated tile by tile, so a mask never takes [N, M] memory, and tiles without a kept pair are skipped. Rules combine with ``&``,
``|`` and ``~``. They go to ``S.masked(mask)`` or ``S.softmax_matmul(V, mask=mask)``.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence

import torch
from torch import Tensor

from torchpairwise._checks import describe
from torchpairwise._steps import UNLIMITED, Step

__all__ = ["PairMask", "band", "causal", "same_group"]


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
