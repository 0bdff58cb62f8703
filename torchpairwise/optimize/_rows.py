"""The matrix of a quadratic problem as an operator: shape, rows and matmul, of a lazy expression, a tensor or an object that has them."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from torchpairwise._checks import describe
from torchpairwise.expression import PairwiseExpression

__all__ = ["Operator", "as_operator"]


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
        return self._expression[indices].dense()

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
