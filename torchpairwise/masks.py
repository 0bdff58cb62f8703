"""Pair masks: rules that keep or drop the pair (i, j). True means keep, everywhere.

A rule is evaluated tile by tile, so a mask never takes [N, M] memory, and tiles without a kept pair are skipped. Rules combine with ``&``,
``|`` and ``~``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["PairMask", "band", "causal", "same_group"]

# A step of a mask: its word, its tensors in the order of the signature, its numbers.
MaskStep = tuple[str, tuple[Tensor, ...], tuple[float, ...]]

_UNLIMITED = 1e18


class PairMask:
    """True = keep. A rule over pairs, made by `causal`, `band` and `same_group` and combined with ``&``, ``|`` and ``~``."""

    __slots__ = ("steps",)

    def __init__(self, steps: Sequence[MaskStep]) -> None:
        self.steps = tuple(steps)

    def __and__(self, other: PairMask) -> PairMask:
        return self._combine(other, "and")

    def __or__(self, other: PairMask) -> PairMask:
        return self._combine(other, "or")

    def __invert__(self) -> PairMask:
        return PairMask((*self.steps, ("not", (), ())))

    def _combine(self, other: PairMask, word: str) -> PairMask:
        if not isinstance(other, PairMask):
            return NotImplemented
        return PairMask((*self.steps, *other.steps, (word, (), ())))

    def __repr__(self) -> str:
        words = []
        for name, tensors, numbers in self.steps:
            shapes = [f"[{', '.join(map(str, t.shape))}]" for t in tensors]
            words.append(" ".join([name, *shapes, *(f"{x:g}" for x in numbers)]))
        return f"PairMask({'; '.join(words)})"


def causal(align: str = "lower_right") -> PairMask:
    """True = keep. Each row sees the columns up to its own.

    ``j <= i + (M - N)`` with ``align="lower_right"`` (the last row sees all columns, as a decoder with a cache needs), ``j <= i`` with
    ``align="upper_left"``.

    Raises:
        ValueError: ``align`` is neither.

    Example:
        >>> import torch, torchpairwise as tp
        >>> S = tp.lazy(torch.zeros(2, 1), torch.zeros(3, 1), "linear") + 1.0
        >>> S.masked(tp.masks.causal()).dense()
        tensor([[1., 1., 0.],
                [1., 1., 1.]])
    """
    if align not in ("lower_right", "upper_left"):
        raise ValueError(f"align={align!r}; expected 'lower_right' or 'upper_left'")
    return PairMask([("causal", (), (float(align == "lower_right"),))])


def band(lower: int | None = None, upper: int | None = None) -> PairMask:
    """True = keep. Pairs near the diagonal: ``-lower <= j - i <= upper``; None means no limit on that side.

    Raises:
        ValueError: Both limits are None.
    """
    if lower is None and upper is None:
        raise ValueError("band() got neither lower nor upper; give at least one limit")
    limits = (_UNLIMITED if lower is None else float(lower), _UNLIMITED if upper is None else float(upper))
    return PairMask([("band", (), limits)])


def same_group(rows: Tensor, columns: Tensor | None = None) -> PairMask:
    """True = keep. Pairs whose labels are equal: ``rows[i] == columns[j]``, integers of shape [..., N] and [..., M].

    ``columns=None`` compares the rows with themselves.

    Raises:
        TypeError: The labels are not integers.
    """
    columns = rows if columns is None else columns
    for name, labels in (("rows", rows), ("columns", columns)):
        if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.is_complex():
            given = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
            raise TypeError(f"same_group({name}=...) has {given}; expected a tensor of integer labels")
    return PairMask([("same_group", (rows.to(torch.int64), columns.to(torch.int64)), ())])
