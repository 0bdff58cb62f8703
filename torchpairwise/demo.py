"""The library on real data, next to the same computation in dense PyTorch: python -m torchpairwise.demo

Each row of the table is measured twice, ours and its dense twin, each in a fresh process: time (best of a few runs) and peak memory beyond what
the process held before. The two small data sets come with scikit-learn; the last rows repeat them with noise to a size where storing
all pairs starts to hurt.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_diabetes, load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import torchpairwise as tp
from torchpairwise.attention import NadarayaWatson, attention
from torchpairwise.contrastive import info_nce
from torchpairwise.neighbors import KNeighborsClassifier, knn

SHARPNESS = 30.0  # of the attention over cosine similarities
Report = Callable[[str], None]  # shows a line of progress


class Outcome(NamedTuple):
    """What a computation gives: a text for the table, values to compare with its twin, arrays for the figure."""

    text: str
    values: np.ndarray
    pictures: dict[str, np.ndarray] = {}


class Task(NamedTuple):
    """One row of the table. `prepare(size)` makes the data, which is not measured; size is "full", "fast" or "tiny" (the warm-up)."""

    title: str
    prepare: Callable[[str], dict[str, Any]]
    ours: Callable[[dict[str, Any], Report], Outcome]
    dense: Callable[[dict[str, Any], Report], Outcome]
    dense_bytes_per_pair: int = 0  # where the dense twin is large: skipped on machines without the memory


class Measurement(NamedTuple):
    outcome: Outcome
    pairs: str
    seconds: float
    peak_bytes: int | None


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
    """Ten measurements of 442 patients and the progress of their disease; the width of the kernel is found by leave-one-out."""
    X, y = load_diabetes(return_X_y=True)
    train, test, train_target, test_target = train_test_split(X, y, test_size=0.3, random_state=0)
    if size == "tiny":
        train, test, train_target, test_target = train[:50], test[:50], train_target[:50], test_target[:50]
    model = NadarayaWatson(bandwidth="loo").fit(train, train_target)
    return {"model": model, "train": train, "train_target": train_target, "test": test, "test_target": test_target,
            "pairs": f"{len(test)} x {len(train)}"}


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
    return _train_encoder(info_nce, data, report)


def encode_dense(data: dict[str, Any], report: Report) -> Outcome:
    return _train_encoder(info_nce_dense, data, report)


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
    scores = tp.lazy(data["test"][:4], data["train"], metric="cosine_similarity") * SHARPNESS
    best = scores.topk(5)
    weights = (best.values - scores.logsumexp(-1).unsqueeze(-1)).exp()
    return {"queries": data["test"][:4].numpy(), "keys": data["train"][best.indices].numpy(), "weights": weights.numpy()}


def _train_encoder(loss_function: Callable[[Tensor, Tensor], Tensor], data: dict[str, Any], report: Report) -> Outcome:
    """Trains a small network so that two shifted, noisy views of an image meet; k-NN on its output before and after."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 4))
    optimizer = torch.optim.Adam(encoder.parameters(), lr=3e-3)
    before, before_map = _embedding(encoder, data)
    losses = []
    for epoch in range(data["epochs"]):
        loss = loss_function(encoder(_view(data["train"])), encoder(_view(data["train"])))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        report(f"epoch {epoch + 1}/{data['epochs']}, loss {losses[-1]:.3f}")
    after, after_map = _embedding(encoder, data)
    pictures = {"before": before_map, "after": after_map, "labels": data["test_labels"].numpy()}
    return Outcome(f"accuracy {before:.2%} -> {after:.2%}", np.array(losses), pictures)


def _view(images: Tensor) -> Tensor:
    """Each image moved by up to one pixel, with noise."""
    padded = F.pad(images.view(-1, 8, 8) / 16, (1, 1, 1, 1))
    down, right = torch.randint(0, 3, (2,)).tolist()
    moved = padded[:, down : down + 8, right : right + 8].reshape(len(images), 64)
    return moved + 0.1 * torch.randn_like(moved)


def _embedding(encoder: nn.Module, data: dict[str, Any]) -> tuple[float, np.ndarray]:
    """Accuracy of k-NN on normalised embeddings, and the test embeddings on their first two principal axes."""
    with torch.no_grad():
        train, test = (F.normalize(encoder(data[name] / 16), dim=-1) for name in ("train", "test"))
    score = KNeighborsClassifier(n_neighbors=5).fit(train, data["train_labels"]).score(test, data["test_labels"])
    centred = test - test.mean(0)
    return score, (centred @ torch.linalg.svd(centred, full_matrices=False).Vh[:2].T).numpy()


