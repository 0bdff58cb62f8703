"""The table: every row is an input on which all consumers, types and paths must agree with the oracles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import torchpairwise as tp

METRICS = [info.name for info in tp.metrics()]


@dataclass(frozen=True)
class Case:
    """Sizes, batch shapes of X and Y, kind of numbers, mask."""

    name: str
    n: int
    m: int
    d: int
    x_batch: tuple[int, ...] = ()
    y_batch: tuple[int, ...] = ()
    numbers: str = "normal"  # normal, grid (many ties, zeros, equal rows) or offset (far from the origin)
    mask: str = ""  # causal, group, flags

    def features(self) -> tuple[np.ndarray, np.ndarray]:
        generator = np.random.default_rng(sum(map(ord, self.name)))
        shapes = ((*self.x_batch, self.n, self.d), (*self.y_batch, self.m, self.d))
        if self.numbers == "grid":
            X, Y = (generator.integers(-1, 2, shape).astype(float) for shape in shapes)
        else:
            X, Y = (generator.normal(size=shape) for shape in shapes)
        return (X + 30, Y + 30) if self.numbers == "offset" else (X, Y)


CASES = [
    Case("one pair", 1, 1, 1),
    Case("one row", 1, 70, 3),
    Case("one column", 70, 1, 2),
    Case("odd sizes", 13, 37, 5),
    Case("ties and zeros", 20, 33, 2, numbers="grid"),
    Case("difference form limit", 25, 40, 16),
    Case("gram form", 25, 70, 17),
    Case("gram form, ties", 30, 45, 33, numbers="grid"),
    Case("offset", 14, 30, 20, numbers="offset"),
    Case("several tiles", 40, 1100, 8),
    Case("batch", 9, 11, 4, (3,), (3,)),
    Case("broadcast batch", 9, 11, 4, (2, 1), (3,)),
    Case("causal", 21, 35, 3, mask="causal"),
    Case("causal, empty rows", 35, 21, 18, mask="causal"),
    Case("groups", 40, 50, 3, mask="group"),
    Case("flags", 30, 41, 4, (2,), (), mask="flags"),
]
