"""How fast is a Sinkhorn divergence with gradient, beside GeomLoss's, and how large is the marginal error of each?"""

from __future__ import annotations

import argparse
from typing import Any

import geomloss
import torch
from common import interleave, machine_line, peak_bytes, print_table

import torchpairwise as tp


def marginal_error(X: torch.Tensor, Y: torch.Tensor, f: torch.Tensor, g: torch.Tensor, epsilon: float) -> float:
    n, m = len(X), len(Y)
    P = (tp.lazy(X, Y) * (-0.5 / epsilon)).add_rows(f / epsilon).add_columns(g / epsilon).exp() * (1 / (n * m))
    return float((P.sum(-1) - 1 / n).abs().sum() + (P.sum(-2) - 1 / m).abs().sum())


def with_gradient(loss: Any, X: torch.Tensor, Y: torch.Tensor) -> Any:
    return lambda: torch.autograd.grad(loss(X, Y), X)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    n = arguments.points
    print(machine_line())
    rows = []
    for d, blur in ((3, 0.05), (3, 0.02), (64, 0.5)):
        torch.manual_seed(0)
        X, Y = torch.rand(n, d), 0.1 + 0.9 * torch.rand(n, d)
        leaf = X.clone().requires_grad_()
        runs = {"ours": with_gradient(tp.transport.SamplesLoss(blur=blur), leaf, Y)}
        errors = {"ours": float(tp.transport.samples_loss(X, Y, blur=blur, return_result=True).marginal_error)}
        for scaling in (0.5, 0.9):
            options = {"blur": blur, "scaling": scaling, "backend": "tensorized"}
            runs[f"GeomLoss {scaling}"] = with_gradient(geomloss.SamplesLoss("sinkhorn", **options), leaf, Y)
            f, g = geomloss.SamplesLoss("sinkhorn", potentials=True, debias=False, **options)(X, Y)
            errors[f"GeomLoss {scaling}"] = marginal_error(X, Y, f.flatten(), g.flatten(), blur**2)
        times = interleave(runs, repeats=arguments.repeats)
        for name, (median, least) in times.items():
            rows.append(
                {
                    "case": f"D={d}, blur={blur}",
                    "candidate": name,
                    "median s": f"{median:.2f}",
                    "least s": f"{least:.2f}",
                    "of ours": f"{median / times['ours'][0]:.1f}",
                    "marginal error": f"{errors[name]:.1e}",
                }
            )
    print_table(f"Sinkhorn divergence with gradient, float32, N = M = {n}", rows)
    setup = f"X, Y = torch.rand({n}, 3).requires_grad_(), torch.rand({n}, 3)"
    memory = peak_bytes(setup, "return torch.autograd.grad(tp.transport.samples_loss(X, Y, blur=0.05), X)", f"{n * 12}")
    print(f"peak memory of ours beyond inputs and outputs: {memory / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
