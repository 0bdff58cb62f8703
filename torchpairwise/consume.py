"""The consumers: streamed reductions of a lazy score matrix. Each makes one call of the native library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from torchpairwise._axes import Dim, best_row, one_axis, reduced_axis, total_mean
from torchpairwise._calls import Calls
from torchpairwise._checks import as_number
from torchpairwise._registry import CONSUMERS, did_you_mean
from torchpairwise.explain import Explanation, parse_explanation

if TYPE_CHECKING:
    from torchpairwise.masks import PairMask

__all__ = ["Consumers", "Selection", "SoftmaxOutput"]

_SAME_CALL = {"argmin": "min", "argmax": "max"}


class Selection(NamedTuple):
    """Selected scores and where they stand: `values`, and int64 `indices` of columns (of rows with dim=-2)."""

    values: Tensor
    indices: Tensor


class SoftmaxOutput(NamedTuple):
    """`output` [*batch, N, C] of `softmax_matmul` and the `logsumexp` [*batch, N] of its rows."""

    output: Tensor
    logsumexp: Tensor


class Consumers(Calls):
    """Consumers of `PairwiseExpression`.

    `dim` is -1 (over the columns, one result for each row), -2 (over the rows) or, where it makes sense, both: None or (-2, -1).
    `exclude_self=True` leaves out the pairs i == j, by index, and needs N == M. Memory is that of inputs and outputs and a bounded
    workspace; first gradients evaluate the tiles again, higher ones may use N * M memory. Dropped pairs are absent from every result,
    and their gradients are exactly 0.
    """

    __slots__ = ()

    def sum(self, dim: Dim = None, keepdim: bool = False, *, exclude_self: bool = False) -> Tensor:
        """The sum: ``sum_j s_ij``.

        Arguments:
            dim: -1, -2, or both (the default).
            keepdim: keep the reduced axes with size 1.
            exclude_self: leave out the pairs i == j.

        Returns:
            [*batch, N], [*batch, M] or [*batch]; 0 over nothing.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.eye(2), metric="linear").sum(-1)
            tensor([1., 1.])
        """
        axis = reduced_axis(self.shape, dim)
        (rows,) = self._run("sum", axis, exclude_self)
        return self._shaped(rows.sum(-1) if axis is None else rows, axis, keepdim)

    def mean(self, dim: Dim = None, keepdim: bool = False, *, exclude_self: bool = False) -> Tensor:
        """The mean of the kept pairs: ``sum_j s_ij / #kept_i``; arguments as of `sum`.

        Returns:
            [*batch, N], [*batch, M] or [*batch]; NaN where masks leave nothing.

        Raises:
            ValueError: the axis has size 0.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.tensor([[0.0], [2.0]])).mean(-1, exclude_self=True)
            tensor([4., 4.])
        """
        axis = reduced_axis(self.shape, dim)
        means, counts = self._run("mean", axis, exclude_self)
        return self._shaped(total_mean(means, counts) if axis is None else means, axis, keepdim)

    def logsumexp(self, dim: Dim = -1, keepdim: bool = False, *, exclude_self: bool = False) -> Tensor:
        """The logarithm of summed exponentials: ``log sum_j exp(s_ij)``; arguments as of `sum`, but `dim` is -1 by default.

        Returns:
            [*batch, N], [*batch, M] or [*batch]; -inf over nothing. Rows whose result is infinite have gradient 0.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.zeros(1, 1), torch.zeros(4, 1), "linear").logsumexp(-1).exp()
            tensor([4.])
        """
        axis = reduced_axis(self.shape, dim)
        rows = self._run("logsumexp", axis, exclude_self)[0]
        return self._shaped(torch.logsumexp(rows, -1) if axis is None else rows, axis, keepdim)

    def softmax_matmul(
        self,
        values: Tensor,  # [*batch, M, C]
        *,
        mask: PairMask | None = None,
        dim: int = -1,
        return_aux: bool = False,
        exclude_self: bool = False,
    ) -> Any:
        """Attention: ``sum_j softmax_j(s_ij) V_jc``.

        Arguments:
            values: V [*batch, M, C]; with dim=-2 the softmax is over rows and V is [*batch, N, C].
            mask: a pair mask of `tp.masks`; True = keep.
            dim: -1 or -2.
            return_aux: also return the logsumexp of the scores.
            exclude_self: leave out the pairs i == j.

        Returns:
            [*batch, N, C] ([*batch, M, C] with dim=-2), 0 for a row without kept pairs; with `return_aux=True` the named tuple
            (output, logsumexp [*batch, N]), both with gradients.

        Raises:
            ValueError: `values` of another size or device.
            TypeError: `values` of another dtype; a mask that is no pair mask.

        Example:
            >>> import torch, torchpairwise as tp
            >>> S = tp.lazy(torch.zeros(2, 1), torch.zeros(3, 1), "linear")
            >>> S.softmax_matmul(torch.tensor([[1.0], [2.0], [6.0]]), mask=tp.masks.causal())
            tensor([[1.5000],
                    [3.0000]])
        """
        if mask is not None:
            return self._replace().masked(mask).softmax_matmul(values, dim=dim, return_aux=return_aux, exclude_self=exclude_self)
        axis = one_axis(self.shape, dim)
        output, logsumexp, _ = self._run("softmax_matmul", axis, exclude_self, self._checked_values(values, axis))
        return SoftmaxOutput(self._cast(output), self._cast(logsumexp)) if return_aux else self._cast(output)

    def matmul(
        self,
        values: Tensor,  # [*batch, M, C] or [M]
        *,
        dim: int = -1,
        exclude_self: bool = False,
    ) -> Tensor:
        """The product with a matrix or vector: ``sum_j s_ij V_jc``; ``S @ V`` is the same.

        Arguments:
            values: V [*batch, M, C], or one vector [M]; with dim=-2 [*batch, N, C] or [N], for the product of the transposed matrix.
            dim: -1 or -2.
            exclude_self: leave out the pairs i == j.

        Returns:
            [*batch, N, C], or [*batch, N] for a vector; with dim=-2 M in place of N.

        Raises:
            ValueError: `values` of another size or device.
            TypeError: `values` of another dtype, and ``U @ S``.

        Notes:
            Do not write ``U @ S`` inside torch.compile either: Dynamo exchanges the two sides, and it would run as ``S @ U``.

        Example:
            >>> import torch, torchpairwise as tp
            >>> S = tp.lazy(torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [2.0]]))
            >>> S @ torch.tensor([1.0, 10.0])
            tensor([40., 11.])
            >>> S.matmul(torch.tensor([1.0, 10.0]), dim=-2)
            tensor([10., 14.])
        """
        axis = one_axis(self.shape, dim)
        vector = isinstance(values, Tensor) and values.dim() == 1
        checked = self._checked_values(values.unsqueeze(-1) if vector else values, axis, vector_too=True)
        (result,) = self._run("matmul", axis, exclude_self, checked)
        return self._cast(result.squeeze(-1) if vector else result)

    def __matmul__(self, values: Tensor) -> Tensor:
        return self.matmul(values)

    def __rmatmul__(self, values: Any) -> Tensor:
        raise TypeError(
            "U @ S with a lazy score matrix on the right; write S.matmul(u, dim=-2) for a vector u [N], "
            "and S.matmul(U.mT, dim=-2).mT for a matrix U [C, N]"
        )

    def min(self, dim: Dim = None, keepdim: bool = False, *, exclude_self: bool = False) -> Any:
        """The smallest scores and where they stand: ``min_j s_ij`` and the lowest j that has it.

        Arguments:
            dim: -1, -2, or both (the default).
            keepdim: keep the reduced axes with size 1.
            exclude_self: leave out the pairs i == j.

        Returns:
            The named tuple (values, indices), both [*batch, N] ([*batch, M] with dim=-2); over both axes the value alone, as in torch.
            NaN ranks last; +inf over nothing but dropped pairs. The gradient goes to the chosen pair.

        Raises:
            ValueError: the axis has size 0.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.zeros(1, 1), torch.tensor([[3.0], [1.0]])).min(-1)
            Selection(values=tensor([1.]), indices=tensor([1]))
        """
        return self._extremum("min", dim, keepdim, exclude_self)

    def max(self, dim: Dim = None, keepdim: bool = False, *, exclude_self: bool = False) -> Any:
        """The largest scores and where they stand: ``max_j s_ij`` and the lowest j that has it; see `min`. -inf over nothing.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.zeros(1, 1), torch.tensor([[3.0], [1.0]])).max()
            tensor(9.)
        """
        return self._extremum("max", dim, keepdim, exclude_self)

    def argmin(self, dim: int | None = None, keepdim: bool = False, *, exclude_self: bool = False) -> Tensor:
        """Where the smallest scores stand, the lowest index among equals.

        Arguments:
            dim: -1 or -2; None for the place i * M + j in the whole matrix, as in torch.
            keepdim, exclude_self: as of `min`.

        Returns:
            int64 [*batch, N], [*batch, M] or [*batch].

        Raises:
            ValueError: the axis has size 0.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.zeros(1, 1), torch.tensor([[3.0], [1.0]])).argmin(-1)
            tensor([1])
        """
        return self._place("min", dim, keepdim, exclude_self)

    def argmax(self, dim: int | None = None, keepdim: bool = False, *, exclude_self: bool = False) -> Tensor:
        """Where the largest scores stand, the lowest index among equals; see `argmin`.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.zeros(1, 1), torch.tensor([[3.0], [1.0]])).argmax(-1)
            tensor([0])
        """
        return self._place("max", dim, keepdim, exclude_self)

    def topk(self, k: int, dim: int = -1, largest: bool = True, *, exclude_self: bool = False) -> Selection:
        """The k best scores in order, ties by the lower index, so that `topk(k)` begins `topk(k + 1)`.

        Arguments:
            k: how many, from 0 to the size of the axis.
            dim: -1 or -2.
            largest: the largest first; False for the smallest.
            exclude_self: leave out the pairs i == j.

        Returns:
            The named tuple (values, indices), both [*batch, N, k] ([*batch, M, k] with dim=-2). NaN and dropped pairs rank last, by index.

        Raises:
            ValueError: k is negative or larger than the axis (with exclude_self, than the axis less one).
            TypeError: k is not an integer.

        Example:
            >>> import torch, torchpairwise as tp
            >>> X = torch.tensor([[0.0], [1.0], [5.0]])
            >>> tp.lazy(X).topk(1, largest=False, exclude_self=True).indices.flatten()
            tensor([1, 0, 1])
        """
        axis = one_axis(self.shape, dim)
        self._check_k(k, axis, exclude_self)
        values, indices = self._run("topk", axis, exclude_self, k=k, largest=largest)
        return Selection(self._cast(values), indices)

    def diagonal(self) -> Tensor:
        """The scores of equal indices: ``s_ii``.

        Returns:
            [*batch, min(N, M)]; 0 for a dropped pair.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.tensor([[1.0], [3.0]]), metric="linear").diagonal()
            tensor([1., 9.])
        """
        return self._cast(self._run("diagonal", -1, False)[0])

    def dense(self, fill_value: float = 0.0, *, exclude_self: bool = False) -> Tensor:
        """All scores, stored: for looking, and for small problems.

        Arguments:
            fill_value: what dropped pairs get.
            exclude_self: drop the pairs i == j.

        Returns:
            [*batch, N, M].

        Notes:
            The one consumer that takes N * M memory.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.tensor([[0.0], [2.0]])).dense(-1.0, exclude_self=True)
            tensor([[-1.,  4.],
                    [ 4., -1.]])
        """
        (scores,) = self._run("dense", -1, exclude_self, fill=as_number(fill_value, "fill_value"))
        return self._cast(scores.mT if self._transposed else scores)

    def explain(self, consumer: str, values: Tensor | None = None, *, dim: Dim = -1, k: int = 1, exclude_self: bool = False) -> Explanation:
        """How a consumer will run and why: path, tiles, workspace, pairs and operations. Nothing is run.

        Arguments:
            consumer: the name of a consumer, such as "logsumexp".
            values: V of matmul and softmax_matmul; None stands for one column.
            dim, k, exclude_self: as given to the consumer.

        Returns:
            An `Explanation`; print it.

        Raises:
            ValueError: there is no such consumer.

        Example:
            >>> import torch, torchpairwise as tp
            >>> S = tp.lazy(torch.zeros(10, 3), torch.zeros(20, 3), "rbf", backend="tiles")
            >>> explanation = S.explain("logsumexp")
            >>> explanation.path, explanation.pairs
            ('tiles', 200)
        """
        name = _SAME_CALL.get(consumer, consumer)
        if name not in CONSUMERS:
            known = [*CONSUMERS, *_SAME_CALL]
            raise ValueError(f"consumer={consumer!r} is unknown.{did_you_mean(consumer, known)} The consumers are {', '.join(known)}")
        axis = reduced_axis(self.shape, dim)
        operands, program, constants = self._lower(self._extra_masks(exclude_self))
        checked = None if values is None else self._checked_values(values.unsqueeze(-1) if values.dim() == 1 else values, axis or -1)
        text = torch.ops.torchpairwise.explain(operands, program, constants, name, checked, self._native_dim(axis or -1), k)
        return parse_explanation(text)

    def _extremum(self, name: str, dim: Dim, keepdim: bool, exclude_self: bool) -> Any:
        axis = reduced_axis(self.shape, dim)
        values, indices = self._run(name, axis, exclude_self)
        if axis is None:
            row = best_row(values, name == "max").unsqueeze(-1)
            return self._shaped(values.gather(-1, row).squeeze(-1), axis, keepdim)
        return Selection(self._shaped(values, axis, keepdim), self._shaped(indices, axis, keepdim))

    def _place(self, name: str, dim: int | None, keepdim: bool, exclude_self: bool) -> Tensor:
        axis = None if dim is None else one_axis(self.shape, dim)
        with torch.no_grad():
            values, indices = self._run(name, axis, exclude_self)
            if axis is None:
                row = best_row(values, name == "max").unsqueeze(-1)
                indices = (row * self.shape[-1] + indices.gather(-1, row)).squeeze(-1)
        return self._shaped(indices, axis, keepdim)
