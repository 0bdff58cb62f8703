"""Tables, selections by a mask, and parts of a matrix: against the stored scores."""

from __future__ import annotations

import doctest
import importlib

import pytest
import torch
from torch import Tensor

import torchpairwise as tp

BACKENDS = pytest.mark.parametrize("backend", ["native", "tiles"])
N, M = 11, 17


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def features(n: int = N, m: int = M, d: int = 3) -> tuple[Tensor, Tensor]:
    source = generator()
    X, Y = (torch.randn(size, d, dtype=torch.float64, generator=source) for size in (n, m))
    return X.requires_grad_(), Y.requires_grad_()


def equal_with_gradients(lazy: Tensor, dense: Tensor, leaves: list[Tensor]) -> None:
    """Values and gradients, by one random cotangent."""
    torch.testing.assert_close(lazy, dense, rtol=1e-9, atol=1e-11)
    weight = torch.randn(dense.shape, dtype=dense.dtype, generator=generator())
    ours = torch.autograd.grad((lazy * weight).sum(), leaves, retain_graph=True, allow_unused=True, materialize_grads=True)
    theirs = torch.autograd.grad((dense * weight).sum(), leaves, retain_graph=True, allow_unused=True, materialize_grads=True)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


def relative_index(n: int, m: int, most: int, offset: int) -> Tensor:
    return (torch.arange(m) - torch.arange(n)[:, None] - offset).clamp(-most, most) + most


# Tables


@BACKENDS
@pytest.mark.parametrize("dim", [-1, -2])
@pytest.mark.parametrize("align", ["lower_right", "upper_left"])
@pytest.mark.parametrize("heads", [(), (2,)])
def test_relative_bias(backend: str, dim: int, align: str, heads: tuple[int, ...]) -> None:
    X, Y = features()
    table = torch.randn(*heads, 9, dtype=torch.float64, generator=generator(), requires_grad=True)
    S = tp.lazy(X, Y, "linear", backend=backend).bias_table(table, tp.masks.relative_position(4, align))
    dense = X @ Y.T + table[..., relative_index(N, M, 4, M - N if align == "lower_right" else 0)]
    assert S.shape == dense.shape
    equal_with_gradients(S.logsumexp(dim), dense.logsumexp(dim), [X, Y, table])
    equal_with_gradients(S.dense(), dense, [X, Y, table])
    selected = S.topk(3, dim)
    equal_with_gradients(selected.values, dense.topk(3, dim).values if dim == -1 else dense.topk(3, dim).values.mT, [X, Y, table])


@BACKENDS
@pytest.mark.parametrize("dim", [-1, -2])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_stored_indices(backend: str, dim: int, batch: tuple[int, ...]) -> None:
    X, Y = features()
    table = torch.randn(5, dtype=torch.float64, generator=generator(), requires_grad=True)
    index = torch.randint(0, 5, (*batch, N, M), generator=generator())
    S = tp.lazy(X, Y, "sqeuclidean", backend=backend).bias_table(table, index)
    dense = torch.cdist(X, Y).square() + table[index]
    equal_with_gradients(S.sum(dim), dense.sum(dim), [X, Y, table])
    equal_with_gradients(S.min(dim).values, dense.min(dim).values, [X, Y, table])
    equal_with_gradients(S.T.logsumexp(dim), dense.mT.logsumexp(dim), [X, Y, table])


@BACKENDS
def test_joined_with_a_transposed_matrix(backend: str) -> None:
    X, Y = features()
    table = torch.randn(7, dtype=torch.float64, generator=generator(), requires_grad=True)
    biased = tp.lazy(X, Y, "linear", backend=backend).bias_table(table, tp.masks.relative_position(3, "upper_left"))
    index = torch.randint(0, 7, (N, M), generator=generator())
    other = tp.lazy(Y, X, "rbf", backend=backend).T.bias_table(table, index)
    dense = X @ Y.T + table[relative_index(N, M, 3, 0)] + torch.exp(-torch.cdist(X, Y).square() / 3) + table[index]
    equal_with_gradients((biased + other).sum(-1), dense.sum(-1), [X, Y, table])
    equal_with_gradients((other + biased).sum(-2), dense.sum(-2), [X, Y, table])


