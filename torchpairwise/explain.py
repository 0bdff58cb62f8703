"""What `S.explain(consumer)` returns."""

from __future__ import annotations

import json
from dataclasses import dataclass

__all__ = ["Explanation", "parse_explanation"]


@dataclass(frozen=True)
class Explanation:
    """How a consumer will run: `path` ("native" or "tiles"), the `reasons` against the native kernels, `tile` [rows, columns],
    `workspace_bytes`, `pairs`, `flops`, the path of the `gradient` and the `precision`."""

    consumer: str
    path: str
    reasons: tuple[str, ...]
    tile: tuple[int, int]
    workspace_bytes: int
    pairs: int
    flops: int
    gradient: str
    precision: str

    def __str__(self) -> str:
        lines = [f"{self.consumer}: {self.path}"]
        lines += [f"  not native: {reason}" for reason in self.reasons]
        lines += [
            f"  tile        {self.tile[0]} x {self.tile[1]}",
            f"  workspace   {self.workspace_bytes / 1e6:.2f} MB",
            f"  pairs       {self.pairs:,}",
            f"  operations  {self.flops:,}",
            f"  gradient    {self.gradient}",
            f"  precision   {self.precision}",
        ]
        return "\n".join(lines)


def parse_explanation(text: str) -> Explanation:
    """The record in the text that the native library gives."""
    fields = json.loads(text)
    return Explanation(
        consumer=fields["consumer"],
        path=fields["path"],
        reasons=tuple(fields["reasons"]),
        tile=(fields["tile"][0], fields["tile"][1]),
        workspace_bytes=fields["workspace_bytes"],
        pairs=fields["pairs"],
        flops=fields["flops"],
        gradient=fields["gradient"],
        precision=fields["precision"],
    )
