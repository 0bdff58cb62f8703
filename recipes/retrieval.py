"""Exact k-nearest-neighbour retrieval, and the loss that trains an encoder for it through the chosen neighbours."""

from __future__ import annotations

import torch
from torch import Tensor

import torchpairwise as tp


def retrieve(queries: Tensor, references: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k nearest references of each query: squared distances [N, k] and indices [N, k], ties by the lower index."""
    values, indices = tp.lazy(queries, references, metric="sqeuclidean").topk(k, largest=False)
    return values, indices


def margin_loss(queries: Tensor, references: Tensor, margin: float = 1.0) -> Tensor:
    """Reference i should be nearer to query i than the hardest other one, by a margin. Gradients pass through the selection."""
    distances = tp.lazy(queries, references, metric="sqeuclidean")
    hardest = distances.min(-1, exclude_self=True).values
    return (distances.diagonal() - hardest + margin).clamp(min=0).mean()


def recall(queries: Tensor, references: Tensor, k: int) -> float:
    """Share of queries whose own reference is among the k nearest."""
    _, indices = retrieve(queries, references, k)
    return (indices == torch.arange(len(queries))[:, None]).any(-1).float().mean().item()


def main() -> None:
    torch.manual_seed(0)
    signal, noise = torch.randn(800, 16), 3 * torch.randn(2, 800, 16)
    queries, references = (torch.cat([signal, part], -1) for part in noise)  # half of the features only disturb
    encoder = torch.nn.Linear(32, 16)
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-2)
    print(f"recall at 5 before training {recall(encoder(queries), encoder(references), 5):.3f}")
    for _ in range(60):
        optimizer.zero_grad()
        margin_loss(encoder(queries), encoder(references)).backward()
        optimizer.step()
    print(f"recall at 5 after training {recall(encoder(queries), encoder(references), 5):.3f}")


if __name__ == "__main__":
    main()
