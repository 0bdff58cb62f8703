"""What `S.explain(consumer)` returns."""

from __future__ import annotations

import json
from dataclasses import dataclass

__all__ = ["Explanation", "parse_explanation"]


@dataclass(frozen=True)
class Explanation:
    """How a consumer will run; printed, it reads as a short table.

    Arguments:
        consumer: its name.
        path: "native" (kernels of the processor) or "tiles" (tensor operations).
        reasons: why not native; empty if it is.
        tile: rows and columns that are evaluated at a time.
        workspace_bytes: memory beyond inputs and outputs.
        pairs: scores that are evaluated, before tiles are skipped.
        flops: arithmetic operations, counted as in a textbook.
        gradient: the path of backward.
        precision: "exact" or "fast".
        instruction_set: of the kernels, "baseline", "avx2" or "avx512"; empty with tiles.

    Example:
        >>> import torch, torchpairwise as tp
        >>> S = tp.lazy(torch.zeros(10, 3), torch.zeros(20, 3), tp.make_pairwise(lambda x, y: (x * y).sum(-1)))
        >>> print(S.explain("sum"))
        sum: tiles
          not native: the comparison is a function, which runs on tiles of tensors
          tile        ...
          workspace   ...
          pairs       200
          operations  ...
          gradient    tiles
          precision   exact
    """

    consumer: str
    path: str
    reasons: tuple[str, ...]
    tile: tuple[int, int]
    workspace_bytes: int
    pairs: int
    flops: int
    gradient: str
    precision: str
    instruction_set: str

    def __str__(self) -> str:
        lines = [f"{self.consumer}: {self.path}" + (f" ({self.instruction_set})" if self.instruction_set else "")]
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
        instruction_set=fields.get("instruction_set", ""),
    )