@BACKENDS
@pytest.mark.parametrize("size", [(N, N), (N, M), (M, N)])
def test_identity(backend: str, size: tuple[int, int]) -> None:
    X, Y = features(*size)
    a = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    K = tp.lazy(X, Y, "rbf", backend=backend)
    S = K + a * tp.eye_like(K)
    dense = torch.exp(-torch.cdist(X, Y).square() / 3) + a * torch.eye(*size, dtype=torch.float64)
    V = torch.randn(size[1], 2, dtype=torch.float64, generator=generator(), requires_grad=True)
    equal_with_gradients(S @ V, dense @ V, [X, Y, a, V])
    equal_with_gradients(S.diagonal(), dense.diagonal(), [X, Y, a])
    W = torch.randn(size[0], 2, dtype=torch.float64, generator=generator(), requires_grad=True)
    equal_with_gradients(S.T.softmax_matmul(W), dense.mT.softmax(-1) @ W, [X, Y, a, W])
    assert (tp.eye_like(K).sum(-1) == torch.eye(*size).sum(-1)).all()


def test_second_derivatives_of_tables() -> None:
    X, Y = features(4, 5)
    table = torch.randn(5, dtype=torch.float64, generator=generator(), requires_grad=True)

    def loss(X: Tensor, Y: Tensor, table: Tensor) -> Tensor:
        return tp.lazy(X, Y, "linear").bias_table(table, tp.masks.relative_position(2)).logsumexp(-1)

    assert torch.autograd.gradcheck(loss, (X, Y, table)) and torch.autograd.gradgradcheck(loss, (X, Y, table))


def test_bad_tables() -> None:
    S = tp.lazy(torch.zeros(3, 2), torch.zeros(4, 2))
    rule = tp.masks.relative_position(1)
    for call, error, message in [
        (lambda: S.bias_table(torch.zeros(4), rule), ValueError, r"table\) has shape \[4\]; expected \[..., 3\]"),
        (lambda: S.bias_table(0.5, rule), TypeError, r"table\) is float 0.5"),
        (lambda: S.bias_table(torch.zeros(3, dtype=torch.float64), rule), TypeError, "float64"),
        (lambda: S.bias_table(torch.zeros(3), "relative"), TypeError, "expected tp.masks.relative_position"),
        (lambda: S.bias_table(torch.zeros(3), torch.zeros(3, 4)), TypeError, "integer tensor"),
        (lambda: S.bias_table(torch.zeros(3), torch.zeros(4, 3, dtype=torch.long)), ValueError, r"expected \[..., 3, 4\]"),
        (lambda: S.bias_table(torch.zeros(3), torch.full((3, 4), 3)), IndexError, "runs from 3 to 3; the table has 3"),
        (lambda: tp.masks.relative_position(-1), ValueError, "at least 0"),
        (lambda: tp.masks.relative_position(1.5), TypeError, "expected an integer"),
        (lambda: tp.masks.relative_position(1, "left"), ValueError, "lower_right"),
        (lambda: tp.eye_like(torch.zeros(2, 2)), TypeError, "expression of tp.lazy"),
    ]:
        with pytest.raises(error, match=message):
            call()


# Selection by a mask


@BACKENDS
@pytest.mark.parametrize("dim", [-1, -2])
def test_where(backend: str, dim: int) -> None:
    X, Y = features()
    value = torch.tensor(-0.3, dtype=torch.float64, requires_grad=True)
    S, T = tp.lazy(X, Y, "linear", backend=backend), tp.lazy(X, Y, "rbf", backend=backend)
    s, t = X @ Y.T, torch.exp(-torch.cdist(X, Y).square() / 3)
    rows, columns = torch.arange(N) % 3, torch.arange(M) % 3
    causal = torch.arange(M) <= torch.arange(N)[:, None] + M - N
    groups = rows[:, None] == columns
    same = tp.masks.same_group(rows, columns)
    equal_with_gradients(S.where(tp.masks.causal(), T).logsumexp(dim), torch.where(causal, s, t).logsumexp(dim), [X, Y])
    equal_with_gradients(S.where(same, value).sum(dim), torch.where(groups, s, value).sum(dim), [X, Y, value])
    both = S.where(same, 2.0).where(~tp.masks.causal(), T * 3).masked(tp.masks.band(5, 5))
    near = (torch.arange(M) - torch.arange(N)[:, None]).abs() <= 5
    dense = torch.where(near, torch.where(causal, t * 3, torch.where(groups, s, 2.0)), 0.0)
    equal_with_gradients(both.sum(dim), dense.sum(dim), [X, Y])
    equal_with_gradients(both.T.dense(), dense.mT, [X, Y])


