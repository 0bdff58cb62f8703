"""A lazy score matrix as a matrix: forms, norms, inner products, and the matrices that are centred or normalised."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchpairwise._checks import describe
from torchpairwise.reductions import safe_sqrt
from torchpairwise.selections import Selections

__all__ = ["Algebra"]


class Algebra(Selections):
    """Matrix algebra of `PairwiseExpression`, made of products and sums that stream."""

    __slots__ = ()

    def quadratic_form(self, u: Tensor, v: Tensor | None = None) -> Tensor:
        """``u^T S v = sum_ij u_i s_ij v_j``.

        Arguments:
            u: [*batch, N] or [N].
            v: [*batch, M] or [M]; None for u (then N == M).

        Returns:
            [*batch]

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.eye(2), metric="linear").quadratic_form(torch.tensor([3.0, 4.0]))
            tensor(25.)
        """
        v = u if v is None else v
        for name, x, size in (("u", u, self.shape[-2]), ("v", v, self.shape[-1])):
            if not isinstance(x, Tensor) or x.dim() == 0 or x.shape[-1] != size:
                raise ValueError(f"quadratic_form({name}) is {describe(x)}; expected a tensor [..., {size}]")
        return self._cast((u * self.matmul(v.unsqueeze(-1)).squeeze(-1)).sum(-1))

    def rmatmul(
        self,
        values: Tensor,  # [*batch, N, C] or [N]
        *,
        exclude_self: bool = False,
    ) -> Tensor:
        """The product with the transposed matrix: ``sum_i s_ij U_ic``; the same as ``matmul(values, dim=-2)``.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0]]), "linear").rmatmul(torch.ones(2))
            tensor([9.])
        """
        return self.matmul(values, dim=-2, exclude_self=exclude_self)

    def displacement(self, values: Tensor | None = None) -> Tensor:
        """The displacement field of a kernel: ``sum_j s_ij (y_j - x_i)``; times -2 gamma the repulsion of SVGD (Stein variational descent).

        Arguments:
            values: v [*batch, N, C] in place of the features, for a matrix with N == M: ``sum_j s_ij (v_j - v_i)``.

        Returns:
            [*batch, N, D], with gradients.

        Raises:
            ValueError: the features are not those that the user gave (a width a feature, normalised rows, no source); give `values`.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.tensor([[0.0], [1.0]]), metric="linear").displacement()
            tensor([[0.],
                    [0.]])
        """
        rows, columns = self._given_features() if values is None else (values, values)
        return self._cast(self.matmul(columns.to(self.dtype)) - rows * self.sum(-1, True))

    def trace(self) -> Tensor:
        """``sum_i s_ii`` [*batch].

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.eye(3), metric="linear").trace()
            tensor(3.)
        """
        return self.diagonal().sum(-1)

    def frobenius_norm(self) -> Tensor:
        """``sqrt(sum_ij s_ij^2)`` [*batch].

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.eye(4), metric="linear").frobenius_norm()
            tensor(2.)
        """
        return self.norm(2)

    def frobenius_inner_product(self, other: Any, *, center: bool = False, normalize: bool = False) -> Tensor:
        """``sum_ij s_ij t_ij``; with `center` of the centred matrices, with `normalize` divided by their norms.

        Both together make the centred kernel alignment (CKA) of two kernels on the same samples.

        Arguments:
            other: a lazy expression T over the same rows and columns.
            center: take row means and column means from both matrices first, ``H S H``.
            normalize: divide by ``|S| |T|``; 0 where a norm is 0.

        Returns:
            [*batch], with gradients.

        Example:
            >>> import torch, torchpairwise as tp
            >>> K = tp.lazy(torch.tensor([[0.0], [1.0], [3.0]]), metric="linear")
            >>> K.frobenius_inner_product(K, center=True, normalize=True)
            tensor(1.0000)
        """
        S, T = self._any(), other
        if not isinstance(T, Algebra):
            raise TypeError(f"other is {describe(other)}; expected a lazy expression over the same rows and columns")
        if center:
            S, T = S.centered(), T.centered()
        inner = (S * T).sum(-1).sum(-1)
        if not normalize:
            return inner
        product = S.frobenius_norm() * T.frobenius_norm()
        return torch.where(product > 0, inner / torch.where(product > 0, product, 1.0), 0.0)

    def hsic(self, other: Any, *, estimator: str = "u", normalize: bool = False) -> Tensor:
        """Hilbert-Schmidt independence criterion of two symmetric kernels on the same N samples.

        ``tr(K H L H) / (N - 1)^2`` with ``H = I - 1 1^T / N`` ("v"); "u" is the unbiased estimator of Song et al. 2012, equation 5

        Arguments:
            other: the other kernel L [*batch, N, N].
            estimator: "u" (unbiased, may be negative) or "v".
            normalize: divide by ``sqrt(HSIC(K, K) HSIC(L, L))``; 0 where that is not positive, for example for constant features.

        Returns:
            [*batch], with gradients.

        Raises:
            ValueError: kernels of other sizes; fewer than 4 samples with "u" or 2 with "v"; an unknown estimator.
            TypeError: `other` is no lazy expression.

        Notes:
            With "u" the kernel of a sample with itself plays no part. Sums of rows and of products are kept in float64.

        Example:
            >>> import torch, torchpairwise as tp
            >>> X, Y = torch.tensor([[0.0], [1], [2], [3], [4]]), torch.tensor([[0.0], [2], [3], [4], [1]])
            >>> tp.lazy(X, metric="linear").hsic(tp.lazy(Y, metric="linear"))
            tensor(-1.5667)
        """
        if not isinstance(other, Algebra):
            raise TypeError(f"other is {describe(other)}; expected a lazy kernel such as tp.lazy(Y, metric='rbf')")
        n = self.shape[-1]
        if self.shape[-2:] != (n, n) or other.shape[-2:] != (n, n):
            raise ValueError(f"kernels {list(self.shape)} and {list(other.shape)}; expected two [..., N, N] on the same N samples")
        if estimator not in ("u", "v"):
            raise ValueError(f"estimator={estimator!r}; expected 'u' (unbiased) or 'v'")
        least = 4 if estimator == "u" else 2
        if n < least:
            raise ValueError(f"estimator={estimator!r} needs at least {least} samples; there are {n}")
        value = _hsic(self, other, estimator)
        if normalize:
            square = _hsic(self, self, estimator) * _hsic(other, other, estimator)
            positive = square > 0
            value = torch.where(positive, value / torch.where(positive, square, 1.0).sqrt(), 0.0)
        return value.to(self.dtype)

    def centered(self) -> Any:
        """``H S H`` as an expression: ``s_ij - mean_i - mean_j + mean``, whose rows and columns sum to 0.

        Notes:
            Takes two sweeps for the means; they carry gradients. Masks are refused, since means of kept pairs would not centre.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.tensor([[0.0], [2.0]]), metric="linear").centered().dense()
            tensor([[ 1., -1.],
                    [-1.,  1.]])
        """
        if self._masks:
            raise ValueError("centered() of a masked expression is not defined; mask the centred one instead")
        S = self._any()
        rows, columns = S.mean(-1), S.mean(-2)
        return S.add_rows(rows.mean(-1, True) - rows).add_columns(-columns)

    def normalized(self, kind: str = "symmetric") -> Any:
        """Divided by degrees, as an expression: ``d_i^(-1/2) s_ij e_j^(-1/2)`` with row sums d and column sums e, or ``s_ij / d_i``.

        Arguments:
            kind: "symmetric" or "row".

        Raises:
            ValueError: another kind.

        Notes:
            Rows and columns whose sum is 0 become 0. The degrees carry gradients.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.ones(2, 1), metric="linear").normalized("row").dense()
            tensor([[0.5000, 0.5000],
                    [0.5000, 0.5000]])
        """
        if kind not in ("symmetric", "row"):
            raise ValueError(f"normalized({kind!r}); expected 'symmetric' or 'row'")
        S = self._any()
        rows = S.sum(-1)
        if kind == "row":
            return S.weight_rows(_inverse(rows))
        return S.weight_rows(_inverse(safe_sqrt(rows))).weight_columns(_inverse(safe_sqrt(S.sum(-2))))

    def _given_features(self) -> tuple[Tensor, Tensor]:
        step = self._steps[0]
        if step.scaled or len(step.tensors) < 2 or step.tensors[0].dim() < 2:
            raise ValueError(
                "displacement() needs the features that the scores were made from; these were scaled on the way. Give values=X"
            )
        rows, columns = step.tensors[:2]
        return (columns, rows) if self._transposed else (rows, columns)


def _hsic(K: Any, L: Any, estimator: str) -> Tensor:
    """In float64, from the sum of products and the sums of rows."""
    n = K.shape[-1]
    without_self = estimator == "u"
    products = (K * L).sum(-1, exclude_self=without_self).double().sum(-1)
    rows_k, rows_l = (kernel.sum(-1, exclude_self=without_self).double() for kernel in (K, L))
    crossed, total = (rows_k * rows_l).sum(-1), rows_k.sum(-1) * rows_l.sum(-1)
    if without_self:
        return (products + total / ((n - 1) * (n - 2)) - 2 * crossed / (n - 2)) / (n * (n - 3))
    return (products - 2 * crossed / n + total / n**2) / (n - 1) ** 2


def _inverse(x: Tensor) -> Tensor:
    """1 / x, and 0 with gradient 0 where x is 0."""
    zero = x == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, x).reciprocal())