def _loss_and_gradient(loss_function: Callable[[Tensor, Tensor], Tensor], data: dict[str, Any]) -> Outcome:
    query = data["first"].clone().requires_grad_()
    loss = loss_function(query, data["second"])
    loss.backward()
    return Outcome(f"loss {loss.item():.5f}", query.grad.numpy() / query.grad.abs().max().item())


def digits_to_encode(size: str) -> dict[str, Any]:
    return {**digits(size), "epochs": {"full": 150, "fast": 15, "tiny": 1}[size]}


TASKS = (
    Task("k-NN classification, digits", digits, classify_ours, classify_dense),
    Task("kernel regression, diabetes", diabetes, regress_ours, regress_dense),
    Task("attention, digits", digits, attend_ours, attend_dense),
    Task("encoder by InfoNCE, digits", digits_to_encode, encode_ours, encode_dense),
    Task("k-NN, many digits", many_digits(15000), neighbors_ours, neighbors_dense, 12),
    Task("InfoNCE + gradient, many", many_digits(12000), gradient_ours, gradient_dense, 20),
)


# Measuring


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """Yields a list that holds, afterwards, the peak of resident memory beyond the start; it stays empty where that cannot be read."""
    peak: list[int] = []
    try:
        start = _resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # sets the peak back to the present
    except OSError:
        yield from _sampled_peak(peak)
        return
    yield peak
    peak.append(_resident("VmHWM") - start)


def _sampled_peak(peak: list[int]) -> Iterator[list[int]]:
    """The same by a thread that looks every millisecond."""
    try:
        start = highest = _resident("VmRSS")
    except OSError:
        yield peak
        return
    done = threading.Event()

    def sample() -> None:
        nonlocal highest
        while not done.wait(0.001):
            highest = max(highest, _resident("VmRSS"))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()
    peak.append(highest - start)


def _resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def _return_freed_memory() -> None:
    """Fixes glibc's growing thresholds, so that freed blocks go back and peaks are comparable."""
    if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "mallopt"):
        for option in (-3, -1):  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
            ctypes.CDLL(None).mallopt(option, 65536)


def measure(sender: Any, index: int, engine: str, size: str) -> None:
    """Runs one computation in this process and sends ("progress", text) lines and one ("done", Measurement)."""
    _return_freed_memory()
    task = TASKS[index]
    run = getattr(task, engine)
    run(task.prepare("tiny"), lambda text: None)
    data = task.prepare(size)
    started = time.perf_counter()
    with peak_memory() as peak:
        outcome = run(data, lambda text: sender.send(("progress", text)))
    seconds = [time.perf_counter() - started]
    while len(seconds) < 5 and sum(seconds) < 1:
        started = time.perf_counter()
        run(data, lambda text: None)
        seconds.append(time.perf_counter() - started)
    sender.send(("done", Measurement(outcome, data["pairs"], min(seconds), peak[0] if peak else None)))


def measured(index: int, engine: str, size: str, bar: Any) -> Measurement | None:
    """`measure` in a fresh process, its progress on the bar; None where a large dense twin does not fit into memory."""
    task = TASKS[index]
    if engine == "dense" and size == "full" and task.dense_bytes_per_pair:
        n = len(task.prepare("full")["first"])
        if _available_memory() < 1.3 * task.dense_bytes_per_pair * n**2:
            return None
    context = multiprocessing.get_context("forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn")
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload(["torchpairwise.demo"])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=measure, args=(sender, index, engine, size))
    process.start()
    sender.close()
    try:
        while True:
            while not receiver.poll(0.2):
                bar.refresh()
            kind, content = receiver.recv()
            if kind == "done":
                return content
            bar.set_postfix_str(content)
    except EOFError:
        raise RuntimeError(f"{task.title} ({engine}) ended without a result, exit code {process.exitcode}") from None
    finally:
        process.join()


def _available_memory() -> float:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024.0 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return float("inf")


# The table and the figure


def table_row(task: Task, ours: Measurement, dense: Measurement | None) -> dict[str, str]:
    twin = {"dense": "-", "difference": "-", "dense s": "-", "dense MB": "no memory"}
    if dense is not None:
        twin = {
            "dense": dense.outcome.text,
            "difference": difference(ours.outcome.values, dense.outcome.values),
            "dense s": f"{dense.seconds:.3f}",
            "dense MB": _megabytes(dense),
        }
    row = {"task": task.title, "pairs": ours.pairs, "ours": ours.outcome.text, **twin}
    row.update({"ours s": f"{ours.seconds:.3f}", "ours MB": _megabytes(ours)})
    order = ("task", "pairs", "ours", "dense", "difference", "ours s", "dense s", "ours MB", "dense MB")
    return {name: row[name] for name in order}


