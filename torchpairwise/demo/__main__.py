"""The library on real data, next to the same computations in dense PyTorch: python -m torchpairwise.demo

Each row of the table is measured twice, ours and its dense twin, each in a fresh process: time (best of a few runs) and
peak memory beyond what the process held before. The two small data sets come with scikit-learn; the last rows repeat
the digits with noise, up to a size where storing all pairs starts to hurt.
"""

from __future__ import annotations

import argparse
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import torch


def main(arguments: list[str] | None = None) -> None:
    """Measures every task, prints the table and saves the figure."""
    parser = argparse.ArgumentParser(prog="python -m torchpairwise.demo", description=__doc__)
    parser.add_argument("--fast", action="store_true", help="small sizes, for a quick check")
    parser.add_argument("--output", type=Path, default=Path("torchpairwise_demo.png"), help="where the figure goes")
    options = parser.parse_args(arguments)
    missing = [name for name in ("matplotlib", "tqdm") if find_spec(name) is None]
    if missing:
        raise SystemExit(f"the demo needs {' and '.join(missing)}; install them with: pip install {' '.join(missing)}")
    from tqdm import tqdm

    from torchpairwise.demo.measuring import measured
    from torchpairwise.demo.report import Result, draw, print_table, table_row
    from torchpairwise.demo.tasks import TASKS

    size = "fast" if options.fast else "full"
    started = time.perf_counter()
    results: list[Result] = []
    # A bar redraws itself: in a log, one line a step says the same.
    terminal = sys.stderr.isatty()
    with tqdm(total=2 * len(TASKS), dynamic_ncols=True, disable=not terminal) as bar:
        for index, task in enumerate(TASKS):
            measurements = []
            for engine in ("ours", "dense"):
                bar.set_description(f"{task.title}: {engine}")
                if not terminal:
                    print(f"{task.title}: {engine}", file=sys.stderr, flush=True)
                bar.set_postfix_str("")
                measurements.append(measured(index, engine, size, bar))
                bar.update()
            results.append((task, measurements[0], measurements[1]))
    threads = torch.get_num_threads()
    print(f"\ntorch {torch.__version__}, {threads} threads; s = seconds, MB = peak memory beyond the data\n")
    print_table([table_row(*result) for result in results])
    draw(results, options.output)
    print(f"\nfigure: {options.output.resolve()}\n{time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
