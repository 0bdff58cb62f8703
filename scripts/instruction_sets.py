"""Print the instruction sets that this build and this processor have, lowest first; with --lower, all but the best.

Each one is tried in a process of its own, since the library chooses once.
"""

from __future__ import annotations

import os
import subprocess
import sys

_TRIAL = """
import torch, torchpairwise as tp
x = torch.ones(2, 2)
tp.lazy(x, x, metric="linear").sum(-1)
"""


def usable(name: str) -> bool:
    environment = {**os.environ, "TORCHPAIRWISE_ISA": name}
    return subprocess.run([sys.executable, "-c", _TRIAL], env=environment, capture_output=True).returncode == 0


def main() -> None:
    import torchpairwise as tp

    names = [name for name in tp.build_info()["instruction_sets"] if usable(name)]
    if not names:
        sys.exit("no instruction set of this build works here; try: python -m torchpairwise")
    print(*(names[:-1] if "--lower" in sys.argv[1:] else names))


if __name__ == "__main__":
    main()
