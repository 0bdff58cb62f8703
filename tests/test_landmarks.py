"""Farthest points and k-means++ on lazy distances."""

from __future__ import annotations

import doctest
import importlib

import pytest
import torch

import torchpairwise as tp
from torchpairwise.neighbors import farthest_point_sampling, kmeans_plusplus


def points(n: int = 40) -> torch.Tensor:
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("metric", ["sqeuclidean", "manhattan"])
@pytest.mark.parametrize("start", [0, 7, -1])
def test_farthest_points_by_their_definition(metric: str, start: int) -> None:
    X = points()
    D = tp.lazy(X, metric=metric)
    chosen = [start % 40]
    dense = D.dense()
    for _ in range(9):
        nearest = dense[:, chosen].min(-1).values
        nearest[chosen] = -1
        chosen.append(int(nearest.argmax()))
    assert farthest_point_sampling(D, 10, start).tolist() == chosen


def test_farthest_points_with_ties_and_equal_points() -> None:
    X = torch.tensor([[0.0], [2.0], [2.0], [-2.0], [0.0]])
    assert farthest_point_sampling(tp.lazy(X), 5).tolist() == [0, 1, 3, 2, 4]
    assert farthest_point_sampling(tp.lazy(X), 0).shape == (0,)


def test_bc_058_kmeans_plusplus_with_few_distinct_points() -> None:
    X = torch.tensor([[0.0], [0.0], [5.0], [5.0]])
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        chosen = kmeans_plusplus(tp.lazy(X), 3, generator)
        assert len(set(chosen.tolist())) == 3 and (X[chosen[:2]].sum() == 5)
        assert torch.equal(chosen, kmeans_plusplus(tp.lazy(X), 3, torch.Generator().manual_seed(seed)))
    same = kmeans_plusplus(tp.lazy(torch.zeros(4, 2)), 4, torch.Generator().manual_seed(1)).tolist()
    assert sorted(same) == [0, 1, 2, 3] and same[1:] == sorted(same[1:])


def test_kmeans_plusplus_draws_by_distance() -> None:
    X = torch.tensor([[0.0], [1.0], [3.0]])
    firsts = [kmeans_plusplus(tp.lazy(X), 2, torch.Generator().manual_seed(seed)).tolist() for seed in range(3000)]
    after_zero = [second for first, second in firsts if first == 0]
    assert abs(sum(second == 2 for second in after_zero) / len(after_zero) - 0.9) < 0.03
    assert abs(sum(first == 0 for first, _ in firsts) / 3000 - 1 / 3) < 0.03
    assert kmeans_plusplus(tp.lazy(X), 0).shape == (0,)


@pytest.mark.parametrize("choose", [farthest_point_sampling, kmeans_plusplus])
def test_bad_input(choose: object) -> None:
    D = tp.lazy(torch.zeros(3, 2))
    for call, error, message in [
        (lambda: choose(torch.zeros(3, 3), 1), TypeError, "expected lazy distances"),  # type: ignore[operator]
        (lambda: choose(tp.lazy(torch.zeros(3, 2), torch.zeros(4, 2)), 1), ValueError, r"expected \[N, N\]"),  # type: ignore[operator]
        (lambda: choose(tp.lazy(torch.zeros(2, 3, 2)), 1), ValueError, r"expected \[N, N\]"),  # type: ignore[operator]
        (lambda: choose(D, 4), ValueError, "k=4; expected an integer from 0 to N=3"),  # type: ignore[operator]
        (lambda: choose(D, -1), ValueError, "k=-1"),  # type: ignore[operator]
        (lambda: choose(D, 1.0), ValueError, "k=1.0"),  # type: ignore[operator]
    ]:
        with pytest.raises(error, match=message):
            call()
    with pytest.raises(IndexError, match="start=3 is not one of 3 points"):
        farthest_point_sampling(D, 1, 3)
    with pytest.raises(ValueError, match="finite distances >= 0"):
        kmeans_plusplus(tp.lazy(torch.tensor([[float("nan")], [1.0]])), 2)


def test_examples() -> None:
    assert doctest.testmod(importlib.import_module("torchpairwise.neighbors.landmarks")).failed == 0
