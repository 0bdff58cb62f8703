"""Inputs that broke other libraries, by the number under which we keep them; more of them stand beside what they belong to
(test_rules.py, test_gradients.py, test_sinkhorn.py, test_box_qp.py, test_statistics.py)."""

from __future__ import annotations

import copy
import io
import math
import multiprocessing
import pickle
import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import torchpairwise as tp

BACKENDS = pytest.mark.parametrize("backend", ["native", "tiles"])
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def randn(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


# Distances


@BACKENDS
@pytest.mark.parametrize("n", [1, 64])
def test_bc_002_small_distance_far_from_zero(backend: str, n: int) -> None:
    a, b = torch.tensor([[48.13, 90.27, -37.66]]), torch.tensor([[48.13, 90.2731, -37.641]])
    exact = (a.double() - b.double()).norm().item()
    X, Y = a.expand(n, 3).repeat(1, 7), b.expand(n, 3).repeat(1, 7)  # 3 and, by the product form, 21 features
    for x, y, factor in ((a.expand(n, 3), b.expand(n, 3), 1.0), (X, Y, math.sqrt(7))):
        D = tp.lazy(x, y, "euclidean", backend=backend).dense()
        assert (D - exact * factor).abs().max() <= 1e-4 * exact * factor


@BACKENDS
def test_bc_005_same_value_in_every_call(backend: str) -> None:
    X, Y = randn(90, 37, dtype=torch.float32), randn(310, 37, dtype=torch.float32, seed=1)
    Y[207] = X[61]
    Y[207, 0] += 4e-4
    single = tp.lazy(X[61:62], Y[207:208], "euclidean", backend=backend).dense().item()
    assert single == pytest.approx((X[61] - Y[207]).double().norm().item(), rel=1e-5)
    for chunk in (None, 1, 50, 1000) if backend == "tiles" else (None,):
        D = tp.lazy(X, Y, "euclidean", chunk_size=chunk, **({} if chunk else {"backend": backend}))
        assert D.dense()[61, 207].item() == pytest.approx(single, rel=3e-7)
        assert D.min(-1).values[61].item() == pytest.approx(single, rel=3e-7)
    X.requires_grad_()
    assert torch.autograd.grad(tp.lazy(X, Y, "euclidean", backend=backend).sum(), X)[0].isfinite().all()


@BACKENDS
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("n", [3, 40])
def test_bc_007_half_precision_at_every_size(backend: str, dtype: torch.dtype, n: int) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.rand(size, 3000, generator=generator).to(dtype) for size in (1, n))
    exact = (a.double() - b.double()).norm(dim=-1)[None]
    D = tp.lazy(a, b, "euclidean", backend=backend).dense()
    ulp = torch.finfo(dtype).eps * 2 ** exact.log2().floor()
    assert D.dtype == dtype and ((D.double() - exact).abs() <= 0.51 * ulp).all()


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.int16])
def test_bc_008_integers_never_wrap(dtype: torch.dtype) -> None:
    X, Y = torch.tensor([[100, 120]], dtype=dtype), torch.tensor([[98, 2]], dtype=dtype)
    assert tp.lazy(X, Y, "manhattan").sum() == 120 and tp.lazy(X, Y, "sqeuclidean").sum() == 4 + 118**2
    assert tp.lazy(Y, X, "manhattan").sum() == 120 and tp.lazy(X, Y).dtype == torch.get_default_dtype()
    wide = torch.tensor([[400, 900], [398, 650]], dtype=torch.int64)
    assert tp.lazy(wide[:1], wide[1:], "euclidean").sum().item() == pytest.approx(250.008, rel=1e-6)
    flags = torch.tensor([[True, False]])
    assert tp.lazy(flags, ~flags, "manhattan").sum() == 2


