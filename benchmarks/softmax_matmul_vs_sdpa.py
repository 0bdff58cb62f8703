"""Is softmax_matmul as fast as torch's scaled_dot_product_attention, forward and with gradients, full and causal?"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from common import interleave, machine_line, peak_bytes, print_table, product_rate

import torchpairwise as tp


def with_gradients(run: Callable[[], torch.Tensor], inputs: list[torch.Tensor]) -> Callable[[], object]:
    return lambda: torch.autograd.grad(run().sum(), inputs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--features", type=int, default=64)
    arguments = parser.parse_args()
    heads, length, d = arguments.heads, arguments.length, arguments.features
    print(machine_line())
    peak = product_rate()
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, heads, length, d) for _ in range(3))
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    rows = []
    for causal in (False, True):
        mask = tp.masks.causal() if causal else None

        def ours(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: object = mask) -> torch.Tensor:
            return (tp.lazy(q, k, "linear") * d**-0.5).softmax_matmul(v, mask=mask)

        def sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = causal) -> torch.Tensor:
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

        error = (ours(q, k, v) - sdpa(q.double(), k.double(), v.double())).abs().max().item()
        for backward in (False, True):
            inputs = leaves if backward else [q, k, v]
            runs = {"ours": lambda o=ours, x=inputs: o(*x), "sdpa": lambda s=sdpa, x=inputs: s(*x)}
            if backward:
                runs = {name: with_gradients(run, inputs) for name, run in runs.items()}
            times = interleave(runs)
            products = (7 if backward else 2) * (0.5 if causal else 1)
            rows.append(
                {
                    "case": ("causal" if causal else "full") + (", forward + backward" if backward else ", forward"),
                    "ours s": f"{times['ours'][0]:.3f}",
                    "sdpa s": f"{times['sdpa'][0]:.3f}",
                    "speed of sdpa": f"{times['sdpa'][0] / times['ours'][0]:.2f}",
                    "of mm peak": f"{2 * products * d * heads * length**2 / times['ours'][0] / peak:.0%}",
                    "error": f"{error:.1e}",
                }
            )
    print_table(f"softmax_matmul, float32, {heads} heads x {length}, D = C = {d}", rows)
    setup = f"q, k, v = (torch.randn({heads}, {length}, {d}) for _ in range(3))"
    call = f"return (tp.lazy(q, k, 'linear') * {d**-0.5}).softmax_matmul(v)"
    memory = peak_bytes(setup, call, f"{heads * length * (d + 1) * 4}", "tp.lazy(q[:, :64], k[:, :64], 'linear').softmax_matmul(v[:, :64])")
    print(f"peak memory of the forward beyond inputs and outputs: {memory / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