@BACKENDS
def test_where_hides_what_it_drops(backend: str) -> None:
    X = torch.tensor([[0.0], [1.0]], requires_grad=True)
    S = (1.0 / tp.lazy(X, metric="manhattan", backend=backend)).where(~tp.masks.band(0, 0), 5.0)
    assert torch.equal(S.dense(), torch.tensor([[5.0, 1.0], [1.0, 5.0]]))


# Masks


@BACKENDS
def test_masks_of_places(backend: str) -> None:
    X, Y = torch.ones(6, 1), torch.ones(8, 1)
    S = tp.lazy(X, Y, "linear", backend=backend)
    i, j = torch.arange(6)[:, None], torch.arange(8)
    for mask, keep in [
        (tp.masks.prefix(3), j < 3),
        (tp.masks.prefix(3) | tp.masks.causal(), (j < 3) | (j <= i + 2)),
        (tp.masks.dilated(3), (j - i) % 3 == 0),
        (tp.masks.dilated(1), j >= 0),
        (tp.masks.segments(torch.tensor([0, 2, 2, 6]), torch.tensor([0, 3, 5, 8])), (i < 2) & (j < 3) | (i >= 2) & (j >= 5)),
    ]:
        expected = keep.expand(6, 8).float()
        assert torch.equal(S.masked(mask).dense(), expected)
        assert torch.equal(S.masked(mask).T.dense(), expected.T)
        assert torch.equal(S.masked(mask).sum(-2), expected.sum(-2))
        assert mask.sparsity(6, 8) == pytest.approx(1 - expected.mean().item())
    assert tp.masks.causal().sparsity(0, 0) == 0.0


def test_transposed_prefix() -> None:
    S = tp.lazy(torch.ones(2, 1), torch.ones(3, 1), "linear").T.masked(tp.masks.prefix(1))
    assert torch.equal(S.dense(), torch.tensor([[1.0, 0.0]]).expand(3, 2))


def test_plot() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    ax = tp.masks.causal().plot(4, 4)
    assert ax.get_title() == "62.5% of the pairs kept" and tp.masks.causal().plot(3, 3, ax) is ax
    pyplot.close("all")


def test_bad_masks() -> None:
    for call, error, message in [
        (lambda: tp.masks.prefix(-1), ValueError, "at least 0"),
        (lambda: tp.masks.dilated(0), ValueError, "at least 1"),
        (lambda: tp.masks.dilated(True), TypeError, "expected an integer"),
        (lambda: tp.masks.segments(torch.tensor([0.0, 1.0])), TypeError, "integers"),
        (lambda: tp.masks.segments(torch.tensor([1, 2])), ValueError, "starts at 0"),
        (lambda: tp.masks.segments(torch.tensor([0, 3, 2])), ValueError, "non-decreasing"),
        (lambda: tp.masks.segments(torch.tensor([0, 3]), torch.tensor([0, 1, 2])), ValueError, "expected the same"),
    ]:
        with pytest.raises(error, match=message):
            call()


# Parts


def everything(backend: str, X: Tensor, Y: Tensor) -> tuple[tp.PairwiseExpression, Tensor]:
    """An expression with every kind of step and rule, and the same stored."""
    r, c = torch.linspace(0, 1, N, dtype=torch.float64), torch.linspace(-1, 1, M, dtype=torch.float64)
    index = torch.arange(N * M).view(N, M) % 4
    table = torch.linspace(-1, 1, 5, dtype=torch.float64)
    groups = torch.arange(N) % 2, torch.arange(M) % 2
    S = tp.lazy(X, Y, "linear", backend=backend).add_rows(r).weight_columns(c) * 0.5
    S = S.bias_table(table, tp.masks.relative_position(2)).bias_table(table[:4], index).where(tp.masks.band(3, 5), 0.25)
    mask = (tp.masks.causal() | tp.masks.prefix(4) | tp.masks.dilated(3)) & ~tp.masks.same_group(*groups)
    S = S.masked(mask).mask_rows(torch.arange(N) != 3).mask_columns(torch.arange(M) != 2)
    i, j = torch.arange(N)[:, None], torch.arange(M)
    dense = ((X @ Y.T + r[:, None]) * c) * 0.5 + table[relative_index(N, M, 2, M - N)] + table[index]
    dense = torch.where((j - i >= -3) & (j - i <= 5), dense, 0.25)
    keep = ((j <= i + M - N) | (j < 4) | ((j - i) % 3 == 0)) & (i % 2 != j % 2) & (i != 3) & (j != 2)
    return S, torch.where(keep, dense, 0.0)


