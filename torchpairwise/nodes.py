"""The steps of a lazy score matrix: operators, elementwise functions, row and column vectors, masks. Each returns a new expression."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchpairwise._checks import as_number, as_scalar, broadcast_batch, check_device, describe, matching
from torchpairwise._steps import Step, Steps, both_masks, transposed_masks, transposed_steps
from torchpairwise.elementwise import Elementwise
from torchpairwise.masks import PairMask, RelativePosition

if TYPE_CHECKING:
    from torchpairwise.expression import PairwiseExpression

__all__ = ["Nodes"]

_OTHER_SIDE = {"rows": "columns", "columns": "rows"}


class Nodes(Elementwise):
    """Steps of `PairwiseExpression`."""

    __slots__ = ()

    def add_rows(
        self,
        vector: Tensor,  # [*batch, N]
    ) -> PairwiseExpression:
        """Adds a number to each row: ``s_ij + r_i``.

        Arguments:
            vector: r [*batch, N], in the dtype and on the device of X. It may require a gradient; its batch dimensions broadcast.

        Raises:
            ValueError: another size, or another device.
            TypeError: another dtype.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.zeros(2, 1)).add_rows(torch.tensor([1.0, 2.0])).dense()
            tensor([[1., 1.],
                    [2., 2.]])
        """
        return self._vector("rows", "add", vector)

    def add_columns(
        self,
        vector: Tensor,  # [*batch, M]
    ) -> PairwiseExpression:
        """Adds a number to each column: ``s_ij + c_j``; arguments and errors as of `add_rows`.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.zeros(2, 1)).add_columns(torch.tensor([1.0, 2.0])).dense()
            tensor([[1., 2.],
                    [1., 2.]])
        """
        return self._vector("columns", "add", vector)

    def weight_rows(
        self,
        vector: Tensor,  # [*batch, N]
    ) -> PairwiseExpression:
        """Multiplies each row by a number: ``s_ij r_i``; arguments and errors as of `add_rows`.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.ones(2, 1), metric="linear").weight_rows(torch.tensor([3.0, 4.0])).sum(-1)
            tensor([6., 8.])
        """
        return self._vector("rows", "weight", vector)

    def weight_columns(
        self,
        vector: Tensor,  # [*batch, M]
    ) -> PairwiseExpression:
        """Multiplies each column by a number: ``s_ij c_j``; arguments and errors as of `add_rows`.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.ones(2, 1), metric="linear").weight_columns(torch.tensor([3.0, 4.0])).sum(-2)
            tensor([6., 8.])
        """
        return self._vector("columns", "weight", vector)

    def masked(self, mask: PairMask) -> PairwiseExpression:
        """Keeps the pairs for which a pair mask is True; the others are absent from every result, whatever step comes after.

        Arguments:
            mask: a rule of `tp.masks`, or several combined with ``&``, ``|`` and ``~``. Several calls keep what all of them keep.

        Raises:
            TypeError: not a pair mask.
            ValueError: labels of another size, or on another device.

        Notes:
            No [N, M] mask is ever stored, and tiles without a kept pair are skipped. NaN behind a mask reaches no result.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.ones(3, 1), metric="linear").masked(tp.masks.causal()).sum(-1)
            tensor([1., 2., 3.])
        """
        steps, batch = self._bound_mask(mask)
        return self._replace(masks=both_masks(self._masks, steps), shape=(*batch, *self._shape[-2:]))

    def where(self, mask: PairMask, other: float | Tensor | Nodes) -> PairwiseExpression:
        """The score where a pair mask is True, something else where it is not.

        Arguments:
            mask: a pair mask of `tp.masks`; its False pairs stay in every result, with the other score.
            other: a number, a 0-dim tensor or an expression over the same rows and columns.

        Raises:
            TypeError, ValueError: as `masked`; an expression of another shape.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.ones(2, 1), metric="linear").where(tp.masks.causal(), -5.0).dense()
            tensor([[ 1., -5.],
                    [ 1.,  1.]])
        """
        steps, batch = self._bound_mask(mask)
        second = other if isinstance(other, Nodes) else self._constant(other, "where(other)")
        return self._join("select", second, steps)._widen(batch, "where(mask)")

    def bias_table(
        self,
        table: Tensor,  # [*batch, T]
        index: RelativePosition | Tensor,  # or int64 [*batch, N, M]
    ) -> PairwiseExpression:
        """Adds an entry of a table to each score: ``s_ij + table[index_ij]``, such as a relative position bias.

        Arguments:
            table: [*batch, T], in the dtype of X; it may require a gradient.
            index: `tp.masks.relative_position(max_distance)`, evaluated tile by tile (T = 2 max_distance + 1), or an integer tensor
                [*batch, N, M] with entries from 0 to T - 1, which the caller stores.

        Raises:
            TypeError: the index is neither; the table has another dtype.
            ValueError: sizes that do not fit.
            IndexError: an index outside of the table (checked unless tracing).

        Notes:
            The gradient of the table is summed in float64 in a fixed order, so that repeated runs agree bit by bit.

        Example:
            >>> import torch, torchpairwise as tp
            >>> S = tp.lazy(torch.zeros(3, 1), metric="linear")
            >>> S.bias_table(torch.tensor([-1.0, 0.0, 1.0]), tp.masks.relative_position(1)).dense()
            tensor([[ 0.,  1.,  1.],
                    [-1.,  0.,  1.],
                    [-1., -1.,  0.]])
        """
        return self + self._looked_up(table, index)

    def mask_rows(
        self,
        keep: Tensor,  # [*batch, N] bool
    ) -> PairwiseExpression:
        """True = keep. Drops the rows where a boolean vector is False.

        Arguments:
            keep: bool [*batch, N]; its batch dimensions broadcast.

        Raises:
            ValueError: another dtype, size or device.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.ones(2, 1), metric="linear").mask_rows(torch.tensor([True, False])).sum(-1)
            tensor([2., 0.])
        """
        return self._flags("rows", keep)

    def mask_columns(
        self,
        keep: Tensor,  # [*batch, M] bool
    ) -> PairwiseExpression:
        """True = keep. Drops the columns where a boolean vector is False, for example padding; see `mask_rows`.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.ones(2, 1), metric="linear").mask_columns(torch.tensor([True, False])).sum(-1)
            tensor([1., 1.])
        """
        return self._flags("columns", keep)

    def __neg__(self) -> PairwiseExpression:
        return self._scalar("scale", -1.0, "-S")

    def __add__(self, other: Any) -> PairwiseExpression:
        return self._join("add", other) if isinstance(other, Nodes) else self._broadcast("shift", "add", other, "S + other")

    __radd__ = __add__

    def __sub__(self, other: Any) -> PairwiseExpression:
        return self + (-other if isinstance(other, (Nodes, Tensor, numbers.Real)) else other)

    def __rsub__(self, other: Any) -> PairwiseExpression:
        return -self + other

    def __mul__(self, other: Any) -> PairwiseExpression:
        return self._join("multiply", other) if isinstance(other, Nodes) else self._broadcast("scale", "weight", other, "S * other")

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> PairwiseExpression:
        if isinstance(other, Nodes):
            return self._join("multiply", other.reciprocal())
        if isinstance(other, Tensor):
            return self * other.reciprocal()
        divisor = as_number(other, "S / other", "a number, a tensor or an expression")
        return self * (1.0 / divisor if divisor != 0 else math.copysign(math.inf, divisor))

    def __rtruediv__(self, other: Any) -> PairwiseExpression:
        return self.reciprocal() * other

    def __pow__(self, exponent: float) -> PairwiseExpression:
        return self.pow(exponent)

    # Making new expressions

    def _bound_mask(self, mask: PairMask) -> tuple[Steps, tuple[int, ...]]:
        """The steps of a mask in the orientation of the stored steps, and the batch dimensions of scores and labels."""
        if not isinstance(mask, PairMask):
            raise TypeError(
                f"mask is {describe(mask)}; expected a pair mask of tp.masks (a dense [N, M] mask would have to be stored), "
                f"or boolean vectors through mask_rows and mask_columns"
            )
        batch = self._shape[:-2]
        for step in mask.steps:
            for labels, size, name in zip(step.tensors, self.shape[-2:], ("rows", "columns"), strict=False):
                if labels.shape[-1] != size:
                    raise ValueError(
                        f"{step.word}({name}) has shape {list(labels.shape)}; expected labels [..., {size}] for scores {list(self.shape)}"
                    )
                check_device(labels, f"{step.word}({name})", self._features)
                batch = broadcast_batch(batch, labels.shape[:-1], f"{step.word}({name})")
        steps = transposed_masks(mask.steps, self.shape[-2], self.shape[-1]) if self._transposed else mask.steps
        return steps, batch

    def _looked_up(self, table: Any, index: Any) -> PairwiseExpression:
        """The expression that holds table[index] for the rows and columns of this one."""
        n, m = self.shape[-2:]
        if not isinstance(table, Tensor) or table.dim() == 0:
            raise TypeError(f"bias_table(table) is {describe(table)}; expected a tensor [..., T]")
        operand = matching(table, "bias_table(table)", self._features, self._dtype)
        if isinstance(index, RelativePosition):
            n_entries = 2 * index.max_distance + 1
            if table.shape[-1] != n_entries:
                raise ValueError(
                    f"bias_table(table) has shape {list(table.shape)}; expected [..., {n_entries}] for max_distance={index.max_distance}"
                )
            step = self._places("relative", operand, float(-index.max_distance), float(index.max_distance), index.offset(n, m))
            return self._table(step, table.shape[:-1])
        if not isinstance(index, Tensor) or index.is_floating_point() or index.is_complex() or index.dtype == torch.bool:
            raise TypeError(f"bias_table(index) is {describe(index)}; expected tp.masks.relative_position(...) or an integer tensor [N, M]")
        if index.dim() < 2 or tuple(index.shape[-2:]) != (n, m):
            raise ValueError(f"bias_table(index) has shape {list(index.shape)}; expected [..., {n}, {m}]")
        check_device(index, "bias_table(index)", self._features)
        if not torch.compiler.is_compiling() and index.numel() and (index.min() < 0 or index.max() >= table.shape[-1]):
            raise IndexError(f"bias_table(index) runs from {index.min()} to {index.max()}; the table has {table.shape[-1]} entries")
        step = Step("lookup", (operand, index.to(torch.int64)))
        return self._table(step, broadcast_batch(table.shape[:-1], index.shape[:-2], "bias_table(index)"))

    def _places(self, word: str, table: Tensor, least: float, most: float, offset: int = 0) -> Step:
        """A table step for the rows and columns of this matrix; row i has the place i + offset."""
        rows, columns = (torch.arange(size, device=self.device) for size in self.shape[-2:])
        return Step(word, (table, rows + offset, columns), (least, most))

    def _table(self, step: Step, batch: Sequence[int]) -> PairwiseExpression:
        shape = (*batch, *self.shape[-2:])
        return self._replace(steps=(step,), masks=(), shape=shape, metric=step.word, transposed=False)

    def _constant(self, value: Any, name: str) -> PairwiseExpression:
        operand = as_scalar(value, name, self._features)
        if not isinstance(operand, Tensor):
            operand = torch.full((), operand, dtype=self._features.dtype, device=self.device)
        return self._table(self._places("relative", operand.reshape(1), 0.0, 0.0), ())

    def _broadcast(self, word: str, verb: str, other: Any, name: str) -> PairwiseExpression:
        """`other` as torch broadcasts it: a number or a 0-dim tensor for all pairs, [*batch, N, 1] for rows, [*batch, 1, M] for columns."""
        if not isinstance(other, Tensor) or other.dim() < 2:
            return self._scalar(word, other, name)
        n, m = self.shape[-2:]
        if other.shape[-1] == 1 and other.shape[-2] == n:
            return self._vector("rows", verb, other.squeeze(-1))
        if other.shape[-2] == 1 and other.shape[-1] == m:
            return self._vector("columns", verb, other.squeeze(-2))
        raise ValueError(
            f"{name}: other has shape {list(other.shape)}; expected [..., {n}, 1] or [..., 1, {m}] for scores {list(self.shape)}, or use "
            f"{verb}_rows and {verb}_columns. A dense [N, M] bias would have to be stored; add a lazy expression instead"
        )

    def _vector(self, side: str, verb: str, vector: Tensor) -> PairwiseExpression:
        size = self.shape[-2] if side == "rows" else self.shape[-1]
        name = f"{verb}_{side}(vector)"
        if not isinstance(vector, Tensor):
            raise TypeError(f"{name} is {describe(vector)}; expected a tensor [..., {size}]")
        if vector.dim() == 0 or vector.shape[-1] != size:
            raise ValueError(
                f"{name} has shape {list(vector.shape)}; expected a tensor [..., {size}] for scores {list(self.shape)}, one number for "
                f"each of the {side}"
            )
        operand = matching(vector, name, self._features, self._dtype)
        word = f"{verb}_{_OTHER_SIDE[side] if self._transposed else side}"
        return self._node(word, (operand,))._widen(vector.shape[:-1], name)

    def _flags(self, side: str, keep: Tensor) -> PairwiseExpression:
        size = self.shape[-2] if side == "rows" else self.shape[-1]
        name = f"mask_{side}(keep)"
        if not isinstance(keep, Tensor) or keep.dtype != torch.bool or keep.dim() == 0 or keep.shape[-1] != size:
            raise ValueError(f"{name} is {describe(keep)}; expected a boolean tensor [..., {size}], True = keep")
        check_device(keep, name, self._features)
        step = Step(_OTHER_SIDE[side] if self._transposed else side, (keep,))
        return self._replace(masks=both_masks(self._masks, (step,)))._widen(keep.shape[:-1], name)

    def _widen(self, batch: Sequence[int], name: str) -> PairwiseExpression:
        return self._replace(shape=(*broadcast_batch(self._shape[:-2], batch, name), *self._shape[-2:]))

    def _join(self, word: str, other: Any, mask: Steps = ()) -> PairwiseExpression:
        step = Step(word, mask=mask)
        if self.shape[-2:] != other.shape[-2:]:
            raise ValueError(
                f"scores {list(self.shape)} and {list(other.shape)} differ in rows or columns; both sides need the same [N, M]"
            )
        if self.device != other.device:
            raise ValueError(f"scores on {self.device} and on {other.device} cannot be joined; move one of them with S.to(device)")
        if self.dtype != other.dtype:
            raise TypeError(f"scores of {self.dtype} and of {other.dtype} cannot be joined; convert one of them with S.to(dtype)")
        if self._choices and other._choices and self._choices != other._choices:
            raise ValueError(
                f"the two expressions were bound with different choices ({self._choices} and {other._choices}); give both the same "
                f"backend, chunk_size and precision, or give them to one only"
            )
        steps, masks = other._steps, other._masks
        if self._transposed != other._transposed:
            steps = transposed_steps(steps, other._shape[-2], other._shape[-1])
            masks = transposed_masks(masks, other._shape[-2], other._shape[-1])
        joined = self._replace(
            steps=(*self._steps, *steps, step), masks=both_masks(self._masks, masks), choices=self._choices or other._choices
        )
        return joined._widen(other._shape[:-2], "the other expression")
