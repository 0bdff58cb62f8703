"""Kernel attention, also known as Nadaraya-Watson regression: averages of values, weighted by a kernel with a learned width."""

from __future__ import annotations

import torch
from torch import Tensor

import torchpairwise as tp


def kernel_average(
    query: Tensor,  # [N, D]
    key: Tensor,  # [M, D]
    value: Tensor,  # [M, C]
    gamma: Tensor,  # 0-dim, or one width for each feature [D]
) -> Tensor:  # [N, C]
    """sum_j k_ij v_j / sum_j k_ij from one product: the column of ones gives the mass of each row."""
    ones = torch.ones_like(value[..., :1])
    sums = tp.lazy(query, key, metric="rbf", gamma=gamma) @ torch.cat([value, ones], -1)
    return sums[..., :-1] / sums[..., -1:]


def leave_one_out_error(points: Tensor, targets: Tensor, gamma: Tensor) -> Tensor:
    """The squared error of predicting each target from all others: what a good width makes small.

    A softmax of the kernel's logarithm gives the same average, and no 0 / 0 where a point has no near neighbour.
    """
    average = tp.lazy(points, metric="rbf", gamma=gamma).log().softmax_matmul(targets, exclude_self=True)
    return (average - targets).square().mean()


def learn_width(points: Tensor, targets: Tensor, steps: int = 40) -> Tensor:
    """One width per feature by gradient descent on the leave-one-out error."""
    log_gamma = torch.zeros(points.shape[-1], dtype=points.dtype, requires_grad=True)
    optimizer = torch.optim.Adam([log_gamma], lr=0.2)
    for _ in range(steps):
        optimizer.zero_grad()
        leave_one_out_error(points, targets, log_gamma.exp()).backward()
        optimizer.step()
    return log_gamma.detach().exp()


def main() -> None:
    torch.manual_seed(0)
    points = torch.rand(600, 2) * 4
    targets = torch.sin(3 * points[:, :1]) + 0.1 * torch.randn(600, 1)  # the second feature does not matter
    start, gamma = torch.ones(2), learn_width(points, targets)
    for name, width in (("start", start), ("learned", gamma)):
        error = leave_one_out_error(points, targets, width)
        print(f"{name}: gamma {[round(g, 3) for g in width.tolist()]}, leave-one-out error {error:.4f}")
    test = torch.rand(200, 2) * 4
    error = (kernel_average(test, points, targets, gamma) - torch.sin(3 * test[:, :1])).square().mean()
    print(f"error on new points {error:.4f}")


if __name__ == "__main__":
    main()
