"""Pair masks against dense boolean matrices: each rule, combinations, batches, transposition, and what dropped pairs give."""

from __future__ import annotations

import math
import pickle

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from torch import Tensor

import torchpairwise as tp
from torchpairwise import masks

BACKENDS = pytest.mark.parametrize("backend", ["native", "tiles"])
SIZES = pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 7), (7, 1), (5, 9), (9, 5), (70, 130)])


def places(n: int, m: int) -> tuple[Tensor, Tensor]:
    return torch.arange(n)[:, None], torch.arange(m)[None]


def rules(n: int, m: int) -> dict[str, tuple[masks.PairMask, Tensor]]:
    """Rules and the matrices that they stand for."""
    i, j = places(n, m)
    rows, columns = torch.arange(n) // 3 % 3, torch.arange(m) % 4
    return {
        "causal": (masks.causal(), j <= i + m - n),
        "upper_left": (masks.causal(align="upper_left"), j <= i),
        "band": (masks.band(2, 3), (j - i >= -2) & (j - i <= 3)),
        "band below": (masks.band(1), j - i >= -1),
        "band above": (masks.band(upper=0), j <= i),
        "band apart": (masks.band(-2, None), j - i >= 2),
        "same_group": (masks.same_group(rows, columns), rows[:, None] == columns),
    }


def kept(mask: masks.PairMask, n: int, m: int, backend: str = "auto") -> Tensor:
    return tp.lazy(torch.ones(n, 1), torch.ones(m, 1), "linear", backend=backend).masked(mask).dense().bool()


@BACKENDS
@SIZES
def test_rules(n: int, m: int, backend: str) -> None:
    for name, (mask, wanted) in rules(n, m).items():
        assert torch.equal(kept(mask, n, m, backend), wanted.expand(n, m)), name
        assert torch.equal(kept(~mask, n, m, backend), ~wanted.expand(n, m)), name
        # The counts see tiles that are skipped or taken whole.
        S = tp.lazy(torch.ones(n, 1), torch.ones(m, 1), "linear", backend=backend).masked(mask)
        assert torch.equal(S.sum(-1), wanted.expand(n, m).float().sum(-1)), name
        assert torch.equal(S.sum(-2), wanted.expand(n, m).float().sum(-2)), name


@SIZES
def test_rules_of_a_transposed_matrix(n: int, m: int) -> None:
    for name, (mask, wanted) in rules(n, m).items():
        S = tp.lazy(torch.ones(m, 1), torch.ones(n, 1), "linear").T.masked(mask)
        assert torch.equal(S.dense().bool(), wanted.expand(n, m)), name
        assert torch.equal(S.T.dense().bool(), wanted.expand(n, m).T), name


@hypothesis.settings(deadline=None, max_examples=60)
@hypothesis.given(st.data())
def test_combinations(data: st.DataObject) -> None:
    n, m = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 12))
    table = rules(n, m)
    combined = st.recursive(
        st.sampled_from(list(table)).map(lambda name: table[name]),
        lambda inner: st.one_of(
            inner.map(lambda a: (~a[0], ~a[1])),
            st.tuples(inner, inner).map(lambda ab: (ab[0][0] & ab[1][0], ab[0][1] & ab[1][1])),
            st.tuples(inner, inner).map(lambda ab: (ab[0][0] | ab[1][0], ab[0][1] | ab[1][1])),
        ),
        max_leaves=5,
    )
    mask, wanted = data.draw(combined)
    for backend in ("native", "tiles"):
        assert torch.equal(kept(mask, n, m, backend), wanted.expand(n, m))
    assert torch.equal(tp.lazy(torch.ones(m, 1), torch.ones(n, 1), "linear").T.masked(mask).dense().bool(), wanted.expand(n, m))


