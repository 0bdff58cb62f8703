"""A metric learned on images: a small convolutional encoder, trained so that neighbours are of the same class, then k nearest neighbours.

Prints the accuracy of five neighbours over raw pixels and over what was learned, on digits that training did not see.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

import torchpairwise as tp


class Encoder(nn.Module):
    """Images [N, 1, 8, 8] to unit features [N, 64]."""

    def __init__(self, channels: int = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.Linear(channels * 16, 64),
        )

    def forward(self, images: Tensor) -> Tensor:
        return F.normalize(self.layers(images), dim=-1)


def shifted(images: Tensor) -> Tensor:
    """The images moved by up to one pixel."""
    down, right = torch.randint(0, 3, (2,)).tolist()
    return F.pad(images, (1, 1, 1, 1))[..., down : down + 8, right : right + 8]


def neighbor_loss(images: Tensor, labels: Tensor, comparison: tp.FeaturePairwise, temperature: float) -> Tensor:
    """- log of the probability that the neighbour which an image picks, by a softmax of -distance / temperature, is of its class."""
    logits = -tp.lazy(images, None, comparison) / temperature  # [N, N], not stored; each image is encoded once
    same = logits.masked(tp.masks.same_group(labels)).logsumexp(-1, exclude_self=True)
    every = logits.logsumexp(-1, exclude_self=True)
    return (every - same)[same.isfinite()].mean()


def accuracy(train: Tensor, labels: Tensor, test: Tensor, truth: Tensor, metric: object) -> float:
    """Share of test samples whose class is the most frequent one of the five nearest training samples."""
    nearest = tp.neighbors.knn(test, train, k=5, metric=metric)
    return (labels[nearest.indices].mode(-1).values == truth).float().mean().item()


def main() -> None:
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)
    train, test = images[:900], images[900:]  # in the order of the data set, not shuffled
    labels, truth = (torch.tensor(part) for part in (digits.target[:900], digits.target[900:]))
    comparison = tp.make_feature_pairwise(Encoder(), "sqeuclidean", sample_ndim=3)
    optimizer = torch.optim.Adam(comparison.parameters(), lr=3e-3)
    for epoch in range(30):
        losses = []
        for batch in torch.randperm(len(train)).split(225):
            loss = neighbor_loss(shifted(train[batch]), labels[batch], comparison, temperature=0.2)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss {sum(losses) / len(losses):.3f}")
    comparison.eval()
    with torch.no_grad():
        raw = accuracy(train.flatten(1), labels, test.flatten(1), truth, "euclidean")
        learned = accuracy(train, labels, test, truth, comparison)
    print(f"five nearest neighbours: raw pixels {raw:.4f}, learned metric {learned:.4f}")


if __name__ == "__main__":
    main()
