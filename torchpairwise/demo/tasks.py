"""The rows of the demo's table: data, the computation by this library, and its twin in dense PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_diabetes, load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from torchpairwise.attention import NadarayaWatson, attention
from torchpairwise.contrastive import info_nce
from torchpairwise.expression import lazy
from torchpairwise.neighbors import KNeighborsClassifier, knn

SHARPNESS = 30.0  # of the attention over cosine similarities
Report = Callable[[str], None]  # shows a line of progress


class Outcome(NamedTuple):
    """What a computation gives: a text for the table, values to compare with its twin, arrays for the figure."""

    text: str
    values: np.ndarray
    pictures: dict[str, np.ndarray] = {}


class Task(NamedTuple):
    """One row of the table.

    `prepare(size)` makes the data and is not measured; size is "full", "fast" or "tiny" (the warm-up).
    """

    title: str
    prepare: Callable[[str], dict[str, Any]]
    ours: Callable[[dict[str, Any], Report], Outcome]
    dense: Callable[[dict[str, Any], Report], Outcome]
    dense_bytes: int = 0  # needed by a large dense twin, which is skipped on machines without the memory


# The data sets


def digits(size: str) -> dict[str, Any]:
    """8 x 8 images of handwritten digits, as 1257 rows to learn from and 540 to test on."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images.astype(np.float32), labels, test_size=0.3, random_state=0)
    rows = 100 if size == "tiny" else None
    train, test, train_labels, test_labels = (torch.from_numpy(part[:rows]) for part in parts)
    pairs = f"{len(test)} x {len(train)}"
    return {"train": train, "test": test, "train_labels": train_labels, "test_labels": test_labels, "pairs": pairs}


def diabetes(size: str) -> dict[str, Any]:
    """Ten measurements of 442 patients and the progress of their disease; the width of the kernel is found by
    leave-one-out."""
    X, y = load_diabetes(return_X_y=True)
    train, test, train_target, test_target = train_test_split(X, y, test_size=0.3, random_state=0)
    if size == "tiny":
        train, test, train_target, test_target = train[:50], test[:50], train_target[:50], test_target[:50]
    model = NadarayaWatson(bandwidth="loo").fit(train, train_target)
    return {
        "model": model,
        "train": train,
        "train_target": train_target,
        "test": test,
        "test_target": test_target,
        "pairs": f"{len(test)} x {len(train)}",
    }


