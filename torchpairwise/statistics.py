"""Statistics of pairs: maximum mean discrepancy and energy distance of clouds, and the exact median distance."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from torchpairwise._checks import describe, promoted
from torchpairwise._precision import widened
from torchpairwise.expression import lazy

__all__ = ["energy_statistics", "median_bandwidth", "median_distance", "mmd_statistics"]

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
        Memory grows with N + M: the pairs are counted in bins, a few times over; see `PairwiseExpression.quantile`.

    Example:
        >>> import torch, torchpairwise as tp
        >>> tp.median_distance(torch.tensor([[0.0], [1.0], [5.0]]))
        tensor(4.)
    """
    S = lazy(X, Y, metric, chunk_size=chunk_size, **options).detach()
    S = S.to(torch.float32) if S.dtype in (torch.float16, torch.bfloat16) else S
    n, m = S.shape[-2:]
    if (n * (n - 1) if Y is None else n * m) == 0:
        raise ValueError(f"there is no pair to take the median of: scores are {list(S.shape)}" + (", without i == j" if Y is None else ""))
    found = S.median(exclude_self=Y is None)
    if not bool(found.isfinite().all()):
        raise ValueError("a distance is NaN; the median needs finite distances")
    return found


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
    n_positive = int(S.count(0.0, ">", exclude_self=True))
    if n_positive <= 0:
        raise ValueError("all distances are 0 and give no bandwidth; give gamma or lengthscale as a number")
    return float(S.sum(-1).double().sum()) / n_positive


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
