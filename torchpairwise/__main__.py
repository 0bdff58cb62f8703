"""``python -m torchpairwise``: versions, what was built, and a self-check."""

from __future__ import annotations

import json
import sys

import torch

import torchpairwise as tp


def main() -> int:
    """Prints the report; returns 1 if the self-check fails."""
    info = tp.build_info()
    X, Y, V = torch.randn(50, 3), torch.randn(70, 3), torch.randn(70, 2)
    S = tp.lazy(X, Y, "rbf", gamma=0.5)
    difference = (S @ V - torch.exp(-0.5 * torch.cdist(X, Y).square()) @ V).abs().max().item()
    passed = difference < 1e-4
    print(f"torchpairwise {tp.__version__}, torch {torch.__version__}, Python {sys.version.split()[0]}")
    print(f"built: {json.dumps(info)}")
    print(S.explain("matmul", V))
    print(f"self-check {'passed' if passed else 'FAILED'}: largest difference from dense torch {difference:.1e}")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
