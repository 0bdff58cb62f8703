"""What must not matter: tile size, threads, instruction set, backend, batch, permutation, translation, strides, repetition."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import torchpairwise as tp

METRICS = ["linear", "sqeuclidean", "euclidean", "manhattan", "rbf", "cosine_distances"]
CONSUMERS = ["sum", "mean", "logsumexp", "matmul", "softmax_matmul", "min", "max", "topk"]
BACKENDS = pytest.mark.parametrize("backend", ["native", "tiles"])
every_metric = pytest.mark.parametrize("metric", METRICS)
every_consumer = pytest.mark.parametrize("consumer", CONSUMERS)


def data(n: int = 70, m: int = 130, d: int = 20, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    """Whole numbers: scores of the exact metrics are exact, and ties are ties."""
    generator = torch.Generator().manual_seed(4)
    X, Y = (torch.randint(-2, 3, (size, d), generator=generator).to(dtype) for size in (n, m))
    return X, Y, torch.randn(m, 3, generator=generator).to(dtype)


def consume(S: tp.PairwiseExpression, consumer: str, V: Tensor, dim: int = -1) -> list[Tensor]:
    arguments = {"matmul": [V], "softmax_matmul": [V], "topk": [5]}.get(consumer, [])
    result = getattr(S, consumer)(*arguments, dim=dim)
    return list(result) if isinstance(result, tuple) else [result]


def with_gradients(bind: Callable[[Tensor, Tensor], tp.PairwiseExpression], X: Tensor, Y: Tensor, V: Tensor, consumer: str) -> list[Tensor]:
    leaves = [t.detach().clone().requires_grad_() for t in (X, Y, V)]
    results = consume(bind(*leaves[:2]), consumer, leaves[2])
    value = results[0]
    weight = torch.linspace(-1, 1, value.numel(), dtype=value.dtype).view(value.shape)
    found = torch.autograd.grad((value * weight).sum(), leaves, allow_unused=True)
    return [x.detach() for x in results] + [x for x in found if x is not None]


def close(ours: list[Tensor], theirs: list[Tensor], scale: float = 1.0) -> None:
    for a, b in zip(ours, theirs, strict=True):
        if a.dtype == torch.int64:
            assert torch.equal(a, b)
        else:
            torch.testing.assert_close(a, b, rtol=2e-5 * scale, atol=2e-5 * scale * max(1.0, b.abs().max().item()), equal_nan=True)


@every_consumer
@pytest.mark.parametrize("chunk", [1, 7, 64, 71, 1000])
def test_tile_size(chunk: int, consumer: str) -> None:
    X, Y, V = data()
    for metric in ("linear", "sqeuclidean"):
        expected = with_gradients(lambda x, y, m=metric: tp.lazy(x, y, m, backend="tiles"), X, Y, V, consumer)  # type: ignore[misc]
        close(with_gradients(lambda x, y, m=metric: tp.lazy(x, y, m, chunk_size=chunk), X, Y, V, consumer), expected)  # type: ignore[misc]


@every_metric
@every_consumer
def test_threads_bit_by_bit(metric: str, consumer: str) -> None:
    X, Y, V = data(300, 700)
    before = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(consume(tp.lazy(X, Y, metric), consumer, V))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@every_consumer
def test_gradients_by_threads(consumer: str) -> None:
    """Chunks of backward follow the number of threads: sums may round otherwise, and agree bit by bit when repeated."""
    X, Y, V = data(300, 700)
    before = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            once, again = (with_gradients(lambda x, y: tp.lazy(x, y, "rbf"), X, Y, V, consumer) for _ in range(2))
            assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
            results.append(once)
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        close(other, results[0])


@every_metric
@every_consumer
def test_backend(metric: str, consumer: str) -> None:
    X, Y, V = data()
    native, tiles = (with_gradients(lambda x, y, b=b: tp.lazy(x, y, metric, backend=b), X, Y, V, consumer) for b in ("native", "tiles"))  # type: ignore[misc]
    if metric == "cosine_distances" and consumer in ("min", "max", "topk"):  # equal distances may round apart, and others are chosen
        native, tiles = native[:1], tiles[:1]
    close(native, tiles, scale=4.0)


@BACKENDS
@every_consumer
def test_batch(backend: str, consumer: str) -> None:
    X, Y, V = data()
    Xs, Ys = torch.stack([X, X.flip(0), 2 * X]), torch.stack([Y, Y + 1])
    results = consume(tp.lazy(Xs[:, None], Ys, "rbf", backend=backend), consumer, V)
    for i in range(3):
        for j in range(2):
            single = consume(tp.lazy(Xs[i], Ys[j], "rbf", backend=backend), consumer, V)
            for a, b in zip(results, single, strict=True):
                torch.testing.assert_close(a[i, j], b, rtol=1e-5, atol=1e-6)


@BACKENDS
@every_metric
@every_consumer
def test_permutation(backend: str, metric: str, consumer: str) -> None:
    X, Y, V = data()
    generator = torch.Generator().manual_seed(1)
    rows, columns = torch.randperm(len(X), generator=generator), torch.randperm(len(Y), generator=generator)
    expected = consume(tp.lazy(X, Y, metric, backend=backend), consumer, V)
    got = consume(tp.lazy(X[rows], Y[columns], metric, backend=backend), consumer, V[columns])
    close([got[0]], [expected[0][rows]])


@BACKENDS
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "manhattan", "rbf"])
@every_consumer
def test_translation(backend: str, metric: str, consumer: str) -> None:
    X, Y, V = data()
    shift = torch.arange(X.shape[1]) * 8.0 - 50
    close(
        consume(tp.lazy(X + shift, Y + shift, metric, backend=backend), consumer, V),
        consume(tp.lazy(X, Y, metric, backend=backend), consumer, V),
        scale=4.0,
    )


@BACKENDS
@every_consumer
def test_exchange_of_sides(backend: str, consumer: str) -> None:
    X, Y, V = data()
    close(consume(tp.lazy(Y, X, "rbf", backend=backend), consumer, V, dim=-2), consume(tp.lazy(X, Y, "rbf", backend=backend), consumer, V))


def arrangements(x: Tensor) -> dict[str, Tensor]:
    """Equal numbers in other memory."""
    padded = torch.nn.functional.pad(x, (2, 3, 1, 1))
    return {
        "transposed": x.mT.contiguous().mT,
        "sliced": padded[1:-1, 2:-3],
        "every other": x.repeat_interleave(2, 0).repeat_interleave(2, 1)[::2, ::2],
        "offset": torch.nn.functional.pad(x.flatten(), (5, 0))[5:].view(x.shape),
    }


@BACKENDS
@every_consumer
@pytest.mark.parametrize("name", ["transposed", "sliced", "every other", "offset"])
def test_strides(backend: str, consumer: str, name: str) -> None:
    X, Y, V = data()
    expected = consume(tp.lazy(X, Y, "rbf", backend=backend), consumer, V)
    got = consume(tp.lazy(arrangements(X)[name], arrangements(Y)[name], "rbf", backend=backend), consumer, arrangements(V)[name])
    close(got, expected)


@BACKENDS
@every_consumer
def test_expanded_rows(backend: str, consumer: str) -> None:
    X, Y, V = data()
    one = X[:1].expand(40, -1)
    close(
        consume(tp.lazy(one, Y, "rbf", backend=backend), consumer, V), consume(tp.lazy(one.clone(), Y, "rbf", backend=backend), consumer, V)
    )


@BACKENDS
def test_inputs_and_incoming_gradients_are_never_written(backend: str) -> None:
    X, Y, V = data()
    gradient = torch.ones(1, 1).expand(len(X), 3)
    for consumer in ("matmul", "softmax_matmul"):
        leaves = [t.clone().requires_grad_() for t in (X, Y, V)]
        (result,) = consume(tp.lazy(*leaves[:2], "rbf", backend=backend), consumer, leaves[2])
        torch.autograd.grad(result, leaves, gradient)
        assert all(torch.equal(a, b) for a, b in zip(leaves, (X, Y, V), strict=True)) and (gradient == 1).all()


# Instruction sets

LEVELS = ["baseline", "avx2", "avx512"]
PROGRAM = """
import json, sys, torch
sys.path.insert(0, sys.argv[1])
import test_invariance as t
import torchpairwise as tp
torch.set_num_threads(1)
out = {}
for metric in ("sqeuclidean", "rbf", "manhattan"):
    for consumer in t.CONSUMERS:
        X, Y, V = t.data()
        results = t.with_gradients(lambda x, y: tp.lazy(x, y, metric), X, Y, V, consumer)
        out[metric + " " + consumer] = [x.tolist() for x in results]
