"""A dense cost matrix with the steps and consumers that the solvers call on lazy expressions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchpairwise._axes import Dim, one_axis, reduced_axis
from torchpairwise._checks import describe
from torchpairwise.consume import Selection
from torchpairwise.expression import PairwiseExpression

__all__ = ["DenseScores", "Scores", "as_scores", "tensors_of", "with_tensors"]


class DenseScores:
    """Scores [*batch, N, M] that the caller holds already, with the part of `PairwiseExpression` that transport uses.

    `keep` is a boolean tensor that broadcasts over the scores, or None; pairs that it drops are absent.
    """

    __slots__ = ("scores", "keep")

    def __init__(self, scores: Tensor, keep: Tensor | None = None) -> None:
        self.scores, self.keep = scores, keep

    @property
    def shape(self) -> torch.Size:
        """[*batch, N, M]."""
        return self.scores.shape

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the scores."""
        return self.scores.dtype

    @property
    def device(self) -> torch.device:
        """The device of the scores."""
        return self.scores.device

    @property
    def requires_grad(self) -> bool:
        """True if the scores require a gradient."""
        return self.scores.requires_grad

    def detach(self) -> DenseScores:
        """The same scores without gradients."""
        return DenseScores(self.scores.detach(), self.keep)

    def __mul__(self, other: Any) -> DenseScores:
        if isinstance(other, DenseScores):
            return DenseScores(self.scores * other.scores, _both(self.keep, other.keep))
        return DenseScores(self.scores * other, self.keep)

    def add_rows(self, vector: Tensor) -> DenseScores:
        """Adds a number to each row."""
        return DenseScores(self.scores + vector.unsqueeze(-1), self.keep)

    def add_columns(self, vector: Tensor) -> DenseScores:
        """Adds a number to each column."""
        return DenseScores(self.scores + vector.unsqueeze(-2), self.keep)

    def exp(self) -> DenseScores:
        """The exponential."""
        return DenseScores(self.scores.exp(), self.keep)

    def minimum(self, value: float) -> DenseScores:
        """The smaller of the score and a number."""
        return DenseScores(self.scores.clamp(max=value), self.keep)

    def mask_rows(self, keep: Tensor) -> DenseScores:
        """True = keep; the other rows are absent."""
        return DenseScores(self.scores, _both(self.keep, keep.unsqueeze(-1)))

    def mask_columns(self, keep: Tensor) -> DenseScores:
        """True = keep; the other columns are absent."""
        return DenseScores(self.scores, _both(self.keep, keep.unsqueeze(-2)))

    def dense(self, fill_value: float = 0.0) -> Tensor:
        """The scores; absent pairs get `fill_value`."""
        return self.scores if self.keep is None else torch.where(self.keep, self.scores, fill_value)

    def sum(self, dim: Dim = None) -> Tensor:
        """The sum over columns (-1), rows (-2) or both."""
        axis = reduced_axis(self.shape, dim)
        return self.dense().sum((-2, -1) if axis is None else axis)

    def max(self) -> Tensor:
        """The largest score of each matrix."""
        return self.dense(-torch.inf).amax((-2, -1))

    def logsumexp(self, dim: int) -> Tensor:
        """The logarithm of summed exponentials; -inf with zero gradient over nothing."""
        scores = self.dense(-torch.inf)
        nothing = (scores == -torch.inf).all(dim, keepdim=True)
        return torch.where(nothing, 0.0, scores).logsumexp(dim).masked_fill(nothing.squeeze(dim), -torch.inf)

    def matmul(self, values: Tensor, *, dim: int = -1) -> Tensor:
        """The product with a matrix [*batch, M, C] or a vector [M]; with dim=-2 that of the transposed scores."""
        scores = self.dense() if one_axis(self.shape, dim) == -1 else self.dense().mT
        return scores @ values

    def __matmul__(self, values: Tensor) -> Tensor:
        return self.matmul(values)

    def topk(self, k: int, dim: int = -1, largest: bool = True) -> Selection:
        """The k best scores in order, ties by the lower index."""
        scores = self.dense(-torch.inf if largest else torch.inf)
        scores = scores if one_axis(self.shape, dim) == -1 else scores.mT
        values, indices = scores.sort(dim=-1, descending=largest, stable=True)
        return Selection(values[..., :k], indices[..., :k])

    def __repr__(self) -> str:
        return f"DenseScores({list(self.shape)}, {self.dtype})"


Scores = PairwiseExpression | DenseScores


def as_scores(value: Any, name: str) -> Scores:
    """A lazy expression or a dense tensor as scores; half precision becomes float32, with gradients."""
    if isinstance(value, PairwiseExpression):
        return value.to(torch.float32) if value.dtype in (torch.float16, torch.bfloat16) else value
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise TypeError(f"{name} is {describe(value)}; expected a lazy expression, such as tp.lazy(X, Y), or a floating tensor [..., N, M]")
    if value.dim() < 2:
        raise ValueError(f"{name} has shape {list(value.shape)}; expected [..., N, M]")
    return DenseScores(value.float() if value.dtype in (torch.float16, torch.bfloat16) else value)


def tensors_of(scores: Scores) -> list[Tensor]:
    """The distinct tensors that scores are made of."""
    return [scores.scores] if isinstance(scores, DenseScores) else scores._lower()[0]


def with_tensors(scores: Scores, before: list[Tensor], after: list[Tensor]) -> Scores:
    """The same scores of other tensors, in the order of `tensors_of`."""
    if isinstance(scores, DenseScores):
        return DenseScores(after[0], scores.keep)
    return scores._map(lambda tensor: after[next(i for i, known in enumerate(before) if known is tensor)], scores.dtype)


def _both(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    return second if first is None else first if second is None else first & second
