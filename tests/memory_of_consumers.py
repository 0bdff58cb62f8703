"""Prints the peak memory of each consumer as JSON; run by test_memory.py in a process of its own.

The kernel counts the largest resident set since `clear_refs` was written; what was there before is taken off.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import torchpairwise as tp
from torchpairwise import _registry

backend, n, d, c = sys.argv[1], *map(int, sys.argv[2:])
torch.set_num_threads(1)


def status(name: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1e3


def peak(call: Callable[[], Any]) -> tuple[float, Any]:
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    result = call()
    return status("VmHWM") - before, result


def arguments_of(name: str, V: torch.Tensor) -> tuple[list[Any], dict[str, Any]]:
    if "matmul" in name:
        return [V], {}
    return {"topk": [5], "histogram": [16, (0.0, 1.0)]}.get(name, []), {} if name in ("diagonal", "dense") else {"dim": -1}


X, Y, V = (torch.randn(n, size).requires_grad_() for size in (d, d, c))
small = tp.lazy(X[:50], Y[:50], "rbf", backend=backend)
report: dict[str, dict[str, float]] = {}
for name in [*_registry.CONSUMERS, "plain torch", "hessian-vector product"]:
    if name == "plain torch":
        report[name] = {"forward": peak(lambda: torch.exp(-torch.cdist(X.detach(), Y.detach())).sum(-1))[0]}
        continue
    S = tp.lazy(X, Y, "rbf", backend=backend)
    if name == "hessian-vector product":
        (first,) = torch.autograd.grad(S.logsumexp(-1).sum(), X, create_graph=True)
        report[name] = {"forward": peak(lambda g=first: torch.autograd.grad(g.sum(), X))[0]}  # type: ignore[misc]
        continue
    given, options = arguments_of(name, V)
    warm = getattr(small, name)(*arguments_of(name, V[:50])[0], **options)
    forward, result = peak(lambda s=S, m=name, g=given, o=options: getattr(s, m)(*g, **o))  # type: ignore[misc]
    report[name] = {"forward": forward}
    value = next((x for x in (result if isinstance(result, tuple) else (result,)) if x.is_floating_point() and x.requires_grad), None)
    if value is not None and name != "dense":
        leaves = (X, Y, V) if "matmul" in name else (X, Y)
        report[name]["backward"] = peak(lambda v=value, leaves=leaves: torch.autograd.grad(v.sum(), leaves))[0]  # type: ignore[misc]
    del result, value, warm
print(json.dumps(report))
