"""Statistics of pairs: maximum mean discrepancy and energy distance of clouds, HSIC of two kernels, and the exact median of scores."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from torchpairwise._checks import describe, promoted
from torchpairwise._precision import widened
from torchpairwise.expression import PairwiseExpression, lazy

__all__ = ["energy_statistics", "hsic", "median_bandwidth", "median_distance", "mmd_statistics"]

Estimator = Literal["u", "v"]


def mmd_statistics(
    X: Tensor,  # [*batch, N, D]
    Y: Tensor,  # [*batch, M, D]
    *,
    kernel: Any = "rbf",
    gamma: Any = None,
    estimator: Estimator = "u",
    chunk_size: int | None = None,
    **options: Any,
) -> Tensor:
    """Squared maximum mean discrepancy of each pair of point clouds.

    ``mean k(x, x') + mean k(y, y') - 2 mean k(x, y)``; with ``estimator="u"`` the first two means leave out a point's pair with itself

    Arguments:
        X, Y: clouds [B, N, D] and [B, M, D], with at least one batch dimension; one pair of clouds is ``X[None], Y[None]``.
        kernel: the name of a kernel or a comparison, "rbf" by default.
        gamma: width of the kernel; None for 1/D, "median" for ``1 / (2 l^2)`` with l the median distance of all points of the batch, both
            clouds together (`median_bandwidth`).
        estimator: "u" (unbiased, may be negative) or "v" (biased, never negative but for rounding).
        chunk_size, options: as of `tp.lazy`.

    Returns:
        [B], with gradients of any order to the points and parameters. float16 and bfloat16 are returned in float32.

    Raises:
        ValueError: no batch dimension, fewer than 2 points with "u" or 1 with "v", an unknown estimator.

    Notes:
        Memory grows with N + M. Gretton et al. 2012, "A kernel two-sample test".

    Example:
        >>> import torch, torchpairwise as tp
        >>> X, Y = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[4.0], [5.0], [6.0]])
        >>> tp.mmd_statistics(X[None], Y[None], kernel="rbf", gamma=0.5)
        tensor([0.8637])
        >>> tp.mmd_statistics(X[None], X[None], estimator="v")
        tensor([0.])
    """
    X, Y = _clouds(X, Y)
    _check_estimator(estimator, X, Y)
    if isinstance(gamma, str):
        if gamma != "median":
            raise ValueError(f"gamma={gamma!r}; expected a number, a tensor, None or 'median'")
        both = torch.cat([X.detach().flatten(0, -2), Y.detach().flatten(0, -2)])
        gamma = 0.5 / median_bandwidth(both) ** 2
    if gamma is not None:
        options["gamma"] = gamma
    return _within_and_between(X, Y, kernel, estimator, chunk_size, options)


def energy_statistics(
    X: Tensor,  # [*batch, N, D]
    Y: Tensor,  # [*batch, M, D]
    *,
    metric: Any = "euclidean",
    estimator: Estimator = "u",
    chunk_size: int | None = None,
    **options: Any,
) -> Tensor:
    """Energy distance of each pair of point clouds.

    ``2 mean d(x, y) - mean d(x, x') - mean d(y, y')``; with ``estimator="u"`` the last two means leave out a point's pair with itself

    Arguments:
        X, Y: clouds [B, N, D] and [B, M, D], with at least one batch dimension.
        metric: the name of a distance or a comparison, "euclidean" by default.
        estimator, chunk_size, options: as of `mmd_statistics`.

    Returns:
        [B], with gradients.

    Raises:
        ValueError: as of `mmd_statistics`.

    Notes:
        Szekely and Rizzo 2013, "Energy statistics". With "v" it is the square of `scipy.stats.energy_distance` in one dimension.

    Example:
        >>> import torch, torchpairwise as tp
        >>> tp.energy_statistics(torch.tensor([[[0.0], [2.0]]]), torch.tensor([[[5.0], [7.0]]]), estimator="v")
        tensor([8.])
    """
    X, Y = _clouds(X, Y)
    _check_estimator(estimator, X, Y)
    return -_within_and_between(X, Y, metric, estimator, chunk_size, options)


def hsic(
    K: PairwiseExpression,  # [*batch, N, N]
    L: PairwiseExpression,  # [*batch, N, N]
    *,
    estimator: Estimator = "u",
    normalize: bool = False,
) -> Tensor:
    """Hilbert-Schmidt independence criterion of two symmetric kernels on the same N samples.

    ``tr(K H L H) / (N - 1)^2`` with ``H = I - 1 1^T / N`` ("v"); "u" is the unbiased estimator of Song et al. 2012, equation 5

    Arguments:
        K, L: lazy kernels [*batch, N, N] of the same samples.
        estimator: "u" (unbiased, may be negative) or "v".
        normalize: divide by ``sqrt(HSIC(K, K) HSIC(L, L))``; this is the centred kernel alignment (CKA). 0 where that is not positive, for
            example for constant features.

    Returns:
        [*batch], with gradients of first order in tiles.

    Raises:
        ValueError: kernels of other sizes, fewer than 4 samples with "u" or 2 with "v".
        TypeError: not lazy expressions.

    Notes:
        Memory grows with N. With "u" the kernel of a sample with itself plays no part.

    Example:
        >>> import torch, torchpairwise as tp
        >>> X, Y = torch.tensor([[0.0], [1], [2], [3], [4]]), torch.tensor([[0.0], [2], [3], [4], [1]])
        >>> hsic = tp.statistics.hsic(tp.lazy(X, metric="linear"), tp.lazy(Y, metric="linear"))
        >>> hsic
        tensor(-1.5667)
    """
    for name, kernel in (("K", K), ("L", L)):
        if not isinstance(kernel, PairwiseExpression):
            raise TypeError(f"{name} is {describe(kernel)}; expected a lazy kernel such as tp.lazy(X, metric='rbf')")
    n = K.shape[-1]
    if K.shape[-2:] != (n, n) or L.shape[-2:] != (n, n):
        raise ValueError(f"K is {list(K.shape)} and L is {list(L.shape)}; expected two kernels [..., N, N] of the same N samples")
    _check_name(estimator)
    least = 4 if estimator == "u" else 2
    if n < least:
        raise ValueError(f"estimator={estimator!r} needs at least {least} samples; there are {n}")
    value = _hsic(K, L, estimator)
    if normalize:
        square = _hsic(K, K, estimator) * _hsic(L, L, estimator)
        positive = square > 0
        value = torch.where(positive, value / torch.where(positive, square, 1.0).sqrt(), 0.0)
    return value.to(K.dtype)


def _hsic(K: PairwiseExpression, L: PairwiseExpression, estimator: Estimator) -> Tensor:
    """In float64, from the sum of products and the sums of rows."""
    n = K.shape[-1]
    without_self = estimator == "u"
    products = (K * L).sum(-1, exclude_self=without_self).double().sum(-1)
    rows_k, rows_l = (kernel.sum(-1, exclude_self=without_self).double() for kernel in (K, L))
    crossed, total = (rows_k * rows_l).sum(-1), rows_k.sum(-1) * rows_l.sum(-1)
    if without_self:
        return (products + total / ((n - 1) * (n - 2)) - 2 * crossed / (n - 2)) / (n * (n - 3))
    return (products - 2 * crossed / n + total / n**2) / (n - 1) ** 2


def median_distance(
    X: Tensor,  # [*batch, N, D]
    Y: Tensor | None = None,  # [*batch, M, D]
    *,
    metric: Any = "euclidean",
    chunk_size: int | None = None,
    **options: Any,
) -> Tensor:
    """The exact median of all distances between the rows of X and those of Y, or of the distances i != j within X.

    ``median_ij d(x_i, y_j)``, for an even number of pairs the mean of the two in the middle, as in NumPy

    Arguments:
        X: [*batch, N, D].
        Y: [*batch, M, D]; None takes the pairs i != j of X.
        metric: the name of a distance or a comparison, "euclidean" by default.
        chunk_size, options: as of `tp.lazy`.

    Returns:
        [*batch], without gradients.

    Raises:
        ValueError: there is no pair, or a distance is NaN or infinite.

    Notes:
        Memory grows with N + M: the median is found by counting distances below thresholds, in about 10 to 30 passes over the pairs.
        It is exact for the distances as the streamed sums evaluate them.

    Example:
        >>> import torch, torchpairwise as tp
        >>> tp.median_distance(torch.tensor([[0.0], [1.0], [5.0]]))
        tensor(4.)
    """
    S = lazy(X, Y, metric, chunk_size=chunk_size, **options).detach()
    S = S.to(torch.float32) if S.dtype in (torch.float16, torch.bfloat16) else S
    n, m = S.shape[-2:]
    n_pairs = n * (n - 1) if Y is None else n * m
    if n_pairs == 0:
        raise ValueError(f"there is no pair to take the median of: scores are {list(S.shape)}" + (", without i == j" if Y is None else ""))
    ranks = {(n_pairs - 1) // 2, n_pairs // 2}
    found = [_order_statistic(S, rank, n_pairs, Y is None) for rank in sorted(ranks)]
    return (0.5 * (found[0] + found[-1])).to(S.dtype)


def median_bandwidth(X: Tensor, *, metric: Any = "euclidean", **options: Any) -> float:
    """The median distance of the rows of X [N, D]; if it is 0, the mean of the positive distances.

    Raises:
        ValueError: all distances are 0, so that they give no bandwidth.

    Example:
        >>> import torch, torchpairwise as tp
        >>> tp.statistics.median_bandwidth(torch.tensor([[0.0], [0.0], [0.0], [0.0], [2.0]]))
        2.0
    """
    median = float(median_distance(X, metric=metric, **options))
    if median > 0:
        return median
    S = lazy(X.detach(), metric=metric, **options)
    n_positive = S.shape[-1] * (S.shape[-1] - 1) - int(_count_below(S, _next_after(S.sum() * 0, S.dtype), True))
    if n_positive <= 0:
        raise ValueError("all distances are 0 and give no bandwidth; give gamma or lengthscale as a number")
    return float(S.sum(-1).double().sum()) / n_positive


# Order statistics by counting


def _order_statistic(S: PairwiseExpression, rank: int, n_pairs: int, exclude_self: bool) -> Tensor:
    """The score of a rank (0 for the smallest), in float64 [*batch].

    `low` is a threshold with at most `rank` scores below it, `high` one with more. Thresholds are tried where the rank would be if scores
    were spread evenly between them, and by halving. The largest score below `high` is the answer once at most `rank` scores are below it.
    """
    low = S.min((-2, -1), exclude_self=exclude_self).double()
    largest = S.max((-2, -1), exclude_self=exclude_self)
    if not bool((S * 0.0).sum((-2, -1), exclude_self=exclude_self).isfinite().all()):
        raise ValueError("a distance is NaN or infinite; the median needs finite distances")
    high = _next_after(largest, S.dtype)
    n_low, n_high = torch.zeros_like(low), torch.full_like(low, n_pairs)
    answer = torch.full_like(low, torch.nan)
    for step in range(400):
        share = (rank + 0.5 - n_low) / (n_high - n_low).clamp(min=1)
        share = torch.full_like(share, 0.5) if step % 3 == 2 else share.clamp(0.02, 0.98)
        middle = (low + share * (high - low)).to(S.dtype).double()
        count = _count_below(S, middle, exclude_self)
        below = count <= rank
        low, n_low = torch.where(below, middle, low), torch.where(below, count, n_low)
        high, n_high = torch.where(below, high, middle), torch.where(below, n_high, count)
        if bool(((n_high - n_low > 64) & (_next_after(low, S.dtype) < high) & answer.isnan()).any()):
            continue
        largest_below = _largest_below(S, high, exclude_self)
        n_below = _count_below(S, largest_below, exclude_self)
        answer = torch.where(answer.isnan() & (n_below <= rank), largest_below, answer)
        high, n_high = torch.where(n_below > rank, largest_below, high), torch.where(n_below > rank, n_below, n_high)
        if not bool(answer.isnan().any()):
            break
    return answer


def _indicator(S: PairwiseExpression, threshold: Tensor) -> PairwiseExpression:
    """1 for scores below a threshold [*batch], else 0."""
    # Twice times a large number: any difference of two numbers of the dtype, however small, becomes at least 1.
    large = 1e30 if S.dtype == torch.float32 else 1e250
    difference = (-S).add_rows(threshold.to(S.dtype).unsqueeze(-1).expand(*threshold.shape, S.shape[-2]))
    return (difference.clamp(0.0, 1e6) * large).clamp(0.0, 1e6) * large


def _count_below(S: PairwiseExpression, threshold: Tensor, exclude_self: bool) -> Tensor:
    """How many scores are below a threshold [*batch]; counts of rows are whole numbers, which float32 holds up to 2^24."""
    return _indicator(S, threshold).clamp(0.0, 1.0).sum(-1, exclude_self=exclude_self).double().sum(-1)


def _largest_below(S: PairwiseExpression, threshold: Tensor, exclude_self: bool) -> Tensor:
    """The largest score below a threshold [*batch] that has one; scores are >= 0."""
    return (S * _indicator(S, threshold).clamp(0.0, 1.0)).max((-2, -1), exclude_self=exclude_self).double()


def _next_after(values: Tensor, dtype: torch.dtype) -> Tensor:
    """The next larger number of a dtype, in float64."""
    values = values.to(dtype)
    return torch.nextafter(values, torch.full_like(values, math.inf)).double()


# Two clouds


def _clouds(X: Any, Y: Any) -> tuple[Tensor, Tensor]:
    for name, cloud in (("X", X), ("Y", Y)):
        if not isinstance(cloud, Tensor):
            raise TypeError(f"{name} is {describe(cloud)}; expected point clouds [B, points, D]")
        if cloud.dim() < 3:
            raise ValueError(f"{name} has shape {list(cloud.shape)}; expected point clouds [B, points, D], for one cloud {name}[None]")
    return widened(X.to(promoted(X))), widened(Y.to(promoted(Y)))


def _check_name(estimator: Any) -> None:
    if estimator not in ("u", "v"):
        raise ValueError(f"estimator={estimator!r}; expected 'u' (unbiased) or 'v'")


def _check_estimator(estimator: Any, X: Tensor, Y: Tensor) -> None:
    _check_name(estimator)
    least = 2 if estimator == "u" else 1
    for name, cloud in (("X", X), ("Y", Y)):
        if cloud.shape[-2] < least:
            raise ValueError(f"estimator={estimator!r} needs at least {least} points; {name} has {cloud.shape[-2]}")


def _within_and_between(X: Tensor, Y: Tensor, metric: Any, estimator: Estimator, chunk_size: int | None, options: dict[str, Any]) -> Tensor:
    """``mean s(x, x') + mean s(y, y') - 2 mean s(x, y)``, summed in float64."""
    without_self = estimator == "u"
    means = []
    for first, second, alone in ((X, None, without_self), (Y, None, without_self), (X, Y, False)):
        S = lazy(first, second, metric, chunk_size=chunk_size, **options)
        n_columns = S.shape[-1] - alone
        means.append(S.sum(-1, exclude_self=alone).double().sum(-1) / (S.shape[-2] * n_columns))
    return (means[0] + means[1] - 2 * means[2]).to(X.dtype)
