"""The matrix of a quadratic problem as an operator: shape, rows and matmul, of a lazy expression, a tensor or an object that has them."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from torchpairwise._checks import describe
from torchpairwise._registry import SOURCES
from torchpairwise._steps import Step
from torchpairwise.expression import PairwiseExpression

__all__ = ["Operator", "as_operator", "rows"]


class Operator(Protocol):
    """What a solver needs to know of a symmetric matrix [N, N]."""

    shape: Any
    dtype: torch.dtype
    device: torch.device

    def rows(self, indices: Tensor) -> Tensor:
        """The rows [k, N] of these indices."""

    def matmul(self, values: Tensor) -> Tensor:
        """The product with a vector [N]."""


class LazyOperator:
    """A lazy expression as an operator, without gradients."""

    def __init__(self, expression: PairwiseExpression) -> None:
        self._expression = expression.detach()
        self.shape, self.dtype, self.device = expression.shape, expression.dtype, expression.device

    def rows(self, indices: Tensor) -> Tensor:
        """The rows [k, N] of these indices."""
        return rows(self._expression, indices).dense()

    def matmul(self, values: Tensor) -> Tensor:
        """The product with a vector [N]."""
        return self._expression.matmul(values)


class DenseOperator:
    """A tensor as an operator, without gradients."""

    def __init__(self, matrix: Tensor) -> None:
        self._matrix = matrix.detach()
        self.shape, self.dtype, self.device = matrix.shape, matrix.dtype, matrix.device

    def rows(self, indices: Tensor) -> Tensor:
        """The rows [k, N] of these indices."""
        return self._matrix[indices]

    def matmul(self, values: Tensor) -> Tensor:
        """The product with a vector [N]."""
        return self._matrix @ values


def as_operator(Q: Any) -> Operator:
    """Checks the matrix of a quadratic problem."""
    if isinstance(Q, PairwiseExpression):
        operator: Operator = LazyOperator(Q.to(torch.float32) if Q.dtype in (torch.float16, torch.bfloat16) else Q)
    elif isinstance(Q, Tensor) and Q.is_floating_point():
        operator = DenseOperator(Q.float() if Q.dtype in (torch.float16, torch.bfloat16) else Q)
    elif all(hasattr(Q, name) for name in ("shape", "dtype", "device", "rows", "matmul")):
        operator = Q
    else:
        raise TypeError(
            f"Q is {describe(Q)}; expected a lazy expression such as tp.lazy(X, metric='rbf'), a floating tensor [N, N], or an object with "
            f"shape, dtype, device, rows(indices) and matmul(vector)"
        )
    if len(operator.shape) != 2 or operator.shape[0] != operator.shape[1] or operator.shape[0] == 0:
        raise ValueError(f"Q has shape {list(operator.shape)}; expected a symmetric matrix [N, N] with N > 0")
    return operator


def rows(expression: PairwiseExpression, indices: Tensor) -> PairwiseExpression:
    """The expression of some rows, of a symmetric expression without pair masks by index.

    Raises:
        ValueError: the expression has a mask that depends on the place of a row.
    """

    def gathered(step: Step) -> Step:
        tensors = list(step.tensors)
        side = 1 if expression._transposed else 0
        if step.word.endswith("_columns" if side else "_rows") or step.word == ("columns" if side else "rows"):
            tensors[0] = tensors[0].index_select(-1, indices)
        elif step.word == "same_group":
            tensors[side] = tensors[side].index_select(-1, indices)
        elif step.word in ("causal", "band", "off_diagonal"):
            raise ValueError(f"Q has the pair mask {step.word!r}, which depends on the place of a row; expected a matrix without it")
        elif _is_source(step):
            tensors[side] = tensors[side].index_select(-2, indices)
        return step._replace(tensors=tuple(tensors))

    steps, masks = tuple(gathered(step) for step in expression._steps), tuple(gathered(step) for step in expression._masks)
    n, m = expression._shape[-2:]
    sizes = (n, len(indices)) if expression._transposed else (len(indices), m)
    return expression._replace(steps=steps, masks=masks, shape=(*expression._shape[:-2], *sizes))


def _is_source(step: Step) -> bool:
    return step.comparison is not None or step.word in SOURCES