def many_digits(rows: int) -> Callable[[str], dict[str, Any]]:
    """The digits repeated with noise, `rows` of them, and a second view of each with other noise."""

    def prepare(size: str) -> dict[str, Any]:
        n = {"full": rows, "fast": 2000, "tiny": 200}[size]
        images = torch.from_numpy(load_digits().data).float() / 16
        generator = torch.Generator().manual_seed(0)
        tiled = images.repeat(n // len(images) + 1, 1)[:n]
        first, second = (tiled + 0.1 * torch.randn(tiled.shape, generator=generator) for _ in range(2))
        return {"first": first, "second": second, "pairs": f"{n} x {n}"}

    return prepare


# The computations and their dense twins


def classify_ours(data: dict[str, Any], report: Report) -> Outcome:
    model = KNeighborsClassifier(n_neighbors=5).fit(data["train"], data["train_labels"])
    return _accuracy(model.predict(data["test"]), data["test_labels"])


def classify_dense(data: dict[str, Any], report: Report) -> Outcome:
    nearest = torch.cdist(data["test"], data["train"]).topk(5, largest=False).indices
    return _accuracy(F.one_hot(data["train_labels"][nearest], 10).sum(1).argmax(-1), data["test_labels"])


def regress_ours(data: dict[str, Any], report: Report) -> Outcome:
    return _regression(data["model"].predict(data["test"]), data)


def regress_dense(data: dict[str, Any], report: Report) -> Outcome:
    train, test, target = (torch.from_numpy(data[name]) for name in ("train", "test", "train_target"))
    width = torch.from_numpy(data["model"].gamma_).sqrt()
    weights = torch.softmax(-torch.cdist(test * width, train * width).square(), -1)
    return _regression((weights @ target).numpy(), data)


def attend_ours(data: dict[str, Any], report: Report) -> Outcome:
    labels = F.one_hot(data["train_labels"], 10).float()
    shares = attention(data["test"], data["train"], labels, metric="cosine_similarity", scale=SHARPNESS)
    return _accuracy(shares.argmax(-1), data["test_labels"])._replace(values=shares.numpy(), pictures=_attended(data))


def attend_dense(data: dict[str, Any], report: Report) -> Outcome:
    labels = F.one_hot(data["train_labels"], 10).float()
    scores = SHARPNESS * F.normalize(data["test"], dim=-1) @ F.normalize(data["train"], dim=-1).T
    shares = torch.softmax(scores, -1) @ labels
    return _accuracy(shares.argmax(-1), data["test_labels"])._replace(values=shares.numpy())


def info_nce_dense(query: Tensor, positive: Tensor) -> Tensor:
    logits = F.normalize(query, dim=-1) @ F.normalize(positive, dim=-1).T / 0.1
    return F.cross_entropy(logits, torch.arange(len(query)))


def encode_ours(data: dict[str, Any], report: Report) -> Outcome:
    return _train_encoder(info_nce, classify_ours, data, report)


def encode_dense(data: dict[str, Any], report: Report) -> Outcome:
    return _train_encoder(info_nce_dense, classify_dense, data, report)


def neighbors_ours(data: dict[str, Any], report: Report) -> Outcome:
    distances = knn(data["first"], k=5).values
    return Outcome(f"mean distance {distances.mean():.4f}", distances.numpy())


def neighbors_dense(data: dict[str, Any], report: Report) -> Outcome:
    distances = torch.cdist(data["first"], data["first"]).fill_diagonal_(torch.inf).topk(5, largest=False).values
    return Outcome(f"mean distance {distances.mean():.4f}", distances.numpy())


def gradient_ours(data: dict[str, Any], report: Report) -> Outcome:
    return _loss_and_gradient(info_nce, data)


def gradient_dense(data: dict[str, Any], report: Report) -> Outcome:
    return _loss_and_gradient(info_nce_dense, data)


def _accuracy(predicted: Tensor, labels: Tensor) -> Outcome:
    return Outcome(f"accuracy {(predicted == labels).float().mean():.2%}", predicted.numpy())


def _regression(predicted: np.ndarray, data: dict[str, Any]) -> Outcome:
    target = data["test_target"]
    residual = ((predicted - target) ** 2).sum() / ((target - target.mean()) ** 2).sum()
    return Outcome(f"R^2 {1 - residual:.4f}", predicted, {"predicted": predicted, "target": target})


def _attended(data: dict[str, Any]) -> dict[str, np.ndarray]:
    """The images that the first four test images attend to most, and their weights, without the other weights."""
    scores = lazy(data["test"][:4], data["train"], metric="cosine_similarity") * SHARPNESS
    best = scores.topk(5)
    weights = (best.values - scores.logsumexp(-1).unsqueeze(-1)).exp()
    return {
        "queries": data["test"][:4].numpy(),
        "keys": data["train"][best.indices].numpy(),
        "weights": weights.numpy(),
    }


def _train_encoder(
    loss_function: Callable[[Tensor, Tensor], Tensor],
    classify: Callable[[dict[str, Any], Report], Outcome],
    data: dict[str, Any],
    report: Report,
) -> Outcome:
    """Trains a small network so that two moved, noisy views of an image meet; k-NN on its output before and after."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
    optimizer = torch.optim.Adam(encoder.parameters(), lr=3e-3)
    before = _embedded(encoder, data)
    losses = []
    for epoch in range(data["epochs"]):
        loss = loss_function(encoder(_view(data["train"])), encoder(_view(data["train"])))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        report(f"epoch {epoch + 1}/{data['epochs']}, loss {losses[-1]:.3f}")
    after = _embedded(encoder, data)
    text = f"{classify(before, report).text} -> {classify(after, report).text.removeprefix('accuracy ')}"
    pictures = {"before": _flat(before["test"]), "after": _flat(after["test"]), "labels": data["test_labels"].numpy()}
    return Outcome(text, np.array(losses), pictures)


def _view(images: Tensor) -> Tensor:
    """Each image moved by up to one pixel, with noise."""
    n = len(images)
    padded = F.pad(images.view(n, 8, 8) / 16, (1, 1, 1, 1))
    moved = padded.unfold(1, 8, 1).unfold(2, 8, 1).reshape(n, 9, 64)[torch.arange(n), torch.randint(9, (n,))]
    return moved + 0.1 * torch.randn_like(moved)


def _embedded(encoder: nn.Module, data: dict[str, Any]) -> dict[str, Any]:
    """The data with normalised embeddings in place of images."""
    with torch.no_grad():
        return {**data, **{name: F.normalize(encoder(data[name] / 16), dim=-1) for name in ("train", "test")}}


def _flat(points: Tensor) -> np.ndarray:
    """Points on their first two principal axes."""
    centred = points - points.mean(0)
    return (centred @ torch.linalg.svd(centred, full_matrices=False).Vh[:2].T).numpy()


def _loss_and_gradient(loss_function: Callable[[Tensor, Tensor], Tensor], data: dict[str, Any]) -> Outcome:
    query = data["first"].clone().requires_grad_()
    loss = loss_function(query, data["second"])
    loss.backward()
    return Outcome(f"loss {loss.item():.5f}", query.grad.numpy() / query.grad.abs().max().item())


def digits_to_encode(size: str) -> dict[str, Any]:
    return {**digits(size), "epochs": {"full": 50, "fast": 15, "tiny": 1}[size]}


TASKS = (
    Task("k-NN classification, digits", digits, classify_ours, classify_dense),
    Task("kernel regression, diabetes", diabetes, regress_ours, regress_dense),
    Task("attention, digits", digits, attend_ours, attend_dense),
    Task("encoder by InfoNCE, digits", digits_to_encode, encode_ours, encode_dense),
    Task("k-NN, many digits", many_digits(15000), neighbors_ours, neighbors_dense, 12 * 15000**2),
    Task("InfoNCE + gradient, many", many_digits(12000), gradient_ours, gradient_dense, 20 * 12000**2),
)
