"""Edge cases and error messages: distances, masks, empty axes, NaN, bad input."""

from __future__ import annotations

import math
import pickle
from copy import deepcopy

import pytest
import torch

import torchpairwise as tp

BACKENDS = pytest.mark.parametrize("backend", ["native", "tiles"])


@BACKENDS
@pytest.mark.parametrize("d", [1, 40])
def test_bc_001_large_close_numbers(backend: str, d: int) -> None:
    X, Y = torch.full((64, d), 300000.0), torch.full((64, d), 300037.0)
    S = tp.lazy(X, Y, "sqeuclidean", backend=backend)
    assert (S.dense() == 1369.0 * d).all()
    assert (S.min(-1).values == 1369.0 * d).all()


@BACKENDS
@pytest.mark.parametrize("d", [3, 30])
def test_bc_004_zero_diagonal(backend: str, d: int) -> None:
    X = torch.randn(40, d) + 50
    for other in (None, X, X.clone()):
        S = tp.lazy(X, other, "euclidean", backend=backend)
        assert (S.diagonal() == 0).all()
        assert (S.min(-1).values == 0).all()
        assert torch.equal(S.argmin(-1), torch.arange(40))


@BACKENDS
def test_bc_013_coincident_rows_have_no_nan_gradient(backend: str) -> None:
    X, Y = torch.randn(8, 3), torch.randn(9, 3)
    Y[5] = X[3]
    X.requires_grad_()
    Y.requires_grad_()
    D = tp.lazy(X, Y, "euclidean", backend=backend)
    for loss in (D.mean(), D.min(-1).values.sum(), (-D).logsumexp(-1).sum(), D.topk(3, largest=False).values.sum()):
        for gradient in torch.autograd.grad(loss, (X, Y)):
            assert gradient.isfinite().all()


@BACKENDS
def test_bc_037_fully_masked_row(backend: str) -> None:
    X, Y, V = (torch.randn(n, 3, requires_grad=True) for n in (4, 7, 7))
    keep = torch.tensor([True, True, True, False])
    S = tp.lazy(X, Y, "linear", backend=backend).mask_rows(keep)
    assert (S.softmax_matmul(V)[3] == 0).all()
    assert S.sum(-1)[3] == 0 and S.logsumexp(-1)[3] == -math.inf and S.mean(-1)[3].isnan()
    assert S.min(-1).values[3] == math.inf and S.max(-1).values[3] == -math.inf
    assert torch.equal(S.topk(3).indices[3], torch.arange(3))
    loss = S.softmax_matmul(V).sum() + S.logsumexp(-1)[:3].sum() + S.sum()
    gradient = torch.autograd.grad(loss, (X, Y, V))
    assert (gradient[0][3] == 0).all() and all(g.isfinite().all() for g in gradient)


@BACKENDS
def test_nan_behind_a_mask_reaches_nothing(backend: str) -> None:
    X, Y, V = torch.randn(6, 3), torch.randn(7, 3), torch.randn(7, 2)
    keep = torch.ones(7, dtype=torch.bool)
    keep[2] = False
    Y[2], V[2] = math.nan, math.nan
    leaves = [t.requires_grad_() for t in (X, Y, V)]
    S = tp.lazy(X, Y, "rbf", backend=backend).mask_columns(keep)
    results = [S.sum(-1), S.logsumexp(-1), S @ V, S.softmax_matmul(V), S.mean(-1)]
    for result in results:
        assert result.isfinite().all()
        for gradient in torch.autograd.grad(result.sum(), leaves, allow_unused=True):
            assert gradient is None or gradient.isfinite().all()


@BACKENDS
def test_bc_052_nan_rows_stay_alone_and_rank_last(backend: str) -> None:
    X, Y = torch.randn(5, 3), torch.randn(6, 3)
    X[1], Y[4] = math.nan, math.nan
    D = tp.lazy(X, Y, "sqeuclidean", backend=backend)
    others = torch.tensor([0, 2, 3, 4])
    values, indices = D.topk(6, largest=False)
    assert (indices[others, 5] == 4).all() and values[others, :5].isfinite().all()
    assert torch.equal(indices[1], torch.arange(6))
    clean = tp.lazy(X, Y[:4], "sqeuclidean", backend=backend).sum(-1)
    assert clean[1].isnan() and clean[others].isfinite().all()


