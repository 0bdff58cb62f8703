"""Losses between point clouds, and what couplings are used for."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from torchpairwise._checks import as_number, describe
from torchpairwise._precision import widened
from torchpairwise.expression import PairwiseExpression, lazy
from torchpairwise.optimize import DivergenceResult, SinkhornResult, sinkhorn, sinkhorn_divergence
from torchpairwise.sweep import sweep

__all__ = [
    "barycentric_projection",
    "blur_to_epsilon",
    "chamfer_distance",
    "gradient_flow_step",
    "hausdorff_distance",
    "samples_loss",
]

Loss = Literal["sinkhorn", "energy", "gaussian", "laplacian"]


def blur_to_epsilon(blur: float, p: int = 2, half_cost: bool = False) -> float:
    """The epsilon of `sinkhorn` for a blur, the distance below which points are not told apart.

    ``blur^p`` for the costs ``|x - y|`` (p = 1) and ``|x - y|^2 / 2`` (p = 2, half_cost), ``2 blur^2`` for ``|x - y|^2``

    Arguments:
        blur: a distance > 0.
        p: the power of the distance in the cost, 1 or 2.
        half_cost: the cost is ``|x - y|^2 / 2``, as in GeomLoss; only for p = 2.

    Raises:
        ValueError: a blur that is not positive, another p, or a half cost with p = 1.

    Example:
        >>> from torchpairwise.transport import blur_to_epsilon
        >>> blur_to_epsilon(0.5), blur_to_epsilon(0.5, half_cost=True), blur_to_epsilon(0.5, p=1)
        (0.5, 0.25, 0.5)
    """
    if p not in (1, 2):
        raise ValueError(f"p={p!r}; expected 1 or 2")
    if not as_number(blur, "blur") > 0:
        raise ValueError(f"blur={blur}; expected a distance > 0")
    if half_cost and p == 1:
        raise ValueError("half_cost=True with p=1; the cost |x - y| has no factor of a half")
    return float(blur) ** p * (2.0 if p == 2 and not half_cost else 1.0)


def samples_loss(
    X: Tensor,  # [*batch, N, D]
    Y: Tensor,  # [*batch, M, D]
    a: Tensor | None = None,  # [*batch, N]
    b: Tensor | None = None,  # [*batch, M]
    *,
    loss: Loss = "sinkhorn",
    p: int = 2,
    blur: float = 0.05,
    reach: float | None = None,
    cost: Any = None,
    debias: bool = True,
    return_result: bool = False,
    **solver: Any,
) -> Any:
    """A loss between weighted point clouds, with the conventions of GeomLoss's `SamplesLoss`.

    "sinkhorn": the Sinkhorn divergence of the cost ``|x - y|^p / p`` with epsilon = blur^p, and for a reach with marginals held by
    rho KL, rho = reach^p. Others: ``(a - b)^T k (a - b) / 2`` with the kernel ``-|x - y|`` ("energy"), ``exp(-|x - y|^2 / (2 blur^2))``
    ("gaussian") or ``exp(-|x - y| / blur)`` ("laplacian").

    Arguments:
        X, Y: points [*batch, N, D] and [*batch, M, D].
        a, b: weights >= 0; None for 1/N and 1/M. Points of weight 0 are padding.
        loss: "sinkhorn", "energy", "gaussian" or "laplacian".
        p: 1 or 2, for "sinkhorn" without `cost`.
        blur: a distance > 0; "energy" has none, and takes no other value than the default.
        reach: for "sinkhorn": mass is not moved much further than this distance; None moves all mass.
        cost: for "sinkhorn": a metric or comparison in place of ``|x - y|^p / p``; epsilon is blur^p all the same.
        debias: for "sinkhorn": False gives the cost of transport itself.
        return_result: for "sinkhorn": return the solver's record, `DivergenceResult` or without debias `SinkhornResult`.
        solver: for "sinkhorn": tol, max_iter, scaling, raise_on_failure, callback of `tp.optimize.sinkhorn`.

    Returns:
        [*batch], with first-order gradients; or the record.

    Raises:
        ValueError: an unknown loss, an option that the loss does not have, and what `sinkhorn` raises.

    Notes:
        Memory grows with N + M. Half precision is computed and returned in float32.

    Example:
        >>> import torch
        >>> from torchpairwise.transport import samples_loss
        >>> X, Y = torch.zeros(5, 2), torch.ones(4, 2)
        >>> samples_loss(X, Y), samples_loss(X, Y, loss="energy")
        (tensor(1.), tensor(1.4142))
    """
    if loss not in ("sinkhorn", "energy", "gaussian", "laplacian"):
        raise ValueError(f"loss={loss!r}; expected 'sinkhorn', 'energy', 'gaussian' or 'laplacian'")
    X, Y, a, b = (None if part is None else widened(part) for part in (X, Y, a, b))  # type: ignore[assignment]
    if loss == "sinkhorn":
        result = _sinkhorn_loss(X, Y, a, b, p, blur, reach, cost, debias, solver)
        return result if return_result else result.solution if debias else result.cost
    given = {"p": p != 2, "reach": reach is not None, "cost": cost is not None, "debias": not debias, "return_result": return_result}
    names = [name for name, is_given in given.items() if is_given] + list(solver)
    names += ["blur"] if loss == "energy" and blur != 0.05 else []
    if names:
        raise ValueError(f"{names[0]} was given with loss={loss!r}, which has no such option")
    return _kernel_loss(X, Y, a, b, loss, blur)


def _sinkhorn_loss(
    X: Tensor, Y: Tensor, a: Any, b: Any, p: int, blur: float, reach: Any, cost: Any, debias: bool, solver: dict[str, Any]
) -> Any:
    epsilon = blur_to_epsilon(blur, p, half_cost=p == 2)

    def costs(first: Tensor, second: Tensor) -> PairwiseExpression:
        if cost is not None:
            return lazy(first, second, cost)
        return lazy(first, second, "sqeuclidean") * 0.5 if p == 2 else lazy(first, second, "euclidean")

    if reach is not None:
        if not as_number(reach, "reach") > 0:
            raise ValueError(f"reach={reach}; expected a distance > 0, or None")
        solver = {**solver, "marginal": "kl", "rho": float(reach) ** p}
    if not debias:
        return sinkhorn(costs(X, Y), a, b, epsilon=epsilon, **solver)
    return sinkhorn_divergence(costs(X, Y), costs(X, X), costs(Y, Y), a, b, epsilon=epsilon, return_result=True, **solver)


def _kernel_loss(X: Tensor, Y: Tensor, a: Tensor | None, b: Tensor | None, loss: str, blur: float) -> Tensor:
    if not as_number(blur, "blur") > 0:
        raise ValueError(f"blur={blur}; expected a distance > 0")
    weights = [_uniform(cloud) if given is None else given for cloud, given in ((X, a), (Y, b))]

    def form(first: Tensor, second: Tensor, left: Tensor, right: Tensor) -> Tensor:
        if loss == "gaussian":
            k = lazy(first, second, "rbf", lengthscale=blur)
        else:
            distances = lazy(first, second, "euclidean")
            k = -distances if loss == "energy" else (distances * (-1.0 / blur)).exp()
        k = k.mask_rows(left > 0).mask_columns(right > 0)
        return (left * k.matmul(right.unsqueeze(-1)).squeeze(-1)).double().sum(-1)

    a, b = weights
    value = 0.5 * (form(X, X, a, a) + form(Y, Y, b, b)) - form(X, Y, a, b)
    return value.to(X.dtype)


def _uniform(cloud: Tensor) -> Tensor:
    if cloud.shape[-2] == 0:
        raise ValueError(f"a cloud has no points: its shape is {list(cloud.shape)}")
    return torch.full((cloud.shape[-2],), 1.0 / cloud.shape[-2], dtype=cloud.dtype, device=cloud.device)


def chamfer_distance(
    X: Tensor,  # [*batch, N, D]
    Y: Tensor,  # [*batch, M, D]
    *,
    keep_x: Tensor | None = None,  # [*batch, N] bool
    keep_y: Tensor | None = None,  # [*batch, M] bool
    metric: Any = "sqeuclidean",
    directed: bool = False,
    point_reduction: Literal["mean", "sum"] = "mean",
    **options: Any,
) -> Tensor:
    """Chamfer distance: how far points are from the nearest point of the other cloud.

    ``mean_i min_j d(x_i, y_j) + mean_j min_i d(x_i, y_j)``; directed, the first term only

    Arguments:
        X, Y: points [*batch, N, D] and [*batch, M, D].
        keep_x, keep_y: True = keep; False marks padding, which is absent.
        metric: "sqeuclidean" by default; any metric or comparison.
        directed: only from X to Y.
        point_reduction: "mean" or "sum" over the points of a cloud.
        options: as of `tp.lazy`.

    Returns:
        [*batch], with gradients through the nearest points. Half precision is computed and returned in float32.

    Raises:
        ValueError: a cloud without points, or an unknown reduction.

    Notes:
        Memory grows with N + M.

    Example:
        >>> import torch
        >>> from torchpairwise.transport import chamfer_distance
        >>> X, Y = torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [1.0], [4.0]])
        >>> chamfer_distance(X, Y), chamfer_distance(X, Y, directed=True)
        (tensor(3.), tensor(0.))
    """
    if point_reduction not in ("mean", "sum"):
        raise ValueError(f"point_reduction={point_reduction!r}; expected 'mean' or 'sum'")
    parts = []
    for nearest, keep in _nearest(X, Y, keep_x, keep_y, metric, directed, options):
        kept = nearest if keep is None else torch.where(keep, nearest, 0.0)
        count = nearest.shape[-1] if keep is None else keep.sum(-1)
        parts.append(kept.sum(-1) / count if point_reduction == "mean" else kept.sum(-1))
    return parts[0] if directed else parts[0] + parts[1]


def hausdorff_distance(
    X: Tensor,  # [*batch, N, D]
    Y: Tensor,  # [*batch, M, D]
    *,
    keep_x: Tensor | None = None,  # [*batch, N] bool
    keep_y: Tensor | None = None,  # [*batch, M] bool
    metric: Any = "euclidean",
    directed: bool = False,
    **options: Any,
) -> Tensor:
    """Hausdorff distance: how far the worst point is from the other cloud.

    ``max(max_i min_j d(x_i, y_j), max_j min_i d(x_i, y_j))``; directed, the first term only

    Arguments:
        X, Y, keep_x, keep_y, directed, options: as of `chamfer_distance`.
        metric: "euclidean" by default.

    Returns:
        [*batch], with a gradient through the one pair that attains it.

    Raises:
        ValueError: a cloud without points.

    Example:
        >>> import torch
        >>> from torchpairwise.transport import hausdorff_distance
        >>> X, Y = torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [1.0], [4.0]])
        >>> hausdorff_distance(X, Y), hausdorff_distance(X, Y, directed=True)
        (tensor(3.), tensor(0.))
    """
    worst = []
    for nearest, keep in _nearest(X, Y, keep_x, keep_y, metric, directed, options):
        # max, not amax: the gradient goes to one of equal points.
        worst.append((nearest if keep is None else torch.where(keep, nearest, -torch.inf)).max(-1).values)
    return worst[0] if directed else torch.maximum(worst[0], worst[1])


def _nearest(
    X: Tensor, Y: Tensor, keep_x: Any, keep_y: Any, metric: Any, directed: bool, options: dict[str, Any]
) -> list[tuple[Tensor, Tensor | None]]:
    """For each direction the distances to the nearest points, and which points count."""
    for name, cloud, keep in (("X", X, keep_x), ("Y", Y, keep_y)):
        if not isinstance(cloud, Tensor):
            raise TypeError(f"{name} is {describe(cloud)}; expected points [..., N, D]")
        if cloud.dim() >= 2 and (cloud.shape[-2] == 0 or (keep is not None and not bool(keep.any(-1).all()))):
            raise ValueError(f"{name} has a cloud without points; its shape is {list(cloud.shape)}")
    D = lazy(widened(X), widened(Y), metric, **options)
    D = D if keep_x is None else D.mask_rows(keep_x)
    D = D if keep_y is None else D.mask_columns(keep_y)
    if directed:
        return [(D.min(-1).values, keep_x)]
    rows, columns = sweep(D, ["min"], ["min"])
    return [(rows.values, keep_x), (columns.values, keep_y)]


def barycentric_projection(
    result: SinkhornResult,
    Y: Tensor,  # [*batch, M, C]
) -> Tensor:
    """Where each row goes on average: ``sum_j P_ij y_j / sum_j P_ij``.

    Arguments:
        result: what `tp.optimize.sinkhorn` returned; with ``differentiable=True`` the projection has gradients to everything.
        Y: positions, or any values, of the columns [*batch, M, C].

    Returns:
        [*batch, N, C]; 0 for rows of weight 0.

    Example:
        >>> import torch, torchpairwise as tp
        >>> X, Y = torch.tensor([[0.0], [1.0]]), torch.tensor([[1.1], [0.1]])
        >>> plan = tp.optimize.sinkhorn(tp.lazy(X, Y), epsilon=0.01)
        >>> tp.transport.barycentric_projection(plan, Y)
        tensor([[0.1000],
                [1.1000]])
    """
    values = result.coupling.matmul(Y)
    mass = result.coupling.sum(-1).unsqueeze(-1)
    return torch.where(mass > 0, values / torch.where(mass > 0, mass, 1.0), 0.0)


def gradient_flow_step(
    X: Tensor,  # [*batch, N, D]
    Y: Tensor,  # [*batch, M, D]
    a: Tensor | None = None,  # [*batch, N]
    b: Tensor | None = None,  # [*batch, M]
    *,
    step_size: float = 1.0,
    **options: Any,
) -> Tensor:
    """One step of the points X towards Y along the gradient of a loss: ``x_i - step_size / a_i * dL/dx_i``.

    Arguments:
        X, Y, a, b: as of `samples_loss`.
        step_size: 1 by default. Of the loss "sinkhorn" with p = 2 a step of 1 moves a point to where the transport sends it.
        options: of `samples_loss`.

    Returns:
        The moved points [*batch, N, D], without gradients; points of weight 0 stay.

    Example:
        >>> import torch
        >>> from torchpairwise.transport import gradient_flow_step
        >>> gradient_flow_step(torch.zeros(3, 2), torch.ones(4, 2))
        tensor([[1.0000, 1.0000],
                [1.0000, 1.0000],
                [1.0000, 1.0000]])
    """
    points = X.detach().requires_grad_()
    with torch.enable_grad():
        value = samples_loss(points, Y.detach(), a, b, **options)
        if isinstance(value, (SinkhornResult, DivergenceResult)):
            raise ValueError("return_result was given to gradient_flow_step; it returns points")
        (gradient,) = torch.autograd.grad(value.sum(), points)
    weights = _uniform(X) if a is None else a.detach()
    share = torch.where(weights > 0, step_size / torch.where(weights > 0, weights, 1.0), 0.0)
    return X.detach() - share.unsqueeze(-1) * gradient
