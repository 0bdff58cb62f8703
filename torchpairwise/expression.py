"""`tp.lazy` and `PairwiseExpression`: an immutable description of a score matrix that is never stored."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from torchpairwise._checks import describe
from torchpairwise._gather import as_index, batch_entry, gathered
from torchpairwise._lowering import lower_metric
from torchpairwise._steps import Step
from torchpairwise.algebra import Algebra
from torchpairwise.comparisons.bindable import Bound, Preparation, Preparer
from torchpairwise.comparisons.custom import anchor
from torchpairwise.configuration import checked_workspace, workspace_limit
from torchpairwise.nodes import Nodes

__all__ = ["PairwiseExpression", "eye_like", "lazy"]

# Torch functions that an operator between a tensor and an expression arrives as: the method for (expression, tensor) and the one for
# (tensor, expression).
_OPERATORS = {
    "add": ("__add__", "__radd__"),
    "__add__": ("__add__", "__radd__"),
    "__radd__": ("__radd__", "__add__"),
    "sub": ("__sub__", "__rsub__"),
    "__sub__": ("__sub__", "__rsub__"),
    "rsub": ("__rsub__", "__sub__"),
    "__rsub__": ("__rsub__", "__sub__"),
    "mul": ("__mul__", "__rmul__"),
    "__mul__": ("__mul__", "__rmul__"),
    "__rmul__": ("__rmul__", "__mul__"),
    "div": ("__truediv__", "__rtruediv__"),
    "truediv": ("__truediv__", "__rtruediv__"),
    "true_divide": ("__truediv__", "__rtruediv__"),
    "__truediv__": ("__truediv__", "__rtruediv__"),
    "__rtruediv__": ("__rtruediv__", "__truediv__"),
    "__rdiv__": ("__rtruediv__", "__truediv__"),
}


class PairwiseExpression(Nodes, Algebra):
    """A lazy [*batch, N, M] matrix of pair scores. Made by `tp.lazy`; every step returns a new one, and no scores are stored.

    Steps change scores: ``+ - * / **`` with numbers, 0-dim tensors and other expressions over the same rows and columns, ``+`` and ``*``
    with tensors [*batch, N, 1] or [*batch, 1, M], `exp`, `add_rows` and others, and masks. Consumers reduce them: `sum`, `logsumexp`,
    `softmax_matmul` and others, tile by tile, with gradients that evaluate the tiles again.

    Example:
        >>> import torch, torchpairwise as tp
        >>> S = -0.5 * tp.lazy(torch.zeros(2, 3), torch.ones(4, 3), "sqeuclidean")
        >>> S
        PairwiseExpression([2, 4], torch.float32, 'sqeuclidean 0 1; scale -0.5', 2 tensors)
        >>> S.logsumexp(-1).shape
        torch.Size([2])
    """

    __slots__ = ()

    # NumPy scalars and arrays leave operators to the expression.
    __array_ufunc__ = None

    @property
    def mT(self) -> PairwiseExpression:
        """The transposed matrix: rows and columns exchanged.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.zeros(2, 1), torch.zeros(3, 1)).mT.shape
            torch.Size([3, 2])
        """
        return self._replace(transposed=not self._transposed)

    @property
    def T(self) -> PairwiseExpression:
        """The transposed matrix, as `mT`: batch dimensions stay where they are."""
        return self.mT

    def detach(self) -> PairwiseExpression:
        """The same scores without gradients.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.ones(2, 1, requires_grad=True)).detach().requires_grad
            False
        """
        return self._map(lambda t: t.detach(), self._dtype)

    def to(self, device: torch.device | str | torch.dtype | None = None, dtype: torch.dtype | None = None) -> PairwiseExpression:
        """The same scores with operands on another device or of another floating dtype; gradients flow through.

        Arguments:
            device: a device, or in its place a dtype, as in torch.
            dtype: a floating dtype; float16 and bfloat16 operands are rounded, then computed in float32.

        Raises:
            TypeError: the dtype is not floating.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.zeros(2, 1)).to(torch.float64).sum().dtype
            torch.float64
        """
        if isinstance(device, torch.dtype):
            device, dtype = None, device
        dtype = self._dtype if dtype is None else dtype
        if not dtype.is_floating_point:
            raise TypeError(f"dtype is {dtype}; expected a floating dtype")
        compute = dtype if dtype in (torch.float32, torch.float64) else torch.float32

        def change(t: Tensor) -> Tensor:
            t = t if device is None else t.to(device)
            return t.to(dtype).to(compute) if t.is_floating_point() and dtype != self._dtype else t

        return self._map(change, dtype)

    def __repr__(self) -> str:
        operands, program, constants = self._lower()
        for index, value in sorted(enumerate(constants), reverse=True):
            program = program.replace(f"#{index}", f"{value:g}")
        for step in self._steps:
            if step.comparison is not None:
                program = program.replace(f"custom {step.comparison.key} ", f"{step.comparison.name} ")
        transposed = ", transposed" if self._transposed else ""
        return f"PairwiseExpression({list(self.shape)}, {self.dtype}, {program!r}, {len(operands)} tensors{transposed})"

    def __bool__(self) -> bool:
        raise TypeError("a lazy score matrix has no truth value; reduce it first, for example with S.max(-1)")

    def __len__(self) -> int:
        raise TypeError("len() of a lazy score matrix; use S.shape")

    def __iter__(self) -> Any:
        raise TypeError("a lazy score matrix cannot be iterated over; consume it, for example with S.sum(-1) or S.topk(k)")

    def __getitem__(self, index: Any) -> Any:
        """Rows, columns and pairs, as torch indexes the last two axes.

        ``S[rows]``, ``S[rows, columns]`` with slices or index tensors stay lazy: gathered operands, no scores. Two index tensors of the
        same shape name pairs, ``S[i, j]``, and one int names a row or column: their scores are returned, 0 for a dropped pair. The
        submatrix of two index vectors is ``S[rows][:, columns]`` or ``S[rows[:, None], columns]``. Expressions with batch dimensions
        are indexed as ``S[..., rows, columns]``. Duplicate and negative places are as in torch.

        Raises:
            IndexError: a place outside of the matrix, too many axes, shapes that do not fit.
            TypeError: an index that names no places.
        """
        rows, columns = self._split_index(index)
        if isinstance(rows, Tensor) and isinstance(columns, Tensor):
            return self._pairs(rows, columns)
        for name, index in (("rows", rows), ("columns", columns)):
            if isinstance(index, Tensor) and index.dim() != 1:
                raise IndexError(f"index of the {name} has shape {list(index.shape)}; expected a vector")
        part = self._part("rows", slice(rows, rows + 1) if isinstance(rows, int) else rows)
        part = part._part("columns", slice(columns, columns + 1) if isinstance(columns, int) else columns)
        if not isinstance(rows, int) and not isinstance(columns, int):
            return part
        scores = part.dense()
        scores = scores.squeeze(-1) if isinstance(columns, int) else scores
        return scores.squeeze(-1 if isinstance(columns, int) else -2) if isinstance(rows, int) else scores

    def _split_index(self, index: Any) -> tuple[Any, Any]:
        parts = list(index) if isinstance(index, tuple) else [index]
        if parts and parts[0] is Ellipsis:
            parts = parts[1:]
        elif self.ndim > 2:
            raise IndexError(f"scores {list(self.shape)} have batch dimensions; write S[..., rows, columns]")
        if len(parts) > 2:
            raise IndexError(f"{len(parts)} indices for scores {list(self.shape)}; expected rows and columns")
        parts += [slice(None)] * (2 - len(parts))
        rows, columns = (as_index(part, size, name) for part, size, name in zip(parts, self.shape[-2:], ("rows", "columns"), strict=True))
        return rows, columns

    def _pairs(self, rows: Tensor, columns: Tensor) -> Any:
        if rows.dim() == 2 and rows.shape[1] == 1 and (columns.dim() == 1 or columns.shape[0] == 1):
            return self._part("rows", rows.flatten())._part("columns", columns.flatten())
        if rows.shape != columns.shape or rows.dim() != 1:
            raise IndexError(
                f"indices of rows {list(rows.shape)} and of columns {list(columns.shape)}; expected two vectors of one length, which name "
                f"pairs, or [n, 1] and [m], which name a submatrix"
            )
        return self._part("rows", rows)._part("columns", columns).diagonal()

    def _batch_entries(self) -> Iterator[PairwiseExpression]:
        """The matrices of the batch, one after the other."""
        batch = self._shape[:-2]
        for place in itertools.product(*(range(size) for size in batch)):
            steps, masks = batch_entry(self._steps, self._masks, place)
            yield self._replace(steps=steps, masks=masks, shape=self._shape[-2:])

    def _part(self, side: str, index: slice | Tensor) -> PairwiseExpression:
        if isinstance(index, slice) and index == slice(0, self.shape[-2 if side == "rows" else -1]):
            return self
        stored = side if not self._transposed else ("columns" if side == "rows" else "rows")
        steps, masks = gathered(self._steps, self._masks, stored, index, (self._shape[-2], self._shape[-1]))
        size = index.stop - index.start if isinstance(index, slice) else index.shape[-1]
        n, m = self._shape[-2:]
        return self._replace(steps=steps, masks=masks, shape=(*self._shape[:-2], *((size, m) if stored == "rows" else (n, size))))

    def __float__(self) -> float:
        raise TypeError("a lazy score matrix is no number; reduce it first, for example with S.sum()")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a lazy score matrix is not converted to an array; call S.dense() to store all N * M values")

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", str(function))
        if name in ("matmul", "__rmatmul__") and len(args) == 2 and not kwargs:
            return cls._matmul(function, *args)
        if len(args) == 2 and not kwargs and name in _OPERATORS:
            forward, reflected = _OPERATORS[name]
            if isinstance(args[0], PairwiseExpression):
                return getattr(args[0], forward)(args[1])
            return getattr(args[1], reflected)(args[0])
        raise TypeError(
            f"torch.{name} does not take a lazy score matrix; use its methods: nodes such as S.exp() and S * 2, then a consumer such as "
            f"S.sum(-1), S.logsumexp(-1), S.softmax_matmul(V), S.topk(k), or S.dense() to store all N * M values"
        )

    @staticmethod
    def _matmul(function: Any, left: Any, right: Any) -> Tensor:
        if isinstance(left, PairwiseExpression):
            return left.matmul(right)
        # Dynamo hands on S @ v with its sides exchanged (it knows no reflected product), and so never v @ S.
        if torch.compiler.is_dynamo_compiling() and function is not operator.matmul:
            return right.matmul(left)
        return right.__rmatmul__(left)

    def _map(self, change: Any, dtype: torch.dtype) -> PairwiseExpression:
        """Changes every operand; one that is used twice stays one."""
        before: list[Tensor] = []
        after: list[Tensor] = []

        def once(tensor: Tensor) -> Tensor:
            for index, known in enumerate(before):
                if known is tensor:
                    return after[index]
            before.append(tensor)
            after.append(change(tensor))
            return after[-1]

        def mapped(step: Step) -> Step:
            tensors = tuple(once(tensor) for tensor in step.tensors)
            if step.comparison is not None:
                held = anchor(step.comparison, tensors[0].device)
                tensors = (*tensors[: len(tensors) - len(held)], *held)
            return step._replace(tensors=tensors, mask=tuple(mapped(inner) for inner in step.mask))

        steps = tuple(mapped(step) for step in self._steps)
        masks = tuple(mapped(step) for step in self._masks)
        return self._replace(steps=steps, masks=masks, dtype=dtype)


def eye_like(
    S: PairwiseExpression,  # [*batch, N, M]
) -> PairwiseExpression:
    """The identity matrix as an expression over the rows and columns of another: ``1 if i == j else 0``.

    Arguments:
        S: gives N, M, dtype and device.

    Returns:
        An expression [N, M]; ``K + a * tp.eye_like(K)`` is K with a number (or a learned 0-dim tensor) added to its diagonal.

    Notes:
        Rows and columns keep their places when the sum is indexed: ``(K + a * tp.eye_like(K))[rows]`` are rows of the sum.

    Example:
        >>> import torch, torchpairwise as tp
        >>> K = tp.lazy(torch.zeros(2, 1), metric="rbf")
        >>> (K + 0.5 * tp.eye_like(K)).dense()
        tensor([[1.5000, 1.0000],
                [1.0000, 1.5000]])
    """
    if not isinstance(S, PairwiseExpression):
        raise TypeError(f"eye_like takes an expression of tp.lazy, got {describe(S)}")
    one = torch.ones(1, dtype=S._features.dtype, device=S.device)
    return S._table(S._places("diagonals", one, 0.0, 0.0), ())


def lazy(
    X: Any,
    Y: Any = None,
    metric: Any = None,
    *,
    chunk_size: int | None = None,
    precision: str | None = None,
    backend: str = "auto",
    workspace_bytes: int | None = None,
    **options: Any,
) -> PairwiseExpression:
    """Describes the matrix of scores ``metric(X_i, Y_j)`` without computing it.

    Arguments:
        X: rows [*batch, N, D]; or what ``prepare`` of a comparison of `tp.make_feature_pairwise` returned, alone.
        Y: columns [*batch, M, D]; None compares X with itself. Batch dimensions broadcast.
        metric: a name of `tp.metrics()`, a comparison of `tp.make_pairwise` (samples may then be arrays or trees), or one of
            `tp.make_feature_pairwise`, which encodes X and Y once, now. "sqeuclidean" by default.
        chunk_size: limit for the rows and columns of a tile on the tensor path; None lets the plan choose.
        precision: None, or "fast" to allow the plain expansion of squared distances, without its rescue.
        workspace_bytes: limit for the memory beyond inputs and outputs; None for that of `tp.config`, or what the plan chooses.
        backend: "auto", "native" (an error with reasons where it cannot run) or "tiles".
        options: parameters of the metric. `gamma=` or `lengthscale=` (gamma = 1 / (2 lengthscale^2)) may be a number, a 0-dim tensor, or
            a vector [D] (ARD); all may require gradients. None means the default.

    Returns:
        A `PairwiseExpression` [*batch, N, M].

    Raises:
        ValueError: unknown metric, shapes that do not fit, operands on different devices, an unknown choice.
        TypeError: dtypes that differ, complex inputs, an option that the metric does not have.

    Notes:
        Memory is that of the inputs. float16 and bfloat16 are computed in float32 and returned as they came; integers become the
        default dtype. Autocast changes nothing here.

    Example:
        >>> import torch, torchpairwise as tp
        >>> tp.lazy(torch.tensor([[0.0], [1.0]]), torch.tensor([[3.0]])).sum(-1)
        tensor([9., 4.])
        >>> tp.lazy(torch.eye(2), metric="rbf", gamma=0.5).dense()
        tensor([[1.0000, 0.3679],
                [0.3679, 1.0000]])
    """
    if backend == "keops":
        raise ValueError("backend='keops' is not available in this version; expected 'auto', 'native' or 'tiles'")
    if backend not in ("auto", "native", "tiles"):
        raise ValueError(f"backend={backend!r}; expected 'auto', 'native' or 'tiles'")
    if precision not in (None, "fast"):
        raise ValueError(f"precision={precision!r}; expected None or 'fast'")
    X, Y, metric, options, chunk_size = _bound(X, Y, metric, options, chunk_size)
    if chunk_size is not None and (isinstance(chunk_size, bool) or not isinstance(chunk_size, int) or chunk_size < 1):
        raise ValueError(f"chunk_size={chunk_size!r}; expected a positive integer or None")
    words = [backend] if backend != "auto" else []
    words += [f"chunk={chunk_size}"] if chunk_size is not None else []
    limit = checked_workspace(workspace_bytes) or workspace_limit()
    words += [f"workspace={limit}"] if limit is not None else []
    words += ["fast"] if precision == "fast" else []
    steps, shape, dtype, name = lower_metric(X, Y, metric, options)
    return PairwiseExpression(steps, (), shape, dtype, name, " ".join(words))


def _bound(X: Any, Y: Any, metric: Any, options: dict[str, Any], chunk_size: int | None) -> Bound:
    """Arguments of tensors; features are computed or taken where something stands for them."""
    if isinstance(metric, Preparer):
        if options:
            raise TypeError(f"option {sorted(options)[0]!r} was given with a comparison; a comparison holds its own parameters")
        X, Y, metric = metric.prepare_lazy(X, Y), None, None
    if not isinstance(X, Preparation):
        return Bound(X, Y, "sqeuclidean" if metric is None else metric, options, chunk_size)
    if Y is not None or metric is not None or options:
        given = "Y" if Y is not None else ("metric" if metric is not None else sorted(options)[0])
        raise TypeError(
            f"{given} was given with prepared features, which hold both sides and their comparison; call tp.lazy(prepared), or take "
            f"features from comparison.encode for another metric"
        )
    bound = X.bind()
    return bound if chunk_size is None else bound._replace(chunk_size=chunk_size)
