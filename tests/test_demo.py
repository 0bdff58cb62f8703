"""The demo runs without a display, agrees with its dense twins, and says what it lacks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from torchpairwise.demo import __main__ as demo
from torchpairwise.demo import measuring, report
from torchpairwise.demo.tasks import TASKS, Outcome


def test_the_command_prints_the_table_and_saves_the_figure(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "DISPLAY"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "torchpairwise.demo", "--fast", "--output", str(tmp_path / "figure.png")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "figure.png") in done.stdout and (tmp_path / "figure.png").stat().st_size > 10_000
    table = [line for line in done.stdout.splitlines() if "  " in line]
    assert all(any(line.startswith(task.title) for line in table) for task in TASKS)
    assert all(f"{task.title}: ours" in done.stderr for task in TASKS)  # a log: one line a step, no bar


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.title)
def test_ours_and_dense_agree(task: Any) -> None:
    data = task.prepare("fast" if task.title.endswith("digits") and "many" not in task.title else "tiny")
    ours, dense = (run(data, lambda text: None).values for run in (task.ours, task.dense))
    if ours.dtype.kind in "iu":
        assert (ours != dense).mean() < 0.01  # dense torch breaks ties of distances as it likes
    else:
        np.testing.assert_allclose(ours, dense, rtol=1e-3, atol=2e-5)


def test_encoder_learns() -> None:
    task = next(task for task in TASKS if "encoder" in task.title)
    before, after = task.ours(task.prepare("fast"), lambda text: None).text.removeprefix("accuracy ").split(" -> ")
    assert float(after.rstrip("%")) > float(before.rstrip("%")) + 5


@pytest.mark.parametrize("readable", [True, False])
def test_peak_memory_sees_what_was_freed(readable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("resident memory cannot be read on this system")
    if not readable:  # as in containers that do not let a process reset its peak

        def refuse(*_: object) -> None:
            raise PermissionError

        monkeypatch.setattr(Path, "write_text", refuse)
    measuring.return_freed_memory(True)
    with measuring.peak_memory() as peak:
        block = torch.ones(100_000_000, dtype=torch.uint8)
        block += 1
        del block
    measuring.return_freed_memory(False)
    assert 0.5e8 < peak[0] < 2e8


def test_a_dense_twin_without_memory_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "available_memory", lambda: 1e9)
    index = next(i for i, task in enumerate(TASKS) if task.dense_bytes > 1e9)
    assert measuring.measured(index, "dense", "full", bar=None) is None
    row = report.table_row(TASKS[index], measuring.Measurement(Outcome("x", np.zeros(1)), "1 x 1", 0.1, None), None)
    assert row["dense MB"] == "no memory" and row["ours MB"] == "-"


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="needs matplotlib and tqdm; .*pip install matplotlib tqdm"):
        demo.main([])
