"""Half precision is computed in float32."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["widened"]


def widened(x: Tensor) -> Tensor:
    """float16 and bfloat16 as float32; other dtypes as they are."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