@BACKENDS
@DTYPES
def test_bc_010_no_hidden_epsilon(backend: str, dtype: torch.dtype) -> None:
    x = randn(1, 6, dtype=dtype)
    t = torch.linspace(-1e-5, 1e-5, 21, dtype=dtype)[:, None]
    Y = x + t * torch.eye(6, dtype=dtype)[0]
    D = tp.lazy(x, Y, "euclidean", backend=backend).dense()[0]
    assert D[10] == 0 and D.argmin() == 10
    torch.testing.assert_close(D, (Y - x).norm(dim=-1), rtol=1e-6, atol=0)


@BACKENDS
def test_bc_011_gradients_of_single_pairs(backend: str) -> None:
    for _ in range(20):
        x, y = torch.tensor([[0.2]], requires_grad=True), torch.tensor([[0.9], [1.7]], requires_grad=True)
        dx, dy = torch.autograd.grad(tp.lazy(x, y, "euclidean", backend=backend).dense()[0, 0], (x, y))
        assert dx.item() == -1 and dy.flatten().tolist() == [1.0, 0.0]


@BACKENDS
@DTYPES
@pytest.mark.parametrize("d", [1, 2, 3, 16, 17, 31, 32, 33, 63, 64, 65, 99, 100, 101, 128, 129, 257])
def test_bc_031_every_number_of_features(backend: str, dtype: torch.dtype, d: int) -> None:
    X, Y = randn(19, d, dtype=dtype), randn(37, d, dtype=dtype, seed=1)
    exact = (X.double()[:, None] - Y.double()).square().sum(-1)
    torch.testing.assert_close(tp.lazy(X, Y, backend=backend).dense().double(), exact, rtol=1e-5, atol=0)
    K = torch.exp(-exact / d)
    for c in (1, 2, 4, 5, 16, 17, 64, 65) if d in (3, 33) else (3,):
        V = randn(37, c, dtype=dtype, seed=2)
        torch.testing.assert_close((tp.lazy(X, Y, "rbf", backend=backend) @ V).double(), K @ V.double(), rtol=1e-4, atol=1e-5)


# Gradients


@BACKENDS
@pytest.mark.parametrize("layout", ["strided", "transposed", "expanded", "offset"])
def test_bc_016_strides_with_gradients(backend: str, layout: str) -> None:
    def make(n: int, seed: int) -> Tensor:
        base = randn(n, 16, 7, seed=seed)
        if layout == "strided":
            return base[:, 0, :]
        if layout == "transposed":
            return base[:, 0, :].t().contiguous().t()
        return base[:1, 0].expand(n, 7) if layout == "expanded" else base.flatten()[5 : 5 + 7 * n].view(n, 7)

    found = []
    for copied in (False, True):
        x, y = (make(n, seed).detach() for n, seed in ((3, 1), (5, 2)))
        x, y = (x.contiguous(), y.contiguous()) if copied else (x, y)
        leaves = (x.requires_grad_(), y.requires_grad_())
        D = tp.lazy(*leaves, "euclidean", backend=backend)
        found.append(torch.autograd.grad(D.logsumexp(-1).sum() + D.sum(), leaves))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


