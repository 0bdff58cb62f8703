"""``python -m torchpairwise``: versions, what was built, what will run, and a self-check."""

from __future__ import annotations

import platform
import sys

import torch

import torchpairwise as tp


def self_check() -> float:
    """The largest difference from dense torch in float64, of values and gradients, on both paths."""
    generator = torch.Generator().manual_seed(0)
    leaves = [torch.randn(n, d, dtype=torch.float64, generator=generator).requires_grad_() for n, d in ((50, 3), (70, 3), (70, 2))]
    X, Y, V = leaves
    dense = torch.softmax(-0.5 * (X[:, None] - Y).square().sum(-1), -1) @ V
    wanted = [dense, *torch.autograd.grad(dense.square().sum(), leaves)]
    difference = 0.0
    for backend in ("native", "tiles"):
        output = (-0.5 * tp.lazy(X, Y, "sqeuclidean", backend=backend)).softmax_matmul(V)
        got = [output, *torch.autograd.grad(output.square().sum(), leaves)]
        difference = max([difference, *[(a - b).abs().max().item() for a, b in zip(got, wanted, strict=True)]])
    return difference


def main() -> int:
    """Prints the report; returns 1 if the self-check fails."""
    info = tp.build_info()
    built, cuda = info["instruction_sets"], info["cuda"]
    difference = self_check()
    passed = difference < 1e-10
    rows = {
        "torchpairwise": tp.__version__,
        "torch": f"{torch.__version__} (built against {info['torch']})",
        "Python": f"{sys.version.split()[0]} on {platform.system()} {platform.machine()}",
        "build": f"{info['compiler']}, {info['build_type']}",
        "kernels": f"{', '.join(built)}; running: {tp.lazy(torch.ones(1, 1), backend='native').explain('sum').instruction_set}",
        "threads": str(torch.get_num_threads()),
        "CUDA": "not built in" if cuda is None else f"toolkit {cuda['toolkit']}, {cuda['kernel_files']} kernel files",
        "backends": "native (CPU kernels), tiles (tensor operations, any device)",
        "self-check": f"{'passed' if passed else 'FAILED'}, largest difference from dense torch {difference:.1e}",
    }
    for name, text in rows.items():
        print(f"{name:<14} {text}")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
