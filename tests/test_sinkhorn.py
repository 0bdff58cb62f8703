"""`tp.optimize.sinkhorn` and `sinkhorn_divergence` against Sinkhorn's algorithm written out in NumPy, linear programs, POT and GeomLoss."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from clouds import KINDS, as_cost, costs, points, weights
from scipy.optimize import linprog
from scipy.special import logsumexp
from torch import Tensor

import torchpairwise as tp
from torchpairwise.optimize import ConvergenceError, sinkhorn, sinkhorn_divergence

Array = np.ndarray
INF = math.inf


def oracle(C: Array, a: Array, b: Array, epsilon: float, rho: tuple[float, float] = (INF, INF), n_iter: int = 20000) -> dict[str, Any]:
    """Plain Sinkhorn on stored costs; with finite rho the marginals are held by rho KL."""
    factors = [1.0 if math.isinf(r) else r / (r + epsilon) for r in rho]
    with np.errstate(divide="ignore"):
        log_a, log_b = np.log(a), np.log(b)
    f, g = np.zeros_like(a), np.zeros_like(b)
    for _ in range(n_iter):
        g = -factors[1] * epsilon * logsumexp((f[:, None] - C) / epsilon + log_a[:, None], axis=0)
        f, before = -factors[0] * epsilon * logsumexp((g - C) / epsilon + log_b, axis=1), f
        if np.abs(f - before).max() < 1e-14:
            break
    P = np.exp((f[:, None] + g - C) / epsilon + log_a[:, None] + log_b)
    return {"P": P, "f": f, "g": g, "cost": primal(P, C, a, b, epsilon, rho)}


def divergence_of_measures(p: Array, q: Array) -> float:
    """KL(p | q) of measures, with 0 log 0 = 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(p > 0, p * np.log(p / q), 0.0).sum() - p.sum() + q.sum())


def primal(P: Array, C: Array, a: Array, b: Array, epsilon: float, rho: tuple[float, float] = (INF, INF)) -> float:
    value = float((P[P > 0] * C[P > 0]).sum()) + epsilon * divergence_of_measures(P, a[:, None] * b)
    for marginal, target, price in ((P.sum(1), a, rho[0]), (P.sum(0), b, rho[1])):
        value += 0.0 if math.isinf(price) else price * divergence_of_measures(marginal, target)
    return value


# Values


@KINDS
@pytest.mark.parametrize("epsilon", [0.5, 0.05, 0.005])
@pytest.mark.parametrize("scaling", [0.5, None])
def test_balanced(kind: str, epsilon: float, scaling: float | None) -> None:
    X, Y, a, b = points(17, 2), points(23, 2, seed=1), weights(17, 2), weights(23, 3)
    expected = oracle(costs(X, Y), a.numpy(), b.numpy(), epsilon)
    result = sinkhorn(as_cost(kind, X, Y), a, b, epsilon=epsilon, tol=1e-9, scaling=scaling)
    assert result.converged and result.status == "converged" and result.marginal_error <= 1e-9
    np.testing.assert_allclose(result.coupling.dense().numpy(), expected["P"], atol=1e-8)
    np.testing.assert_allclose(result.cost, expected["cost"], rtol=1e-9)
    np.testing.assert_allclose(result.transport_cost, (expected["P"] * costs(X, Y)).sum(), rtol=1e-6)
    P = expected["P"]
    np.testing.assert_allclose(result.entropy, -(P * np.log(P)).sum(), rtol=1e-6)
    shift = float(result.potentials.f[0]) - expected["f"][0]
    np.testing.assert_allclose(result.potentials.f.numpy() - shift, expected["f"], atol=1e-6)
    np.testing.assert_allclose(result.potentials.g.numpy() + shift, expected["g"], atol=1e-6)
    assert result.solution is result.coupling and result.residual_norm is result.marginal_error


