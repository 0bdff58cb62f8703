"""Reductions, selections and matrix algebra made of the native consumers: against NumPy, SciPy and torch on the stored scores."""

from __future__ import annotations

import doctest
import importlib
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import torchpairwise as tp

BACKENDS = pytest.mark.parametrize("backend", ["native", "tiles"])
DIMS = pytest.mark.parametrize("dim", [-1, -2, None])
N, M = 14, 23


def data(n: int = N, m: int = M, batch: tuple[int, ...] = (), whole: bool = False) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    make = lambda size: torch.randn(*batch, size, 3, dtype=torch.float64, generator=generator)  # noqa: E731
    X, Y = make(n), make(m)
    if whole:
        X, Y = X.round(), Y.round()
    return X.requires_grad_(), Y.requires_grad_()


def equal(ours: Tensor, expected: Tensor, leaves: tuple[Tensor, ...] = ()) -> None:
    """Values, and gradients by one random cotangent."""
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-11, equal_nan=True)
    if not leaves:
        return
    weight = torch.randn(expected.shape, dtype=expected.dtype, generator=torch.Generator().manual_seed(1))
    a = torch.autograd.grad((ours * weight).sum(), leaves, retain_graph=True)
    b = torch.autograd.grad((expected * weight).sum(), leaves, retain_graph=True)
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-8, atol=1e-10)


def masked(backend: str, batch: tuple[int, ...] = ()) -> tuple[Any, Tensor, Tensor, tuple[Tensor, Tensor]]:
    """A masked expression, its scores, which pairs are kept, and its leaves."""
    X, Y = data(batch=batch)
    S = tp.lazy(X, Y, "linear", backend=backend).masked(tp.masks.causal() | tp.masks.dilated(2))
    difference = torch.arange(M) - torch.arange(N)[:, None]
    keep = (difference <= M - N) | (difference % 2 == 0)
    return S, X @ Y.mT, keep, (X, Y)


# Moments and norms


@BACKENDS
@DIMS
@pytest.mark.parametrize("correction", [0, 1])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_var_and_std(backend: str, dim: Any, correction: int, batch: tuple[int, ...]) -> None:
    S, s, keep, leaves = masked(backend, batch)
    axes = (-2, -1) if dim is None else dim
    count = keep.sum(axes, keepdim=True)
    mean = torch.where(keep, s, 0.0).sum(axes, keepdim=True) / count
    var = (torch.where(keep, s - mean, 0.0).square().sum(axes, keepdim=True) / (count - correction)).squeeze(axes)
    equal(S.var(dim, correction=correction), var, leaves)
    equal(S.std(dim, correction=correction), var.sqrt(), leaves)
    assert S.var(dim, True).shape == (s.sum(axes, keepdim=True)).shape


@BACKENDS
def test_var_far_from_zero_and_of_too_few(backend: str) -> None:
    X, Y = torch.zeros(1, 1), torch.arange(5.0)[:, None]
    S = tp.lazy(X, Y, "manhattan", backend=backend) + 1e6
    assert S.var(-1).item() == 2.5 and tp.lazy(X, Y[:1], "manhattan", backend=backend).var(-1).isnan().all()
    constant = torch.ones(1, 1, requires_grad=True)
    assert torch.autograd.grad(tp.lazy(constant, torch.ones(4, 1), "linear", backend=backend).std(-1).sum(), constant)[0] == 0


@BACKENDS
@DIMS
@pytest.mark.parametrize("p", [1, 2, 3.5, math.inf])
def test_norm(backend: str, dim: Any, p: float) -> None:
    S, s, keep, leaves = masked(backend)
    kept = torch.where(keep, s, 0.0)
    expected = torch.linalg.vector_norm(kept, p, dim=(-2, -1) if dim is None else dim)
    equal(S.norm(p, dim), expected, leaves)
    equal(S.frobenius_norm(), torch.linalg.vector_norm(kept), leaves)
    with pytest.raises(ValueError, match="expected a positive number"):
        S.norm(0)


def test_norm_of_nothing_has_no_gradient() -> None:
    X = torch.zeros(2, 1, requires_grad=True)
    for p in (2, 3):
        assert (torch.autograd.grad(tp.lazy(X, torch.ones(3, 1), "linear").norm(p, -1).sum(), X)[0] == 0).all()


