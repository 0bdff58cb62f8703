"""Every metric and consumer of the table against the oracles, on both paths and in both types."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracles
import pytest
import torch
from cases import CASES, METRICS, Case
from sklearn.datasets import load_digits

import torchpairwise as tp

GAMMA = 0.3
# Error allowed, as a multiple of the unit roundoff of the type and of the size of what is summed.
BUDGET = {torch.float64: 1e-12, torch.float32: 3e-5}


def masked(S: tp.PairwiseExpression, case: Case) -> tuple[tp.PairwiseExpression, Any]:
    i, j = np.arange(case.n)[:, None], np.arange(case.m)[None]
    if case.mask == "causal":
        return S.masked(tp.masks.causal()), j <= i + case.m - case.n
    if case.mask == "group":
        rows, columns = np.arange(case.n) % 3, np.arange(case.m) // 7 % 4
        return S.masked(tp.masks.same_group(torch.tensor(rows), torch.tensor(columns))), rows[:, None] == columns
    if case.mask == "flags":
        rows, columns = np.arange(case.n) % 4 != 1, np.arange(case.m) % 5 != 2
        return S.mask_rows(torch.tensor(rows)).mask_columns(torch.tensor(columns)), rows[:, None] & columns
    return S, np.ones((case.n, case.m), bool)


def options(metric: str) -> dict[str, float]:
    return {"gamma": GAMMA} if metric in ("rbf", "laplacian", "polynomial", "sigmoid") else {}


def close(got: torch.Tensor, wanted: Any, budget: float, scale: float = 1.0) -> None:
    wanted = np.asarray(wanted)
    assert tuple(got.shape) == wanted.shape
    value = got.double().numpy()
    same = (value == wanted) | (np.isnan(value) & np.isnan(wanted))
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0.0, np.abs(value - wanted) / (scale + np.abs(wanted)))
    assert error.max(initial=0.0) <= budget, error.max()


@pytest.mark.parametrize("backend", ["native", "tiles"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_consumers(case: Case, metric: str, dtype: torch.dtype, backend: str) -> None:
    X, Y = (torch.tensor(x, dtype=dtype) for x in case.features())
    exact = oracles.scores(metric, X.double().numpy(), Y.double().numpy(), GAMMA)
    S, keep = masked(tp.lazy(X, Y, metric, backend=backend, **options(metric)), case)
    keep = np.broadcast_to(keep, exact.shape)
    V = torch.randn(case.m, 5, dtype=dtype, generator=torch.Generator().manual_seed(1))
    budget, size = BUDGET[dtype], 1 + np.abs(exact).max()
    close(S.sum(-1), oracles.sum(exact, keep), budget, size * case.m)
    close(S.mean(-1), oracles.mean(exact, keep), budget, size)
    close(S.logsumexp(-1), oracles.logsumexp(exact, keep), budget, size)
    close(S.matmul(V), oracles.matmul(exact, keep, V.double().numpy()), budget, size * case.m)
    close(S.softmax_matmul(V), oracles.softmax_matmul(exact, keep, V.double().numpy()), budget * 10, size)
    close(S.sum(-2), oracles.sum(exact.swapaxes(-1, -2), keep.swapaxes(-1, -2)), budget, size * case.n)
    close(S.logsumexp(-2), oracles.logsumexp(exact.swapaxes(-1, -2), keep.swapaxes(-1, -2)), budget, size)
    close(S.dense(), np.where(keep, exact, 0.0), budget, size)
    k = min(4, case.m)
    for largest in (False, True):
        values, indices = S.topk(k, largest=largest)
        close(values, oracles.topk(exact, keep, k, largest)[0], budget, size)
        chosen = np.take_along_axis(np.where(keep, exact, -np.inf if largest else np.inf), indices.numpy(), -1)
        close(values, chosen, budget, size)
        single = S.max(-1) if largest else S.min(-1)
        close(single.values, values[..., 0].double().numpy(), 0.0)
        assert torch.equal(single.indices, indices[..., 0])


@pytest.mark.parametrize("metric", ["linear", "sqeuclidean", "manhattan"])
def test_ties_take_the_lowest_index(metric: str) -> None:
    generator = torch.Generator().manual_seed(0)
    X, Y = (torch.randint(-1, 2, (n, 3), generator=generator).double() for n in (20, 200))
    exact = oracles.scores(metric, X.numpy(), Y.numpy(), GAMMA)
    for k in (1, 7, 200):
        for largest in (False, True):
            wanted = oracles.topk(exact, np.ones_like(exact, bool), k, largest)[1]
            assert np.array_equal(tp.lazy(X, Y, metric).topk(k, largest=largest).indices.numpy(), wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_ties_of_whole_numbers_are_exact_in_the_gram_form(dtype: torch.dtype) -> None:
    X = torch.tensor(load_digits().data[:400], dtype=dtype)  # whole numbers from 0 to 16, D = 64, many equal distances
    exact = oracles.scores("sqeuclidean", X.double().numpy(), X.double().numpy(), GAMMA)
    wanted = oracles.topk(exact, np.ones_like(exact, bool), 50, False)
    values, indices = tp.lazy(X, X, "sqeuclidean", backend="native").topk(50, largest=False)
    assert np.array_equal(values.double().numpy(), wanted[0])
    assert np.array_equal(indices.numpy(), wanted[1])