@KINDS
@pytest.mark.parametrize("rho", [(1.0, 1.0), (0.2, 0.2), (0.5, INF), (INF, 2.0)])
def test_kl_marginals(kind: str, rho: tuple[float, float]) -> None:
    X, Y = points(9, 2), points(12, 2, seed=1)
    a, b = 1.7 * weights(9, 2), weights(12, 3)
    expected = oracle(costs(X, Y), a.numpy(), b.numpy(), 0.1, rho)
    result = sinkhorn(as_cost(kind, X, Y), a, b, epsilon=0.1, marginal="kl", rho=rho if rho[0] != rho[1] else rho[0], tol=1e-10)
    assert result.converged
    np.testing.assert_allclose(result.coupling.dense().numpy(), expected["P"], atol=1e-9)
    np.testing.assert_allclose(result.cost, expected["cost"], rtol=1e-9)


def random_program(X: Tensor, Y: Tensor) -> tuple[Array, Array]:
    return costs(X, Y), np.vstack([np.kron(np.eye(len(X)), np.ones(len(Y))), np.kron(np.ones(len(X)), np.eye(len(Y)))])


def test_small_epsilon_is_the_linear_program() -> None:
    X, Y, a, b = points(8, 2), points(11, 2, seed=1), weights(8, 2), weights(11, 3)
    C, A = random_program(X, Y)
    exact = linprog(C.ravel(), A_eq=A, b_eq=np.concatenate([a, b]))
    result = sinkhorn(tp.lazy(X, Y), a, b, epsilon=2e-4, tol=1e-6, max_iter=20000)
    assert result.converged
    assert abs(float(result.transport_cost) - exact.fun) < 1e-3 * exact.fun


@KINDS
def test_total_variation_marginals(kind: str) -> None:
    """The limit of small epsilon: at most price rho for a unit of mass that is dropped, on either side."""
    X, Y = points(8, 2), points(11, 2, seed=1)
    a, b = weights(8, 2), 1.5 * weights(11, 3)
    C, A = random_program(X, Y)
    rho = 0.03
    # Dropping mass costs rho on both sides, so <P, C> + rho (sum a - sum P) + rho (sum b - sum P).
    exact = linprog(C.ravel() - 2 * rho, A_ub=A, b_ub=np.concatenate([a, b])).fun + rho * float(a.sum() + b.sum())
    result = sinkhorn(as_cost(kind, X, Y), a, b, epsilon=2e-4, marginal="tv", rho=rho, tol=1e-6, max_iter=20000)
    assert result.converged
    np.testing.assert_allclose(result.cost, exact, atol=1e-3)  # epsilon KL(P | a b^T)
    assert float(result.coupling.sum()) < 0.99


@KINDS
@pytest.mark.parametrize("mass", [0.3, 0.8])
def test_partial(kind: str, mass: float) -> None:
    X, Y, a, b = points(8, 2), points(11, 2, seed=1), weights(8, 2), weights(11, 3)
    C, A = random_program(X, Y)
    exact = linprog(C.ravel(), A_ub=A, b_ub=np.concatenate([a, b]), A_eq=np.ones((1, C.size)), b_eq=[mass])
    result = sinkhorn(as_cost(kind, X, Y), a, b, epsilon=2e-4, marginal="partial", mass=mass, tol=1e-6, max_iter=20000)
    assert result.converged
    np.testing.assert_allclose(result.coupling.sum(), mass, rtol=1e-5)
    assert bool((result.coupling.sum(-1) <= a + 1e-6).all()) and bool((result.coupling.sum(-2) <= b + 1e-6).all())
    np.testing.assert_allclose(result.transport_cost, exact.fun, rtol=5e-3)
    again = sinkhorn(as_cost(kind, X, Y), a, b, epsilon=2e-4, marginal="partial", mass=mass, tol=1e-5, max_iter=20000, x0=result.potentials)
    assert again.iterations == 0 and again.converged


