"""Two-sided sweeps, the symmetric mode, and how many pairs each call evaluates."""

from __future__ import annotations

import doctest
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

import torchpairwise as tp

BACKENDS = pytest.mark.parametrize("backend", ["native", "tiles"])
THREADS = pytest.mark.parametrize("threads", [1, 3])
SIZES = [(1, 1), (5, 7), (130, 260), (300, 97)]


@contextmanager
def threads_of(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def features(n: int, m: int, d: int = 5, batch: tuple[int, ...] = ()) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    X, Y = (torch.randn(*batch, size, d, dtype=torch.float64, generator=generator) for size in (n, m))
    return X.requires_grad_(), Y.requires_grad_()


def everything(n: int, m: int) -> tuple[list[Any], list[Any]]:
    """One item of each consumer for both sides; values are (N or M) x 3 and one vector."""
    generator = torch.Generator().manual_seed(3)
    V, U = (torch.randn(size, 3, dtype=torch.float64, generator=generator) for size in (m, n))
    names = ["sum", "mean", "logsumexp", "min", "max", "argmin", "argmax"]
    rows = [*names, ("matmul", {"values": V}), ("topk", {"k": min(4, m)}), ("softmax_matmul", {"values": V, "return_aux": True})]
    columns = [("softmax_matmul", {"values": U}), ("topk", {"k": min(3, n), "largest": False}), ("matmul", {"values": U[:, 0]}), *names]
    return rows, columns


def apart(S: tp.PairwiseExpression, rows: list[Any], columns: list[Any], **options: Any) -> list[Any]:
    """The same by one call each."""
    out = []
    for dim, items in ((-1, rows), (-2, columns)):
        for item in items:
            name, arguments = (item, {}) if isinstance(item, str) else item
            out.append(getattr(S, name)(dim=dim, **arguments, **options))
    return out


def flat(results: list[Any]) -> list[Tensor]:
    return [x for result in results for x in (result if isinstance(result, tuple) else (result,))]


@BACKENDS
@THREADS
@pytest.mark.parametrize("size", SIZES)
def test_sweep_equals_single_calls(backend: str, threads: int, size: tuple[int, int]) -> None:
    X, Y = features(*size)
    rows, columns = everything(*size)
    with threads_of(threads):
        for masked in (False, True):
            S = tp.lazy(X, Y, "linear", backend=backend)
            S = S.masked(tp.masks.band(3, 8)) if masked else S
            ours, expected = flat(tp.sweep(S, rows, columns)), flat(apart(S, rows, columns))
            for a, b in zip(ours, expected, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12, equal_nan=True)


@BACKENDS
def test_sweep_of_transposed_batched_and_square(backend: str) -> None:
    X, Y = features(20, 33, batch=(2,))
    rows, columns = ["logsumexp", ("topk", {"k": 3})], ["min", ("matmul", {"values": torch.ones(4, 1, 33, 2, dtype=torch.float64)})]
    S = tp.lazy(X[:, :, :], Y, "sqeuclidean", backend=backend).T
    columns = ["min", ("matmul", {"values": torch.ones(4, 1, 33, 2, dtype=torch.float64)})]
    for a, b in zip(flat(tp.sweep(S, rows, columns)), flat(apart(S, rows, columns)), strict=True):
        torch.testing.assert_close(a.expand_as(b) if a.dim() == b.dim() else a, b.expand_as(a) if b.dim() == a.dim() else b.expand(a.shape))
    K = tp.lazy(X[0], metric="rbf", backend=backend)
    rows, columns = ["sum", "min"], ["mean", "argmax"]
    for a, b in zip(flat(tp.sweep(K, rows, columns, exclude_self=True)), flat(apart(K, rows, columns, exclude_self=True)), strict=True):
        torch.testing.assert_close(a, b)


@BACKENDS
def test_gradients_of_a_sweep(backend: str) -> None:
    X, Y = features(30, 45)
    V = torch.randn(45, 2, dtype=torch.float64, requires_grad=True)
    rows = [
        "logsumexp",
        "min",
        "sum",
        "mean",
        ("matmul", {"values": V}),
        ("topk", {"k": 3}),
        ("softmax_matmul", {"values": V, "return_aux": True}),
    ]
    columns = ["logsumexp", "max", "argmin"]

    def loss(results: list[Any]) -> Tensor:
        return sum(
            (x * torch.linspace(-1, 1, x.numel(), dtype=x.dtype).view(x.shape)).sum() for x in flat(results) if x.is_floating_point()
        )  # type: ignore[return-value]

    S = tp.lazy(X, Y, "sqeuclidean", backend=backend)
    ours = torch.autograd.grad(loss(tp.sweep(S, rows, columns)), (X, Y, V))
    for a, b in zip(ours, torch.autograd.grad(loss(apart(S, rows, columns)), (X, Y, V)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)
    with torch.no_grad():
        assert not tp.sweep(S, ["sum"])[0].requires_grad


def test_second_derivatives_and_transforms_of_a_sweep() -> None:
    X, Y = features(4, 6, 2)

    def both(X: Tensor, Y: Tensor) -> Tensor:
        a, b = tp.sweep(tp.lazy(X, Y, "linear"), ["logsumexp"], ["logsumexp"])
        return a.sum() + b.square().sum()

    assert torch.autograd.gradcheck(both, (X, Y)) and torch.autograd.gradgradcheck(both, (X, Y))
    got = torch.func.grad(both)(X.detach(), Y.detach())
    torch.testing.assert_close(got, torch.autograd.grad(both(X, Y), X)[0])
    many = torch.func.vmap(both, in_dims=(0, None))(torch.stack([X, 2 * X]).detach(), Y.detach())
    torch.testing.assert_close(many, torch.stack([both(X, Y), both(2 * X, Y)]))


def test_compiled_sweep() -> None:
    X, Y = features(8, 9)

    @torch.compile(fullgraph=True)
    def both(X: Tensor, Y: Tensor) -> Tensor:
        a, b = tp.sweep(tp.lazy(X, Y, "linear"), ["logsumexp"], ["min"])
        return a.sum() + b.values.sum()

    torch.testing.assert_close(both(X, Y), tp.lazy(X, Y, "linear").logsumexp(-1).sum() + tp.lazy(X, Y, "linear").min(-2).values.sum())
    operands, program, constants = tp.lazy(X, Y, "linear")._lower()
    arguments = (operands, program, constants, ["sum", "topk"], [-1, -2], [None, None], [0, 2], [True, False])
    torch.library.opcheck(torch.ops.torchpairwise.sweep, arguments)


def test_half_precision_and_empty() -> None:
    X = torch.randn(6, 3).bfloat16()
    a, b = tp.sweep(tp.lazy(X, X[:4]), ["sum"], ["min"])
    assert a.dtype == b.values.dtype == torch.bfloat16 and b.indices.dtype == torch.int64
    S = tp.lazy(torch.zeros(0, 2), torch.zeros(3, 2))
    rows, columns = tp.sweep(S, ["sum"], ["sum"])
    assert rows.shape == (0,) and torch.equal(columns, torch.zeros(3))


def test_bad_sweeps() -> None:
    def raw(consumer: str, values: list[None]) -> None:
        torch.ops.torchpairwise.sweep([torch.zeros(2, 1)], "linear 0 0", [], [consumer], [-1], values, [2], [True])

    S = tp.lazy(torch.zeros(3, 2), torch.zeros(4, 2))
    for call, error, message in [
        (lambda: tp.sweep(S), ValueError, "got no consumers"),
        (lambda: tp.sweep(torch.zeros(2, 2), ["sum"]), TypeError, "expected an expression"),
        (lambda: tp.sweep(S, ["smu"]), ValueError, "Did you mean 'sum'"),
        (lambda: tp.sweep(S, [3]), TypeError, "sweep item 3"),
        (lambda: tp.sweep(S, [("topk", 3)]), TypeError, "expected a name or"),
        (lambda: tp.sweep(S, [("sum", {"k": 3})]), TypeError, "sum has no argument 'k'; it takes none"),
        (lambda: tp.sweep(S, [("topk", {"k": 5})]), ValueError, "k=5 is out of range for M=4"),
        (lambda: tp.sweep(S, ["topk"]), TypeError, "k is NoneType"),
        (lambda: tp.sweep(S, columns=[("matmul", {"values": torch.zeros(4, 1)})]), ValueError, r"expected a tensor \[..., 3, C\]"),
        (lambda: tp.sweep(tp.lazy(torch.zeros(3, 2), torch.zeros(0, 2)), ["min"]), ValueError, "over an empty axis"),
        (lambda: raw("dense", [None]), ValueError, "takes reductions"),
        (lambda: raw("sum", []), ValueError, "one dim, values"),
        (lambda: raw("histogram", [None]), ValueError, "at least one bin"),
    ]:
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize("name", ["sweep"])
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"torchpairwise.{name}")).failed == 0