def test_bc_041_causal_alignment() -> None:
    def ones(n: int) -> torch.Tensor:
        return torch.ones(n, 1)

    for n, m in ((1, 5), (2, 4), (4, 2)):
        S = tp.lazy(ones(n), ones(m), "linear")
        i, j = torch.arange(n)[:, None], torch.arange(m)
        assert torch.equal(S.masked(tp.masks.causal()).dense().bool(), j <= i + m - n)
        assert torch.equal(S.masked(tp.masks.causal(align="upper_left")).dense().bool(), j <= i)
    assert (tp.lazy(ones(4), ones(2), "linear").masked(tp.masks.causal()).softmax_matmul(ones(2))[:2] == 0).all()


def test_bc_049_tie_order() -> None:
    row = torch.tensor([7.0, 2, 7, 2, 7, 1])
    S = tp.lazy(torch.ones(1, 1), row[:, None], "linear")
    for k in range(1, 7):
        assert S.topk(k).indices[0].tolist() == [0, 2, 4, 1, 3, 5][:k]


def test_bc_050_k_out_of_range() -> None:
    S = tp.lazy(torch.zeros(2, 3), torch.zeros(3, 3))
    with pytest.raises(ValueError, match="k=5 .* M=3"):
        S.topk(5)
    with pytest.raises(ValueError, match="k=-1"):
        S.topk(-1)
    with pytest.raises(TypeError, match="k is float"):
        S.topk(1.0)  # type: ignore[arg-type]
    assert S.topk(0).values.shape == (2, 0)


def test_bc_053_exclude_self_by_index() -> None:
    X = torch.tensor([[0.0, 0], [0, 0], [3, 0], [9, 9]])
    S = tp.lazy(X)
    assert S.topk(2, largest=False, exclude_self=True).indices[:2].tolist() == [[1, 2], [0, 2]]
    with pytest.raises(ValueError, match="k=4"):
        S.topk(4, exclude_self=True)
    with pytest.raises(ValueError, match="N == M"):
        tp.lazy(X, X[:2]).sum(-1, exclude_self=True)


def test_bc_062_064_065_cosine() -> None:
    v = torch.tensor([[1.1, 2.2, 3.3]])
    assert tp.lazy(v, v.clone(), "cosine_distances").dense().item() == 0.0
    assert tp.lazy(v, v.clone(), "cosine_similarity").dense().item() <= 1.0
    zero = torch.zeros(1, 2, requires_grad=True)
    other = torch.tensor([[1.0, 2.0], [0.0, 0.0]])
    assert tp.lazy(zero, other, "cosine_distances").dense().tolist() == [[1.0, 1.0]]
    assert tp.lazy(zero, other, "cosine_similarity").dense().tolist() == [[0.0, 0.0]]
    (gradient,) = torch.autograd.grad(tp.lazy(zero, other, "cosine_distances").sum(), zero)
    assert (gradient == 0).all()
    a, b = torch.tensor([[2400.0, 2300, 3100]]).double(), torch.tensor([[3.1e-9, 1.7e-9, 8e-9]]).double()
    for scale in (1e-30, 1.0, 1e30):
        assert abs(tp.lazy(a, b * scale, "cosine_similarity").dense().item() - 0.909311) < 1e-6


@BACKENDS
def test_bc_019_022_empty_sizes(backend: str) -> None:
    X, Y = torch.zeros(0, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True)
    S = tp.lazy(X, Y, backend=backend)
    for result in (S.sum(-1), S.logsumexp(-1), S @ torch.randn(2, 4), S.min(-1).values):
        assert result.shape[0] == 0 and result.requires_grad
        assert (torch.autograd.grad(result.sum(), Y)[0] == 0).all()
    S = tp.lazy(Y, X, backend=backend)
    assert S.sum(-1).tolist() == [0, 0] and S.logsumexp(-1).tolist() == [-math.inf] * 2
    assert S.softmax_matmul(torch.zeros(0, 2)).tolist() == [[0, 0], [0, 0]]
    for consumer in (S.mean, S.min, S.max, S.argmin, S.argmax):
        with pytest.raises((ValueError, RuntimeError)):
            consumer(-1)
    flat = tp.lazy(torch.zeros(3, 0), torch.zeros(4, 0), "rbf", backend=backend)
    assert (flat.dense() == 1).all()
    assert (flat @ torch.zeros(4, 0)).shape == (3, 0)


def test_half_precision_is_computed_in_float32() -> None:
    X, Y = torch.rand(1, 3000, dtype=torch.float16), torch.rand(3, 3000, dtype=torch.float16)
    got = tp.lazy(X, Y, "euclidean").dense()
    assert got.dtype == torch.float16
    assert torch.equal(got, torch.cdist(X.double(), Y.double()).to(torch.float16))


