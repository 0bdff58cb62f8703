"""Time and peak memory of a computation, each measured in a fresh process."""

from __future__ import annotations

import ctypes
import multiprocessing
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from torchpairwise.demo.tasks import TASKS, Outcome


class Measurement(NamedTuple):
    """What one computation gave and cost; `peak_bytes` is None where it cannot be read."""

    outcome: Outcome
    pairs: str
    seconds: float
    peak_bytes: int | None


def measure(sender: Any, index: int, engine: str, size: str) -> None:
    """Runs one computation in this process and sends ("progress", text) lines and one ("done", Measurement)."""
    task = TASKS[index]
    run = getattr(task, engine)
    run(task.prepare("tiny"), lambda text: None)
    data = task.prepare(size)
    return_freed_memory(True)
    with peak_memory() as peak:
        run(data, lambda text: sender.send(("progress", f"memory, {text}")))
    # Timed as programs usually run: freed blocks stay with the process.
    return_freed_memory(False)
    seconds: list[float] = []
    while not seconds or (len(seconds) < 5 and sum(seconds) < 1):
        started = time.perf_counter()
        outcome = run(data, lambda text: sender.send(("progress", f"time, {text}")))
        seconds.append(time.perf_counter() - started)
    sender.send(("done", Measurement(outcome, data["pairs"], min(seconds), peak[0] if peak else None)))


def measured(index: int, engine: str, size: str, bar: Any) -> Measurement | None:
    """`measure` in a fresh process, its progress on the bar; None where a large dense twin does not fit into memory."""
    task = TASKS[index]
    if engine == "dense" and size == "full" and task.dense_bytes > 0.8 * available_memory():
        return None
    methods = multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if "forkserver" in methods:
        context.set_forkserver_preload([__name__])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=measure, args=(sender, index, engine, size))
    process.start()
    sender.close()
    try:
        while True:
            while not receiver.poll(0.5):
                bar.refresh()
            kind, content = receiver.recv()
            if kind == "done":
                return content
            bar.set_postfix_str(content)
    except EOFError:
        process.join()
        raise RuntimeError(f"{task.title} ({engine}) ended without a result, exit code {process.exitcode}") from None
    finally:
        process.join()


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """Yields a list that afterwards holds the peak of resident bytes beyond the start, or nothing if unknown."""
    peak: list[int] = []
    try:
        start = _resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # sets the peak back to the present
    except OSError:
        yield from _sampled_peak(peak)
        return
    yield peak
    peak.append(max(0, _resident("VmHWM") - start))


def _sampled_peak(peak: list[int]) -> Iterator[list[int]]:
    """The same by a thread that looks every millisecond."""
    try:
        start = highest = _resident("VmRSS")
    except OSError:
        yield peak
        return
    done = threading.Event()

    def sample() -> None:
        nonlocal highest
        while not done.wait(0.001):
            highest = max(highest, _resident("VmRSS"))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()
    peak.append(highest - start)


def _resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def return_freed_memory(at_once: bool) -> None:
    """Tells glibc when freed blocks go back to the system: at once, which makes peaks comparable, or if large."""
    if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "mallopt"):
        for option in (-3, -1):  # M_MMAP_THRESHOLD, whose largest value is 32 MB, and M_TRIM_THRESHOLD
            ctypes.CDLL(None).mallopt(option, 1 << (16 if at_once else 25))


def available_memory() -> float:
    """Bytes that a process may still take, or infinity where that cannot be read."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024.0 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return float("inf")
