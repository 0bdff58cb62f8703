"""The demo's table and figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from torchpairwise.demo.measuring import Measurement
from torchpairwise.demo.tasks import Task

# A task, our measurement, and that of its dense twin if it was run.
Result = tuple[Task, Any, Measurement | None]


def table_row(task: Task, ours: Measurement, dense: Measurement | None) -> dict[str, str]:
    twin = {"dense": "-", "difference": "-", "dense s": "-", "dense MB": "no memory"}
    if dense is not None:
        twin = {
            "dense": dense.outcome.text,
            "difference": difference(ours.outcome.values, dense.outcome.values),
            "dense s": f"{dense.seconds:.4f}",
            "dense MB": _megabytes(dense),
        }
    row = {"task": task.title, "pairs": ours.pairs, "ours": ours.outcome.text, **twin}
    row.update({"ours s": f"{ours.seconds:.4f}", "ours MB": _megabytes(ours)})
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


def draw(results: list[Result], path: Path) -> None:
    """Four results and the two costs, as one picture."""
    pictures = {name: array for _, ours, _ in results for name, array in ours.outcome.pictures.items()}
    figure = Figure(figsize=(15, 8), layout="constrained")
    axes = figure.subplots(2, 3).ravel()
    for ax, name in zip(axes, ("before", "after"), strict=False):
        ax.scatter(*pictures[name].T, c=pictures["labels"], cmap="tab10", s=8)
        ax.set(title=f"test digits {name} training with InfoNCE", xlabel="first axis", ylabel="second axis")
    tiles = [
        [np.pad(image.reshape(8, 8), 1) for image in (query, *keys)]
        for query, keys in zip(pictures["queries"], pictures["keys"], strict=True)
    ]
    axes[2].imshow(np.block(tiles), cmap="gray_r")
    axes[2].set(title="queries, and where their attention goes", xticks=[], yticks=[])
    axes[2].axvline(9.5, color="black")
    for (line, column), weight in np.ndenumerate(pictures["weights"]):
        axes[2].text(10 + 10 * column, 10 * line + 1.5, f"{weight:.0%}", color="tab:red", fontsize=8)
    axes[3].scatter(pictures["target"], pictures["predicted"], s=12)
    axes[3].axline((pictures["target"].mean(),) * 2, slope=1, color="gray")
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
