"""Landmarks of a collection, chosen one after the other from rows of a lazy matrix of distances."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchpairwise._checks import describe
from torchpairwise.expression import PairwiseExpression

__all__ = ["farthest_point_sampling", "kmeans_plusplus"]


def farthest_point_sampling(
    D: PairwiseExpression,  # [N, N]
    k: int,
    start: int = 0,
) -> Tensor:
    """Chooses points one after the other, each the farthest from those before: ``argmax_i min_{c chosen} d_ic``.

    Arguments:
        D: lazy distances of a collection to itself, such as ``tp.lazy(X, metric="sqeuclidean")``.
        k: how many points, from 0 to N.
        start: the first one.

    Returns:
        int64 [k] on the device of D, all different; ties go to the lowest index.

    Raises:
        TypeError: D is not a lazy expression.
        ValueError: D is not square or has a batch, k is out of range.
        IndexError: start is not one of the points.

    Notes:
        Evaluates k N distances and keeps N. Gonzalez 1985: the largest distance to the chosen points is at most twice the best possible.

    Example:
        >>> import torch, torchpairwise as tp
        >>> X = torch.tensor([[0.0], [1.0], [5.0], [9.0]])
        >>> tp.neighbors.farthest_point_sampling(tp.lazy(X), 3)
        tensor([0, 3, 2])
    """
    n = _checked(D, k)
    if k == 0:
        return torch.zeros(0, dtype=torch.int64, device=D.device)
    if not -n <= start < n:
        raise IndexError(f"start={start} is not one of {n} points")
    chosen = [start % n]
    with torch.no_grad():
        nearest = _row(D, chosen[0])
        for _ in range(1, k):
            nearest[chosen[-1]] = -torch.inf
            chosen.append(_first_largest(nearest))
            nearest = torch.minimum(nearest, _row(D, chosen[-1]))
    return torch.tensor(chosen, device=D.device)


def kmeans_plusplus(
    D: PairwiseExpression,  # [N, N]
    k: int,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Chooses points at random, each with a probability proportional to its distance from those before: the start of k-means.

    Arguments:
        D: lazy squared distances of a collection to itself, such as ``tp.lazy(X, metric="sqeuclidean")``.
        k: how many points, from 0 to N.
        generator: source of random numbers on the CPU; None for torch's own. The same seed gives the same points.

    Returns:
        int64 [k] on the device of D, all different. Where all points left are at distance 0, the lowest one follows.

    Raises:
        TypeError, ValueError: as of `farthest_point_sampling`; a distance that is negative or not finite.

    Notes:
        Evaluates k N distances and keeps N. Arthur and Vassilvitskii 2007, "k-means++: the advantages of careful seeding".

    Example:
        >>> import torch, torchpairwise as tp
        >>> X = torch.tensor([[0.0], [0.0], [7.0], [7.0]])
        >>> chosen = tp.neighbors.kmeans_plusplus(tp.lazy(X), 2, torch.Generator().manual_seed(0))
        >>> sorted((X[chosen] > 0).flatten().tolist())
        [False, True]
    """
    n = _checked(D, k)
    if k == 0:
        return torch.zeros(0, dtype=torch.int64, device=D.device)
    chosen = [int(torch.randint(n, (), generator=generator))]
    with torch.no_grad():
        nearest = _row(D, chosen[0])
        for _ in range(1, k):
            nearest[chosen] = 0.0
            weights = nearest.double().cpu()
            if not bool((weights >= 0).all() and weights.isfinite().all()):
                raise ValueError("kmeans_plusplus needs finite distances >= 0")
            if float(weights.sum()) > 0:
                place = torch.rand((), generator=generator, dtype=torch.float64) * weights.sum()
                following = int(torch.searchsorted(weights.cumsum(0), place, right=True).clamp(max=n - 1))
                following = int(weights[: following + 1].nonzero()[-1])  # rounding may point behind the last one
            else:
                following = next(i for i in range(n) if i not in set(chosen))
            chosen.append(following)
            nearest = torch.minimum(nearest, _row(D, following))
    return torch.tensor(chosen, device=D.device)


def _checked(D: Any, k: Any) -> int:
    if not isinstance(D, PairwiseExpression):
        raise TypeError(f"D is {describe(D)}; expected lazy distances such as tp.lazy(X, metric='sqeuclidean')")
    if len(D.shape) != 2 or D.shape[0] != D.shape[1]:
        raise ValueError(f"D has shape {list(D.shape)}; expected [N, N], the distances of a collection to itself")
    n = D.shape[0]
    if isinstance(k, bool) or not isinstance(k, int) or not 0 <= k <= n:
        raise ValueError(f"k={k!r}; expected an integer from 0 to N={n}")
    return n


def _row(D: PairwiseExpression, index: int) -> Tensor:
    row: Tensor = D.detach()[index]
    return row.clone()


def _first_largest(values: Tensor) -> int:
    """The lowest place of the largest value; NaN ranks last."""
    ranked = torch.where(values.isnan(), -torch.inf, values)
    return int((ranked == ranked.max()).nonzero()[0])