# Counts


@BACKENDS
@DIMS
@pytest.mark.parametrize("comparison", ["<", "<=", ">", ">=", "==", "!="])
def test_count(backend: str, dim: Any, comparison: str) -> None:
    X, Y = data(whole=True)
    S, s = tp.lazy(X, Y, "sqeuclidean", backend=backend), torch.cdist(X, Y).square().round()
    holds = {"<": s < 4, "<=": s <= 4, ">": s > 4, ">=": s >= 4, "==": s == 4, "!=": s != 4}[comparison]
    axes = (-2, -1) if dim is None else dim
    got = S.count(4, comparison, dim)
    assert got.dtype == torch.int64 and torch.equal(got, holds.sum(axes))
    assert torch.equal(S.count(4, comparison, dim, True), holds.sum(axes, keepdim=True))
    assert torch.equal((S >= 4).count(dim=dim), (s >= 4).sum(axes))
    rows = torch.arange(float(N), dtype=torch.float64)[:, None]
    assert torch.equal(S.count(rows, dim=dim), (s <= rows).sum(axes))


def test_count_of_others_and_long_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchpairwise.reductions._EXACT_COUNT", 4)
    X = data(9, 9)[0]
    S, others = tp.lazy(X, metric="rbf"), ~torch.eye(9, dtype=torch.bool)
    for dim in (-1, -2):
        assert torch.equal(S.count(0.5, dim=dim, exclude_self=True), ((S.dense() <= 0.5) & others).sum(dim))
    with pytest.raises(ValueError, match="expected one of <, <="):
        S.count(0.5, "=<")


@BACKENDS
@DIMS
def test_histogram(backend: str, dim: Any) -> None:
    S, s, keep, _ = masked(backend)
    counts, edges = S.histogram(7, (-2.0, 3.0), dim)
    numpy_edges = np.histogram([], 7, (-2.0, 3.0))[1]
    np.testing.assert_allclose(edges.numpy(), numpy_edges)
    s, keep = (s.detach(), keep) if dim != -2 else (s.detach().T, keep.T)
    rows = [np.histogram(row[kept].numpy(), 7, (-2.0, 3.0))[0] for row, kept in zip(s, keep, strict=True)]
    expected = np.sum(rows, 0) if dim is None else np.stack(rows)
    assert counts.dtype == torch.int64 and (counts.numpy() == expected).all()


