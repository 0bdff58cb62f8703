"""Heads with parameters, for `tp.make_pairwise`: they compare x [..., r, 1, D] with y [..., 1, c, D], or two samples [D]."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["Bilinear", "Mahalanobis", "PairMLP"]


class Mahalanobis(nn.Module):
    """A learned squared distance: ``f(x, y) = |L x - L y|^2 = (x - y)^T L^T L (x - y)``.

    Arguments:
        n_features: D.
        rank: rows of L, D by default; fewer project.
        generator: for the start where rank < D.

    Notes:
        `factor` is L [rank, D], the identity at the start, or orthogonal rows where rank < D. Symmetric, never negative, 0 for equal
        samples.
        As an encoder, ``tp.make_feature_pairwise(nn.Linear(D, rank, bias=False), "sqeuclidean")``, the same distance projects each sample
        once and runs the native kernels.

    References:
        Xing, Ng, Jordan and Russell, Distance metric learning with application to clustering with side-information, NIPS 2002.

    Example:
        >>> import torch, torchpairwise as tp
        >>> distance = tp.make_pairwise(tp.learned.Mahalanobis(2), symmetric=True, zero_diagonal=True)
        >>> tp.lazy(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]]), distance).sum(-1).tolist()
        [25.0]
    """

    def __init__(self, n_features: int, rank: int | None = None, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        rank = n_features if rank is None else rank
        if not 1 <= rank <= n_features:
            raise ValueError(f"rank={rank}; expected 1 <= rank <= n_features={n_features}")
        start = torch.eye(n_features) if rank == n_features else _orthogonal(rank, n_features, generator)
        self.factor = nn.Parameter(start)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        # Projected first: r + c products with L instead of r c.
        return (x @ self.factor.mT - y @ self.factor.mT).square().sum(-1)


class Bilinear(nn.Module):
    """A learned similarity: ``f(x, y) = x^T W y + b``; x and y may have different sizes, and f need not be symmetric.

    Arguments:
        n_features: D of x.
        n_other: D of y, that of x by default.
        bias: whether there is b, 0 at the start.
        generator: for the start, W normal with standard deviation 1 / sqrt(D of x).

    Example:
        >>> import torch, torchpairwise as tp
        >>> score = tp.make_pairwise(tp.learned.Bilinear(3, 2))
        >>> tp.lazy(torch.zeros(4, 3), torch.ones(5, 2), score).sum(-1).tolist()
        [0.0, 0.0, 0.0, 0.0]
    """

    def __init__(self, n_features: int, n_other: int | None = None, *, bias: bool = True, generator: torch.Generator | None = None) -> None:
        super().__init__()
        n_other = n_features if n_other is None else n_other
        self.weight = nn.Parameter(torch.randn(n_features, n_other, generator=generator) / n_features**0.5)
        self.bias = nn.Parameter(torch.zeros(())) if bias else None

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        scores = ((x @ self.weight) * y).sum(-1)
        return scores if self.bias is None else scores + self.bias


class PairMLP(nn.Module):
    """A small network of what two samples differ and agree in: ``f(x, y) = MLP(|x - y|, x * y)``; symmetric.

    Arguments:
        n_features: D.
        hidden: sizes of the hidden layers, (32,) by default, with ReLU between.

    Notes:
        A tile of r rows and c columns takes r c (2 D + hidden) numbers; the score of a pair costs as many operations as the network.

    Example:
        >>> import torch, torchpairwise as tp
        >>> score = tp.make_pairwise(tp.learned.PairMLP(3), symmetric=True)
        >>> tp.lazy(torch.zeros(4, 3), torch.ones(5, 3), score).topk(2).indices.shape
        torch.Size([4, 2])
    """

    def __init__(self, n_features: int, hidden: Sequence[int] = (32,)) -> None:
        super().__init__()
        sizes = [2 * n_features, *hidden]
        layers: list[nn.Module] = []
        for before, after in zip(sizes, sizes[1:], strict=False):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], 1))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.layers(torch.cat([(x - y).abs(), x * y], -1)).squeeze(-1)


def _orthogonal(rank: int, n_features: int, generator: torch.Generator | None) -> Tensor:
    return nn.init.orthogonal_(torch.empty(rank, n_features), generator=generator)