def test_integers_never_wrap() -> None:
    X, Y = torch.tensor([[400, 900]], dtype=torch.int16), torch.tensor([[398, 650]], dtype=torch.int16)
    assert tp.lazy(X, Y, "sqeuclidean").dense().item() == 62504
    assert tp.lazy(X.to(torch.uint8), Y.to(torch.uint8), "manhattan").dense().dtype == torch.float32


def test_bad_input() -> None:
    X, Y = torch.randn(3, 2), torch.randn(4, 2)
    S = tp.lazy(X, Y)
    for error, words, call in [
        (ValueError, "Did you mean 'rbf'", lambda: tp.lazy(X, Y, "rbff")),
        (TypeError, "float64", lambda: tp.lazy(X, Y.double())),
        (ValueError, "2 features and Y has 3", lambda: tp.lazy(X, torch.randn(4, 3))),
        (TypeError, "complex", lambda: tp.lazy(X.to(torch.complex64))),
        (TypeError, "no option 'gama'", lambda: tp.lazy(X, Y, "rbf", gama=1.0)),
        (ValueError, "give one", lambda: tp.lazy(X, Y, "rbf", gamma=1.0, lengthscale=1.0)),
        (TypeError, "expected a torch.Tensor", lambda: tp.lazy([[1.0]])),
        (ValueError, "expected \\[..., rows", lambda: tp.lazy(torch.zeros(3))),
        (ValueError, "backend='gpu'", lambda: tp.lazy(X, Y, backend="gpu")),
        (ValueError, "precision='low'", lambda: tp.lazy(X, Y, precision="low")),
        (ValueError, "chunk_size=0", lambda: tp.lazy(X, Y, chunk_size=0)),
        (ValueError, "expected a tensor \\[..., 4, C\\]", lambda: S @ torch.randn(3, 2)),
        (TypeError, "values has dtype torch.float64", lambda: S @ torch.randn(4, 2).double()),
        (ValueError, "expected a tensor \\[..., 3\\]", lambda: S.add_rows(torch.zeros(4))),
        (ValueError, "boolean tensor", lambda: S.mask_rows(torch.zeros(3))),
        (TypeError, "pair mask of tp.masks", lambda: S.masked(torch.ones(3, 4))),  # type: ignore[arg-type]
        (ValueError, "add a lazy expression", lambda: S + torch.zeros(3, 4)),
        (ValueError, "dim=2", lambda: S.sum(2)),
        (TypeError, "no truth value", lambda: bool(S)),
        (TypeError, "S.shape", lambda: len(S)),
        (TypeError, "S.sum", lambda: torch.sum(S)),
        (ValueError, "neither lower nor upper", lambda: tp.masks.band()),
        (ValueError, "align='left'", lambda: tp.masks.causal("left")),
        (TypeError, "integer labels", lambda: tp.masks.same_group(torch.zeros(3))),
        (ValueError, "differ in rows or columns", lambda: S + tp.lazy(X)),
        (ValueError, "neither min nor max", lambda: S.clamp()),
        (TypeError, "expected a callable", lambda: tp.make_pairwise(3)),  # type: ignore[arg-type]
        (ValueError, "broadcast over rows", lambda: tp.lazy(X, Y, tp.make_pairwise(lambda x, y: x - y)).sum(-1)),
    ]:
        with pytest.raises(error, match=words):
            call()


def test_round_trips() -> None:
    X = torch.randn(5, 3)
    S = tp.lazy(X, metric="rbf").add_rows(torch.randn(5)).masked(tp.masks.causal())
    for copy in (pickle.loads(pickle.dumps(S)), deepcopy(S)):
        assert torch.equal(copy.sum(-1), S.sum(-1))
        assert repr(copy) == repr(S)


@BACKENDS
def test_softmax_weights_of_large_scores_sum_to_one(backend: str) -> None:
    # The float32 logsumexp of scores near 3e5 is rounded to 1/32: weights made from it alone would be wrong by as much.
    generator = torch.Generator().manual_seed(0)
    X, Y = torch.rand(20, 40, generator=generator) + 90, torch.rand(300, 40, generator=generator) + 90
    ones = torch.ones(300, 1, requires_grad=True)
    S = tp.lazy(X, Y, "linear", backend=backend)
    (of_values,) = torch.autograd.grad(S.softmax_matmul(ones).sum(), ones)
    assert abs(of_values.sum().item() - 20) < 20e-6
    shift = torch.zeros(20, requires_grad=True)
    (of_rows,) = torch.autograd.grad(S.add_rows(shift).logsumexp(-1).sum(), shift)
    assert (of_rows - 1).abs().max() < 1e-5
