"""Building and consuming expressions inside torch.compile(fullgraph=True) and torch.export, with sizes that change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.backends.debugging import aot_eager

import torchpairwise as tp

SIZES = (5, 8, 9, 13, 17)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def bilinear(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum(-1)


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return ((x - y).abs() * self.weight).sum(-1)


COMPARISON = tp.make_pairwise(bilinear)
LEARNED = tp.make_pairwise(Head())
ENCODED = tp.make_feature_pairwise(nn.Linear(4, 3), "rbf", gamma=0.2)
ENCODED_HEAD = tp.make_feature_pairwise((nn.Linear(4, 3), nn.Linear(4, 3)), head=COMPARISON)
EARLIER = tp.masks.causal() & ~tp.masks.band(0, 0)

# x [N, 4], y [N + 2, 4], v [N + 2, 3], t []
PROGRAMS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Any]] = {
    "S @ V": lambda x, y, v, t: tp.lazy(x, y) @ v,
    "S @ v": lambda x, y, v, t: tp.lazy(x, y) @ v[:, 0],
    "square S @ V": lambda x, y, v, t: tp.lazy(x) @ x,
    "S * t": lambda x, y, v, t: (tp.lazy(x, y) * t).sum(-1),
    "t * S": lambda x, y, v, t: (t * tp.lazy(x, y)).sum(-1),
    "S / t": lambda x, y, v, t: (tp.lazy(x, y) / t).sum(-1),
    "t / S": lambda x, y, v, t: (t / (tp.lazy(x, y) + 1)).sum(-1),
    "S - t": lambda x, y, v, t: (tp.lazy(x, y) - t).sum(-1),
    "t - S": lambda x, y, v, t: (t - tp.lazy(x, y)).sum(-1),
    "numbers": lambda x, y, v, t: ((-2 * tp.lazy(x, y) + 1) / 3 - 4).square().sum(-1),
    "bias": lambda x, y, v, t: (tp.lazy(x, y, "linear") + x[:, :1] - v[:, 0][None]).logsumexp(-1),
    "joined": lambda x, y, v, t: (tp.lazy(x, y, "rbf", gamma=t) * tp.lazy(x, y, "linear") + tp.lazy(y, x).T).mean(-1),
    "steps": lambda x, y, v, t: tp.lazy(x, y).sqrt().minimum(t).clamp(0.1).pow(1.5).add_rows(x[:, 0]).weight_columns(v[:, 0]).abs().sum(-1),
    "both axes": lambda x, y, v, t: [tp.lazy(x, y).sum(), tp.lazy(x, y).mean(), tp.lazy(x, y).max(), tp.lazy(x, y).argmin()],
    "selections": lambda x, y, v, t: [*tp.lazy(x, y).min(-1), *tp.lazy(x, y).topk(3, largest=False), tp.lazy(x, y).argmax(-2)],
    "exclude_self": lambda x, y, v, t: (tp.lazy(x, x, "linear") / t).logsumexp(-1, exclude_self=True),
    "masks": lambda x, y, v, t: (
        tp.lazy(x, y, "linear").mask_columns(v[:, 0] > 0).softmax_matmul(v, mask=tp.masks.causal() | tp.masks.band(1, 2))
    ),
    "mask from outside": lambda x, y, v, t: tp.lazy(x, y, "linear").softmax_matmul(v, mask=EARLIER),
    "labels": lambda x, y, v, t: tp.lazy(x, y).masked(tp.masks.same_group((x[:, 0] > 0).long(), (y[:, 0] > 0).long())).sum(-1),
    "transposed": lambda x, y, v, t: tp.lazy(x, y).T.masked(tp.masks.causal("upper_left")).sum(-1),
    "widths": lambda x, y, v, t: tp.lazy(x, y, "rbf", lengthscale=y[0].abs() + 1).sum(-1),
    "cosine": lambda x, y, v, t: tp.lazy(x, y, "cosine_distances").diagonal(),
    "half": lambda x, y, v, t: tp.lazy(x.half(), y.half()).mean().float(),
    "to": lambda x, y, v, t: tp.lazy(x).detach().to(torch.float64).sum(-1),
    "batch": lambda x, y, v, t: tp.lazy(x.expand(2, -1, -1), y).add_rows(x[:, 0]).sum(-1),
    "comparison": lambda x, y, v, t: tp.lazy(x, y, COMPARISON).softmax_matmul(v),
    "learned": lambda x, y, v, t: tp.lazy(x, y, LEARNED).logsumexp(-1),
    "encoded": lambda x, y, v, t: tp.lazy(x, y, ENCODED).logsumexp(-1),
    "encoded, stored": lambda x, y, v, t: ENCODED(x, y) @ v,
    "encoded by two towers": lambda x, y, v, t: tp.lazy(ENCODED_HEAD.prepare(x, y)).softmax_matmul(v),
    "dense": lambda x, y, v, t: tp.lazy(x, y, chunk_size=4, backend="tiles").dense(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_that_change_compile_at_most_twice(name: str) -> None:
    compilations = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        compilations.append(1)
        return graph.forward

    compiled = torch.compile(PROGRAMS[name], fullgraph=True, backend=backend)
    for n in SIZES:
        arguments = (torch.randn(n, 4), torch.randn(n + 2, 4), torch.randn(n + 2, 3), torch.tensor(0.5))
        torch.testing.assert_close(compiled(*arguments), PROGRAMS[name](*arguments), rtol=1e-5, atol=1e-5)
    assert len(compilations) <= 2


def test_gradients_through_aot_autograd() -> None:
    def loss(q: Tensor, k: Tensor, v: Tensor, t: Tensor, r: Tensor) -> Tensor:
        S = tp.lazy(q, k, "linear") / t + r[:, None]
        return S.softmax_matmul(v, mask=tp.masks.causal()).square().sum() + (S @ v).mean() + S.topk(2).values.sum()

    compilations = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        compilations.append(1)
        return aot_eager(graph, inputs)

    compiled = torch.compile(loss, fullgraph=True, backend=backend)
    for n in SIZES:
        leaves = [torch.randn(s, requires_grad=True) for s in ((n, 4), (n + 1, 4), (n + 1, 3), (), (n,))]
        got = torch.autograd.grad(compiled(*leaves), leaves)
        torch.testing.assert_close(got, torch.autograd.grad(loss(*leaves), leaves))
    assert len(compilations) <= 2


def test_gradients_of_a_learned_comparison() -> None:
    head = Head()
    comparison = tp.make_pairwise(head)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return tp.lazy(x, y, comparison).logsumexp(-1).sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    x, y = torch.randn(5, 4, requires_grad=True), torch.randn(6, 4)
    got = torch.autograd.grad(compiled(x, y), (x, head.weight))
    torch.testing.assert_close(got, torch.autograd.grad(loss(x, y), (x, head.weight)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(0.5))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> tuple[Tensor, ...]:
        S = (tp.lazy(q, k, "linear") / self.temperature).mask_columns(keep)
        return S.softmax_matmul(v, mask=tp.masks.causal()), S.logsumexp(-1), S.logsumexp(-2), S @ v


@pytest.mark.parametrize("strict", [False, True])
def test_export_with_dynamic_sizes(strict: bool) -> None:
    n, m = torch.export.Dim("n", min=2), torch.export.Dim("m", min=2)
    example = (torch.randn(6, 4), torch.randn(7, 4), torch.randn(7, 3), torch.arange(7) > 0)
    model = Model()
    program = torch.export.export(model, example, dynamic_shapes=({0: n}, {0: m}, {0: m}, {0: m}), strict=strict)
    assert "linear 0 1; scale 2 | columns 3; causal #0; and" in str(program.graph)
    for sizes in ((9, 5), (2, 30), (12, 12)):
        q, k, v = torch.randn(sizes[0], 4), torch.randn(sizes[1], 4), torch.randn(sizes[1], 3)
        other = (q, k, v, torch.arange(sizes[1]) > 1)
        for got, wanted in zip(program.module()(*other), model(*other), strict=True):
            torch.testing.assert_close(got, wanted)


def test_errors_inside_torch_compile() -> None:
    with pytest.raises(Exception, match=r"values has shape \[3, 2\]; expected a tensor \[..., 5, C\]"):
        torch.compile(lambda x, v: tp.lazy(x) @ v, fullgraph=True, backend="eager")(torch.randn(5, 4), torch.randn(3, 2))


def test_trees_break_the_graph_and_are_right() -> None:
    """Samples that are not vectors are laid out by objects that a graph cannot hold."""
    head = tp.make_pairwise(lambda x, y: (x[0] - y[0]).abs().sum(-1) + x[1] * y[1])
    comparison = tp.make_feature_pairwise(lambda x: (x.sin(), x[:, 0]), head=head)

    def program(x: Tensor, y: Tensor) -> Tensor:
        return tp.lazy(x, y, comparison).logsumexp(-1)

    compiled = torch.compile(program, backend="eager")
    for n in SIZES:
        x, y = torch.randn(n, 4), torch.randn(n + 2, 4)
        torch.testing.assert_close(compiled(x, y), program(x, y))
