"""Attention without the [N, M] weights: softmax(Q K^T / sqrt(E)) V, causal, with a penalty for distant positions."""

from __future__ import annotations

import torch
from torch import Tensor

import torchpairwise as tp


def causal_attention(
    query: Tensor,  # [B, heads, N, E]
    key: Tensor,  # [B, heads, M, E]
    value: Tensor,  # [B, heads, M, C]
    slope: Tensor,  # 0-dim: how much a score loses for each position of distance
) -> Tensor:  # [B, heads, N, C]
    """Each query sees the keys up to its own position; the last query sees all keys."""
    scores = tp.lazy(query, key, metric="linear") * query.shape[-1] ** -0.5
    # A row's softmax does not change when the row is shifted, so that -slope (i - j) may be written as slope j.
    positions = torch.arange(key.shape[-2], dtype=key.dtype, device=key.device)
    scores = scores.add_columns(slope * positions)
    return scores.softmax_matmul(value, mask=tp.masks.causal())


def dense_attention(query: Tensor, key: Tensor, value: Tensor, slope: Tensor) -> Tensor:
    """The same with all [N, M] scores in memory."""
    n, m = query.shape[-2], key.shape[-2]
    distance = torch.arange(n)[:, None] + (m - n) - torch.arange(m)
    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5 - slope * distance
    return torch.softmax(scores.masked_fill(distance < 0, -torch.inf), -1) @ value


def main() -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 4, 200, 32), torch.randn(2, 4, 300, 32), torch.randn(2, 4, 300, 16)
    slope = torch.tensor(0.05, requires_grad=True)
    output = causal_attention(query, key, value, slope)
    (gradient,) = torch.autograd.grad(output.square().mean(), slope)
    print(f"output {list(output.shape)}, gradient of the slope {gradient:.3e}")
    print(f"largest difference from dense {(output - dense_attention(query, key, value, slope)).abs().max():.1e}")


if __name__ == "__main__":
    main()
