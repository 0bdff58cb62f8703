"""The Chamfer distance of two point clouds, in batches and with padding, and a cloud that is fitted to another by its gradient."""

from __future__ import annotations

import math

import torch
from torch import Tensor

import torchpairwise as tp


def chamfer_distance(
    first: Tensor,  # [B, N, D]
    second: Tensor,  # [B, M, D]
    first_mask: Tensor | None = None,  # [B, N], True = a point, False = padding
    second_mask: Tensor | None = None,  # [B, M]
) -> Tensor:  # [B]
    """Mean squared distance to the nearest point of the other cloud, in both directions, added."""
    distances = tp.lazy(first, second, metric="sqeuclidean")
    if first_mask is not None:
        distances = distances.mask_rows(first_mask)
    if second_mask is not None:
        distances = distances.mask_columns(second_mask)
    forth = _mean(distances.min(-1).values, first_mask)
    back = _mean(distances.min(-2).values, second_mask)
    return forth + back


def _mean(values: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return values.mean(-1)
    return torch.where(mask, values, 0.0).sum(-1) / mask.sum(-1)


def main() -> None:
    torch.manual_seed(0)
    angle = torch.rand(1, 2000) * 2 * math.pi
    circle = torch.stack([angle.cos(), angle.sin()], -1)
    cloud = (0.1 * torch.randn(1, 500, 2)).requires_grad_()
    optimizer = torch.optim.Adam([cloud], lr=0.02)
    for step in range(201):
        loss = chamfer_distance(cloud, circle).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: Chamfer distance {loss:.5f}")
    print(f"mean radius of the fitted cloud {cloud.detach().norm(dim=-1).mean():.3f}")


if __name__ == "__main__":
    main()
