"""`tp.optimize.box_qp` against scikit-learn's SVC, and against SciPy and closed forms."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import LinearConstraint, minimize, nnls
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, OneClassSVM
from torch import Tensor

import torchpairwise as tp
from torchpairwise.optimize import BoxQPResult, ConvergenceError, box_qp

Array = np.ndarray
INF = math.inf
MODULE = importlib.import_module("torchpairwise.optimize.box_qp")  # the package has a function of the same name


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def dual(
    X: Tensor, y: Tensor, C: Any, metric: str = "rbf", lazy: bool = True, options: dict[str, Any] | None = None, **solver: Any
) -> BoxQPResult:
    """The dual problem of a support vector machine."""
    K = tp.lazy(X, metric=metric, **(options or {}))
    Q = K.weight_rows(y).weight_columns(y)
    return box_qp(Q if lazy else Q.dense(), -torch.ones_like(y), lower=0.0, upper=C, equality=(y, 0.0), **solver)


def cancer() -> tuple[Array, Array]:
    X, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(X), 2.0 * y - 1


def digits() -> tuple[Array, Array]:
    X, y = load_digits(return_X_y=True)
    return X / 16, np.where(y % 2 == 0, 1.0, -1.0)


def objective_of(model: SVC, X: Array, y: Array, gamma: float) -> float:
    alpha = np.zeros(len(y))
    alpha[model.support_] = np.abs(model.dual_coef_[0])
    K = np.exp(-gamma * ((X**2).sum(-1)[:, None] + (X**2).sum(-1) - 2 * X @ X.T))
    return float(0.5 * (alpha * y) @ K @ (alpha * y) - alpha.sum())


@pytest.mark.parametrize(
    ("data", "gamma", "C", "dtype", "lazy"),
    [
        (cancer, 1 / 30, 0.01, torch.float64, True),
        (cancer, 1 / 30, 1.0, torch.float64, False),
        (cancer, 1 / 30, 100.0, torch.float64, True),
        (digits, 0.05, 1.0, torch.float32, True),
        (digits, 0.05, 10.0, torch.float32, False),
    ],
)
def test_support_vector_machine(data: Callable[[], tuple[Array, Array]], gamma: float, C: float, dtype: torch.dtype, lazy: bool) -> None:
    X, y = data()
    features, labels = torch.from_numpy(X).to(dtype), torch.from_numpy(y).to(dtype)
    result = dual(features, labels, C, lazy=lazy, options={"gamma": gamma})
    model = SVC(C=C, gamma=gamma).fit(X, y)
    expected = objective_of(model, X, y, gamma)
    assert result.converged and result.status == "converged" and result.gap <= 1e-3
    assert abs(float(result.objective) - expected) < 1e-5 * abs(expected)
    x = result.solution
    assert x.dtype == dtype and (x >= 0).all() and (x <= C).all() and abs(float(x @ labels)) < 1e-4 * C
    decision = tp.lazy(features, metric="rbf", gamma=gamma) @ (x * labels) + result.multiplier
    np.testing.assert_allclose(decision.numpy(), model.decision_function(X), atol=0.01)
    assert result.residual_norm is result.gap


def test_gap_and_objective_are_those_of_the_solution() -> None:
    X, y = (torch.from_numpy(part) for part in cancer())
    result = dual(X, y, 1.0, options={"gamma": 1 / 30})
    Q = (y[:, None] * y * torch.exp(-((X[:, None] - X) ** 2).sum(-1) / 30)).numpy()
    x = result.solution.numpy()
    gradient = Q @ x - 1
    score = -y.numpy() * gradient
    rises = (y.numpy() > 0) & (x < 1) | (y.numpy() < 0) & (x > 0)
    falls = (y.numpy() > 0) & (x > 0) | (y.numpy() < 0) & (x < 1)
    np.testing.assert_allclose(result.gap, score[rises].max() - score[falls].min(), rtol=1e-6)
    np.testing.assert_allclose(result.objective, 0.5 * x @ Q @ x - x.sum())


def test_warm_start() -> None:
    X, y = (torch.from_numpy(part) for part in cancer())
    first = dual(X, y, 1.0, options={"gamma": 1 / 30})
    again = dual(X, y, 1.0, options={"gamma": 1 / 30}, x0=first.solution, tol=1.1e-3)
    assert again.iterations == 0 and again.converged and torch.equal(again.solution, first.solution)
    smaller = dual(X, y, 0.5, options={"gamma": 1 / 30}, x0=first.solution)
    cold = dual(X, y, 0.5, options={"gamma": 1 / 30})
    assert smaller.converged
    torch.testing.assert_close(smaller.objective, cold.objective, rtol=1e-5, atol=0)


def test_one_class() -> None:
    """sum x = nu N: the start has to be moved to the equality."""
    X, _ = cancer()
    n, nu = len(X), 0.3
    features = torch.from_numpy(X)
    Q = tp.lazy(features, metric="rbf", gamma=0.05)
    result = box_qp(Q, torch.zeros(n).double(), lower=0.0, upper=1.0, equality=(torch.ones(n).double(), nu * n), tol=1e-5)
    model = OneClassSVM(nu=nu, gamma=0.05, tol=1e-6).fit(X)
    assert result.converged
    np.testing.assert_allclose((Q @ result.solution + result.multiplier).numpy(), model.decision_function(X), atol=1e-3)


@pytest.mark.parametrize("n", [1, 12, 300])
def test_without_equality_is_nonnegative_least_squares(n: int) -> None:
    A, b = normal(n + 20, n), normal(n + 20, seed=1)
    result = box_qp(A.T @ A, -A.T @ b, lower=0.0, tol=1e-9)
    assert result.converged and result.multiplier == 0
    np.testing.assert_allclose(result.solution.numpy(), nnls(A.numpy(), b.numpy())[0], atol=1e-8)


def test_without_bounds_is_a_linear_system() -> None:
    A = normal(15, 10)
    Q, q = A.T @ A + torch.eye(10), normal(10, seed=1)
    result = box_qp(Q, q, tol=1e-10)
    torch.testing.assert_close(result.solution, -torch.linalg.solve(Q, q), atol=1e-8, rtol=0)
    v = normal(10, seed=2)
    tied = box_qp(Q, q, equality=(v, 0.7), tol=1e-10)
    system = torch.cat([torch.cat([Q, v[:, None]], 1), torch.cat([v[None], torch.zeros(1, 1).double()], 1)])
    expected = torch.linalg.solve(system, torch.cat([-q, torch.tensor([0.7]).double()]))
    torch.testing.assert_close(torch.cat([tied.solution, tied.multiplier[None]]), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("seed", range(4))
def test_any_vector_any_bounds_against_scipy(seed: int) -> None:
    n = 12
    A = normal(n, n, seed=seed)
    Q, q = A.T @ A + 0.1 * torch.eye(n), normal(n, seed=seed + 10)
    lower, upper = -normal(n, seed=seed + 20).abs(), normal(n, seed=seed + 30).abs()
    vector = normal(n, seed=seed + 40)
    vector[::4] = 0
    number = float(vector @ (0.7 * lower + 0.3 * upper))
    result = box_qp(Q, q, lower=lower, upper=upper, equality=(vector, number), tol=1e-9)
    assert result.converged
    expected = minimize(
        lambda x: 0.5 * x @ Q.numpy() @ x + q.numpy() @ x,
        np.zeros(n),
        jac=lambda x: Q.numpy() @ x + q.numpy(),
        bounds=list(zip(lower.numpy(), upper.numpy(), strict=True)),
        constraints=LinearConstraint(vector.numpy()[None], number, number),
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(result.objective, expected.fun, atol=1e-8)
    np.testing.assert_allclose(result.solution.numpy(), expected.x, atol=1e-5)
    torch.testing.assert_close(vector @ result.solution, torch.tensor(number).double())


def test_working_sets_agree_with_the_whole_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = (torch.from_numpy(part) for part in cancer())
    C = torch.where(y > 0, 1.0, 3.0).double()
    C[::7] = 0.0  # entries that cannot move
    results = []
    for size in (8, 64, 1000):
        monkeypatch.setattr(MODULE, "_WORKING_SET", size)
        results.append(dual(X, y, C, options={"gamma": 1 / 30}, tol=1e-5))
    for result in results:
        assert result.converged and (result.solution[::7] == 0).all()
        torch.testing.assert_close(result.objective, results[0].objective, rtol=1e-8, atol=0)
    keep = C > 0
    removed = dual(X[keep], y[keep], C[keep], options={"gamma": 1 / 30}, tol=1e-5)
    torch.testing.assert_close(removed.objective, results[0].objective, rtol=1e-8, atol=0)


# Hard problems


def test_bc_094_ill_scaled_features_stop() -> None:
    X, y = torch.tensor([[1.0, 60000.0], [2.0, 60000.0]]), torch.tensor([-1.0, 1.0])
    options = {"degree": 2.0, "gamma": 0.5, "coef0": 0.0}
    result = dual(X, y, 1.0, "polynomial", options=options, max_iter=50)
    assert result.iterations <= 50 and (result.solution >= 0).all() and (result.solution <= 1).all()
    assert bool(result.converged) == bool(result.gap <= 1e-3)
    X, y = normal(200, 2, dtype=torch.float32), torch.where(normal(200, seed=1) > 0, 1.0, -1.0)
    result = dual(X, y, 1e10, options={"gamma": 1.0}, max_iter=3)
    assert result.iterations <= 3 and not result.converged and result.status in ("max_iter", "stagnated")
    assert "scale the problem" in tp.optimize.Status.STAGNATED.advice


def test_bc_097_hard_margin() -> None:
    separable = torch.tensor([[0.0, 0], [1, 0], [3, 0], [4, 1]]).double(), torch.tensor([-1.0, -1, 1, 1]).double()
    result = dual(*separable, INF, "linear", tol=1e-9)
    assert result.converged
    weight = (result.solution * separable[1]) @ separable[0]
    torch.testing.assert_close(weight, torch.tensor([1.0, 0.0]).double())
    torch.testing.assert_close(result.multiplier, torch.tensor(-2.0).double())
    overlapping = torch.tensor([[0.0], [1], [1], [2]]).double(), torch.tensor([-1.0, -1, 1, 1]).double()
    result = dual(*overlapping, INF, "linear")
    assert not result.converged and result.status == "unbounded" and "separated" in result.status.advice
    tiny = dual(*overlapping, 1e-12, "linear")
    assert tiny.converged and (tiny.solution == 1e-12).all()


def test_bc_098_duplicates() -> None:
    X = normal(20, 3).repeat_interleave(2, 0)
    y = torch.where(X[:, 0] > 0, 1.0, -1.0).double()
    y[1] = -y[0]
    result = dual(X, y, 1.0, options={"gamma": 0.5})
    assert result.converged and result.gap <= 1e-3 and result.multiplier.isfinite()
    model = SVC(C=1.0, gamma=0.5).fit(X.numpy(), y.numpy())
    decision = tp.lazy(X, metric="rbf", gamma=0.5) @ (result.solution * y) + result.multiplier
    np.testing.assert_allclose(decision.numpy(), model.decision_function(X.numpy()), atol=5e-3)


def test_stagnation_is_told() -> None:
    """A tol below the rounding of float32 products."""
    X, y = (torch.from_numpy(part).float() for part in cancer())
    result = dual(X, y, 100.0, options={"gamma": 1 / 30}, tol=1e-12)
    assert not result.converged and result.status == "stagnated" and result.gap > 1e-12


class Counting:
    """An operator that counts the rows asked for."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix, self.shape, self.dtype, self.device, self.n_rows = matrix, matrix.shape, matrix.dtype, matrix.device, 0

    def rows(self, indices: Tensor) -> Tensor:
        self.n_rows += len(indices)
        return self.matrix[indices]

    def matmul(self, values: Tensor) -> Tensor:
        return self.matrix @ values