def test_against_pot() -> None:
    ot = pytest.importorskip("ot", reason="POT is not installed")
    X, Y, a, b = points(9, 3), points(7, 3, seed=1), weights(9, 2), weights(7, 3)
    C = costs(X, Y)
    P = sinkhorn(tp.lazy(X, Y), a, b, epsilon=0.05, tol=1e-10).coupling.dense().numpy()
    np.testing.assert_allclose(P, ot.bregman.sinkhorn_log(a.numpy(), b.numpy(), C, 0.05, stopThr=1e-12, numItermax=10000), atol=1e-8)
    u, v = np.full(9, 1 / 9), np.full(7, 1 / 7)
    P = sinkhorn(tp.lazy(X, Y), epsilon=0.05, marginal="partial", mass=0.8, tol=1e-10).coupling.dense().numpy()
    expected = ot.partial.entropic_partial_wasserstein(u, v, C, 0.05, m=0.8, numItermax=20000, stopThr=1e-14)
    np.testing.assert_allclose(P, expected, atol=1e-7)


@pytest.mark.parametrize("p", [1, 2])
def test_divergence_against_geomloss(p: int) -> None:
    geomloss = pytest.importorskip("geomloss", reason="GeomLoss is not installed")
    X, Y, a, b = points(30, 3), points(25, 3, seed=1) + 0.2, weights(30, 2), weights(25, 3)
    blur, reach = 0.2, 0.7
    metric = "sqeuclidean" if p == 2 else "euclidean"
    C = [tp.lazy(*pair, metric) * (0.5 if p == 2 else 1.0) for pair in ((X, Y), (X, X), (Y, Y))]
    for options, theirs in (({}, {}), ({"marginal": "kl", "rho": reach**p}, {"reach": reach})):
        a = 1.3 * a if options else a  # unequal masses
        loss = geomloss.SamplesLoss("sinkhorn", p=p, blur=blur, scaling=0.99, backend="tensorized", **theirs)
        ours = sinkhorn_divergence(*C, a, b, epsilon=blur**p, **options)
        np.testing.assert_allclose(ours, loss(a, X, b, Y), rtol=2e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("epsilon", [1.0, 1e-2, 1e-3, 1e-5])
def test_bc_073_small_epsilon(dtype: torch.dtype, epsilon: float) -> None:
    result = sinkhorn(torch.tensor([[0.0, 9.0], [16.0, 4.0]], dtype=dtype), epsilon=epsilon)
    assert result.cost.isfinite() and result.coupling.dense().isfinite().all()
    if dtype == torch.float64 or epsilon >= 1e-3:
        assert result.converged
        assert abs(float(result.transport_cost) - 2.0) < 1e-3
        torch.testing.assert_close(result.coupling.dense(), torch.eye(2, dtype=dtype) / 2, atol=1e-3, rtol=0)
    else:
        # 16 / 1e-5 leaves float32 no digits: an exact answer by luck, or an honest status.
        assert bool(result.converged) == (result.status == "converged")


def test_bc_076_divergence_is_not_negative_when_converged() -> None:
    generator = torch.Generator().manual_seed(0)
    X, Y = (0.2 * torch.randn(60, 120, generator=generator) for _ in range(2))
    C = tp.lazy(X, Y), tp.lazy(X, X), tp.lazy(Y, Y)
    scale = float(C[0].mean())
    for epsilon in (1e-2, 0.1, 1.0, 10.0):
        result = sinkhorn_divergence(*C, epsilon=epsilon, return_result=True)
        assert result.converged and result.divergence >= -1e-6 * scale
    assert abs(float(sinkhorn_divergence(C[1], C[1], C[1], epsilon=0.1))) <= 1e-6 * scale
    for part, size in ((result.xy, 60), (result.xx, 60), (result.yy, 60)):
        error = sum((part.coupling.sum(axis) - 1 / size).abs().sum() for axis in (-1, -2))
        torch.testing.assert_close(part.marginal_error, error, rtol=0.1, atol=3e-6)
    early = sinkhorn_divergence(*C, epsilon=1e-2, max_iter=2, return_result=True)
    assert not early.converged and early.status == "max_iter" and early.marginal_error > 1e-4


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ([0.5, 0.5], [0.7, 0.6], "a sums to 1 and b to 1.3"),
        ([1.5, -0.5], [0.5, 0.5], r"a\[1\] is -0.5"),
        ([0.5, 0.5], [math.nan, 0.5], r"b\[0\] is nan"),
        ([math.inf, 0.5], [0.5, 0.5], r"a\[0\] is inf"),
        ([0.0, 0.0], [0.5, 0.5], "all weights of a are 0"),
        ([0.5, 0.25, 0.25], [0.5, 0.5], "one for each of the rows"),
    ],
)
def test_bc_079_weights_that_do_not_fit(a: list[float], b: list[float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        sinkhorn(tp.lazy(torch.zeros(2, 1), torch.ones(2, 1)), torch.tensor(a), torch.tensor(b), epsilon=0.1)


def test_float32_rounding_of_sums_is_no_error() -> None:
    a, b = torch.softmax(points(300, dtype=torch.float32), -1).double(), torch.full((200,), 1 / 200).double()
    result = sinkhorn(tp.lazy(points(300, 2), points(200, 2)), a * (1 + 3e-6), b, epsilon=0.1, tol=1e-9)
    assert result.converged


# Batches


@KINDS
def test_bc_082_ragged_batch(kind: str) -> None:
    Y = points(60, 3, seed=1)
    sizes = (7, 12, 19)
    X, a = torch.zeros(3, 19, 3).double(), torch.zeros(3, 19).double()
    for index, size in enumerate(sizes):
        X[index, :size], a[index, :size] = points(size, 3, seed=index), weights(size, index)
    X.requires_grad_()
    batch = sinkhorn(as_cost(kind, X, Y), a, epsilon=0.05, tol=1e-9)
    assert batch.cost.shape == batch.converged.shape == (3,) and batch.converged.all()
    (gradient,) = torch.autograd.grad(batch.cost.sum(), X)
    for index, size in enumerate(sizes):
        single = sinkhorn(as_cost(kind, X[index, :size], Y), a[index, :size], epsilon=0.05, tol=1e-9)
        torch.testing.assert_close(batch.cost[index], single.cost)
        torch.testing.assert_close(gradient[index, :size], torch.autograd.grad(single.cost, X)[0][index, :size], atol=1e-8, rtol=0)
        assert (gradient[index, size:] == 0).all()


def test_batch_dimensions_broadcast() -> None:
    X, Y, a = points(2, 1, 6, 2), points(3, 7, 2, seed=1), weights(6, 2, 2, 1)
    result = sinkhorn(tp.lazy(X, Y), a, epsilon=0.1, tol=1e-9)
    assert result.cost.shape == (2, 3) and result.potentials.g.shape == (2, 3, 7) and result.coupling.shape == (2, 3, 6, 7)
    for i in range(2):
        for j in range(3):
            torch.testing.assert_close(result.cost[i, j], sinkhorn(tp.lazy(X[i, 0], Y[j]), a[i, 0], epsilon=0.1, tol=1e-9).cost)
    C = (tp.lazy(Y, Y), tp.lazy(Y, Y), tp.lazy(Y, Y))
    assert sinkhorn_divergence(*C, epsilon=0.1).abs().max() < 1e-12
    weighted = sinkhorn(tp.lazy(points(6, 2), points(7, 2)), weights(6, 2, 4), epsilon=0.1)
    assert weighted.cost.shape == (4,) and weighted.coupling.shape == (4, 6, 7)


# The coupling


@KINDS
def test_the_coupling_streams(kind: str) -> None:
    X, Y, a, b = points(6, 2), points(9, 2, seed=1), weights(6, 2), weights(9, 3)
    coupling = sinkhorn(as_cost(kind, X, Y), a, b, epsilon=0.05, tol=1e-9).coupling
    P = coupling.dense()
    torch.testing.assert_close(coupling.sum(-1), a, atol=1e-8, rtol=0)
    torch.testing.assert_close(coupling.sum(-2), b, atol=1e-8, rtol=0)
    torch.testing.assert_close(coupling @ Y, P @ Y)
    torch.testing.assert_close(coupling.matmul(X[:, 0], dim=-2), X[:, 0] @ P)
    for dim in (-1, -2):
        found = coupling.topk(3, dim=dim)
        expected = (P if dim == -1 else P.T).topk(3)
        torch.testing.assert_close(found.values, expected.values)
        assert torch.equal(found.indices, expected.indices)
    assert torch.equal(coupling.topk(2, largest=False).indices, P.topk(2, largest=False).indices)


# Stopping


def test_an_exact_start_takes_no_iterations() -> None:
    C = tp.lazy(points(20, 2), points(30, 2, seed=1))
    first = sinkhorn(C, epsilon=0.01, tol=1e-8)
    again = sinkhorn(C, epsilon=0.01, tol=1e-7, x0=first.potentials)
    assert first.iterations > 0 and again.iterations == 0 and again.converged
    warm = sinkhorn(C, epsilon=0.009, tol=1e-8, x0=first.potentials)
    assert warm.iterations < sinkhorn(C, epsilon=0.009, tol=1e-8, scaling=None).iterations


@pytest.mark.parametrize("max_iter", [0, 1, 3, 2000])
def test_converged_is_what_is_measured(max_iter: int) -> None:
    a, b = weights(20, 1), weights(30, 2)
    result = sinkhorn(tp.lazy(points(20, 2), points(30, 2, seed=1)), a, b, epsilon=0.02, tol=1e-6, max_iter=max_iter)
    P = result.coupling
    error = (P.sum(-1) - a).abs().sum() + (P.sum(-2) - b).abs().sum()
    torch.testing.assert_close(result.marginal_error, error, rtol=1e-6, atol=1e-12)
    assert bool(result.converged) == bool(result.marginal_error <= 1e-6) == (result.status == "converged") == (max_iter == 2000)
    assert result.iterations <= max_iter


def test_stagnation_is_told() -> None:
    """10 / 1e-6 leaves float32 no digits of the masses."""
    C, a, b = 10 * points(6, 9), weights(6, 1), weights(9, 2)
    result = sinkhorn(C.float(), a.float(), b.float(), epsilon=1e-6, max_iter=20000)
    assert not result.converged and result.status == "stagnated" and "float64" in result.status.advice
    assert result.iterations < 20000 and result.cost.isfinite()
    assert sinkhorn(C, a, b, epsilon=1e-2, tol=1e-4, max_iter=20000).converged


def test_over_relaxation_saves_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    C = tp.lazy(points(100, 1), points(100, 1, seed=1))
    fast = sinkhorn(C, epsilon=1e-3, tol=1e-6)
    monkeypatch.setattr("torchpairwise.optimize._iterations._LARGEST_OMEGA", 1.0)
    plain = sinkhorn(C, epsilon=1e-3, tol=1e-6, max_iter=20000)
    assert fast.converged and plain.converged and 3 * fast.iterations < plain.iterations
    torch.testing.assert_close(fast.cost, plain.cost, rtol=1e-6, atol=0)


@KINDS
def test_forbidden_pairs(kind: str) -> None:
    X, Y = points(4, 1), points(4, 1, seed=1)
    C = costs(X, Y)
    C[0, :3] = INF
    C[1:, 3] = INF
    cost = torch.from_numpy(C)
    if kind == "lazy":
        # |x - y|^2, forbidden where the labels in the second feature differ
        X2, Y2 = torch.cat([X, torch.tensor([[1.0], [0], [0], [0]])], -1), torch.cat([Y, torch.tensor([[0.0], [0], [0], [1]])], -1)
        metric = tp.make_pairwise(lambda x, y: torch.where(x[..., 1] == y[..., 1], (x[..., 0] - y[..., 0]).square(), INF))
        lazy: Any = tp.lazy(X2, Y2, metric)
        result = sinkhorn(lazy, epsilon=0.1, tol=1e-9)
    else:
        result = sinkhorn(cost, epsilon=0.1, tol=1e-9)
    P = result.coupling.dense().numpy()
    assert result.converged and (P[C == INF] == 0).all()
    np.testing.assert_allclose(P, oracle(C, np.full(4, 0.25), np.full(4, 0.25), 0.1)["P"], atol=1e-8)
    np.testing.assert_allclose(result.transport_cost, P[C < INF] @ C[C < INF])
    leaf = cost.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(sinkhorn(leaf, epsilon=0.1, tol=1e-9).cost, leaf)
    np.testing.assert_allclose(gradient.numpy(), P, atol=1e-8)


def test_a_row_without_allowed_pairs() -> None:
    C = torch.tensor([[INF, INF], [1.0, 2.0]])
    result = sinkhorn(C, epsilon=0.1)
    assert not result.converged and result.status == "infeasible" and "forbidden" in result.status.advice
    assert result.coupling.dense().isfinite().all() and result.cost.isfinite()
    assert result.iterations < 100
    C.requires_grad_()
    relaxed = sinkhorn(C, epsilon=0.1, marginal="kl", rho=1.0)
    (gradient,) = torch.autograd.grad(relaxed.cost, C)
    torch.testing.assert_close(gradient, relaxed.coupling.dense())
    assert relaxed.converged and (relaxed.coupling.dense()[0] == 0).all() and relaxed.cost.isfinite()
    assert sinkhorn(torch.full((2, 2), INF), epsilon=0.1).status == "infeasible"


def test_float16_is_computed_and_returned_in_float32() -> None:
    X, Y = points(6, 2).half().requires_grad_(), points(5, 2, seed=1).half()
    result = sinkhorn(tp.lazy(X, Y), torch.full((6,), 1 / 6).half(), epsilon=0.5, tol=1e-3)
    assert result.cost.dtype == torch.float32
    expected = sinkhorn(tp.lazy(X.detach().float(), Y.float()), epsilon=0.5, tol=1e-3).cost
    torch.testing.assert_close(result.cost, expected, rtol=1e-3, atol=0)
    assert torch.autograd.grad(result.cost, X)[0].dtype == torch.float16
    dense = sinkhorn(torch.rand(3, 3).half(), epsilon=0.5)
    assert dense.cost.dtype == torch.float32


def test_nothing_of_size_n_m_is_stored() -> None:
    X, Y = points(3000, 2, dtype=torch.float32).requires_grad_(), points(3000, 2, seed=1, dtype=torch.float32)
    sizes: list[int] = []

    def keep(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        cost = sinkhorn(tp.lazy(X, Y), epsilon=0.5, tol=1e-3).cost
    torch.autograd.grad(cost, X)
    assert max(sizes) <= X.numel()


def test_callback_and_raise_on_failure() -> None:
    C = tp.lazy(points(10, 2), points(10, 2, seed=1))
    seen: list[tuple[int, float]] = []
    result = sinkhorn(C, epsilon=0.01, callback=lambda iteration, error: seen.append((iteration, error)))
    assert [iteration for iteration, _ in seen] == list(range(seen[0][0], result.iterations + 1))
    assert seen[-1][1] == float(result.marginal_error)
    assert sinkhorn(C, epsilon=0.01, raise_on_failure=True).converged
    with pytest.raises(ConvergenceError, match="status max_iter after 2 iterations.*raise max_iter"):
        sinkhorn(C, epsilon=0.001, max_iter=2, raise_on_failure=True)
    with pytest.raises(ConvergenceError, match="sinkhorn_divergence"):
        sinkhorn_divergence(C, C, C, epsilon=0.001, max_iter=1, raise_on_failure=True)


X2, Y2 = torch.zeros(2, 1), torch.ones(3, 1)
BAD: list[tuple[type[Exception], str, Callable[[Any], Any]]] = [
    (ValueError, "epsilon=0.0; expected a finite number > 0", lambda C: sinkhorn(C, epsilon=0)),
    (ValueError, "epsilon is a tensor", lambda C: sinkhorn(C, epsilon=torch.ones(2))),
    (TypeError, "epsilon is str", lambda C: sinkhorn(C, epsilon="small")),
    (ValueError, "tol=-1", lambda C: sinkhorn(C, epsilon=1, tol=-1)),
    (ValueError, "max_iter=2.5", lambda C: sinkhorn(C, epsilon=1, max_iter=2.5)),
    (ValueError, "scaling=1.5", lambda C: sinkhorn(C, epsilon=1, scaling=1.5)),
    (ValueError, "marginal='l2'", lambda C: sinkhorn(C, epsilon=1, marginal="l2")),
    (ValueError, "needs rho=", lambda C: sinkhorn(C, epsilon=1, marginal="kl")),
    (ValueError, "rho=-1", lambda C: sinkhorn(C, epsilon=1, marginal="tv", rho=-1)),
    (ValueError, "rho was given with marginal=None", lambda C: sinkhorn(C, epsilon=1, rho=1)),
    (ValueError, "needs mass= > 0", lambda C: sinkhorn(C, epsilon=1, marginal="partial")),
    (ValueError, "mass=2.0 is too much: a sums to 1 and b to 1", lambda C: sinkhorn(C, epsilon=1, marginal="partial", mass=2)),
    (ValueError, "mass was given with marginal='kl'", lambda C: sinkhorn(C, epsilon=1, marginal="kl", rho=1, mass=1)),
    (ValueError, "differentiable='yes'", lambda C: sinkhorn(C, epsilon=1, differentiable="yes")),
    (ValueError, "need None or 'kl'", lambda C: sinkhorn(C, epsilon=1, marginal="tv", rho=1, differentiable=True)),
    (TypeError, "x0 is Tensor|x0 is a tensor", lambda C: sinkhorn(C, epsilon=1, x0=torch.zeros(2))),
    (ValueError, "x0: g has shape", lambda C: sinkhorn(C, epsilon=1, x0=(torch.zeros(2), torch.zeros(2)))),
    (TypeError, "a has dtype torch.float64", lambda C: sinkhorn(C, torch.ones(2).double() / 2, epsilon=1)),
    (ValueError, "on meta", lambda C: sinkhorn(C, torch.ones(2, device="meta"), epsilon=1)),
    (TypeError, "C is list", lambda C: sinkhorn([[1.0]], epsilon=1)),
    (ValueError, r"C has shape \[3\]", lambda C: sinkhorn(torch.zeros(3), epsilon=1)),
    (ValueError, "NaN or -inf", lambda C: sinkhorn(torch.tensor([[math.nan, 1.0]]), epsilon=1)),
    (ValueError, "NaN or -inf", lambda C: sinkhorn(torch.tensor([[-INF, 1.0]]), epsilon=1)),
    (ValueError, "no rows to transport", lambda C: sinkhorn(tp.lazy(torch.zeros(0, 1), Y2), epsilon=1)),
    (ValueError, r"C_yy has shape \[2, 2\]", lambda C: sinkhorn_divergence(C, tp.lazy(X2), tp.lazy(X2), epsilon=1)),
    (ValueError, "a divergence takes None", lambda C: sinkhorn_divergence(C, C, C, epsilon=1, marginal="partial")),
    (ValueError, "a divergence takes one number", lambda C: sinkhorn_divergence(C, C, C, epsilon=1, marginal="kl", rho=(1, 2))),
]


@pytest.mark.parametrize(("error", "words", "call"), BAD, ids=[words for _, words, _ in BAD])
def test_bad_input(error: type[Exception], words: str, call: Callable[[Any], Any]) -> None:
    with pytest.raises(error, match=words):
        call(tp.lazy(X2, Y2))