@BACKENDS
def test_bc_017_batched_second_gradients(backend: str) -> None:
    x, y, v = (randn(4, 5, 3, seed=s).requires_grad_() for s in range(3))

    def second(x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        (g,) = torch.autograd.grad((tp.lazy(x, y, "rbf", backend=backend) @ v).sum(), x, create_graph=True)
        return torch.autograd.grad(g.square().sum(), y)[0]

    expected = torch.stack([second(x[i], y[i], v[i]) for i in range(4)])
    torch.testing.assert_close(second(x, y, v), torch.autograd.grad(torch.zeros((), requires_grad=True) + (y * 0).sum(), y)[0] + expected)


@BACKENDS
def test_bc_029_changes_in_place_are_noticed(backend: str) -> None:
    for change in (0, 1, 2, 3):
        tensors = [randn(4, 2), randn(5, 2, seed=1), randn(5, 3, seed=2), randn(4, seed=3)]
        leaves = [t.clone().requires_grad_() for t in tensors]
        S = tp.lazy(leaves[0], leaves[1], "rbf", backend=backend).add_rows(leaves[3])
        loss = (S @ leaves[2]).square().sum()
        with torch.no_grad():
            leaves[change].add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


@BACKENDS
@pytest.mark.parametrize("masked", [False, True])
def test_bc_043_gradient_penalty_on_attention(backend: str, masked: bool) -> None:
    q, k, v = (randn(16, 8, seed=s).requires_grad_() for s in range(3))
    S = tp.lazy(q, k, "linear", backend=backend) * 0.3
    out = S.softmax_matmul(v, mask=tp.masks.causal() if masked else None)
    s = 0.3 * q @ k.T
    dense = (s.masked_fill(~torch.ones(16, 16).tril().bool(), -math.inf) if masked else s).softmax(-1) @ v
    penalties = []
    for result in (out, dense):
        gradients = torch.autograd.grad(result.square().sum(), (q, k, v), create_graph=True)
        penalties.append(torch.autograd.grad(sum(g.square().sum() for g in gradients), (q, k, v)))
    for a, b in zip(*penalties, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


@BACKENDS
def test_bc_044_learned_scalars_and_biases(backend: str) -> None:
    X, Y = randn(6, 3), randn(7, 3, seed=1)
    r, c = randn(6, 1, seed=2).requires_grad_(), randn(1, 7, seed=3).requires_grad_()
    table = randn(13, seed=4).requires_grad_()
    index = torch.arange(7) - torch.arange(6)[:, None] - 1 + 6
    for s in (torch.tensor(0.7, dtype=torch.float64, requires_grad=True), torch.tensor([0.7], dtype=torch.float64, requires_grad=True)):
        S = (tp.lazy(X, Y, "linear", backend=backend) * s + r + c).bias_table(table, tp.masks.relative_position(6))
        dense = (X @ Y.T) * s + r + c + table[index]
        leaves = (s, r, c, table)
        first, second = (torch.autograd.grad(S.logsumexp(-1).sum(), leaves) for _ in range(2))
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
        for a, b in zip(first, torch.autograd.grad(dense.logsumexp(-1).sum(), leaves), strict=True):
            torch.testing.assert_close(a, b)


def test_bc_113_inputs_expanded_in_the_batch() -> None:
    x, y = randn(1, 50, 3).requires_grad_(), randn(50, 3, seed=1).requires_grad_()
    wide = x.expand(8, 50, 3)
    weight = torch.arange(8.0, dtype=torch.float64)[:, None]
    gradients = torch.autograd.grad((tp.lazy(wide, y, "rbf").logsumexp(-1) * weight).sum(), (x, y))
    single = torch.autograd.grad(tp.lazy(x[0], y, "rbf").logsumexp(-1).sum() * 28, (x, y))
    for a, b in zip(gradients, single, strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b)


@BACKENDS
@pytest.mark.parametrize("n", [1, 7, 8, 9])
@pytest.mark.parametrize("chunk", [1, 8, 100])
def test_bc_115_last_chunks_and_size_one(backend: str, n: int, chunk: int) -> None:
    X, Y = randn(n, 2), randn(n, 2, seed=1)
    S = tp.lazy(X, Y, "linear", chunk_size=chunk) if backend == "tiles" else tp.lazy(X, Y, "linear", backend=backend)
    s = X @ Y.T
    torch.testing.assert_close(S.logsumexp(-1), s.logsumexp(-1))
    torch.testing.assert_close(S.topk(1).values, s.max(-1, keepdim=True).values)
    torch.testing.assert_close(S.sum(-2), s.sum(-2))


@BACKENDS
def test_bc_116_one_side_with_gradients(backend: str) -> None:
    X, Y = randn(5, 2), randn(6, 2, seed=1)
    for with_x in (True, False):
        x, y = X.clone().requires_grad_(with_x), Y.clone().requires_grad_(not with_x)
        tp.lazy(x, y, "euclidean", backend=backend).logsumexp(-1).sum().backward()
        assert (x.grad is None) != with_x and (y.grad is None) == with_x
        x.detach_()
        y.detach_()
        assert not tp.lazy(x, y, "euclidean", backend=backend).sum().requires_grad


# Masks and infinite scores


@BACKENDS
def test_bc_038_logsumexp_of_infinite_scores(backend: str) -> None:
    zeros = torch.zeros(4, 3, dtype=torch.float64, requires_grad=True)
    r = torch.tensor([-math.inf, math.inf, 0.0, 0.0], dtype=torch.float64)
    c = torch.tensor([0.0, -math.inf, 0.0, 0.0, 0.0], dtype=torch.float64)
    S = tp.lazy(zeros, torch.ones(5, 3, dtype=torch.float64), "linear", backend=backend).add_rows(r).add_columns(c)
    result = S.mask_columns(torch.tensor([True, True, True, True, False])).logsumexp(-1)
    assert result[0] == -math.inf and result[1].isnan() or result[1] == math.inf
    torch.testing.assert_close(result[2:], torch.full((2,), math.log(3), dtype=torch.float64))
    (gradient,) = torch.autograd.grad(result[[0, 2, 3]].sum(), zeros)
    assert (gradient[0] == 0).all() and gradient[2:].isfinite().all()
    one = tp.lazy(zeros, torch.ones(5, 3, dtype=torch.float64), "linear", backend=backend).add_rows(r)
    assert one.logsumexp(-1)[0] == -math.inf and one.logsumexp(-1)[1] == math.inf
    parts = torch.stack([one[:, :2].logsumexp(-1), one[:, 2:].logsumexp(-1)])
    torch.testing.assert_close(parts.logsumexp(0), one.logsumexp(-1))
    (gradient,) = torch.autograd.grad(one.logsumexp(-1).sum(), zeros)
    assert (gradient[:2] == 0).all() and gradient.isfinite().all()


@BACKENDS
@pytest.mark.parametrize(("dtype", "bias"), [(torch.float32, -3.4028e38), (torch.float16, -65504.0)])
def test_bc_040_very_negative_finite_bias(backend: str, dtype: torch.dtype, bias: float) -> None:
    X, Y, V = (randn(n, 3, seed=s).to(dtype) for n, s in ((4, 0), (6, 1), (6, 2)))
    rows = torch.tensor([0.0, bias, 0.0, 0.0], dtype=dtype)
    S = tp.lazy(X, Y, "linear", backend=backend)
    out = S.add_rows(rows).softmax_matmul(V)
    other = S.add_columns(torch.full((6,), bias, dtype=dtype)).softmax_matmul(V)
    assert out.isfinite().all() and other.isfinite().all()
    mean = V.float().mean(0)
    if dtype == torch.float32:  # all scores of the row round to the bias
        torch.testing.assert_close(out[1], mean)
        torch.testing.assert_close(other, mean.expand(4, 3))
    torch.testing.assert_close(out[0].float(), (X.float() @ Y.float().T).softmax(-1)[0] @ V.float(), rtol=1e-2, atol=1e-2)


# Selections


@BACKENDS
def test_bc_055_cosine_neighbours(backend: str) -> None:
    X = torch.tensor([[2.0, 3.0], [-2.0, 3.0], [2.0, -3.0], [-2.0, -3.0]])
    found = tp.lazy(X, metric="cosine_distances", backend=backend).topk(2, largest=False, exclude_self=True)
    assert found.indices.tolist() == [[1, 2], [0, 3], [3, 0], [2, 1]]
    torch.testing.assert_close(found.values, torch.tensor([[1 - 5 / 13, 1 + 5 / 13]]).expand(4, 2))


@BACKENDS
@pytest.mark.parametrize("k", [100, 101, 1024, 2048, 2049, 5000])
def test_bc_056_large_k(backend: str, k: int) -> None:
    X, Y = randn(3, 4).mul(4).round().float(), randn(5000, 4, seed=1).mul(4).round().float()
    S = tp.lazy(X, Y, "linear", backend=backend)
    order = S.dense().sort(dim=-1, descending=True, stable=True)
    found = S.topk(k)
    assert torch.equal(found.values, order.values[:, :k]) and torch.equal(found.indices, order.indices[:, :k])


@BACKENDS
def test_bc_059_chamfer_with_an_empty_cloud(backend: str) -> None:
    X = randn(2, 3, 2).requires_grad_()
    D = tp.lazy(X, torch.zeros(2, 0, 2, dtype=torch.float64), backend=backend)
    with pytest.raises(ValueError, match=r"M \(dim=-1\) is 0"):
        D.min(-1)
    D = tp.lazy(X, randn(2, 4, 2, seed=1), backend=backend).mask_columns(torch.tensor([[True] * 4, [False] * 4]))
    values = D.min(-1).values
    assert (values[1] == math.inf).all() and values[0].isfinite().all()
    (gradient,) = torch.autograd.grad(values[0].sum() + torch.where(values[1].isfinite(), values[1], 0.0).sum(), X)
    assert (gradient[1] == 0).all() and gradient.isfinite().all()


# Sizes, dtypes, devices


def test_bc_023_memory_of_large_problems() -> None:
    """A gradient whose dense intermediates would take gigabytes: 180 x 180 x 15000 differences."""
    X = randn(180, 15000, dtype=torch.float32).requires_grad_()
    (gradient,) = torch.autograd.grad(tp.lazy(X, metric="euclidean").sum(), X)
    assert gradient.shape == X.shape and gradient.isfinite().all()


def test_bc_025_more_than_2_to_the_31_pairs() -> None:
    n = 46400
    X = torch.zeros(n, 1)
    X[-1] = 1.0
    sums = tp.lazy(X, torch.ones(n, 1), "linear").sum(-1)
    assert sums[-1] == n and (sums[:-1] == 0).all()


def test_bc_026_offsets_beyond_2_to_the_31() -> None:
    """Rows whose strides reach past 2^31 elements, in storage that is not touched in between."""
    step = 2**31 // 3
    storage = torch.empty(3 * step + 16, dtype=torch.bool).untyped_storage()  # 2 GiB of address space
    base = torch.empty(0, dtype=torch.uint8).set_(storage)  # type: ignore[call-overload]
    index = torch.as_strided(base, (4, 2), (step, 1))
    index.copy_(torch.tensor([[1, 2], [3, 4], [5, 6], [7, 8]]))
    S = tp.lazy(index, torch.ones(3, 2, dtype=torch.uint8), "linear")
    assert S.sum(-1).tolist() == [9.0, 21.0, 33.0, 45.0]


def test_bc_032_devices_are_named() -> None:
    X, meta = torch.zeros(3, 2), torch.zeros(3, 2, device="meta")
    for call in (lambda: tp.lazy(X, meta), lambda: tp.lazy(X).matmul(meta), lambda: tp.lazy(X).add_rows(meta[:, 0])):
        with pytest.raises(ValueError, match="meta.*cpu|cpu.*meta"):
            call()


def test_bc_034_mixed_dtypes() -> None:
    X, Y = torch.zeros(3, 2), torch.zeros(3, 2, dtype=torch.float64)
    for call in (lambda: tp.lazy(X, Y), lambda: tp.lazy(X) @ Y, lambda: tp.lazy(X).add_rows(Y[:, 0])):
        with pytest.raises(TypeError, match="float32.*float64|float64.*float32"):
            call()
    with pytest.raises(ValueError, match="boolean"):
        tp.lazy(X).mask_rows(torch.ones(3, dtype=torch.uint8))
    for gamma in (0.5, torch.tensor(0.5, dtype=torch.float64), np.float64(0.5), np.float32(0.5)):
        assert tp.lazy(X, metric="rbf", gamma=gamma).sum().dtype == torch.float32


def test_bc_089_reductions_with_batches() -> None:
    X, Y = randn(5, 1, 3, 2), randn(4, 6, 2, seed=1)
    S, dense = tp.lazy(X, Y, "linear"), X @ Y.mT
    torch.testing.assert_close(S.sum(-1), dense.sum(-1))
    torch.testing.assert_close(S.sum((-2, -1)), dense.sum((-2, -1)))
    torch.testing.assert_close(S.sum(3), dense.sum(3))
    for dim in (0, 1, -3):
        with pytest.raises(ValueError, match="expected -1"):
            S.sum(dim)


# Life of objects


def test_bc_035_copies_of_everything() -> None:
    X, Y = randn(4, 2).requires_grad_(), randn(5, 2, seed=1)
    S = tp.lazy(X, Y, "rbf", gamma=torch.tensor(0.3, dtype=torch.float64)).add_rows(X[:, 0].detach()).masked(tp.masks.causal())
    S = S.bias_table(torch.zeros(3, dtype=torch.float64), tp.masks.relative_position(1)).where(tp.masks.band(2, 2), 0.5)
    expected = S.logsumexp(-1)
    expected.sum().backward()
    file = io.BytesIO()
    torch.save(S, file)
    file.seek(0)
    for other in (pickle.loads(pickle.dumps(S)), copy.deepcopy(S), torch.load(file, weights_only=False)):
        torch.testing.assert_close(other.logsumexp(-1), expected)
        assert other.shape == S.shape and other.requires_grad


def test_bc_088_changed_parameters_are_used() -> None:
    q, k, v = (randn(4, 3, dtype=torch.float32, seed=s) for s in range(3))
    gamma = torch.tensor(0.2, requires_grad=True)
    first = (tp.lazy(q, k, "rbf", gamma=gamma) @ v).detach()
    with torch.no_grad():
        gamma.mul_(3)
    second = tp.lazy(q, k, "rbf", gamma=gamma) @ v
    torch.testing.assert_close(second, tp.lazy(q, k, "rbf", gamma=0.6) @ v)
    assert not torch.equal(first, second)


# Compilation


@pytest.mark.parametrize("name", ["topk", "argmin", "matmul"])
def test_bc_046_dynamic_sizes_are_captured(name: str) -> None:
    def call(x: Tensor, y: Tensor, v: Tensor) -> Any:
        S = tp.lazy(x, y)
        return {"topk": lambda: S.topk(3, largest=False).values, "argmin": lambda: S.argmin(-1), "matmul": lambda: S @ v}[name]()

    torch._dynamo.reset()  # the limit of recompilations counts those of other tests
    compiled = torch.compile(call, fullgraph=True, dynamic=True)
    for n, m in ((6, 8), (9, 5), (2, 4)):
        x, y, v = randn(n, 2), randn(m, 2, seed=1), randn(m, 3, seed=2)
        torch.testing.assert_close(compiled(x, y, v), call(x, y, v))
    x, y, v = randn(1, 2), randn(4, 2, seed=1), randn(4, 3, seed=2)
    torch.testing.assert_close(torch.compile(call, fullgraph=True)(x, y, v), call(x, y, v))
    empty = torch.zeros(0, 2, dtype=torch.float64)
    assert torch.compile(call, fullgraph=True)(empty, y, v).shape[0] == 0


def test_bc_047_backward_under_changing_sizes() -> None:
    def loss(x: Tensor, y: Tensor) -> Tensor:
        return tp.lazy(x, y, "rbf").logsumexp(-1).sum()

    compiled = torch.compile(loss, fullgraph=True)
    for n in (8, 9, 1):
        x, y = randn(n, 2).requires_grad_(), randn(5, 2, seed=1)
        (ours,) = torch.autograd.grad(compiled(x, y), x)
        torch.testing.assert_close(ours, torch.autograd.grad(loss(x, y), x)[0])


# Losses


def test_bc_106_anchors_without_positives() -> None:
    z = torch.nn.functional.normalize(randn(5, 3), dim=-1).requires_grad_()
    labels = torch.tensor([2, 5, 5, 7, 9])
    keep = labels[:, None] == labels
    if hasattr(tp.contrastive, "supcon"):
        loss = tp.contrastive.supcon(z, labels)
        assert loss.isfinite()
    positives = tp.lazy(z, metric="linear").masked(tp.masks.same_group(labels)).count(-2.0, ">", -1, exclude_self=True)
    assert positives.tolist() == (keep.sum(-1) - 1).tolist() == [0, 1, 1, 0, 0]


def test_bc_107_half_precision_losses_and_temperatures() -> None:
    a, b = randn(6, 4, dtype=torch.float32).requires_grad_(), randn(6, 4, dtype=torch.float32, seed=1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = tp.contrastive.info_nce(a, b, temperature=0.05)
    assert loss.dtype == torch.float32 and loss.isfinite()
    assert torch.autograd.grad(loss, a)[0].isfinite().all()
    for temperature in (0, -1.0):
        with pytest.raises(ValueError, match="temperature"):
            tp.contrastive.info_nce(a, b, temperature=temperature)


def test_bc_109_random_comparisons_do_not_replay_another_mask() -> None:
    """A comparison that draws random numbers is refused, or backward sees what forward saw."""
    generator = torch.Generator()

    def noisy(x: Tensor, y: Tensor) -> Tensor:
        return ((x - y).square() * torch.rand(x.shape[-1], dtype=x.dtype, generator=generator)).sum(-1)

    X, Y = randn(3, 2).requires_grad_(), randn(4, 2, seed=1)
    generator.manual_seed(0)
    S = tp.lazy(X, Y, tp.make_pairwise(noisy))
    value = S.sum()
    generator.manual_seed(0)
    (gradient,) = torch.autograd.grad(value, X)
    assert gradient.isfinite().all()


# Processes and threads


def _in_child(queue: Any, X: Tensor) -> None:
    torch.set_num_threads(1)  # as torch's loader workers do: OpenMP's threads do not survive a fork
    queue.put(tp.lazy(X, metric="rbf").logsumexp(-1).sum().item())


def test_bc_110_forked_workers_and_threads() -> None:
    X = randn(300, 4, dtype=torch.float32)
    expected = tp.lazy(X, metric="rbf").logsumexp(-1).sum().item()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=_in_child, args=(queue, X)) for _ in range(2)]
    for child in children:
        child.start()
    assert [queue.get(timeout=60) for _ in children] == [expected] * 2
    for child in children:
        child.join(timeout=60)
        assert child.exitcode == 0
    results: list[float] = []
    threads = [threading.Thread(target=lambda: results.append(tp.lazy(X, metric="rbf").logsumexp(-1).sum().item())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert results == [expected] * 4


def test_bc_020_condensed_of_nothing() -> None:
    distance = tp.make_pairwise(lambda x, y: (x - y).square().sum(-1), symmetric=True, zero_diagonal=True)
    for n in (0, 1, 3):
        X = randn(n, 3).requires_grad_()
        condensed = distance(X, mode="condensed")
        assert condensed.shape == (n * (n - 1) // 2,)
        (gradient,) = torch.autograd.grad(condensed.sum(), X, allow_unused=True, materialize_grads=True)
        assert gradient.shape == (n, 3) and (n > 1 or (gradient == 0).all())


def test_bc_112_another_torch_is_refused() -> None:
    from torchpairwise import _native

    built = dict(tp.build_info())
    with pytest.raises(ImportError, match=r"built against torch 0\.0\.1[\s\S]*pip install"):
        _native.check_torch(dict(built, torch="0.0.1"), torch.__version__, None)
