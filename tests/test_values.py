"""Every row of the table, in both dtypes and on both paths, against the oracles; the budget is a multiple of plain torch's error."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracles
import plain
import pytest
import torch
from cases import (
    CASES,
    CONSUMERS,
    EXPRESSIONS,
    MASKS,
    METRICS,
    ORACLE,
    PLAIN,
    SMALL_CASES,
    Case,
    Consumer,
    Expression,
    Mask,
    library,
    named,
)
from comparators import allowed_error, check_budget, check_order
from sklearn.datasets import load_digits

import torchpairwise as tp

BACKENDS = pytest.mark.parametrize("backend", ["native", "tiles"])
DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
BY_NAME = {case.name: case for case in CASES}


class Problem:
    """An expression on a case, three times: by the library, by the oracle and by plain torch."""

    def __init__(self, row: Expression, case: Case, dtype: torch.dtype, backend: str, mask: Mask | None = None) -> None:
        self.row, self.case, self.dtype = row, case, dtype
        self.o, self.arrays = case.tensors(dtype), case.arrays()
        self.S = row.build(library(backend=backend), self.o)
        with np.errstate(all="ignore"):
            self.exact = np.asarray(row.build(ORACLE, self.arrays))
        self.plain = row.build(PLAIN, self.o)
        keep = np.ones((case.n, case.m), bool)
        if mask is not None:
            self.S, keep = mask.apply(self.S, self.o), mask.keep(case.n, case.m, self.arrays)
        shape = np.broadcast_shapes(self.exact.shape, keep.shape)
        self.exact, self.keep = np.broadcast_to(self.exact, shape), np.broadcast_to(keep, shape)
        self.plain = self.plain.broadcast_to(shape)

    def check(self, consumer: Consumer, dim: Any, exclude_self: bool = False) -> None:
        keep = self.keep & oracles.MASKS["off_diagonal"](*self.keep.shape[-2:]) if exclude_self else self.keep
        options = {"exclude_self": True} if exclude_self else {}
        got = consumer.run(self.S, self.o, dim, **options)
        wanted = consumer.expected(oracles, self.exact, keep, self.arrays, dim)
        usual = consumer.expected(plain, self.plain, torch.tensor(keep), self.o, dim)
        label = f"{consumer.name} dim={dim}"
        for name, scale in self._scales(consumer, keep, dim).items():
            assert got[name].dtype == self.dtype
            check_budget(got[name], wanted[name], usual[name], scale, self.row.factor, f"{label} {name}")
        if consumer.is_selection:
            self._check_selection(consumer, got, wanted, keep, dim, label)

    def _scales(self, consumer: Consumer, keep: np.ndarray, dim: Any) -> dict[str, Any]:
        """By result: the size of what is added up."""
        names = [name for name in consumer.results if name != "indices"]
        size = np.abs(self.exact[keep]).max(initial=1.0)
        if consumer.record in ("sum", "mean", "matmul"):
            positive = type(self.o)(V=np.abs(self.arrays.V), U=np.abs(self.arrays.U))
            sizes = np.maximum(np.abs(self.exact), 1.0) if self.row.cancels else np.abs(self.exact)
            added = consumer.expected(oracles, sizes, keep, positive, dim)
            return {name: np.nan_to_num(added[name], nan=1.0) + 1e-30 for name in names}
        values = np.abs(self.arrays.V if dim == -1 else self.arrays.U).max(initial=1.0) if consumer.values else 1.0
        return dict.fromkeys(names, size * values)

    def _check_selection(self, consumer: Consumer, got: Any, wanted: Any, keep: np.ndarray, dim: Any, label: str) -> None:
        exact, kept = (self.exact, keep) if dim == -1 else (oracles.over_rows(self.exact), oracles.over_rows(keep))
        values, indices = got.get("values"), got["indices"]
        if self.row.exact and self.case.numbers in ("grid", "zeros"):
            assert np.array_equal(indices.numpy(), wanted["indices"]), f"{label}: tie order"
        if values is None:
            chosen = np.take_along_axis(exact, indices.numpy()[..., None], -1)[..., 0]
            values = torch.tensor(np.where(kept.any(-1), chosen, oracles.topk(exact, kept, 1, consumer.record == "max")[0][..., 0]))
        if consumer.method != "topk":
            values, indices = values[..., None], indices[..., None]
        size = np.abs(self.exact[keep]).max(initial=1.0)
        tolerance = size * allowed_error(self.plain, self.exact, size, self.row.factor, self.dtype)
        largest = consumer.record == "max" or consumer.options.get("largest", False)
        check_order(values, indices, exact, kept, largest, tolerance, label)


def check_all(problem: Problem, exclude_self: bool = False) -> None:
    for consumer in CONSUMERS:
        if exclude_self and not consumer.dims:
            continue
        for dim in consumer.dims or (-1,):
            problem.check(consumer, dim, exclude_self)


@BACKENDS
@DTYPES
@pytest.mark.parametrize("row", METRICS, ids=named)
@pytest.mark.parametrize("case", CASES, ids=named)
def test_metrics(case: Case, row: Expression, dtype: torch.dtype, backend: str) -> None:
    check_all(Problem(row, case, dtype, backend))


@BACKENDS
@DTYPES
@pytest.mark.parametrize("row", [row for row in EXPRESSIONS if row not in METRICS], ids=named)
@pytest.mark.parametrize("case", [*SMALL_CASES, BY_NAME["gram form"]], ids=named)
def test_nodes_and_joins(case: Case, row: Expression, dtype: torch.dtype, backend: str) -> None:
    check_all(Problem(row, case, dtype, backend))


MASKED_ROWS = [row for row in EXPRESSIONS if row.name in ("linear", "rbf", "sqeuclidean", "sum of two sources")]


@BACKENDS
@DTYPES
@pytest.mark.parametrize("row", MASKED_ROWS, ids=named)
@pytest.mark.parametrize("mask", MASKS, ids=named)
@pytest.mark.parametrize("name", ["odd sizes", "ties and zeros", "one column", "gram form", "several tiles"])
def test_masks(name: str, mask: Mask, row: Expression, dtype: torch.dtype, backend: str) -> None:
    if name == "several tiles" and (dtype == torch.float64 or row.name != "rbf"):
        pytest.skip("the large case is run once a mask")
    check_all(Problem(row, BY_NAME[name], dtype, backend, mask))


@BACKENDS
@DTYPES
@pytest.mark.parametrize("row", MASKED_ROWS, ids=named)
@pytest.mark.parametrize("case", [Case("self", 17, 17, 4), Case("self, ties", 12, 12, 2, numbers="grid")], ids=named)
def test_exclude_self(case: Case, row: Expression, dtype: torch.dtype, backend: str) -> None:
    check_all(Problem(row, case, dtype, backend), exclude_self=True)
    check_all(Problem(row, case, dtype, backend, MASKS[0]), exclude_self=True)


@BACKENDS
@DTYPES
def test_keepdim_keeps_the_axis(dtype: torch.dtype, backend: str) -> None:
    problem = Problem(METRICS[0], BY_NAME["broadcast batch"], dtype, backend)
    for consumer in CONSUMERS:
        if not consumer.dims or consumer.values or consumer.method == "topk":
            continue
        for dim in consumer.dims:
            plain_results, kept = consumer.run(problem.S, problem.o, dim), consumer.run(problem.S, problem.o, dim, keepdim=True)
            for name in consumer.results:
                for axis in sorted((dim,) if isinstance(dim, int) else dim, reverse=True):
                    plain_results[name] = plain_results[name].unsqueeze(axis)
                assert torch.equal(kept[name], plain_results[name])
            positive = tuple(d + 4 for d in dim) if isinstance(dim, tuple) else dim + 4
            assert torch.equal(
                consumer.run(problem.S, problem.o, positive)[consumer.results[0]],
                consumer.run(problem.S, problem.o, dim)[consumer.results[0]],
            )


@BACKENDS
@DTYPES
def test_transposed_expressions(dtype: torch.dtype, backend: str) -> None:
    problem = Problem(METRICS[4], BY_NAME["odd sizes"], dtype, backend)
    turned = problem.S.T
    assert turned.shape == (37, 13)
    for consumer in CONSUMERS:
        for dim in (d for d in consumer.dims if isinstance(d, int)):
            o = type(problem.o)(V=problem.o.U, U=problem.o.V)
            for name, result in consumer.run(turned, o, dim).items():
                assert torch.equal(result, consumer.run(problem.S, problem.o, -3 - dim)[name])
    assert torch.equal(turned.dense(), problem.S.dense().mT)


@BACKENDS
@DTYPES
def test_ties_of_whole_numbers_are_exact_in_the_gram_form(dtype: torch.dtype, backend: str) -> None:
    X = torch.tensor(load_digits().data[:400], dtype=dtype)  # whole numbers from 0 to 16, D = 64, many equal distances
    exact = oracles.sqeuclidean(X.double().numpy(), X.double().numpy())
    wanted = oracles.topk(exact, np.ones_like(exact, bool), 50, False)
    values, indices = tp.lazy(X, X, "sqeuclidean", backend=backend).topk(50, largest=False)
    assert np.array_equal(values.double().numpy(), wanted[0])
    assert np.array_equal(indices.numpy(), wanted[1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("consumer", CONSUMERS, ids=named)
def test_half_precision_is_computed_in_float32(consumer: Consumer, dtype: torch.dtype) -> None:
    o = Case("half", 6, 9, 4).tensors(dtype)
    wide = type(o)(**{name: x.float() if x.is_floating_point() else x for name, x in vars(o).items()})
    for dim in consumer.dims or (-1,):
        got = consumer.run(tp.lazy(o.X, o.Y, "rbf", gamma=0.25), o, dim)
        wanted = consumer.run(tp.lazy(wide.X, wide.Y, "rbf", gamma=0.25), wide, dim)
        for name, result in got.items():
            if name == "indices":
                assert torch.equal(result, wanted[name])
            else:
                assert result.dtype == dtype and torch.equal(result, wanted[name].to(dtype))