print(json.dumps(out))
"""


def results_of(level: str) -> Any:
    environment = dict(os.environ, TORCHPAIRWISE_ISA=level)
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, os.path.dirname(__file__)], capture_output=True, text=True, env=environment, check=False
    )
    if "which this processor or this build does not have" in run.stderr:
        return None
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_instruction_set() -> None:
    """Selections of whole numbers agree in every place; sums within rounding."""
    found = {level: results for level in LEVELS if (results := results_of(level)) is not None}
    for level in LEVELS[1:]:
        if level not in found:
            continue
        for name, expected in found["baseline"].items():
            if name in ("sqeuclidean min", "sqeuclidean max", "sqeuclidean topk"):
                assert found[level][name][:2] == expected[:2]  # values and indices
            for ours, theirs in zip(found[level][name], expected, strict=True):
                a, b = torch.tensor(ours, dtype=torch.float64), torch.tensor(theirs, dtype=torch.float64)
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * max(1.0, b.abs().max().item()))


def test_an_unknown_instruction_set_is_refused() -> None:
    run = subprocess.run(
        [sys.executable, "-c", "import torch, torchpairwise as tp; tp.lazy(torch.zeros(2, 1)).sum()"],
        capture_output=True,
        text=True,
        env=dict(os.environ, TORCHPAIRWISE_ISA="mmx"),
        check=False,
    )
    assert run.returncode != 0 and "expected baseline, avx2 or avx512" in run.stderr
