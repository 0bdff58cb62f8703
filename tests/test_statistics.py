"""`tp.mmd_statistics`, `tp.energy_statistics`, `K.hsic` and `tp.median_distance` against NumPy and SciPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist, pdist
from scipy.stats import energy_distance
from torch import Tensor

import torchpairwise as tp
from torchpairwise.statistics import median_bandwidth

Array = np.ndarray


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def mean_of(S: Array, without_self: bool) -> float:
    n = len(S)
    return (S.sum() - np.trace(S)) / (n * (n - 1)) if without_self else S.mean()


def discrepancy(score: Callable[[Array, Array], Array], X: Tensor, Y: Tensor, estimator: str) -> Array:
    alone = estimator == "u"
    return np.array(
        [
            mean_of(score(x, x), alone) + mean_of(score(y, y), alone) - 2 * score(x, y).mean()
            for x, y in zip(X.numpy(), Y.numpy(), strict=True)
        ]
    )


def rbf(gamma: float) -> Callable[[Array, Array], Array]:
    return lambda x, y: np.exp(-gamma * cdist(x, y, "sqeuclidean"))


@pytest.mark.parametrize("estimator", ["u", "v"])
@pytest.mark.parametrize(("n", "m"), [(2, 2), (13, 13), (9, 14)])
def test_mmd(estimator: Any, n: int, m: int) -> None:
    X, Y = normal(3, n, 4), normal(3, m, 4, seed=1) + 0.5
    np.testing.assert_allclose(
        tp.mmd_statistics(X, Y, gamma=0.3, estimator=estimator), discrepancy(rbf(0.3), X, Y, estimator), rtol=1e-11, atol=1e-14
    )
    np.testing.assert_allclose(tp.mmd_statistics(X, Y, estimator=estimator), discrepancy(rbf(0.25), X, Y, estimator), atol=1e-13)
    ours = tp.mmd_statistics(X, Y, kernel="laplacian", gamma=0.2, estimator=estimator)
    np.testing.assert_allclose(ours, discrepancy(lambda x, y: np.exp(-0.2 * cdist(x, y, "cityblock")), X, Y, estimator), atol=1e-13)


def test_mmd_is_unbiased_by_default_and_zero_for_equal_clouds() -> None:
    X, Y = normal(2, 8, 3), normal(2, 9, 3, seed=1)
    assert torch.equal(tp.mmd_statistics(X, Y), tp.mmd_statistics(X, Y, estimator="u"))
    assert (tp.mmd_statistics(X, X, estimator="v").abs() < 1e-15).all()
    assert (tp.mmd_statistics(X, X) < 0).all()
    means = [float(tp.mmd_statistics(normal(2000, 5, 2, seed=s), normal(2000, 5, 2, seed=s + 50), gamma=0.5).mean()) for s in range(3)]
    assert max(map(abs, means)) < 0.01


def test_mmd_gradients_and_parameters() -> None:
    X, Y, gamma = normal(2, 5, 2).requires_grad_(), normal(2, 4, 2, seed=1).requires_grad_(), torch.tensor(0.4).double().requires_grad_()
    for estimator in ("u", "v"):
        assert torch.autograd.gradcheck(lambda x, y, g, e=estimator: tp.mmd_statistics(x, y, gamma=g, estimator=e), (X, Y, gamma))
    assert torch.autograd.gradcheck(lambda x, y: tp.energy_statistics(x, y), (X, Y))


def test_median_gamma() -> None:
    X, Y = normal(1, 12, 3), normal(1, 15, 3, seed=1)
    length = np.median(pdist(np.concatenate([X[0], Y[0]])))
    np.testing.assert_allclose(tp.mmd_statistics(X, Y, gamma="median"), tp.mmd_statistics(X, Y, gamma=0.5 / length**2), rtol=1e-9)


@pytest.mark.parametrize("estimator", ["u", "v"])
def test_energy(estimator: Any) -> None:
    X, Y = normal(3, 9, 4), normal(3, 14, 4, seed=1) + 0.5
    np.testing.assert_allclose(tp.energy_statistics(X, Y, estimator=estimator), -discrepancy(cdist, X, Y, estimator), rtol=1e-10)
    ours = tp.energy_statistics(X, Y, metric="manhattan", estimator=estimator)
    np.testing.assert_allclose(ours, -discrepancy(lambda x, y: cdist(x, y, "cityblock"), X, Y, estimator), rtol=1e-10)


def test_energy_in_one_dimension_is_scipys() -> None:
    x, y = normal(20), normal(15, seed=1)
    ours = tp.energy_statistics(x[None, :, None], y[None, :, None], estimator="v")
    np.testing.assert_allclose(ours.sqrt(), [energy_distance(x, y)], rtol=1e-9)


def test_dtypes() -> None:
    X, Y = normal(1, 6, 2), normal(1, 7, 2, seed=1)
    half = tp.mmd_statistics(X.half(), Y.half())
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, tp.mmd_statistics(X.half().float(), Y.half().float()))
    assert tp.energy_statistics(torch.tensor([[[0], [2]]]), torch.tensor([[[5], [7]]]), estimator="v").tolist() == [8]


# HSIC


def centred(K: Array, L: Array) -> float:
    n = len(K)
    H = np.eye(n) - 1 / n
    return float(np.trace(K @ H @ L @ H))


def unbiased(K: Array, L: Array) -> float:
    """Song et al. 2012, equation 5."""
    n = len(K)
    K, L, one = K - np.diag(np.diag(K)), L - np.diag(np.diag(L)), np.ones(n)
    value = np.trace(K @ L) + (one @ K @ one) * (one @ L @ one) / ((n - 1) * (n - 2)) - 2 / (n - 2) * one @ K @ L @ one
    return float(value / (n * (n - 3)))


def test_bc_104_unbiased_hsic() -> None:
    X, Y = torch.tensor([[0.0], [1], [2], [3], [4]]), torch.tensor([[0.0], [2], [3], [4], [1]])
    K, L = tp.lazy(X, metric="linear"), tp.lazy(Y, metric="linear")
    torch.testing.assert_close(K.hsic(L), torch.tensor(-1.5667), atol=1e-4, rtol=0)
    assert K.hsic(L, normalize=True).isfinite()
    constant = tp.lazy(torch.zeros(5, 1), metric="linear")
    for estimator in ("u", "v"):
        assert K.hsic(constant, estimator=estimator, normalize=True) == 0  # type: ignore[arg-type]
    three = tp.lazy(X[:3], metric="linear")
    with pytest.raises(ValueError, match="needs at least 4 samples; there are 3"):
        three.hsic(three)
    assert three.hsic(three, estimator="v").isfinite()


# The median


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("chunk_size", [None, 7])
@pytest.mark.parametrize("n", [2, 3, 4, 37])
def test_median_of_whole_numbers_is_exact(dtype: torch.dtype, chunk_size: int | None, n: int) -> None:
    """Squared distances of whole numbers: many ties, exact in every path."""
    X = torch.randint(0, 5, (n, 2), generator=torch.Generator().manual_seed(n)).to(dtype)
    Y = torch.randint(0, 9, (n + 3, 2), generator=torch.Generator().manual_seed(n + 1)).to(dtype)
    options = {"metric": "sqeuclidean", "chunk_size": chunk_size}
    assert float(tp.median_distance(X, **options)) == np.median(pdist(X.numpy(), "sqeuclidean"))
    assert float(tp.median_distance(X, Y, **options)) == np.median(cdist(X.numpy(), Y.numpy(), "sqeuclidean"))


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_median_of_any_scale(scale: float, dtype: torch.dtype) -> None:
    X = normal(60, 3, dtype=dtype) * scale
    X[0] *= 1000  # one point far from the others
    np.testing.assert_allclose(tp.median_distance(X), np.median(pdist(X.double().numpy())), rtol=1e-6 if dtype == torch.float32 else 1e-12)


def test_median_in_batches_and_of_other_metrics() -> None:
    X, Y = normal(3, 10, 2), normal(12, 2, seed=1)
    result = tp.median_distance(X, Y, metric="manhattan")
    expected = [np.median(cdist(x, Y.numpy(), "cityblock")) for x in X.numpy()]
    np.testing.assert_allclose(result, expected, rtol=1e-12)
    comparison = tp.make_pairwise(lambda x, y: (x - y).abs().amax(-1))
    np.testing.assert_allclose(tp.median_distance(Y, metric=comparison), np.median(pdist(Y.numpy(), "chebyshev")), rtol=1e-12)
    assert tp.median_distance(X.half()).dtype == torch.float32 and not tp.median_distance(X.requires_grad_()).requires_grad


def test_median_bandwidth() -> None:
    assert median_bandwidth(torch.tensor([[0.0], [0], [0], [2], [5]])) == 2.0
    assert median_bandwidth(torch.tensor([[0.0], [0], [0], [1]])) == 0.5  # of 0 0 0 1 1 1
    X = torch.tensor([[0.0]] * 6 + [[1.0], [4.0]])  # 15 pairs of 28 are 0 apart
    assert tp.median_distance(X) == 0
    positive = pdist(X.numpy())
    assert median_bandwidth(X) == pytest.approx(positive[positive > 0].mean())
    with pytest.raises(ValueError, match="all distances are 0"):
        median_bandwidth(torch.zeros(4, 2))


Z = torch.zeros(1, 3, 2)
BAD: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (ValueError, r"X has shape \[3, 2\].*X\[None\]", lambda: tp.mmd_statistics(Z[0], Z)),
    (TypeError, "Y is list", lambda: tp.energy_statistics(Z, [[1.0]])),  # type: ignore[arg-type]
    (ValueError, "estimator='w'", lambda: tp.mmd_statistics(Z, Z, estimator="w")),  # type: ignore[arg-type]
    (ValueError, "estimator='u' needs at least 2 points; Y has 1", lambda: tp.mmd_statistics(Z, Z[:, :1])),
    (ValueError, "estimator='v' needs at least 1 points; X has 0", lambda: tp.energy_statistics(Z[:, :0], Z, estimator="v")),
    (ValueError, "gamma='scale'", lambda: tp.mmd_statistics(Z, Z, gamma="scale")),
    (TypeError, "has no option 'width'", lambda: tp.mmd_statistics(Z, Z, width=1.0)),
    (ValueError, "no pair to take the median of", lambda: tp.median_distance(Z[0, :1])),
    (ValueError, "finite", lambda: tp.median_distance(torch.tensor([[math.nan], [0.0], [1.0]]))),
    (ValueError, "finite", lambda: tp.median_distance(torch.tensor([[math.inf], [0.0], [1.0], [2.0]]))),
]


@pytest.mark.parametrize(("error", "words", "call"), BAD, ids=[words for _, words, _ in BAD])
def test_bad_input(error: type[Exception], words: str, call: Callable[[], Any]) -> None:
    with pytest.raises(error, match=words):
        call()
