"""Is rbf K @ V faster than what a good engineer writes in torch?

Peers: chunked torch with cache-sized tiles, in the best of several shapes, in two forms (norms added in place; norms folded into two more
feature columns so that one product gives the exponent), the dense [N, M] expression, and the bare torch.mm of the same scores.
"""

from __future__ import annotations

import argparse

import torch
from common import interleave, machine_line, peak_bytes, print_table, product_rate

import torchpairwise as tp

TILES = [(64, 1024), (128, 512), (128, 2048), (256, 512), (256, 1024), (512, 512), (512, 2048), (1024, 1024)]


def chunked(X: torch.Tensor, Y: torch.Tensor, V: torch.Tensor, gamma: float, tile: tuple[int, int], folded: bool) -> torch.Tensor:
    """Hand-written tiles with reused buffers."""
    rows, columns = tile
    x_norm, y_norm = -gamma * X.square().sum(-1, keepdim=True), -gamma * Y.square().sum(-1, keepdim=True)
    left, right = 2 * gamma * X, Y
    if folded:
        left = torch.cat([left, x_norm, torch.ones_like(x_norm)], -1)
        right = torch.cat([right, torch.ones_like(y_norm), y_norm], -1)
    out = torch.zeros(X.shape[0], V.shape[1])
    buffer = torch.empty(rows * columns)
    for i in range(0, X.shape[0], rows):
        a = left[i : i + rows]
        for j in range(0, Y.shape[0], columns):
            b = right[j : j + columns]
            scores = buffer[: a.shape[0] * b.shape[0]].view(a.shape[0], b.shape[0])
            torch.mm(a, b.T, out=scores)
            if not folded:
                scores.add_(x_norm[i : i + rows]).add_(y_norm[j : j + columns].T)
            out[i : i + rows].addmm_(scores.exp_(), V[j : j + columns])
    return out


def bare_product(X: torch.Tensor, Y: torch.Tensor) -> None:
    buffer = torch.empty(512, Y.shape[0])
    for i in range(0, X.shape[0], 512):
        torch.mm(X[i : i + 512], Y.T, out=buffer[: min(512, X.shape[0] - i)])


def case(n: int, d: int, c: int, dense: bool, peak: float) -> dict[str, str]:
    torch.manual_seed(0)
    X, Y, V = torch.randn(n, d), torch.randn(n, d), torch.randn(n, c)
    gamma = 0.5 / d
    # The best tile is chosen on a quarter of the rows and columns: the tiles are the same, there are fewer of them.
    x, y, v = X[: n // 4], Y[: n // 4], V[: n // 4]
    forms = [(tile, folded) for tile in TILES for folded in (False, True)]
    trial = {form: (lambda form=form: chunked(x, y, v, gamma, *form)) for form in forms}
    best = min((times[0], form) for form, times in interleave(trial, repeats=2).items())[1]
    candidates = {
        "ours": lambda: tp.lazy(X, Y, "rbf", gamma=gamma) @ V,
        "chunked": lambda: chunked(X, Y, V, gamma, *best),
        "product": lambda: bare_product(X, Y),
    }
    if dense:
        candidates["dense"] = lambda: torch.exp(-gamma * torch.cdist(X, Y).square()) @ V
    times = interleave(candidates)
    ours = times["ours"][0]
    exact = torch.exp(-gamma * torch.cdist(X[:64].double(), Y.double()).square()) @ V.double()
    error = ((candidates["ours"]()[:64] - exact).abs().max() / exact.abs().max()).item()
    setup = f"X, Y, V = torch.randn({n}, {d}), torch.randn({n}, {d}), torch.randn({n}, {c})"
    memory = peak_bytes(setup, f"return tp.lazy(X, Y, 'rbf', gamma={gamma}) @ V", f"{n * c * 4}", "tp.lazy(X[:64], Y[:64], 'rbf') @ V[:64]")
    operations = (2 * d + 2 * c + 18) * n * n
    return {
        "D": str(d),
        "C": str(c),
        "ours s": f"{ours:.3f}",
        "x chunked": f"{times['chunked'][0] / ours:.2f}",
        "x product": f"{times['product'][0] / ours:.2f}",
        "x dense": f"{times['dense'][0] / ours:.2f}" if dense else "-",
        "of mm peak": f"{operations / ours / peak:.0%}",
        "peak MB": f"{memory / 1e6:.1f}",
        "error": f"{error:.1e}",
        "best chunked": f"{best[0]}{', folded' if best[1] else ''}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=20000)
    parser.add_argument("--dense", action="store_true", help="also the dense expression (1.6 GB a pass)")
    arguments = parser.parse_args()
    print(machine_line())
    peak = product_rate()
    print(f"large square torch.mm: {peak / 1e9:.0f} GFLOP/s")
    rows = [case(arguments.n, d, c, arguments.dense, peak) for d in (3, 16, 64, 256) for c in (1, 16)]
    print_table(f"rbf K @ V, float32, N = M = {arguments.n}; x = peer's median time / ours", rows)


if __name__ == "__main__":
    main()