@BACKENDS
def test_histogram_meets_its_edges(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchpairwise.reductions._HELD_COUNTS", 50)
    X, Y = data(whole=True)
    S = tp.lazy(X, Y, "sqeuclidean", backend=backend)
    for bins in (1, 10, 33):
        counts, edges = S.histogram(bins)
        expected, numpy_edges = np.histogram(S.dense().detach().numpy(), bins)
        assert (counts.numpy() == expected).all() and np.allclose(edges, numpy_edges)
    inner = np.histogram(S.dense().detach().numpy(), 5, (1, 9))[0]
    assert (S.histogram(5, (1, 9)).counts.numpy() == inner).all()
    square = tp.lazy(X, metric="linear", backend=backend)
    others = square.dense()[~torch.eye(N, dtype=torch.bool)].detach().numpy()
    assert (square.histogram(6, exclude_self=True).counts.numpy() == np.histogram(others, 6)[0]).all()
    constant = tp.lazy(torch.zeros(2, 1), torch.zeros(3, 1), backend=backend)
    assert constant.histogram(2).counts.tolist() == [0, 6]
    batch = tp.lazy(torch.zeros(2, 1, 1), torch.tensor([[0.0], [1.0]]), "manhattan", backend=backend)
    assert batch.histogram(2, (0, 1)).counts.tolist() == [[1, 1], [1, 1]]


def test_histogram_ignores_nan_and_refuses_nonsense() -> None:
    S = tp.lazy(torch.zeros(1, 1), torch.tensor([[0.0], [math.nan], [2.0]]), "manhattan")
    for backend in ("native", "tiles"):
        T = tp.lazy(torch.zeros(1, 1), torch.tensor([[0.0], [math.nan], [2.0]]), "manhattan", backend=backend)
        assert T.histogram(2).counts.tolist() == [1, 1]
    for call, error, message in [
        (lambda: S.histogram(0), ValueError, "positive integer"),
        (lambda: S.histogram(3, (1, 1)), ValueError, "finite limits low < high"),
        (lambda: S.histogram(3, (0, math.inf)), ValueError, "finite limits low < high"),
        (lambda: tp.lazy(torch.zeros(0, 1), torch.zeros(2, 1)).histogram(3), ValueError, "no score to take it from"),
        (lambda: torch.ops.torchpairwise.histogram([torch.zeros(1, 1)], "linear 0 0", [], 2, -1, 1.0, 0.0), ValueError, "low < high"),
    ]:
        with pytest.raises(error, match=message):
            call()


# Softmax


@BACKENDS
@pytest.mark.parametrize("dim", [-1, -2])
def test_entropy(backend: str, dim: int) -> None:
    S, s, keep, leaves = masked(backend)
    p = torch.where(keep, s, -math.inf).softmax(dim)
    positive = torch.where(keep, p, 1.0)
    equal(S.entropy(dim), -(torch.where(keep, p, 0.0) * positive.log()).sum(dim), leaves)
    assert S.entropy(dim, keepdim=True).shape == s.sum(dim, keepdim=True).shape


@BACKENDS
def test_entropy_of_infinite_scores(backend: str) -> None:
    S = tp.lazy(torch.zeros(1, 1), torch.zeros(3, 1), "linear", backend=backend)
    assert S.add_columns(torch.tensor([0.0, -math.inf, 0.0])).entropy().item() == pytest.approx(math.log(2))
    assert S.add_columns(torch.full((3,), -math.inf)).entropy().item() == 0.0
    assert S.mask_columns(torch.zeros(3, dtype=torch.bool)).entropy().item() == 0.0
    assert S.add_columns(torch.tensor([0.0, math.inf, 0.0])).entropy().isnan()


@BACKENDS
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy(backend: str, reduction: str, smoothing: float, weighted: bool) -> None:
    X, Y = data()
    targets = torch.arange(N) * 5 % M
    targets[3] = -100
    weight = torch.linspace(0.5, 2, M, dtype=torch.float64) if weighted else None
    S = tp.lazy(X, Y, "linear", backend=backend)
    options: dict[str, Any] = {"weight": weight, "label_smoothing": smoothing, "reduction": reduction}
    expected = torch.nn.functional.cross_entropy(X @ Y.T, targets, **options)
    equal(S.cross_entropy(targets, **options), expected, (X, Y))
    equal(S.T.cross_entropy(targets, dim=-2, **options), expected, (X, Y))
    other = torch.where(targets == -100, 7, targets)
    equal(
        S.cross_entropy(other, ignore_index=7, **options),
        torch.nn.functional.cross_entropy(X @ Y.T, other, ignore_index=7, **options),
        (X, Y),
    )


@BACKENDS
def test_cross_entropy_with_batch_z_loss_and_softcap(backend: str) -> None:
    X, Y = data(batch=(3,))
    targets = torch.arange(3 * N).view(3, N) % M
    S = 5.0 * (tp.lazy(X, Y, "linear", backend=backend) / 5.0).tanh()
    s = 5.0 * (X @ Y.mT / 5.0).tanh()
    each = torch.nn.functional.cross_entropy(s.flatten(0, 1), targets.flatten(), reduction="none").view(3, N)
    each = each + 0.01 * s.logsumexp(-1).square()
    equal(S.cross_entropy(targets, z_loss=0.01), each.mean(-1), (X, Y))


def test_bad_cross_entropy() -> None:
    S = tp.lazy(torch.zeros(3, 1), torch.zeros(4, 1), "linear")
    good = torch.tensor([0, 1, 2])
    for call, error, message in [
        (lambda: S.cross_entropy(good, reduction="avg"), ValueError, "reduction='avg'"),
        (lambda: S.cross_entropy(good, label_smoothing=1.5), ValueError, "from 0 to 1"),
        (lambda: S.cross_entropy(good.float()), TypeError, "expected integer classes"),
        (lambda: S.cross_entropy(good[:2]), ValueError, r"expected \[..., 3\]"),
        (lambda: S.cross_entropy(torch.tensor([0, 1, 4])), IndexError, "targets run from 0 to 4"),
    ]:
        with pytest.raises(error, match=message):
            call()
    assert S.cross_entropy(torch.full((3,), -100)).isnan() and S.cross_entropy(torch.full((3,), -100), reduction="sum") == 0


# Selections


@BACKENDS
@pytest.mark.parametrize("dim", [-1, -2])
def test_kth_value(backend: str, dim: int) -> None:
    X, Y = data()
    S, s = tp.lazy(X, Y, "sqeuclidean", backend=backend), torch.cdist(X, Y).square()
    for k in (1, 4, s.shape[dim]):
        expected = s.kthvalue(k, dim, True)
        equal(S.kth_value(k, dim, True).values, expected.values, (X, Y))
        assert torch.equal(S.kth_value(k, dim).indices, expected.indices.squeeze(dim))
    for k in (0, 99):
        with pytest.raises(ValueError, match="k=" + str(k)):
            S.kth_value(k)


@BACKENDS
@pytest.mark.parametrize("dim", [-1, -2])
def test_rank_of(backend: str, dim: int) -> None:
    X, Y = data(whole=True)
    S, s = tp.lazy(X, Y, "linear", backend=backend), X @ Y.T
    given = s.select(dim, 5)
    for largest in (True, False):
        better = (s > given.unsqueeze(dim)) if largest else (s < given.unsqueeze(dim))
        assert torch.equal(S.rank_of(given, dim, largest), better.sum(dim))
        several = torch.stack([given, given + 1], -1)
        assert torch.equal(S.rank_of(several, dim, largest)[..., 0], better.sum(dim))
    with pytest.raises(ValueError, match="expected a tensor"):
        S.rank_of(torch.zeros(5))


@BACKENDS
@pytest.mark.parametrize("held", [2**21, 30])
def test_radius(backend: str, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchpairwise.selections._HELD_CANDIDATES", held)
    X = data(whole=True)[0]
    S, s = tp.lazy(X, metric="sqeuclidean", backend=backend), torch.cdist(X, X).square()
    for radius in (-1.0, 0.0, 3.0, 100.0):
        for exclude in (False, True):
            within = (s.round() <= radius) & ~(torch.eye(N, dtype=torch.bool) & exclude)
            crow, columns, values = S.radius(radius, exclude_self=exclude)
            matrix = torch.sparse_csr_tensor(crow, columns, torch.ones_like(values.detach()), size=(N, N)).to_dense()
            assert torch.equal(matrix.bool(), within)
            equal(values, s[within])
            by_value = S.radius(radius, sort="value", exclude_self=exclude)
            for i in range(N):
                part = slice(crow[i], crow[i + 1])
                assert (by_value.values[part].diff() >= 0).all()
                assert by_value.col_indices[part].sort().values.equal(within[i].nonzero().flatten())
    near = S.radius(3.0)
    equal(near.values, s[s.round() <= 3.0], (X,))
    with pytest.raises(ValueError, match="sort='row'"):
        S.radius(1.0, sort="row")
    with pytest.raises(ValueError, match="have no batch"):
        tp.lazy(torch.zeros(2, 3, 1)).radius(1.0)


@BACKENDS
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_top_pairs(backend: str, largest: bool, whole: bool) -> None:
    X = data(whole=whole)[0]
    S, s = tp.lazy(X, metric="linear", backend=backend), X @ X.T
    for upper in (False, True):
        allowed = torch.ones(N, N, dtype=torch.bool).triu(1) if upper else ~torch.eye(N, dtype=torch.bool)
        places = allowed.flatten().nonzero().flatten()
        for k in (0, 1, 7, len(places)):
            order = (-s if largest else s).flatten()[places].argsort(stable=True)[:k]
            got = S.top_pairs(k, largest, upper=upper, exclude_self=True)
            assert torch.equal(got.rows * N + got.columns, places[order])
            equal(got.values, s.flatten()[places[order]], (X,) if k else ())
    for k in (-1, N * N + 1):
        with pytest.raises(ValueError, match="the number of pairs"):
            S.top_pairs(k)
    with pytest.raises(ValueError, match="for each batch entry"):
        tp.lazy(torch.zeros(2, 3, 1)).top_pairs(1)


def test_top_pairs_rank_nan_last() -> None:
    S = tp.lazy(torch.tensor([[math.nan], [1.0]]), torch.tensor([[1.0], [2.0]]), "linear")
    assert S.top_pairs(3).rows.tolist() == [1, 1, 0] and S.top_pairs(4, False).rows.tolist() == [1, 1, 0, 0]


@BACKENDS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("whole", [True, False])
def test_quantile(backend: str, dtype: torch.dtype, whole: bool) -> None:
    X, Y = (x.detach().to(dtype) for x in data(whole=whole))
    for S in (tp.lazy(X, Y, "linear", backend=backend), tp.lazy(X, Y, "linear", backend=backend).masked(tp.masks.causal()) * 1e-20):
        dense = S.dense(math.nan)
        scores = dense[~dense.isnan()].double().numpy()
        levels = torch.tensor([0.0, 0.013, 0.5, 0.77, 1.0], dtype=torch.float64)
        got = S.quantile(levels)
        assert got.dtype == dtype
        np.testing.assert_allclose(
            got.double(), np.quantile(scores, levels.numpy()), rtol=1e-6 if dtype == torch.float32 else 1e-12, atol=0
        )
        assert S.median() == S.quantile(0.5)
    D = tp.lazy(X, metric="euclidean", backend=backend)
    assert D.quantile(0.0, exclude_self=True) == D.min(exclude_self=True)


def test_quantile_of_batches_and_of_nonsense() -> None:
    X, Y = (x.detach() for x in data(batch=(2,)))
    r = torch.arange(float(N), dtype=torch.float64)
    S = tp.lazy(X, Y[:1], "linear").add_rows(r).masked(tp.masks.same_group(torch.arange(N) % 2, torch.arange(M) % 2))
    S = S.bias_table(torch.zeros(3, dtype=torch.float64), tp.masks.relative_position(1))
    dense = S.dense(math.nan)
    expected = [np.nanquantile(entry.numpy(), [0.25, 0.5]) for entry in dense]
    np.testing.assert_allclose(S.quantile(torch.tensor([0.25, 0.5])), expected)
    assert S.median().shape == (2,)
    bad = tp.lazy(torch.zeros(1, 1), torch.tensor([[0.0], [math.nan]]), "manhattan")
    assert bad.median().isnan() and tp.lazy(torch.zeros(1, 1), torch.tensor([[math.nan]])).median().isnan()
    for call, message in [
        (lambda: S.quantile(1.5), "from 0 to 1"),
        (lambda: tp.lazy(torch.zeros(1, 1), torch.tensor([[math.inf]]), "manhattan").median(), "quantiles need finite ones"),
        (lambda: tp.lazy(torch.zeros(1, 1)).median(exclude_self=True), "no pair to take a quantile of"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


@BACKENDS
@pytest.mark.parametrize("dim", [-1, -2])
@pytest.mark.parametrize("op", ["sum", "mean", "min", "max", "logsumexp", "count"])
def test_group_reduce(backend: str, dim: int, op: str) -> None:
    X, Y = data()
    S, s = tp.lazy(X, Y, "linear", backend=backend), X @ Y.T
    s = s if dim == -1 else s.T
    labels = torch.arange(s.shape[-1]) * 7 % 5
    labels = torch.where(labels == 3, 4, labels)  # group 3 is empty
    columns = []
    for g in range(6):
        part = s[:, labels == g]
        empty = {"sum": 0.0, "mean": math.nan, "min": math.inf, "max": -math.inf, "logsumexp": -math.inf, "count": 0}[op]
        if part.shape[1] == 0:
            columns.append(torch.full((s.shape[0],), empty, dtype=torch.int64 if op == "count" else s.dtype))
        elif op == "count":
            columns.append(torch.full((s.shape[0],), part.shape[1]))
        else:
            columns.append({"min": part.amin, "max": part.amax, "sum": part.sum, "mean": part.mean, "logsumexp": part.logsumexp}[op](-1))
    expected = torch.stack(columns, -1)
    got = S.group_reduce(labels, op, 6, dim=dim)
    torch.testing.assert_close(got, expected, equal_nan=True)
    if op != "count":
        finite = expected.isfinite()
        equal(got[finite], expected[finite], (X, Y))
    assert S.group_reduce(labels, op, dim=dim).shape[-1] == 5


def test_group_reduce_of_others_and_of_nonsense() -> None:
    X = data()[0]
    S, labels = tp.lazy(X, metric="linear"), torch.arange(N) % 2
    others = torch.where(torch.eye(N, dtype=torch.bool), 0.0, X @ X.T)
    expected = torch.stack([others[:, labels == g].sum(-1) for g in (0, 1)], -1)
    equal(S.group_reduce(labels, exclude_self=True), expected, (X,))
    assert S.group_reduce(labels, n_groups=2).shape == (N, 2)
    for call, error, message in [
        (lambda: S.group_reduce(labels, "median"), ValueError, "op='median'"),
        (lambda: S.group_reduce(labels.float()), TypeError, "expected integers"),
        (lambda: S.group_reduce(labels[:3]), ValueError, rf"expected \[{N}\]"),
        (lambda: S.group_reduce(labels, n_groups=1), IndexError, "expected 0 to 0 for 1 groups"),
    ]:
        with pytest.raises(error, match=message):
            call()


# Algebra


@BACKENDS
@pytest.mark.parametrize("batch", [(), (2,)])
def test_forms_and_products(backend: str, batch: tuple[int, ...]) -> None:
    X, Y = data(batch=batch)
    S, s = tp.lazy(X, Y, "linear", backend=backend), X @ Y.mT
    u, v = torch.linspace(-1, 1, N, dtype=torch.float64), torch.linspace(0, 2, M, dtype=torch.float64)
    equal(S.quadratic_form(u, v), s.mT.matmul(u).matmul(v) if batch else u @ s @ v, (X, Y))
    equal(S.rmatmul(u[:, None]), s.mT @ u[:, None], (X, Y))
    equal(S.displacement(), s @ Y - X * s.sum(-1, keepdim=True), (X, Y))
    equal(S.T.displacement(), s.mT @ X - Y * s.mT.sum(-1, keepdim=True), (X, Y))
    K, k = tp.lazy(X, metric="linear", backend=backend), X @ X.mT
    equal(K.trace(), k.diagonal(dim1=-2, dim2=-1).sum(-1), (X,))
    equal(K.quadratic_form(u), (u * k.matmul(u)).sum(-1), (X,))
    equal(K.displacement(X**2), k @ X**2 - X**2 * k.sum(-1, keepdim=True), (X,))
    with pytest.raises(ValueError, match=r"quadratic_form\(u\)"):
        S.quadratic_form(v)


def test_svgd_as_printed() -> None:
    """The direction of page one: kernel product and displacement against the written double sum."""
    X = data()[0].detach()
    score, gamma = -X, 0.3
    K = tp.lazy(X, metric="rbf", gamma=gamma)
    got = (K @ score - 2 * gamma * K.displacement()) / N
    k = torch.exp(-gamma * torch.cdist(X, X).square())
    expected = sum(k[j][:, None] * score[j] + (-2 * gamma * k[j][:, None] * (X[j] - X)) for j in range(N)) / N
    torch.testing.assert_close(got, expected)


def test_displacement_needs_features() -> None:
    X = data()[0]
    for S in (tp.lazy(X, metric="rbf", gamma=torch.ones(3, dtype=torch.float64)), tp.lazy(X, metric="cosine"), tp.eye_like(tp.lazy(X))):
        with pytest.raises(ValueError, match="Give values=X"):
            S.displacement()


@BACKENDS
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
def test_frobenius_inner_product(backend: str, center: bool, normalize: bool) -> None:
    X, _ = data()
    Z = (X.detach()[:, :2] ** 2).requires_grad_()
    K, L = tp.lazy(X, metric="rbf", backend=backend), tp.lazy(Z, metric="linear", backend=backend)
    k, el = torch.exp(-torch.cdist(X, X).square() / 3), Z @ Z.T
    if center:
        H = torch.eye(N, dtype=torch.float64) - 1 / N
        k, el = H @ k @ H, H @ el @ H
    expected = (k * el).sum() / (k.norm() * el.norm() if normalize else 1.0)
    equal(K.frobenius_inner_product(L, center=center, normalize=normalize), expected, (X, Z))
    constant = tp.lazy(torch.zeros(N, 1, dtype=torch.float64), metric="linear", backend=backend)
    assert K.frobenius_inner_product(constant, center=center, normalize=normalize) == 0
    with pytest.raises(TypeError, match="expected a lazy expression"):
        K.frobenius_inner_product(k)


@BACKENDS
def test_centered_and_normalized(backend: str) -> None:
    X, Y = data()
    S, s = tp.lazy(X, Y, "rbf", backend=backend), torch.exp(-torch.cdist(X, Y).square() / 3)
    equal(S.centered().dense(), s - s.mean(-1, True) - s.mean(-2, True) + s.mean(), (X, Y))
    equal(S.normalized("row").dense(), s / s.sum(-1, True), (X, Y))
    equal(S.normalized().dense(), s / s.sum(-1, True).sqrt() / s.sum(-2, True).sqrt(), (X, Y))
    nothing = tp.lazy(torch.zeros(2, 1), metric="linear", backend=backend)
    assert (nothing.normalized().dense() == 0).all() and (nothing.normalized("row").dense() == 0).all()
    with pytest.raises(ValueError, match="'symmetric' or 'row'"):
        S.normalized("column")
    with pytest.raises(ValueError, match="mask the centred one"):
        S.masked(tp.masks.causal()).centered()


@BACKENDS
@pytest.mark.parametrize("estimator", ["u", "v"])
def test_hsic(backend: str, estimator: str) -> None:
    X, _ = data()
    Z = (X.detach()[:, :2] ** 2).requires_grad_()
    K, L = tp.lazy(X, metric="rbf", backend=backend), tp.lazy(Z, metric="linear", backend=backend)

    def written(k: Tensor, el: Tensor) -> Tensor:
        if estimator == "v":
            H = torch.eye(N, dtype=torch.float64) - 1 / N
            return (k @ H @ el @ H).trace() / (N - 1) ** 2
        k, el = (x - x.diagonal().diag() for x in (k, el))
        one = torch.ones(N, dtype=torch.float64)
        total = (one @ k @ one) * (one @ el @ one) / ((N - 1) * (N - 2))
        return ((k @ el).trace() + total - 2 / (N - 2) * (one @ k @ el @ one)) / (N * (N - 3))

    k, el = torch.exp(-torch.cdist(X, X).square() / 3), Z @ Z.T
    equal(K.hsic(L, estimator=estimator), written(k, el), (X, Z))
    equal(K.hsic(L, estimator=estimator, normalize=True), written(k, el) / (written(k, k) * written(el, el)).sqrt(), (X, Z))
    constant = tp.lazy(torch.zeros(N, 1, dtype=torch.float64), metric="linear", backend=backend)
    assert K.hsic(constant, estimator=estimator, normalize=True) == 0


def test_bad_hsic() -> None:
    K = tp.lazy(torch.zeros(3, 1))
    for call, error, message in [
        (lambda: K.hsic(K), ValueError, "at least 4 samples; there are 3"),
        (lambda: K.hsic(K, estimator="b"), ValueError, "estimator='b'"),
        (lambda: K.hsic(tp.lazy(torch.zeros(4, 1))), ValueError, "same N samples"),
        (lambda: K.hsic(torch.zeros(3, 3)), TypeError, "expected a lazy kernel"),
    ]:
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize("name", ["reductions", "selections", "algebra"])
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"torchpairwise.{name}")).failed == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_comes_back(dtype: torch.dtype) -> None:
    X, Y = (x.detach().to(dtype) for x in data())
    S = tp.lazy(X, Y, "sqeuclidean")
    labels = torch.arange(M) % 2
    for result in (
        S.var(-1),
        S.norm(),
        S.entropy(),
        S.quantile(0.3),
        S.cross_entropy(torch.zeros(N, dtype=torch.long)),
        S.normalized().sum(),
    ):
        assert result.dtype == dtype and result.isfinite().all()
    assert S.group_reduce(labels).dtype == dtype and S.displacement().dtype == dtype and S.count(1.0).dtype == torch.int64
    assert (
        S.radius(2.0).values.dtype == dtype and S.frobenius_inner_product(S).dtype == dtype and S.rank_of(S.max(-1).values).max() <= 1
    )  # the value was rounded