# Pairs


def evaluated(call: Callable[[], Any]) -> int:
    before = torch.ops.torchpairwise.evaluated_pairs()
    call()
    return int(torch.ops.torchpairwise.evaluated_pairs() - before)


@BACKENDS
@THREADS
@pytest.mark.parametrize("consumer", ["sum", "mean", "logsumexp", "matmul", "softmax_matmul", "min", "max", "topk"])
def test_one_evaluation_a_pair(consumer: str, backend: str, threads: int) -> None:
    """One in forward; one in backward, and one for each selected pair where gradients go to these alone."""
    n, m = 300, 500
    X, Y = features(n, m)
    V = torch.randn(m, 2, dtype=torch.float64, requires_grad=True)
    arguments = [V] if "matmul" in consumer else [3] if consumer == "topk" else []
    with threads_of(threads):
        S = tp.lazy(X, Y, "rbf", backend=backend)
        results: list[Any] = []
        assert evaluated(lambda: results.append(getattr(S, consumer)(*arguments, dim=-1))) == n * m
        value = results[0].values if isinstance(results[0], tuple) else results[0]
        again = evaluated(lambda: value.sum().backward())
        assert again == {"min": n, "max": n, "topk": 3 * n}.get(consumer, n * m)


@THREADS
def test_one_evaluation_for_both_sides(threads: int) -> None:
    X, Y = features(200, 300)
    with threads_of(threads):
        S = tp.lazy(X, Y, "linear")
        assert evaluated(lambda: tp.sweep(S, ["logsumexp", "sum"], ["logsumexp"])) == 200 * 300  # CLIP
        assert evaluated(lambda: tp.sweep(tp.lazy(X, Y), ["min"], ["min"])) == 200 * 300  # Chamfer


