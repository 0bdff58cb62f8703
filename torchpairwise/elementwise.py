"""The elementwise steps of a lazy score matrix: functions and comparisons. Each returns a new expression."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch import Tensor

from torchpairwise._checks import as_number, as_scalar
from torchpairwise._description import Description
from torchpairwise._steps import Step, Steps

if TYPE_CHECKING:
    from torchpairwise.expression import PairwiseExpression

__all__ = ["Elementwise"]

_REFLECTED = {"less": "greater", "less_equal": "greater_equal"}


class Elementwise(Description):
    """Functions of single scores."""

    __slots__ = ()

    def exp(self) -> PairwiseExpression:
        """The exponential: ``exp(s_ij)``.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.zeros(1, 1)).exp().sum()
            tensor(1.)
        """
        return self._node("exp")

    def log(self) -> PairwiseExpression:
        """The natural logarithm: ``log(s_ij)``. After `exp` the two cancel, so that the logarithm of a kernel does not underflow.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.tensor([[0.0], [100.0]]), metric="rbf", gamma=1.0).log().min()
            tensor(-10000.)
        """
        return self._replace(steps=self._steps[:-1]) if self._steps[-1].word == "exp" else self._node("log")

    def log1p(self) -> PairwiseExpression:
        """``log(1 + s_ij)``, exact near 0.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.zeros(1, 1)).log1p().sum()
            tensor(0.)
        """
        return self._node("log1p")

    def sqrt(self) -> PairwiseExpression:
        """The square root: ``sqrt(s_ij)``, with derivative 0 at 0.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.tensor([[0.0], [3.0]])).sqrt().sum(-1)
            tensor([3., 3.])
        """
        return self._node("sqrt")

    def square(self) -> PairwiseExpression:
        """The square: ``s_ij^2``.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.tensor([[0.0], [3.0]]), metric="manhattan").square().sum(-1)
            tensor([9., 9.])
        """
        return self._node("square")

    def pow(self, exponent: float) -> PairwiseExpression:
        """A power: ``s_ij^exponent``. The exponent is a number; ``S ** 3`` is the same.

        Raises:
            TypeError: the exponent is not a number.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.tensor([[0.0], [2.0]]), metric="manhattan").pow(3).sum(-1)
            tensor([8., 8.])
        """
        return self._node("pow", (), (as_number(exponent, "pow(exponent)"),))

    def abs(self) -> PairwiseExpression:
        """The absolute value: ``|s_ij|``, with derivative 0 at 0.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.tensor([[1.0], [-1.0]]), metric="linear").abs().sum(-1)
            tensor([2., 2.])
        """
        return self._node("abs")

    def reciprocal(self) -> PairwiseExpression:
        """``1 / s_ij``; infinite at 0.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.tensor([[4.0]]), torch.tensor([[0.5]]), "linear").reciprocal().sum()
            tensor(0.5000)
        """
        return self._node("reciprocal")

    def tanh(self) -> PairwiseExpression:
        """The hyperbolic tangent: ``tanh(s_ij)``.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.zeros(1, 1)).tanh().sum()
            tensor(0.)
        """
        return self._node("tanh")

    def minimum(self, value: float | Tensor | Elementwise) -> PairwiseExpression:
        """The smaller of the score and a number, or of two scores: ``min(s_ij, value)``.

        Arguments:
            value: a number, a 0-dim tensor or an expression over the same rows and columns. At a tie each side gets half of the gradient.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.tensor([[0.0], [3.0]])).minimum(5.0).sum(-1)
            tensor([5., 5.])
        """
        return self._with("minimum", value, "minimum(value)")

    def maximum(self, value: float | Tensor | Elementwise) -> PairwiseExpression:
        """The larger of the score and a number, or of two scores: ``max(s_ij, value)``; arguments and ties as of `minimum`.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.tensor([[0.0], [3.0]])).maximum(5.0).sum(-1)
            tensor([14., 14.])
        """
        return self._with("maximum", value, "maximum(value)")

    def clamp(self, min: float | None = None, max: float | None = None) -> PairwiseExpression:
        """The score within limits: ``min(max(s_ij, min), max)``.

        Arguments:
            min, max: numbers; None for no limit. The gradient passes on the closed interval, as in torch.

        Raises:
            ValueError: both are None.
            TypeError: a limit is not a number.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.tensor([[0.0], [3.0]])).clamp(1, 5).sum(-1)
            tensor([6., 6.])
        """
        if min is None and max is None:
            raise ValueError("clamp() got neither min nor max; give at least one")
        lower = -math.inf if min is None else as_number(min, "clamp(min)")
        upper = math.inf if max is None else as_number(max, "clamp(max)")
        return self._node("clamp", (), (lower, upper))

    def rsqrt(self) -> PairwiseExpression:
        """``1 / sqrt(s_ij)``; infinite at 0, with derivative 0 there.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.tensor([[0.0]]), torch.tensor([[2.0]])).rsqrt().sum()
            tensor(0.5000)
        """
        return self._node("rsqrt")

    def sin(self) -> PairwiseExpression:
        """The sine: ``sin(s_ij)``.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.zeros(1, 1)).sin().sum()
            tensor(0.)
        """
        return self._node("sin")

    def cos(self) -> PairwiseExpression:
        """The cosine: ``cos(s_ij)``.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.zeros(1, 1)).cos().sum()
            tensor(1.)
        """
        return self._node("cos")

    def sigmoid(self) -> PairwiseExpression:
        """The logistic function: ``1 / (1 + exp(-s_ij))``, without overflow.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.zeros(1, 1)).sigmoid().sum()
            tensor(0.5000)
        """
        return self._node("sigmoid")

    def softplus(self) -> PairwiseExpression:
        """``log(1 + exp(s_ij))``, without overflow.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.tensor([[10.0]]), torch.tensor([[10.0]]), "linear").softplus().sum()
            tensor(100.)
        """
        return self._node("softplus")

    def relu(self) -> PairwiseExpression:
        """``max(s_ij, 0)``, with derivative 0 at 0.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.tensor([[1.0], [-1.0]]), metric="linear").relu().sum(-1)
            tensor([1., 1.])
        """
        return self._node("relu")

    # Comparisons: scores that are 1 where they hold and 0 elsewhere, without gradient. With NaN none holds but !=.

    def __gt__(self, other: Any) -> PairwiseExpression:
        return self._compare("greater", other, "S > other")

    def __ge__(self, other: Any) -> PairwiseExpression:
        return self._compare("greater_equal", other, "S >= other")

    def __lt__(self, other: Any) -> PairwiseExpression:
        return self._compare("less", other, "S < other")

    def __le__(self, other: Any) -> PairwiseExpression:
        return self._compare("less_equal", other, "S <= other")

    def eq(self, other: Any) -> PairwiseExpression:
        """1 where the score equals a number, a tensor [..., N, 1] or [..., 1, M], or another score, else 0. There is no operator for it:
        ``S == T`` asks whether the two are the same expression. `ne`, ``>``, ``>=``, ``<`` and ``<=`` compare likewise.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.tensor([[0.0], [2.0]])).eq(4).sum(-1)
            tensor([1., 1.])
        """
        return self._compare("equal", other, "S.eq(other)")

    def ne(self, other: Any) -> PairwiseExpression:
        """1 where the score differs from a number, a tensor or another score, else 0; see `eq`.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.tensor([[0.0], [2.0]])).ne(4).sum(-1)
            tensor([1., 1.])
        """
        return self._compare("not_equal", other, "S.ne(other)")

    # Making new expressions

    def _node(self, word: str, tensors: tuple[Tensor, ...] = (), constants: tuple[float, ...] = ()) -> PairwiseExpression:
        return self._replace(steps=(*self._steps, Step(word, tensors, constants)))

    def _scalar(self, word: str, value: Any, name: str) -> PairwiseExpression:
        operand = as_scalar(value, name, self._features)
        return self._node(word, (operand,)) if isinstance(operand, Tensor) else self._node(word, (), (operand,))

    def _with(self, word: str, other: Any, name: str) -> PairwiseExpression:
        """A node with a number, or the join of the same name with another score."""
        return self._join(f"{word}_of", other) if isinstance(other, Elementwise) else self._scalar(word, other, name)

    def _compare(self, word: str, other: Any, name: str) -> PairwiseExpression:
        if isinstance(other, Elementwise) and word in _REFLECTED:
            return other._join(f"{_REFLECTED[word]}_of", self)
        if isinstance(other, Tensor) and other.dim() > 1:
            # x - y > 0 holds exactly when x > y.
            difference: Any = self - other  # type: ignore[operator]
            return difference._scalar(word, 0.0, name)
        return self._with(word, other, name)

    def _join(self, word: str, other: Any, mask: Steps = ()) -> PairwiseExpression:
        raise NotImplementedError
