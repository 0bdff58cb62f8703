"""A learned comparison: a small network scores every pair of rows, is streamed like a built-in metric, and trains through it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import torchpairwise as tp


class LearnedScore(nn.Module):
    """f(x, y) = w . relu(A x + B y + b); it gets x [..., r, 1, D] and y [..., 1, c, D] and broadcasts."""

    def __init__(self, n_features: int, n_hidden: int = 16) -> None:
        super().__init__()
        self.rows = nn.Linear(n_features, n_hidden)
        self.columns = nn.Linear(n_features, n_hidden, bias=False)
        self.output = nn.Parameter(torch.randn(n_hidden) / n_hidden**0.5)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(self.rows(x) + self.columns(y)) @ self.output


def matching_loss(queries: Tensor, references: Tensor, comparison: object) -> Tensor:
    """Cross-entropy of finding reference i for query i among all references."""
    scores = tp.lazy(queries, references, comparison)
    return (scores.logsumexp(-1) - scores.diagonal()).mean()


def main() -> None:
    torch.manual_seed(0)
    references = torch.randn(200, 4)
    queries = references.flip(-1) + 0.1 * torch.randn(200, 4)  # the order of the features is reversed
    model = LearnedScore(4)
    comparison = tp.make_pairwise(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    for step in range(61):
        loss = matching_loss(queries, references, comparison)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: loss {loss:.3f}")
    best = tp.lazy(queries, references, comparison).argmax(-1)
    print(f"right matches {(best == torch.arange(200)).float().mean():.2f}")


if __name__ == "__main__":
    main()
