"""The consumers: streamed reductions of a lazy score matrix. Each makes one call of the native library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from torchpairwise.explain import Explanation, parse_explanation

if TYPE_CHECKING:
    from torchpairwise.expression import PairwiseExpression
    from torchpairwise.masks import MaskStep, PairMask

__all__ = ["Consumers", "Selection", "SoftmaxOutput"]

Dim = int | Sequence[int] | None


class Selection(NamedTuple):
    """Selected scores and where they stand: `values` and int64 `indices`."""

    values: Tensor
    indices: Tensor


class SoftmaxOutput(NamedTuple):
    """`output` [..., N, C] of softmax_matmul and the `logsumexp` [..., N] of its rows."""

    output: Tensor
    logsumexp: Tensor


class Consumers:
    """Consumers of `PairwiseExpression`.

    `dim` is -1 (over the columns, a result for each row), -2 (over the rows) or both; `exclude_self=True` leaves out the pairs i == j and
    needs N == M. Memory is that of inputs and outputs plus a bounded workspace; first gradients evaluate the tiles again, higher ones
    may use N * M memory. Excluded pairs are absent from every result, and their gradients are exactly 0.
    """

    __slots__ = ()

    if TYPE_CHECKING:  # what PairwiseExpression provides
        _transposed: bool

        @property
        def shape(self) -> torch.Size:
            raise NotImplementedError

        @property
        def dtype(self) -> torch.dtype:
            raise NotImplementedError

        def masked(self, mask: PairMask) -> PairwiseExpression:
            raise NotImplementedError

        def detach(self) -> PairwiseExpression:
            raise NotImplementedError

        def _operand(self, tensor: Tensor, name: str) -> Tensor:
            raise NotImplementedError

        def _lower(self, extra: Sequence[MaskStep] = ()) -> tuple[list[Tensor], str, list[float]]:
            raise NotImplementedError

    def sum(self, dim: Dim = None, keepdim: bool = False, *, exclude_self: bool = False) -> Tensor:
        """``sum_j s_ij``; an empty row gives 0.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.eye(2), metric="linear").sum(-1)
            tensor([1., 1.])
        """
        axis = _axis(self, dim)
        rows = self._run("sum", -1 if axis is None else axis, exclude_self)
        return self._shaped(rows.sum(-1) if axis is None else rows, axis, keepdim)

    def mean(self, dim: Dim = None, keepdim: bool = False, *, exclude_self: bool = False) -> Tensor:
        """``sum_j s_ij / number of kept pairs``; NaN for a row that masks leave empty.

        Raises:
            ValueError: the axis has size 0.
        """
        axis = _axis(self, dim)
        if axis is None and 0 in self.shape[-2:]:
            raise ValueError(f"mean over an empty axis: scores {list(self.shape)}")
        values, count = self._run("mean", -1 if axis is None else axis, exclude_self)
        if axis is None:
            total = torch.where(count > 0, values * count, 0.0).sum(-1)
            values = total / count.sum(-1)
        return self._shaped(values, axis, keepdim)

    def logsumexp(self, dim: Dim = -1, keepdim: bool = False, *, exclude_self: bool = False) -> Tensor:
        """``log sum_j exp(s_ij)``; -inf for an empty row. Rows whose result is infinite have zero gradient.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.zeros(1, 1), torch.zeros(4, 1), "linear").logsumexp(-1).exp()
            tensor([4.])
        """
        axis = _axis(self, dim)
        rows = self._run("logsumexp", -1 if axis is None else axis, exclude_self)
        return self._shaped(torch.logsumexp(rows, -1) if axis is None else rows, axis, keepdim)

    def softmax_matmul(
        self,
        values: Tensor,
        *,
        mask: PairMask | None = None,
        dim: int = -1,
        return_aux: bool = False,
        exclude_self: bool = False,
    ) -> Any:
        """``sum_j softmax_j(s_ij) V_jc``: attention.

        Arguments:
            values: V [..., M, C] ([..., N, C] with dim=-2).
            mask: a pair mask of `tp.masks`; True = keep.
            return_aux: also return the logsumexp of the rows, as `SoftmaxOutput`.

        Returns:
            [..., N, C]; 0 for a row without kept pairs.
        """
        expression = self if mask is None else self.masked(mask)
        output, logsumexp = expression._run("softmax_matmul", _side(self, dim), exclude_self, values)
        return SoftmaxOutput(output, logsumexp) if return_aux else output

    def matmul(self, values: Tensor, *, dim: int = -1, exclude_self: bool = False) -> Tensor:
        """``sum_j s_ij V_jc``; `values` [..., M, C], or a vector [M] for a result [..., N]."""
        vector = isinstance(values, Tensor) and values.dim() == 1
        result = self._run("matmul", _side(self, dim), exclude_self, values.unsqueeze(-1) if vector else values)
        return result.squeeze(-1) if vector else result

    def __matmul__(self, values: Tensor) -> Tensor:
        return self.matmul(values)

    def min(self, dim: Dim = None, keepdim: bool = False, *, exclude_self: bool = False) -> Any:
        """The smallest scores and the lowest indices that have them; over both axes the smallest score alone.

        NaN ranks last; a row without kept pairs gives +inf.

        Raises:
            ValueError: the axis has size 0.
        """
        return self._extremum("min", dim, keepdim, exclude_self)

    def max(self, dim: Dim = None, keepdim: bool = False, *, exclude_self: bool = False) -> Any:
        """The largest scores and the lowest indices that have them; see `min`."""
        return self._extremum("max", dim, keepdim, exclude_self)

    def argmin(self, dim: int = -1, keepdim: bool = False, *, exclude_self: bool = False) -> Tensor:
        """The index of the smallest score, the lowest one among equals."""
        return self._shaped(self.detach()._run("min", _side(self, dim), exclude_self)[1], _side(self, dim), keepdim)

    def argmax(self, dim: int = -1, keepdim: bool = False, *, exclude_self: bool = False) -> Tensor:
        """The index of the largest score, the lowest one among equals."""
        return self._shaped(self.detach()._run("max", _side(self, dim), exclude_self)[1], _side(self, dim), keepdim)

    def topk(self, k: int, dim: int = -1, largest: bool = True, *, exclude_self: bool = False) -> Selection:
        """The k best scores in order, ties by the lower index; `topk(k)` is a prefix of `topk(k + 1)`.

        Returns:
            values and indices [..., N, k] ([..., M, k] with dim=-2). Excluded pairs and NaN rank last.

        Raises:
            ValueError: k is negative or larger than the axis (with exclude_self, than the axis less one).

        Example:
            >>> import torch, torchpairwise as tp
            >>> X = torch.tensor([[0.0], [1.0], [5.0]])
            >>> tp.lazy(X).topk(1, largest=False, exclude_self=True).indices.flatten()
            tensor([1, 0, 1])
        """
        axis = _side(self, dim)
        size = self.shape[axis] - int(exclude_self)
        if isinstance(k, bool) or not isinstance(k, int):
            raise TypeError(f"k is {type(k).__name__}; expected an integer")
        if k < 0 or k > size:
            raise ValueError(f"k={k} is out of range for M={size} candidates; expected 0 <= k <= {size}")
        return Selection(*self._run("topk", axis, exclude_self, k=k, largest=largest))

    def diagonal(self) -> Tensor:
        """``s_ii`` [..., min(N, M)]."""
        operands, program, constants = self._lower()
        return torch.ops.torchpairwise.diagonal(operands, program, constants).to(self.dtype)

    def dense(self, fill_value: float = 0.0) -> Tensor:
        """All scores [..., N, M], stored: for looking and for small problems. Excluded pairs get `fill_value`."""
        operands, program, constants = self._lower()
        scores = torch.ops.torchpairwise.dense(operands, program, constants, float(fill_value)).to(self.dtype)
        return scores.mT if self._transposed else scores

    def explain(self, consumer: str, values: Tensor | None = None, *, dim: int = -1, k: int = 1) -> Explanation:
        """Which path a consumer will take and why, its tiles, workspace, pairs and operations; nothing is run."""
        operands, program, constants = self._lower()
        name = {"argmin": "min", "argmax": "max"}.get(consumer, consumer)
        side = _side(self, dim)
        native = -3 - side if self._transposed else side
        return parse_explanation(torch.ops.torchpairwise.explain(operands, program, constants, name, values, native, k))

    # The call

    def _run(
        self,
        name: str,
        axis: int,
        exclude_self: bool,
        values: Tensor | None = None,
        k: int = 0,
        largest: bool = False,
    ) -> Any:
        if exclude_self and self.shape[-2] != self.shape[-1]:
            raise ValueError(f"exclude_self=True needs N == M; the scores are {list(self.shape)}")
        operands, program, constants = self._lower((("off_diagonal", (), ()),) if exclude_self else ())
        native = -3 - axis if self._transposed else axis
        arguments: list[Any] = [operands, program, constants]
        if name in ("matmul", "softmax_matmul"):
            arguments.append(self._checked_values(values, axis))
        if name == "topk":
            arguments.append(k)
        arguments.append(native)
        if name == "topk":
            arguments.append(largest)
        results = getattr(torch.ops.torchpairwise, name)(*arguments)
        if isinstance(results, Tensor):
            return results.to(self.dtype)
        return tuple(x.to(self.dtype) if x.is_floating_point() and x.dtype != self.dtype else x for x in results)

    def _checked_values(self, values: Any, axis: int) -> Tensor:
        size = self.shape[axis]
        if not isinstance(values, Tensor) or values.dim() < 2 or values.shape[-2] != size:
            given = list(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(f"values are {given}; expected a tensor [..., {size}, C] for scores {list(self.shape)}")
        return self._operand(values, "values")

    def _extremum(self, name: str, dim: Dim, keepdim: bool, exclude_self: bool) -> Any:
        axis = _axis(self, dim)
        values, indices = self._run(name, -1 if axis is None else axis, exclude_self)
        if axis is None:
            return self._shaped(values.amin(-1) if name == "min" else values.amax(-1), axis, keepdim)
        return Selection(self._shaped(values, axis, keepdim), self._shaped(indices, axis, keepdim))

    def _shaped(self, result: Tensor, axis: int | None, keepdim: bool) -> Tensor:
        if not keepdim:
            return result
        return result[..., None, None] if axis is None else result.unsqueeze(axis)


def _axis(expression: Any, dim: Dim) -> int | None:
    """-1, -2, or None for both."""
    if dim is None:
        return None
    if isinstance(dim, int):
        return _side(expression, dim)
    sides = sorted(_side(expression, d) for d in dim)
    if sides == [-2, -1]:
        return None
    if len(sides) == 1:
        return sides[0]
    raise ValueError(f"dim={tuple(dim)}; expected -1, -2 or both")


def _side(expression: Any, dim: Any) -> int:
    ndim = len(expression.shape)
    if isinstance(dim, int) and not isinstance(dim, bool):
        side = dim if dim < 0 else dim - ndim
        if side in (-1, -2):
            return side
    raise ValueError(f"dim={dim!r}; expected -1 (over columns) or -2 (over rows) of scores {list(expression.shape)}")