def test_rows_are_kept_for_the_next_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "_WORKING_SET", 64)
    X, y = (torch.from_numpy(part) for part in cancer())
    K = y[:, None] * y * tp.lazy(X, metric="rbf", gamma=1 / 30).dense()
    operator = Counting(K)
    result = box_qp(operator, -torch.ones_like(y), lower=0.0, upper=1.0, equality=(y, 0.0))
    assert result.converged and result.iterations > 2
    assert operator.n_rows <= 64 + 32 * (result.iterations - 1)


def test_half_precision_and_callback() -> None:
    seen: list[tuple[int, float]] = []
    X = normal(30, 2).half()
    result = box_qp(tp.lazy(X), torch.ones(30), lower=-1.0, upper=1.0, callback=lambda i, gap: seen.append((i, gap)))
    assert result.solution.dtype == torch.float32 and seen[-1] == (result.iterations, float(result.gap))
    assert box_qp(torch.eye(2).half(), torch.ones(2)).solution.tolist() == [-1, -1]


ONE, Q = torch.ones(3), torch.eye(3)
BAD: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (TypeError, "Q is list", lambda: box_qp([[1.0]], ONE)),
    (ValueError, r"Q has shape \[2, 3\]", lambda: box_qp(torch.zeros(2, 3), ONE)),
    (ValueError, r"q is a tensor \[2\]", lambda: box_qp(Q, torch.ones(2))),
    (ValueError, "q has entries that are not finite", lambda: box_qp(Q, torch.tensor([1.0, INF, 0]))),
    (ValueError, "q is on meta", lambda: box_qp(Q, torch.ones(3, device="meta"))),
    (ValueError, r"lower\[0\] is 2.0, above upper\[0\] = 1.0", lambda: box_qp(Q, ONE, lower=2.0, upper=1.0)),
    (ValueError, r"upper has shape \[2\]", lambda: box_qp(Q, ONE, upper=torch.ones(2))),
    (ValueError, "lower has entries that are NaN", lambda: box_qp(Q, ONE, lower=math.nan)),
    (ValueError, "upper has entries that are NaN", lambda: box_qp(Q, ONE, upper=-INF)),
    (TypeError, "expected .vector, number.", lambda: box_qp(Q, ONE, equality=ONE)),
    (ValueError, "no nearer to 5 than 3", lambda: box_qp(Q, ONE, lower=0.0, upper=1.0, equality=(ONE, 5.0))),
    (ValueError, "no nearer to -1 than 0", lambda: box_qp(Q, ONE, lower=0.0, upper=1.0, equality=(ONE, -1.0))),
    (ValueError, "no x satisfies that", lambda: box_qp(Q, ONE, equality=(torch.zeros(3), 1.0))),
    (ValueError, "tol=-1", lambda: box_qp(Q, ONE, tol=-1)),
    (ValueError, "max_iter=1.5", lambda: box_qp(Q, ONE, max_iter=1.5)),  # type: ignore[arg-type]
    (ConvergenceError, "box_qp ended with status max_iter", lambda: box_qp(Q, ONE, max_iter=0, raise_on_failure=True)),
]


@pytest.mark.parametrize(("error", "words", "call"), BAD, ids=[words for _, words, _ in BAD])
def test_bad_input(error: type[Exception], words: str, call: Callable[[], Any]) -> None:
    with pytest.raises(error, match=words):
        call()