def difference(ours: np.ndarray, dense: np.ndarray) -> str:
    """The share of labels that differ, or the largest absolute difference."""
    if ours.dtype.kind in "iu":
        return f"{(ours != dense).mean():.2%} of labels"
    return f"{np.abs(ours - dense).max():.1e}"


def _megabytes(measurement: Measurement) -> str:
    return "-" if measurement.peak_bytes is None else f"{measurement.peak_bytes / 1e6:.1f}"


def print_table(rows: list[dict[str, str]]) -> None:
    """Aligned columns: text to the left, numbers to the right."""
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in rows[0]}
    numeric = ("difference", "ours s", "dense s", "ours MB", "dense MB")
    for row in [{name: name for name in widths}, {name: "-" * width for name, width in widths.items()}, *rows]:
        cells = (text.rjust(widths[name]) if name in numeric else text.ljust(widths[name]) for name, text in row.items())
        print("  ".join(cells).rstrip())


def draw(results: list[tuple[Task, Measurement, Measurement | None]], path: Path) -> None:
    """Four results and the two costs, as one picture."""
    from matplotlib.figure import Figure

    pictures = {name: array for _, ours, _ in results for name, array in ours.outcome.pictures.items()}
    figure = Figure(figsize=(15, 8), layout="constrained")
    axes = figure.subplots(2, 3).ravel()
    for ax, name in zip(axes, ("before", "after"), strict=False):
        ax.scatter(*pictures[name].T, c=pictures["labels"], cmap="tab10", s=8)
        ax.set(title=f"test digits {name} training with InfoNCE", xlabel="first axis", ylabel="second axis")
    rows = [np.hstack([query.reshape(8, 8), np.full((8, 4), 16.0), *(key.reshape(8, 8) for key in keys)])
            for query, keys in zip(pictures["queries"], pictures["keys"], strict=True)]
    axes[2].imshow(np.vstack(rows), cmap="gray_r")
    axes[2].set(title="a query and the five digits it attends to most", xticks=[], yticks=[])
    for line, weights in enumerate(pictures["weights"]):
        for column, weight in enumerate(weights):
            axes[2].text(12 + 8 * column, 8 * line + 1, f"{weight:.1%}", color="tab:red", fontsize=7)
    axes[3].scatter(pictures["target"], pictures["predicted"], s=12)
    axes[3].axline((150, 150), slope=1, color="gray")
    axes[3].set(title="kernel regression of diabetes", xlabel="progress of the disease", ylabel="prediction")
    names = [task.title for task, _, _ in results]
    for ax, label, value in (
        (axes[4], "seconds", lambda m: m.seconds),
        (axes[5], "peak MB beyond the data", lambda m: (m.peak_bytes or 0) / 1e6),
    ):
        for offset, engine, color in ((0.2, 1, "tab:blue"), (-0.2, 2, "tab:orange")):
            heights = [0.0 if result[engine] is None else value(result[engine]) for result in results]
            ax.barh(np.arange(len(names)) + offset, heights, 0.4, color=color, label=("ours", "dense")[engine - 1])
        ax.set(xscale="symlog" if "MB" in label else "log", xlabel=label, yticks=range(len(names)), yticklabels=names)
        ax.invert_yaxis()
        ax.legend()
    figure.savefig(path, dpi=110)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m torchpairwise.demo", description=__doc__)
    parser.add_argument("--fast", action="store_true", help="small sizes, for a quick check")
    parser.add_argument("--output", type=Path, default=Path("torchpairwise_demo.png"), help="where the figure goes")
    options = parser.parse_args(arguments)
    missing = [name for name in ("matplotlib", "tqdm") if find_spec(name) is None]
    if missing:
        raise SystemExit(f"The demo needs {' and '.join(missing)}. Install what it needs by: pip install 'torchpairwise[demo]'")
    from tqdm import tqdm

    size = "fast" if options.fast else "full"
    started = time.perf_counter()
    results = []
    with tqdm(total=2 * len(TASKS), file=sys.stderr, dynamic_ncols=True) as bar:
        for index, task in enumerate(TASKS):
            pair = []
            for engine in ("ours", "dense"):
                bar.set_description(f"{task.title}: {engine}")
                bar.set_postfix_str("")
                pair.append(measured(index, engine, size, bar))
                bar.update()
            results.append((task, *pair))
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; s = seconds, MB = peak memory beyond the data\n")
    print_table([table_row(*result) for result in results])
    draw(results, options.output)
    print(f"\nfigure: {options.output.resolve()}\n{time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
