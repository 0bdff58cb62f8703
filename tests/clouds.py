"""Weighted point clouds for the tests of transport."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import torchpairwise as tp

KINDS = pytest.mark.parametrize("kind", ["lazy", "dense"])


def points(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def weights(n: int, seed: int, *batch: int) -> Tensor:
    w = points(*batch, n, seed=seed) + 0.1
    return w / w.sum(-1, keepdim=True)


def costs(X: Tensor, Y: Tensor) -> np.ndarray:
    return ((X.detach().numpy()[..., :, None, :] - Y.detach().numpy()[..., None, :, :]) ** 2).sum(-1)


def as_cost(kind: str, X: Tensor, Y: Tensor) -> Any:
    return tp.lazy(X, Y, "sqeuclidean") if kind == "lazy" else (X.unsqueeze(-2) - Y.unsqueeze(-3)).square().sum(-1)