PICKS = [slice(2, 9), slice(None), slice(8, 1, -2), slice(5, 5), torch.tensor([3, 0, 3, -1]), [1, 2], torch.arange(11) % 3 == 0]


@BACKENDS
@pytest.mark.parametrize("pick", PICKS, ids=str)
def test_rows_and_columns(backend: str, pick: object) -> None:
    X, Y = features()
    S, dense = everything(backend, X, Y)
    index = torch.arange(N)[list(range(*pick.indices(N)))] if isinstance(pick, slice) else torch.arange(N)[pick]
    equal_with_gradients(S[pick].dense(), dense[index], [X, Y])
    equal_with_gradients(S.T[:, pick].dense(), dense.mT[:, index], [X, Y])
    equal_with_gradients(S[pick].sum(-2), dense[index].sum(-2), [X, Y])
    equal_with_gradients(S[:, index].sum(-1), dense[:, index].sum(-1), [X, Y])


@BACKENDS
def test_named_scores(backend: str) -> None:
    X, Y = features()
    S, dense = everything(backend, X, Y)
    i, j = torch.tensor([0, 5, 5, -1]), torch.tensor([16, 2, 2, 0])
    equal_with_gradients(S[i, j], dense[i, j], [X, Y])
    equal_with_gradients(S[i[:, None], j].dense(), dense[i[:, None], j], [X, Y])
    equal_with_gradients(S[i][:, j].dense(), dense[i][:, j], [X, Y])
    equal_with_gradients(S[4], dense[4], [X, Y])
    equal_with_gradients(S[:, -2], dense[:, -2], [X, Y])
    equal_with_gradients(S[4, 6], dense[4, 6], [X, Y])
    equal_with_gradients(S[..., 1:3, 0], dense[1:3, 0], [X, Y])
    assert S[:].shape == S.shape and S[1:2].shape == (1, M)


@BACKENDS
def test_parts_with_batches(backend: str) -> None:
    X = torch.randn(2, 1, N, 3, dtype=torch.float64, generator=generator(), requires_grad=True)
    Y = torch.randn(3, M, 3, dtype=torch.float64, generator=generator(), requires_grad=True)
    S, dense = tp.lazy(X, Y, "linear", backend=backend), X @ Y.mT
    equal_with_gradients(S[..., [4, 1], 2:5].dense(), dense[..., [4, 1], 2:5], [X, Y])
    with pytest.raises(IndexError, match="batch dimensions; write S"):
        S[0]


def test_parts_of_identity_keep_their_places() -> None:
    K = tp.lazy(torch.zeros(5, 1), metric="rbf")
    A = K + 2.0 * tp.eye_like(K)
    rows = torch.tensor([3, 0, 3])
    assert torch.equal(A[rows].dense(), A.dense()[rows]) and torch.equal(A[rows][:, rows].dense(), A.dense()[rows][:, rows])


def test_bad_indices() -> None:
    S = tp.lazy(torch.zeros(3, 2), torch.zeros(4, 2))
    for index, error, message in [
        (3, IndexError, "index 3 is out of range for 3 rows"),
        ((0, -5), IndexError, "out of range for 4 columns"),
        (torch.tensor([0, 3]), IndexError, "runs from 0 to 3; there are 3"),
        (torch.tensor([True, False]), IndexError, r"expected booleans \[3\]"),
        ((0, 0, 0), IndexError, "3 indices"),
        (0.5, TypeError, "index of the rows is float"),
        (None, TypeError, "index of the rows"),
        (torch.zeros(2, 2, dtype=torch.long), IndexError, "expected a vector"),
        ((torch.tensor([0, 1]), torch.tensor([0, 1, 2])), IndexError, "two vectors of one length"),
    ]:
        with pytest.raises(error, match=message):
            S[index]


@pytest.mark.parametrize("name", ["masks", "expression"])
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"torchpairwise.{name}")).failed == 0
