"""Does the error of sums grow with the number of columns? Prints the table of docs/precision.md.

Scores exp(-|x - y|^2 / D) of 8 rows and M columns, D = 16, against float64 from the same rounded inputs. Errors are the largest over the
rows: of sums relative to the sum, of logsumexp absolute, of products relative to the largest entry. Results in half precision are rounded
to it at the end, which is most of their error (2^-9 in bfloat16, 2^-11 in float16).
"""

from __future__ import annotations

import torch
from torch import Tensor

import torchpairwise as tp

CONSUMERS = ("sum", "mean", "logsumexp", "matmul", "softmax_matmul")


def results(X: Tensor, Y: Tensor, V: Tensor) -> dict[str, Tensor]:
    S = tp.lazy(X, Y, "rbf")
    return {name: getattr(S, name)(*([V] if "matmul" in name else []), dim=-1) for name in CONSUMERS}


def gradients(X: Tensor, Y: Tensor, V: Tensor) -> dict[str, Tensor]:
    leaves = [t.detach().requires_grad_() for t in (X, Y, V)]
    loss = tp.lazy(leaves[0], leaves[1], "rbf").softmax_matmul(leaves[2]).float().sum()
    found = torch.autograd.grad(loss, leaves)
    return {"d softmax_matmul / d X": found[0], "d softmax_matmul / d Y": found[1]}


def error(name: str, got: Tensor, exact: Tensor) -> float:
    difference = (got.double() - exact).abs()
    if name in ("sum", "mean"):
        return float((difference / exact.abs()).max())
    return float(difference.max() if name == "logsumexp" else difference.max() / exact.abs().max())


def main() -> None:
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {tp.build_info()['version']}\n")
    header = ["dtype", "M", *CONSUMERS, "d softmax_matmul / d X", "d softmax_matmul / d Y"]
    print("| " + " | ".join(header) + " |\n|" + " --- |" * len(header))
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for m in (10**3, 10**4, 10**5, 10**6):
            generator = torch.Generator().manual_seed(m)
            X, Y, V = (torch.randn(size, width, generator=generator).to(dtype) for size, width in ((8, 16), (m, 16), (m, 2)))
            exact = results(X.double(), Y.double(), V.double()) | gradients(X.double(), Y.double(), V.double())
            got = results(X, Y, V) | gradients(X, Y, V)
            cells = [f"{error(name, got[name], exact[name]):.1e}" for name in got]
            print("| " + " | ".join([str(dtype).removeprefix("torch."), f"{m:,}", *cells]) + " |")


if __name__ == "__main__":
    main()
