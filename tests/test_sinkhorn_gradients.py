"""Gradients of `tp.optimize.sinkhorn` and `sinkhorn_divergence` against finite differences, and what stands at weight 0."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from clouds import KINDS, as_cost, points, weights
from torch import Tensor

import torchpairwise as tp
from torchpairwise.optimize import sinkhorn, sinkhorn_divergence

INF = math.inf


MARGINALS: list[dict[str, Any]] = [
    {},
    {"marginal": "kl", "rho": 1.0},
    {"marginal": "kl", "rho": (0.5, INF)},
    {"marginal": "tv", "rho": 0.3},
    {"marginal": "partial", "mass": 0.6},
]


def leaves() -> tuple[Tensor, ...]:
    epsilon = torch.tensor(0.2).double()
    return tuple(t.requires_grad_() for t in (points(5, 2), points(4, 2, seed=1), points(5, seed=2), points(4, seed=3), epsilon))


@KINDS
@pytest.mark.parametrize("options", MARGINALS, ids=str)
def test_bc_080_envelope_gradients(kind: str, options: dict[str, Any]) -> None:
    def cost(X: Tensor, Y: Tensor, a: Tensor, b: Tensor, epsilon: Tensor) -> Tensor:
        result = sinkhorn(as_cost(kind, X, Y), a.softmax(-1), b.softmax(-1), epsilon=epsilon, tol=1e-12, **options)
        assert result.converged
        return result.cost

    assert torch.autograd.gradcheck(cost, leaves(), rtol=1e-5, atol=1e-8)


def test_bc_080_gradients_are_coupling_and_potentials() -> None:
    C = points(5, 4).requires_grad_()
    a, b = weights(5, 1).requires_grad_(), weights(4, 2).requires_grad_()
    result = sinkhorn(C, a, b, epsilon=0.1, tol=1e-10)
    of_cost, of_a, of_b = torch.autograd.grad(result.cost, (C, a, b))
    torch.testing.assert_close(of_cost, result.coupling.dense(), atol=1e-9, rtol=0)
    for gradient, potential in ((of_a, result.potentials.f), (of_b, result.potentials.g)):
        difference = gradient - potential
        torch.testing.assert_close(difference, difference[0].expand_as(difference), atol=1e-8, rtol=0)
    assert not result.coupling.requires_grad and not result.potentials.f.requires_grad


@KINDS
@pytest.mark.parametrize("options", MARGINALS[:3], ids=str)
@pytest.mark.parametrize("zero", [False, True])
def test_implicit_gradients(kind: str, options: dict[str, Any], zero: bool) -> None:
    present = torch.tensor([1.0, 0.0, 1.0, 1.0, 1.0]).double() if zero else torch.ones(5).double()
    values = points(4, 3, seed=9)

    def solution(X: Tensor, Y: Tensor, a: Tensor, b: Tensor, epsilon: Tensor) -> tuple[Tensor, ...]:
        a = a.exp() * present
        cost = as_cost(kind, X, Y)
        result = sinkhorn(cost, a / a.sum(), b.softmax(-1), epsilon=epsilon, tol=1e-13, differentiable=True, **options)
        assert result.marginal_error < 1e-11
        return result.coupling @ values, result.coupling.dense(), result.transport_cost, result.cost

    assert torch.autograd.gradcheck(solution, leaves(), rtol=1e-5, atol=1e-7)


def test_implicit_gradients_of_potentials_up_to_a_constant() -> None:
    def difference(X: Tensor, Y: Tensor, a: Tensor, b: Tensor, epsilon: Tensor) -> tuple[Tensor, ...]:
        f, g = sinkhorn(tp.lazy(X, Y), a.softmax(-1), b.softmax(-1), epsilon=epsilon, tol=1e-13, differentiable="implicit").potentials
        return f - f[0], f.mean() + g.mean()

    assert torch.autograd.gradcheck(difference, leaves(), rtol=1e-5, atol=1e-7)
    # The constant itself is not determined; f has the gradient of f minus its weighted mean.
    X, Y, *_ = leaves()
    a = weights(5, 1)
    f, _ = sinkhorn(tp.lazy(X, Y), a, epsilon=0.2, tol=1e-13, differentiable=True).potentials
    (alone,) = torch.autograd.grad(f[0], X, retain_graph=True)
    (centred,) = torch.autograd.grad(f[0] - a @ f, X)
    torch.testing.assert_close(alone, centred, atol=1e-9, rtol=0)


def test_second_derivatives_raise() -> None:
    X, Y, *_ = leaves()
    (gradient,) = torch.autograd.grad(sinkhorn(tp.lazy(X, Y), epsilon=0.1).cost, X, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivatives of transport"):
        torch.autograd.grad(gradient.sum(), X)


def test_transforms_are_refused() -> None:
    X, Y = points(3, 5, 2), points(4, 2, seed=1)

    def cost(x: Tensor) -> Tensor:
        return sinkhorn(tp.lazy(x, Y), epsilon=0.1).cost

    def divergence(x: Tensor) -> Tensor:
        return sinkhorn_divergence(tp.lazy(x, Y), tp.lazy(x), tp.lazy(Y), epsilon=0.1)

    for function in (cost, divergence):
        for call in (
            lambda f=function: torch.func.jvp(f, (X[0],), (X[1],)),
            lambda f=function: torch.func.grad(f)(X[0]),
            lambda f=function: torch.func.vmap(f)(X),
        ):
            with pytest.raises(NotImplementedError, match="of sinkhorn; use torch.autograd.grad"):
                call()
    with torch.autograd.forward_ad.dual_level(), pytest.raises(NotImplementedError, match="forward-mode"):
        cost(torch.autograd.forward_ad.make_dual(X[0], X[1]))


def test_compiled_code_calls_it() -> None:
    X, Y = points(6, 2).requires_grad_(), points(5, 2, seed=1)

    def loss(x: Tensor) -> Tensor:
        return 2 * sinkhorn(tp.lazy(x + 0, Y), epsilon=0.1).cost

    compiled = torch.compile(loss, backend="eager")(X)
    torch.testing.assert_close(compiled, loss(X))
    torch.testing.assert_close(torch.autograd.grad(compiled, X), torch.autograd.grad(loss(X), X))


def test_gradient_mode_is_left_alone() -> None:
    X, Y, *_ = leaves()
    with torch.no_grad():
        assert not sinkhorn(tp.lazy(X, Y), epsilon=0.1, differentiable=True).cost.requires_grad
        assert not torch.is_grad_enabled()
    assert sinkhorn(tp.lazy(X, Y), epsilon=0.1).cost.requires_grad and torch.is_grad_enabled()


@pytest.mark.parametrize("options", [{}, {"marginal": "kl", "rho": 0.5}, {"marginal": "tv", "rho": 0.3}], ids=str)
def test_gradients_of_the_divergence(options: dict[str, Any]) -> None:
    def divergence(X: Tensor, Y: Tensor, a: Tensor, b: Tensor, epsilon: Tensor) -> Tensor:
        cost = tp.lazy(X, Y), tp.lazy(X, X), tp.lazy(Y, Y)
        scale = 1.3 if options else 1.0
        return sinkhorn_divergence(*cost, a.softmax(-1), scale * b.softmax(-1), epsilon=epsilon, tol=1e-12, **options)

    assert torch.autograd.gradcheck(divergence, leaves(), rtol=1e-5, atol=1e-8)


def test_learned_cost() -> None:
    """A module as cost: its parameters get gradients."""
    head = torch.nn.Linear(2, 2, bias=False).double()
    comparison = tp.make_pairwise(lambda x, y: (x - y).abs().sum(-1))
    learned = tp.make_pairwise(_Head(head))
    X, Y = points(6, 2), points(5, 2, seed=1)
    (lazy,) = torch.autograd.grad(sinkhorn(tp.lazy(X, Y, learned), epsilon=0.1, tol=1e-10).cost, head.parameters())
    dense = sinkhorn((head(X)[:, None] - head(Y)).square().sum(-1), epsilon=0.1, tol=1e-10).cost
    torch.testing.assert_close(lazy, torch.autograd.grad(dense, head.parameters())[0], atol=1e-8, rtol=0)
    manhattan = sinkhorn(tp.lazy(X, Y, comparison), epsilon=0.1).cost
    torch.testing.assert_close(manhattan, sinkhorn(tp.lazy(X, Y, "manhattan"), epsilon=0.1).cost, atol=1e-8, rtol=0)


class _Head(torch.nn.Module):
    def __init__(self, linear: torch.nn.Module) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.linear(x) - self.linear(y)).square().sum(-1)


# Weight 0


@KINDS
@pytest.mark.parametrize("side", ["rows", "columns"])
def test_bc_074_zero_weights(kind: str, side: str) -> None:
    a, b = torch.tensor([0.5, 0.0, 0.5]).double(), torch.tensor([0.2, 0.5, 0.3]).double()
    X = torch.tensor([[0.0], [1.0], [2.0]]).double()
    if side == "columns":
        a, b = b, a
    A, B, X, Y = (t.clone().requires_grad_() for t in (a, b, X, X))
    result = sinkhorn(as_cost(kind, X, Y), A, B, epsilon=0.05, tol=1e-9)
    assert result.converged and abs(float(result.transport_cost) - 0.5) < 1e-6
    gradients = torch.autograd.grad(result.cost, (A, B, X, Y))
    assert all(gradient.isfinite().all() for gradient in gradients)
    absent = gradients[0::2] if side == "rows" else gradients[1::2]
    assert all((gradient[1] == 0).all() for gradient in absent)
    assert (result.coupling.dense().select(-2 if side == "rows" else -1, 1) == 0).all()
    keep = torch.tensor([0, 2])
    rows, columns = (keep, slice(None)) if side == "rows" else (slice(None), keep)
    alone = sinkhorn(as_cost(kind, X[rows], Y[columns]), A[rows], B[columns], epsilon=0.05, tol=1e-9)
    torch.testing.assert_close(result.cost, alone.cost)
    torch.testing.assert_close(gradients[2][rows], torch.autograd.grad(alone.cost, X)[0][rows], atol=1e-6, rtol=0)


def test_what_stands_at_weight_zero_reaches_nothing() -> None:
    X, Y, a, b = points(4, 2), points(5, 2, seed=1), torch.tensor([0.5, 0.0, 0.2, 0.3]).double(), weights(5, 1)
    X[1] = math.nan
    X.requires_grad_()
    result = sinkhorn(tp.lazy(X, Y), a, b, epsilon=0.1)
    assert result.converged and result.cost.isfinite()
    (gradient,) = torch.autograd.grad(result.cost, X)
    assert gradient.isfinite().all() and (gradient[1] == 0).all()
