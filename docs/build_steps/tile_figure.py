"""Draws how tiles stream: the figure of the concept page."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Rectangle

_BLUE, _ORANGE, _GREEN, _GREY = "#2b6cb0", "#dd6b20", "#2f855a", "#718096"
_ROWS, _COLUMNS = 4, 6  # tiles of the score matrix
_CURRENT = (1, 3)


def _box(axes: Axes, x: float, y: float, width: float, height: float, **style: object) -> None:
    axes.add_patch(Rectangle((x, y), width, height, **style))


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], color: str, bend: float = 0.0) -> None:
    style = f"arc3,rad={bend}"
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=12, color=color, lw=1.4, connectionstyle=style))


def _scores(axes: Axes) -> None:
    """The score matrix: tiles that were, one that is, tiles that will be. None is stored but the one that is."""
    row, column = _CURRENT
    for i in range(_ROWS):
        for j in range(_COLUMNS):
            y = _ROWS - 1 - i
            if (i, j) == _CURRENT:
                _box(axes, j, y, 1, 1, facecolor=_ORANGE, edgecolor=_ORANGE, alpha=0.9)
                axes.text(j + 0.5, y + 0.5, "tile", ha="center", va="center", color="white", fontweight="bold", fontsize=10)
                continue
            done = i < row or (i == row and j < column)
            _box(axes, j, y, 1, 1, facecolor="#edf2f7" if done else "white", edgecolor="#cbd5e0", ls="-" if done else ":")
            if i < row and j != column:
                axes.text(j + 0.5, y + 0.5, "gone", ha="center", va="center", color="#a0aec0", fontsize=7)
    axes.text(_COLUMNS / 2, -0.35, "scores [N, M]: one tile at a time, never stored", ha="center", va="top", color=_GREY, fontsize=9)


def _features(axes: Axes) -> None:
    row, column = _CURRENT
    for i in range(_ROWS):
        shade = 0.85 if i == row else 0.25
        _box(axes, -1.7, _ROWS - 1 - i, 0.9, 1, facecolor=_BLUE, edgecolor="white", alpha=shade)
    for j in range(_COLUMNS):
        shade = 0.85 if j == column else 0.25
        _box(axes, j, _ROWS + 0.6, 1, 0.75, facecolor=_BLUE, edgecolor="white", alpha=shade)
    axes.text(-1.25, -0.35, "X [N, D]\na block of rows stays", ha="center", va="top", color=_BLUE, fontsize=9)
    axes.text(_COLUMNS / 2, _ROWS + 1.5, "Y [M, D]: tiles of columns stream by", ha="center", color=_BLUE, fontsize=9)
    y = _ROWS - 0.5 - row
    _arrow(axes, (-0.75, y), (column - 0.05, y), _BLUE)
    _arrow(axes, (column + 0.5, _ROWS + 0.55), (column + 0.5, y + 0.55), _BLUE)


def _states(axes: Axes) -> None:
    row, column = _CURRENT
    x, y = _COLUMNS + 1.3, _ROWS - 1 - row
    for i in range(_ROWS):
        finished, current = i < row, i == row
        color = _GREEN if finished else (_ORANGE if current else "white")
        edge = "#cbd5e0" if not (finished or current) else color
        _box(
            axes,
            x,
            _ROWS - 1 - i,
            0.55,
            1,
            facecolor=color,
            edgecolor=edge,
            alpha=0.8 if finished or current else 1,
            ls="-" if i <= row else ":",
        )
    _arrow(axes, (column + 1.05, y + 0.5), (x - 0.05, y + 0.5), _ORANGE)
    axes.text(_COLUMNS + 0.62, y + 0.62, "update", ha="center", color=_ORANGE, fontsize=9)
    axes.text(x + 0.75, _ROWS - 0.5, "finished rows", va="center", color=_GREEN, fontsize=9)
    axes.text(x + 0.75, y + 0.5, "running states\n(maximum, sum, ...)", va="center", color=_ORANGE, fontsize=9)
    axes.text(x + 0.28, -0.35, "result [N]", ha="center", va="top", color=_GREEN, fontsize=9)


def draw(path: Path) -> None:
    """Save the figure as SVG; the same input gives the same bytes."""
    with plt.rc_context({"svg.hashsalt": "tiles", "svg.fonttype": "path", "font.family": "DejaVu Sans"}):
        figure, axes = plt.subplots(figsize=(9, 4.6))
        _scores(axes)
        _features(axes)
        _states(axes)
        axes.set_xlim(-3.1, _COLUMNS + 4.6)
        axes.set_ylim(-1.3, _ROWS + 2)
        axes.set_aspect("equal")
        axes.axis("off")
        figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
        plt.close(figure)


if __name__ == "__main__":
    draw(Path("tiles.svg"))
