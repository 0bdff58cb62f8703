"""Peak memory: no consumer stores the [N, M] scores, forward or backward, and explain() states what it takes beyond inputs and outputs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import torchpairwise as tp
from torchpairwise import _registry

N, D, C = 6000, 8, 3
MATRIX = N * N * 4 / 1e6  # 144 MB
# Allocator, thread stacks, code that is touched for the first time.
SLACK = 6.0

MEASURE = Path(__file__).parent / "memory_of_consumers.py"


@pytest.fixture(scope="module", params=["native", "tiles"])
def measured(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Peaks in MB beyond what was allocated before each call, from a process of its own."""
    run = subprocess.run([sys.executable, str(MEASURE), request.param, str(N), str(D), str(C)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return {"backend": request.param, **json.loads(run.stdout)}


STREAMED = [name for name in _registry.CONSUMERS if name != "dense"]


@pytest.mark.parametrize("name", STREAMED)
def test_forward_and_backward_stay_within_what_is_stated(name: str, measured: dict[str, Any]) -> None:
    X, V = torch.zeros(N, D), torch.zeros(N, C)
    S = tp.lazy(X, X.clone(), "rbf", backend="auto" if name == "diagonal" else measured["backend"])
    workspace = S.explain(name, V if "matmul" in name else None, k=5).workspace_bytes / 1e6
    results = measured[name]
    outputs = N * {"matmul": C, "softmax_matmul": C + 2, "topk": 15, "histogram": 32}.get(name, 3) * 4 / 1e6
    assert results["forward"] <= outputs + 2 * workspace + SLACK < MATRIX / 4
    gradients = 4 * N * (2 * D + C) * 4 / 1e6
    if "backward" in results:
        # The tensor path sums gradients in float64; its tiles of backward are as large as those of forward.
        assert results["backward"] <= gradients + 3 * workspace + 2 * SLACK < MATRIX / 4


def test_the_measure_sees_a_stored_matrix(measured: dict[str, Any]) -> None:
    assert measured["dense"]["forward"] > 0.9 * MATRIX and measured["plain torch"]["forward"] > 0.9 * MATRIX


def test_second_derivatives_stay_within_a_block(measured: dict[str, Any]) -> None:
    assert measured["hessian-vector product"]["forward"] < 64 + 2 * SLACK < MATRIX


def test_nothing_is_kept_without_gradients() -> None:
    X, Y = torch.randn(10, 3, requires_grad=True), torch.randn(12, 3)
    with torch.no_grad():
        assert tp.lazy(X, Y, "rbf").logsumexp(-1).grad_fn is None
    result = tp.lazy(X, Y, "rbf").logsumexp(-1)
    result.sum().backward()
    assert X.grad is not None and Y.grad is None
    assert tp.lazy(X.detach(), Y, "rbf").logsumexp(-1).grad_fn is None
