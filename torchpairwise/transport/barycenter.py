"""Points that are a mean of several clouds in the sense of transport."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchpairwise.expression import lazy
from torchpairwise.optimize import sinkhorn
from torchpairwise.transport.functional import barycentric_projection

__all__ = ["BarycenterResult", "free_support_barycenter"]


class BarycenterResult(NamedTuple):
    """`points` [N, D], whether the last step moved them by at most tol (`residual_norm`, a distance), and the steps taken."""

    points: Tensor
    converged: bool
    residual_norm: float
    iterations: int


def free_support_barycenter(
    clouds: Sequence[Tensor],  # each [M_k, D]
    weights: Sequence[Tensor | None] | None = None,  # each [M_k]
    *,
    points: Tensor,  # [N, D]
    epsilon: float,
    shares: Sequence[float] | None = None,
    a: Tensor | None = None,  # [N]
    tol: float = 1e-4,
    max_iter: int = 100,
    solver_tol: float | None = None,
) -> BarycenterResult:
    """N points that are the mean of clouds: ``argmin_X sum_k share_k OT(X, cloud_k)`` for the cost ``|x - y|^2``.

    Each step moves every point to the mean of where the transports send it: ``x_i <- sum_k share_k sum_j P^k_ij y^k_j / a_i``

    Arguments:
        clouds: points [M_k, D], of any sizes.
        weights: of the points of each cloud; None for uniform ones.
        points: where to start [N, D]; they keep their weights `a`, 1/N if None.
        epsilon: of the transports, in units of ``|x - y|^2``; the points of the answer are drawn together by about its root.
        shares: of the clouds, >= 0 with sum 1; None for equal ones.
        tol: converged when no point moves by more than this distance in a step.
        max_iter: steps, 100 by default.
        solver_tol: tol of each `sinkhorn`; each starts from the potentials of the step before.

    Returns:
        A `BarycenterResult`, without gradients.

    Raises:
        ValueError: no clouds, numbers of them that differ, shares that are negative or do not sum to 1; what `sinkhorn` raises.

    Notes:
        Cuturi and Doucet 2014, "Fast computation of Wasserstein barycenters", algorithm 2. Memory grows with N and the sizes of the clouds.

    Example:
        >>> import torch
        >>> from torchpairwise.transport import free_support_barycenter
        >>> clouds = [torch.tensor([[0.0], [1.0]]), torch.tensor([[4.0], [5.0], [5.0], [4.0]])]
        >>> free_support_barycenter(clouds, points=torch.tensor([[0.0], [3.0]]), epsilon=0.01).points.round(decimals=2)
        tensor([[2.],
                [3.]])
    """
    shares = _checked_shares(clouds, weights, shares)
    current = points.detach()
    starts: list[Any] = [None] * len(clouds)
    moved = float("inf")
    for iteration in range(1, max_iter + 1):
        following = torch.zeros_like(current)
        for k, (cloud, share) in enumerate(zip(clouds, shares, strict=True)):
            mass = None if weights is None else weights[k]
            with torch.no_grad():
                result = sinkhorn(lazy(current, cloud.detach()), a, mass, epsilon=epsilon, tol=solver_tol, x0=starts[k])
                following += share * barycentric_projection(result, cloud.detach())
            starts[k] = result.potentials
        moved = float((following - current).norm(dim=-1).max())
        current = following
        if moved <= tol:
            return BarycenterResult(current, True, moved, iteration)
    return BarycenterResult(current, False, moved, max_iter)


def _checked_shares(clouds: Sequence[Tensor], weights: Any, shares: Sequence[float] | None) -> Sequence[float]:
    if len(clouds) == 0:
        raise ValueError("clouds is empty; give at least one cloud of points [M, D]")
    for name, given in (("weights", weights), ("shares", shares)):
        if given is not None and len(given) != len(clouds):
            raise ValueError(f"there are {len(clouds)} clouds and {len(given)} {name}; give one for each")
    if shares is None:
        return [1 / len(clouds)] * len(clouds)
    if any(not share >= 0 for share in shares):
        raise ValueError(f"shares has a negative or NaN entry: {list(shares)}")
    if abs(sum(shares) - 1) > 1e-5:
        raise ValueError(f"shares sum to {sum(shares):g}; expected 1")
    return shares
