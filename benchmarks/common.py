"""Timing and memory helpers of the benchmark scripts.

Every comparison runs in one process with the candidates interleaved (A B C A B C ...), after a warm-up, and reports medians
and minima. Peak memory is measured in a subprocess of its own, beyond what is held before the call, with the mmap threshold
of glibc fixed so that freed chunks go back.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import torchpairwise as tp


def machine_line() -> str:
    """Processor, threads and versions: the conditions of every figure."""
    processor = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as info:
            processor = next(line.split(":")[1].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    info = tp.build_info()
    return (
        f"{processor}, {torch.get_num_threads()} threads, instruction sets built: {', '.join(info['instruction_sets'])}, "
        f"torch {torch.__version__}, Python {platform.python_version()}"
    )


def interleave(candidates: dict[Any, Callable[[], object]], repeats: int = 7) -> dict[Any, tuple[float, float]]:
    """(median, minimum) seconds of each candidate."""
    times: dict[Any, list[float]] = {name: [] for name in candidates}
    for run in candidates.values():
        run()
    for _ in range(repeats):
        for name, run in candidates.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: (statistics.median(values), min(values)) for name, values in times.items()}


def product_rate(size: int = 2048) -> float:
    """Floating point operations a second of a large square torch.mm: the practical peak, measured in the same run."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    median, _ = interleave({"mm": lambda: torch.mm(a, b)})["mm"]
    return 2.0 * size**3 / median


_MEMORY_SCRIPT = """
import json, sys, torch
import torchpairwise as tp
def status(key):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))
{setup}
def call():
{call}
{warm}
with open("/proc/self/clear_refs", "w") as reset:
    reset.write("5")
before = status("VmRSS")
result = call()
print(json.dumps(status("VmHWM") - before - ({outputs})))
"""


def peak_bytes(setup: str, call: str, outputs: str = "0", warm: str = "") -> int:
    """Bytes at the peak of `call`, beyond what was held before it and beyond `outputs` (an expression for the bytes of its results)."""
    body = "\n".join("    " + line for line in call.strip().splitlines())
    script = _MEMORY_SCRIPT.format(setup=setup, call=body, outputs=outputs, warm=warm)
    environment = dict(os.environ, MALLOC_MMAP_THRESHOLD_="65536", MALLOC_TRIM_THRESHOLD_="65536")
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    return int(json.loads(answer.stdout.splitlines()[-1]))


def print_table(title: str, rows: list[dict[str, str]]) -> None:
    """Aligned columns; the first row's keys are the header."""
    names = list(rows[0])
    widths = [max(len(name), *(len(row[name]) for row in rows)) for name in names]
    print(f"\n{title}")
    print("  ".join(name.ljust(width) for name, width in zip(names, widths, strict=True)))
    for row in rows:
        print("  ".join(row[name].ljust(width) for name, width in zip(names, widths, strict=True)))
