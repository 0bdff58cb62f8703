"""The losses between point clouds as modules."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor, nn

from torchpairwise.transport.functional import Loss, chamfer_distance, hausdorff_distance, samples_loss

__all__ = ["ChamferLoss", "HausdorffLoss", "SamplesLoss"]

Reduction = Literal["none", "mean", "sum"]


class SamplesLoss(nn.Module):
    """`samples_loss` as a module, called as ``loss(X, Y)`` or ``loss(a, X, b, Y)``.

    Arguments:
        loss, p, blur, reach, cost, debias, solver: as of `samples_loss`.

    Example:
        >>> import torch
        >>> from torchpairwise.transport import SamplesLoss
        >>> loss = SamplesLoss("sinkhorn", p=2, blur=0.1)
        >>> X, Y = torch.zeros(5, 2), torch.ones(4, 2)
        >>> loss(X, Y)
        tensor(1.)
        >>> loss(torch.full((5,), 0.2), X, torch.full((4,), 0.25), Y)
        tensor(1.)
    """

    def __init__(
        self,
        loss: Loss = "sinkhorn",
        p: int = 2,
        blur: float = 0.05,
        reach: float | None = None,
        cost: Any = None,
        debias: bool = True,
        **solver: Any,
    ) -> None:
        super().__init__()
        self.loss = loss
        self.p = p
        self.blur = blur
        self.reach = reach
        # A comparison is an object of its own; its modules' parameters belong to it.
        self.cost = cost
        self.debias = debias
        self.solver = solver

    def forward(self, *arguments: Tensor) -> Tensor:
        """The loss [*batch] of ``(X, Y)`` or ``(a, X, b, Y)``.

        Raises:
            TypeError: another number of arguments.
        """
        if len(arguments) == 2:
            X, Y = arguments
            a = b = None
        elif len(arguments) == 4:
            a, X, b, Y = arguments
        else:
            raise TypeError(f"SamplesLoss takes (X, Y) or (a, X, b, Y); {len(arguments)} arguments were given")
        return samples_loss(
            X, Y, a, b, loss=self.loss, p=self.p, blur=self.blur, reach=self.reach, cost=self.cost, debias=self.debias, **self.solver
        )

    def extra_repr(self) -> str:
        """The options."""
        return f"{self.loss!r}, p={self.p}, blur={self.blur}, reach={self.reach}, debias={self.debias}"


class _CloudLoss(nn.Module):
    """What the two losses by nearest points share: options, and the reduction over a batch."""

    def __init__(self, metric: Any, directed: bool, reduction: Reduction) -> None:
        super().__init__()
        if reduction not in ("none", "mean", "sum"):
            raise ValueError(f"reduction={reduction!r}; expected 'none', 'mean' or 'sum'")
        self.metric = metric
        self.directed = directed
        self.reduction = reduction

    def reduced(self, values: Tensor) -> Tensor:
        """The losses of a batch, reduced."""
        return values if self.reduction == "none" else values.mean() if self.reduction == "mean" else values.sum()

    def extra_repr(self) -> str:
        """The options."""
        return f"metric={self.metric!r}, directed={self.directed}, reduction={self.reduction!r}"


class ChamferLoss(_CloudLoss):
    """`chamfer_distance` as a module.

    Arguments:
        metric, directed, point_reduction: as of `chamfer_distance`.
        reduction: "mean" (default), "sum" or "none" over the clouds of a batch.

    Example:
        >>> import torch
        >>> from torchpairwise.transport import ChamferLoss
        >>> ChamferLoss()(torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [1.0], [4.0]]))
        tensor(3.)
    """

    def __init__(
        self,
        *,
        metric: Any = "sqeuclidean",
        directed: bool = False,
        point_reduction: Literal["mean", "sum"] = "mean",
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(metric, directed, reduction)
        self.point_reduction = point_reduction

    def forward(self, X: Tensor, Y: Tensor, keep_x: Tensor | None = None, keep_y: Tensor | None = None) -> Tensor:
        """The loss of clouds [*batch, N, D] and [*batch, M, D]; False in `keep_x` and `keep_y` marks padding."""
        values = chamfer_distance(
            X, Y, keep_x=keep_x, keep_y=keep_y, metric=self.metric, directed=self.directed, point_reduction=self.point_reduction
        )
        return self.reduced(values)


class HausdorffLoss(_CloudLoss):
    """`hausdorff_distance` as a module.

    Arguments:
        metric, directed: as of `hausdorff_distance`.
        reduction: "mean" (default), "sum" or "none" over the clouds of a batch.

    Example:
        >>> import torch
        >>> from torchpairwise.transport import HausdorffLoss
        >>> HausdorffLoss()(torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [1.0], [4.0]]))
        tensor(3.)
    """

    def __init__(self, *, metric: Any = "euclidean", directed: bool = False, reduction: Reduction = "mean") -> None:
        super().__init__(metric, directed, reduction)

    def forward(self, X: Tensor, Y: Tensor, keep_x: Tensor | None = None, keep_y: Tensor | None = None) -> Tensor:
        """The loss of clouds [*batch, N, D] and [*batch, M, D]; False in `keep_x` and `keep_y` marks padding."""
        return self.reduced(hausdorff_distance(X, Y, keep_x=keep_x, keep_y=keep_y, metric=self.metric, directed=self.directed))
