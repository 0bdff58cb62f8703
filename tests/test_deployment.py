"""The operators in torch.compile, torch.export and opcheck, and the check of the torch version."""

from __future__ import annotations

import pytest
import torch

import torchpairwise as tp
from torchpairwise import _native

OPERATORS = torch.ops.torchpairwise


def consume(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, ...]:
    S = tp.lazy(q, k, "linear") * s
    return (
        S.softmax_matmul(v),
        S.logsumexp(-1),
        S.matmul(v),
        (S / s - s).sum(-1),
        (s / S + s).sum(-1),
        (s - S).sum(-1),
        S.topk(3, largest=False).values,
        S.argmin(-1),
    )


def test_compile_with_changing_sizes() -> None:
    torch._dynamo.reset()
    counter = []

    def backend(graph, inputs):  # type: ignore[no-untyped-def]
        counter.append(1)
        return graph.forward

    compiled = torch.compile(consume, fullgraph=True, backend=backend)
    for n in (5, 8, 9, 13, 17):
        arguments = (torch.randn(n, 4), torch.randn(n + 2, 4), torch.randn(n + 2, 3), torch.tensor(0.5))
        for got, wanted in zip(compiled(*arguments), consume(*arguments), strict=True):
            assert torch.equal(got, wanted)
    assert len(counter) <= 2


def test_compiled_training_step() -> None:
    torch._dynamo.reset()

    def loss(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return tp.lazy(q, k, "rbf", gamma=0.5).softmax_matmul(v).square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for n in (8, 9, 12):
        leaves = [torch.randn(n, 4, requires_grad=True) for _ in range(3)]
        got = torch.autograd.grad(compiled(*leaves), leaves)
        torch.testing.assert_close(got, torch.autograd.grad(loss(*leaves), leaves))


class Model(torch.nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        S = tp.lazy(q, k, "linear") * 0.5
        return S.softmax_matmul(v), S.logsumexp(-1)


def test_export_with_dynamic_sizes() -> None:
    n, m = torch.export.Dim("n", min=2), torch.export.Dim("m", min=2)
    example = (torch.randn(6, 4), torch.randn(7, 4), torch.randn(7, 3))
    program = torch.export.export(Model(), example, dynamic_shapes=({0: n}, {0: m}, {0: m}))
    assert "linear 0 1; scale #0" in str(program.graph)
    other = (torch.randn(9, 4), torch.randn(5, 4), torch.randn(5, 3))
    for got, wanted in zip(program.module()(*other), Model()(*other), strict=True):
        assert torch.equal(got, wanted)


@pytest.mark.parametrize("name", ["sum", "mean", "logsumexp", "matmul", "softmax_matmul", "min", "max", "topk", "diagonal", "dense"])
def test_opcheck(name: str) -> None:
    X, Y, V, r = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((4, 3), (5, 3), (5, 2), (4,)))
    arguments: list[object] = [[X, Y, r], "sqeuclidean 0 1; scale #0; add_rows 2; exp | causal #1", [-0.5, 1.0]]
    arguments += {"matmul": [V, -1], "softmax_matmul": [V, -1], "topk": [2, -1, False], "diagonal": [], "dense": [0.0]}.get(name, [-1])
    torch.library.opcheck(getattr(OPERATORS, name).default, tuple(arguments))


def test_another_torch_is_refused() -> None:
    built = dict(tp.build_info())
    with pytest.raises(ImportError, match=r"built against torch 1\.2\.3.*but torch .* is installed[\s\S]*pip install"):
        _native.check_torch(dict(built, torch="1.2.3"), torch.__version__, None)


def test_explain() -> None:
    S = tp.lazy(torch.randn(100, 3), torch.randn(50, 3), "rbf")
    explanation = S.explain("logsumexp")
    assert explanation.path == "native" and explanation.pairs == 5000 and explanation.workspace_bytes < 8e6
    assert "workspace" in str(explanation)
    custom = tp.lazy(torch.randn(4, 3), torch.randn(5, 3), tp.make_pairwise(lambda x, y: (x * y).sum(-1)))
    assert custom.explain("sum").path == "tiles" and "function" in custom.explain("sum").reasons[0]