@BACKENDS
def test_masks_save_evaluations(backend: str) -> None:
    X = torch.zeros(6000, 2)
    S = tp.lazy(X, metric="linear", backend=backend)
    assert evaluated(lambda: S.masked(tp.masks.causal()).sum(-1)) < 0.6 * 6000**2
    assert evaluated(lambda: S.masked(tp.masks.band(10, 10)).sum(-1)) < (0.1 if backend == "native" else 0.6) * 6000**2


# Symmetric mode

SYMMETRIC: dict[str, Callable[[Tensor], tp.PairwiseExpression]] = {
    "linear": lambda X: tp.lazy(X, metric="linear"),
    "rbf": lambda X: tp.lazy(X, metric="rbf"),
    "laplacian": lambda X: tp.lazy(X, metric="laplacian"),
    "cosine_similarity": lambda X: tp.lazy(X, metric="cosine_similarity"),
    "joined": lambda X: tp.lazy(X, metric="rbf") + 0.5 * tp.lazy(X, metric="linear"),
    "band": lambda X: tp.lazy(X, metric="linear").masked(tp.masks.band(100, 100)),
}
LOPSIDED: dict[str, Callable[[Tensor], tp.PairwiseExpression]] = {
    "another matrix": lambda X: tp.lazy(X, X.clone(), "linear"),
    "rows": lambda X: tp.lazy(X, metric="linear").add_rows(X[:, 0]),
    "columns": lambda X: tp.lazy(X, metric="linear").weight_columns(X[:, 0]),
    "causal": lambda X: tp.lazy(X, metric="linear").masked(tp.masks.causal()),
    "band": lambda X: tp.lazy(X, metric="linear").masked(tp.masks.band(3000, 2000)),
    "where": lambda X: tp.lazy(X, metric="linear").where(tp.masks.causal(), 0.0),
    "few features": lambda X: tp.lazy(X[:, :8], metric="linear"),
}
CONSUMERS = ["sum", "mean", "logsumexp", "matmul", "softmax_matmul", "min", "max"]


