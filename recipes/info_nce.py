"""InfoNCE and NT-Xent for batches whose [N, N] logits would not fit: one logsumexp for each row, gradients included."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

import torchpairwise as tp


def info_nce(query: Tensor, positive: Tensor, temperature: Tensor) -> Tensor:
    """Row i of query belongs to row i of positive [N, D]; the other positives are its negatives."""
    scores = tp.lazy(F.normalize(query, dim=-1), F.normalize(positive, dim=-1), metric="linear") / temperature
    return (scores.logsumexp(-1) - scores.diagonal()).mean()


def nt_xent(first: Tensor, second: Tensor, temperature: Tensor) -> Tensor:
    """Two views [N, D] of the same samples; each of the 2 N rows is compared with all rows but itself."""
    z = F.normalize(torch.cat([first, second]), dim=-1)
    scores = tp.lazy(z, z, metric="linear") / temperature
    match = (z[: len(first)] * z[len(first) :]).sum(-1) / temperature
    return (scores.logsumexp(-1, exclude_self=True) - torch.cat([match, match])).mean()


def main() -> None:
    torch.manual_seed(0)
    encoder = torch.nn.Linear(32, 8)
    log_temperature = torch.tensor(-2.0, requires_grad=True)
    optimizer = torch.optim.Adam([*encoder.parameters(), log_temperature], lr=1e-2)
    samples = torch.randn(1000, 32)
    for step in range(31):
        first, second = (encoder(samples + 0.3 * torch.randn_like(samples)) for _ in range(2))
        loss = nt_xent(first, second, log_temperature.exp())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: NT-Xent {loss:.3f}, temperature {log_temperature.exp():.3f}")
    print(f"InfoNCE of the last batch {info_nce(first, second, log_temperature.exp()):.3f}")


if __name__ == "__main__":
    main()