@BACKENDS
def test_masks_of_joined_expressions_and_several_calls(backend: str) -> None:
    i, j = places(5, 6)
    X, Y = torch.ones(5, 1), torch.ones(6, 1)
    A = tp.lazy(X, Y, "linear", backend=backend).masked(masks.causal()).masked(masks.band(3, 1))
    B = tp.lazy(X, Y, "linear", backend=backend).mask_columns(torch.arange(6) != 2).mask_rows(torch.arange(5) != 4)
    wanted = (j <= i + 1) & (j - i >= -3) & (j - i <= 1)
    assert torch.equal(A.dense().bool(), wanted)
    flags = (j != 2) & (i != 4)
    for joined in (A + B, B * A, A - B * 3):
        assert torch.equal(~joined.dense(math.nan).isnan(), wanted & flags)
    assert torch.equal(A.exp().dense() > 0, wanted)  # a step after the mask does not bring pairs back


def test_labels_in_batches() -> None:
    rows, columns = torch.tensor([[0, 1, 1], [2, 2, 0]]), torch.tensor([0, 1, 2, 2])
    S = tp.lazy(torch.ones(3, 1), torch.ones(4, 1), "linear").masked(masks.same_group(rows, columns))
    assert S.shape == (2, 3, 4)
    assert torch.equal(S.dense().bool(), rows[..., None] == columns)
    own = tp.lazy(torch.ones(2, 3, 1), metric="linear").masked(masks.same_group(rows))
    assert torch.equal(own.dense().bool(), rows[:, :, None] == rows[:, None])
    narrow = masks.same_group(rows[0].to(torch.int8), columns.to(torch.uint8))
    assert torch.equal(kept(narrow, 3, 4), rows[0, :, None] == columns)


@BACKENDS
def test_dropped_pairs(backend: str) -> None:
    X = torch.tensor([[1.0], [2.0]])
    S = tp.lazy(X, metric="linear", backend=backend).mask_rows(torch.tensor([False, True]))
    V = torch.tensor([[1.0], [3.0]])
    assert S.sum(-1).tolist() == [0, 6] and S.logsumexp(-1)[0] == -math.inf and S.mean(-1)[0].isnan()
    assert S.softmax_matmul(V)[0] == 0 and (S @ V)[0] == 0 and S.diagonal().tolist() == [0, 4]
    assert S.min(-1).values.tolist() == [math.inf, 2] and S.max(-1).values.tolist() == [-math.inf, 4]
    smallest, largest = S.topk(2, largest=False), S.topk(2)
    assert smallest.values[0].tolist() == [math.inf] * 2 and largest.values[0].tolist() == [-math.inf] * 2
    assert smallest.indices[0].tolist() == largest.indices[0].tolist() == [0, 1]
    assert S.dense(-5.0)[0].tolist() == [-5.0, -5.0]


def test_gradients_of_dropped_pairs_are_zero() -> None:
    X = torch.tensor([[0.0], [1.0], [2.0]], requires_grad=True)
    Y = torch.tensor([[math.inf], [1.0], [0.5]], requires_grad=True)
    S = tp.lazy(X, Y, "rbf").mask_columns(torch.tensor([False, True, True])).masked(masks.band(0, None))
    gradients = torch.autograd.grad(S.sum() + S.softmax_matmul(Y.detach().nan_to_num(posinf=1.0)).sum(), (X, Y))
    assert all(g.isfinite().all() for g in gradients) and gradients[1][0] == 0


def test_softmax_mask_equals_masked() -> None:
    q, k, v = torch.randn(2, 4, 3), torch.randn(2, 6, 3), torch.randn(2, 6, 5)
    S = tp.lazy(q, k, "linear")
    assert torch.equal(S.softmax_matmul(v, mask=masks.causal()), S.masked(masks.causal()).softmax_matmul(v))
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(4, 6).bool().tril(2), scale=1.0)
    torch.testing.assert_close(S.softmax_matmul(v, mask=masks.causal()), wanted)


def test_a_mask_reads_well_and_can_be_pickled() -> None:
    mask = masks.causal() & ~masks.band(1, None) | masks.same_group(torch.zeros(3, dtype=torch.int32))
    assert repr(mask) == "PairMask(causal 1; band 1 unlimited; not; and; same_group [3] [3]; or)"
    assert repr(pickle.loads(pickle.dumps(mask))) == repr(mask)


@pytest.mark.parametrize("function", [masks.causal, masks.band, masks.same_group, masks.PairMask, tp.PairwiseExpression.mask_rows])
def test_true_means_keep_is_the_first_line(function: object) -> None:
    assert (function.__doc__ or "").startswith("True = keep")