def consumed(S: tp.PairwiseExpression, name: str, values: Tensor, dim: int = -1) -> list[Tensor]:
    result = getattr(S, name)(*([values] if "matmul" in name else []), dim=dim)
    return list(result) if isinstance(result, tuple) else [result]


@THREADS
@pytest.mark.parametrize("name", SYMMETRIC)
def test_symmetric_matrices_evaluate_half(name: str, threads: int) -> None:
    """The half gives what the whole of two equal collections gives, for every consumer."""
    n = 3200
    X = torch.randn(n, 64, generator=torch.Generator().manual_seed(0)) / 8
    V = torch.randn(n, 2, generator=torch.Generator().manual_seed(1))
    S, whole = SYMMETRIC[name](X), SYMMETRIC[name](X).to(torch.float64)
    with threads_of(threads):
        for consumer in CONSUMERS if name in ("rbf", "band") else CONSUMERS[2:4]:
            results: list[list[Tensor]] = []
            share = evaluated(lambda c=consumer, out=results: out.append(consumed(S, c, V))) / n**2  # type: ignore[misc]
            assert share <= (0.09 if name == "band" else 0.55)
            for a, b in zip(results[0], consumed(whole, consumer, V.double()), strict=True):
                if a.dtype == torch.int64:
                    assert (a != b).float().mean() < 1e-3
                else:
                    torch.testing.assert_close(a.double(), b, rtol=2e-4, atol=2e-3 if consumer in ("sum", "matmul") else 2e-5)
            assert all(torch.equal(a, b) for a, b in zip(results[0], consumed(S, consumer, V), strict=True))


def test_the_half_is_exactly_symmetric() -> None:
    """u^T S v == v^T S u by columns of the identity: what a solver sees is one symmetric matrix."""
    n = 3200
    X = torch.randn(n, 64, generator=torch.Generator().manual_seed(0))
    picks = torch.arange(0, n, 400)
    E = torch.zeros(n, len(picks))
    E[picks, torch.arange(len(picks))] = 1.0
    for metric in ("rbf", "linear", "sqeuclidean"):
        part = (tp.lazy(X, metric=metric) @ E)[picks]
        assert torch.equal(part, part.T)


@pytest.mark.parametrize("name", LOPSIDED)
def test_other_matrices_evaluate_all(name: str) -> None:
    n = 3200
    X = torch.randn(n, 64, generator=torch.Generator().manual_seed(0))
    S = LOPSIDED[name](X)
    share = evaluated(lambda: S.sum(-1)) / n**2
    assert share > 0.5 if name == "causal" else share > 0.8


def test_half_of_a_batch_with_gradients() -> None:
    X = torch.randn(2, 3200, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    X.requires_grad_()
    S, whole = tp.lazy(X, metric="rbf"), tp.lazy(X, X.clone(), "rbf")
    assert evaluated(lambda: S.sum(-1)) <= 0.55 * 2 * 3200**2
    torch.testing.assert_close(S.logsumexp(-1, exclude_self=True), whole.logsumexp(-1, exclude_self=True))
    (a,), (b,) = (torch.autograd.grad(T.logsumexp(-1).sum(), X) for T in (S, whole))
    torch.testing.assert_close(a, b)
