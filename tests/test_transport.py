"""`tp.transport` against NumPy, SciPy and GeomLoss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from clouds import points, weights
from scipy.spatial.distance import cdist, directed_hausdorff
from torch import Tensor

import torchpairwise as tp
from torchpairwise.transport import (
    ChamferLoss,
    HausdorffLoss,
    SamplesLoss,
    barycentric_projection,
    blur_to_epsilon,
    chamfer_distance,
    free_support_barycenter,
    gradient_flow_step,
    hausdorff_distance,
    samples_loss,
)

X, Y, A, B = points(20, 3), points(15, 3, seed=1) + 0.3, weights(20, 2), weights(15, 3)


@pytest.mark.parametrize("loss", ["energy", "gaussian", "laplacian"])
def test_kernel_losses(loss: Any) -> None:
    kernels: dict[str, Callable[[Any, Any], Any]] = {
        "energy": lambda x, y: -cdist(x, y),
        "gaussian": lambda x, y: np.exp(-cdist(x, y, "sqeuclidean") / (2 * 0.4**2)),
        "laplacian": lambda x, y: np.exp(-cdist(x, y) / 0.4),
    }
    both, w = torch.cat([X, Y]), torch.cat([A, -B]).numpy()
    expected = 0.5 * w @ kernels[loss](both, both) @ w
    options = {} if loss == "energy" else {"blur": 0.4}
    np.testing.assert_allclose(samples_loss(X, Y, A, B, loss=loss, **options), expected, rtol=1e-9)
    np.testing.assert_allclose(SamplesLoss(loss, **options)(A, X, B, Y), expected, rtol=1e-9)
    uniform = samples_loss(X, Y, loss=loss, **options)
    torch.testing.assert_close(
        uniform, samples_loss(X, Y, torch.full((20,), 0.05).double(), torch.full((15,), 1 / 15).double(), loss=loss, **options)
    )
    assert torch.autograd.gradcheck(
        lambda x, a: samples_loss(x, Y, a, B, loss=loss, **options), (X.clone().requires_grad_(), A.clone().requires_grad_())
    )


@pytest.mark.parametrize("options", [{"p": 2}, {"p": 1}, {"p": 2, "reach": 0.6}, {"p": 2, "debias": False}], ids=str)
def test_sinkhorn_against_geomloss(options: dict[str, Any]) -> None:
    geomloss = pytest.importorskip("geomloss", reason="GeomLoss is not installed")
    theirs = geomloss.SamplesLoss("sinkhorn", blur=0.2, scaling=0.99, backend="tensorized", **options)
    ours = SamplesLoss("sinkhorn", blur=0.2, **options)
    x, z = X.clone().requires_grad_(), X.clone().requires_grad_()
    first, second = ours(A, x, B, Y), theirs(A, z, B, Y)
    np.testing.assert_allclose(first.item(), second.item(), rtol=5e-3)
    # GeomLoss stops with the last blur, a few percent from the fixed point; ours are checked by differences in test_sinkhorn.py.
    gradients = torch.autograd.grad(first, x)[0], torch.autograd.grad(second, z)[0]
    torch.testing.assert_close(*gradients, atol=0.1 * float(gradients[1].abs().max()), rtol=0)


def test_sinkhorn_is_the_divergence_of_optimize() -> None:
    expected = tp.optimize.sinkhorn_divergence(tp.lazy(X, Y) * 0.5, tp.lazy(X, X) * 0.5, tp.lazy(Y, Y) * 0.5, A, B, epsilon=0.04, tol=1e-9)
    torch.testing.assert_close(samples_loss(X, Y, A, B, blur=0.2, tol=1e-9), expected)
    record = samples_loss(X, Y, A, B, blur=0.2, tol=1e-9, return_result=True)
    assert record.converged and record.iterations > 0 and record.residual_norm <= 1e-9
    torch.testing.assert_close(record.divergence, expected)
    by_cost = samples_loss(X, Y, A, B, blur=0.2, cost="manhattan", debias=False, return_result=True)
    torch.testing.assert_close(by_cost.cost, tp.optimize.sinkhorn(tp.lazy(X, Y, "manhattan"), A, B, epsilon=0.04).cost)
    batch = samples_loss(torch.stack([X, X + 1]), Y, blur=0.2)
    torch.testing.assert_close(batch[0], samples_loss(X, Y, blur=0.2), rtol=1e-6, atol=0)
    assert batch.shape == (2,)


def test_translation_costs_half_its_square() -> None:
    """Closed form: a shifted cloud is at half the squared length of the shift, whatever the blur."""
    shift = torch.tensor([0.3, -0.4, 1.2]).double()
    for blur in (0.05, 0.5):
        torch.testing.assert_close(samples_loss(X, X + shift, blur=blur, tol=1e-9), 0.5 * shift.square().sum(), rtol=1e-6, atol=0)


def test_padding() -> None:
    padded, w = torch.cat([X, torch.full((4, 3), torch.nan).double()]), torch.cat([A, torch.zeros(4).double()])
    for options in ({"loss": "energy"}, {"loss": "gaussian", "blur": 0.4}, {"blur": 0.3}):
        x = padded.clone().requires_grad_()
        value = samples_loss(x, Y, w, B, **options)
        torch.testing.assert_close(value, samples_loss(X, Y, A, B, **options))
        (gradient,) = torch.autograd.grad(value, x)
        assert (gradient[20:] == 0).all() and gradient.isfinite().all()


def test_blur_to_epsilon() -> None:
    """The two costs with their epsilons are one problem, the second with all numbers doubled."""
    first = tp.optimize.sinkhorn(tp.lazy(X, Y) * 0.5, epsilon=blur_to_epsilon(0.3, half_cost=True), tol=1e-9)
    second = tp.optimize.sinkhorn(tp.lazy(X, Y), epsilon=blur_to_epsilon(0.3), tol=1e-9)
    torch.testing.assert_close(first.coupling.dense(), second.coupling.dense(), atol=1e-9, rtol=0)
    torch.testing.assert_close(2 * first.cost, second.cost)


# Chamfer and Hausdorff


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cityblock"])
def test_chamfer_and_hausdorff(directed: bool, metric: str) -> None:
    D = cdist(X, Y, metric)
    name = "manhattan" if metric == "cityblock" else metric
    mean = D.min(1).mean() + (0.0 if directed else D.min(0).mean())
    total = D.min(1).sum() + (0.0 if directed else D.min(0).sum())
    worst = D.min(1).max() if directed else max(D.min(1).max(), D.min(0).max())
    np.testing.assert_allclose(chamfer_distance(X, Y, metric=name, directed=directed), mean, rtol=1e-12)
    np.testing.assert_allclose(chamfer_distance(X, Y, metric=name, directed=directed, point_reduction="sum"), total, rtol=1e-12)
    np.testing.assert_allclose(hausdorff_distance(X, Y, metric=name, directed=directed), worst, rtol=1e-12)
    assert torch.autograd.gradcheck(lambda x: chamfer_distance(x, Y, metric=name, directed=directed), X.clone().requires_grad_())
    assert torch.autograd.gradcheck(lambda x: hausdorff_distance(x, Y, metric=name, directed=directed), X.clone().requires_grad_())


def test_hausdorff_is_scipys() -> None:
    expected = max(directed_hausdorff(X, Y)[0], directed_hausdorff(Y, X)[0])
    np.testing.assert_allclose(hausdorff_distance(X, Y), expected)


def test_clouds_of_different_sizes_in_a_batch() -> None:
    keep_x, keep_y = torch.ones(2, 20, dtype=torch.bool), torch.ones(2, 15, dtype=torch.bool)
    keep_x[0, 12:], keep_y[1, :4] = False, False
    batch_x, batch_y = X.expand(2, 20, 3).clone(), Y.expand(2, 15, 3).clone()
    batch_x[0, 12:] = torch.nan
    for function, module in ((chamfer_distance, ChamferLoss), (hausdorff_distance, HausdorffLoss)):
        values = function(batch_x, batch_y, keep_x=keep_x, keep_y=keep_y)
        expected = torch.stack([function(X[:12], Y), function(X, Y[4:])])
        torch.testing.assert_close(values, expected)
        for reduction, reduced in (("none", expected), ("mean", expected.mean()), ("sum", expected.sum())):
            torch.testing.assert_close(module(reduction=reduction)(batch_x, batch_y, keep_x, keep_y), reduced)


# Couplings


def test_barycentric_projection() -> None:
    a = A.clone()
    a[3] = 0
    a = a / a.sum()
    result = tp.optimize.sinkhorn(tp.lazy(X, Y), a, B, epsilon=0.05, tol=1e-9)
    P = result.coupling.dense()
    kept = torch.arange(20) != 3
    torch.testing.assert_close(barycentric_projection(result, Y)[kept], (P @ Y / P.sum(-1, keepdim=True))[kept])
    assert (barycentric_projection(result, Y)[3] == 0).all()

    def projected(x: Tensor) -> Tensor:
        return barycentric_projection(tp.optimize.sinkhorn(tp.lazy(x, Y), epsilon=0.2, tol=1e-12, differentiable=True), Y)

    assert torch.autograd.gradcheck(projected, X[:4].clone().requires_grad_(), atol=1e-6)


def test_gradient_flow() -> None:
    shift = torch.tensor([0.3, -0.4, 1.2]).double()
    torch.testing.assert_close(gradient_flow_step(X, X + shift, tol=1e-8), X + shift, atol=1e-5, rtol=0)
    first = samples_loss(X, Y, A, B, blur=0.2)
    with torch.no_grad():
        moved = gradient_flow_step(X, Y, A, B, blur=0.2, step_size=0.5)
    assert samples_loss(moved, Y, A, B, blur=0.2) < 0.5 * first
    a = torch.cat([torch.zeros(1).double(), A[1:] / A[1:].sum()])
    assert torch.equal(gradient_flow_step(X, Y, a, B, loss="energy")[0], X[0])


def test_barycenter_of_shifted_clouds() -> None:
    """The same cloud at three places: the barycenter is that cloud, blurred by the entropy, at their mean."""
    shifts = torch.tensor([[0.0, 0, 0], [3, 0, 0], [0, 6, 3]]).double()
    shares = [0.5, 0.25, 0.25]
    result = free_support_barycenter([X + shift for shift in shifts], shares=shares, points=X + 1, epsilon=1e-3)
    assert result.converged and result.residual_norm <= 1e-4
    expected = X + torch.tensor(shares).double() @ shifts
    torch.testing.assert_close(result.points, expected, atol=0.02, rtol=0)


def test_barycenter_against_pot() -> None:
    ot = pytest.importorskip("ot", reason="POT is not installed")
    clouds, masses, start, a = [X, Y], [A, B], points(8, 3, seed=7), weights(8, 5)
    ours = free_support_barycenter(clouds, masses, shares=[0.3, 0.7], points=start, a=a, epsilon=0.1, tol=1e-7, solver_tol=1e-9)
    theirs = ot.bregman.free_support_sinkhorn_barycenter(
        [cloud.numpy() for cloud in clouds], [m.numpy() for m in masses], start.numpy(), 0.1, b=a.numpy(), weights=np.array([0.3, 0.7]),
        numItermax=300, stopThr=1e-14, numInnerItermax=3000,
    )  # fmt: skip
    assert ours.converged
    np.testing.assert_allclose(ours.points.numpy(), theirs, atol=1e-4)
    early = free_support_barycenter(clouds, masses, points=start, epsilon=0.1, max_iter=1)
    assert not early.converged and early.iterations == 1 and early.residual_norm > 1e-4


def test_modules_show_their_options() -> None:
    assert repr(SamplesLoss(blur=0.1)) == "SamplesLoss('sinkhorn', p=2, blur=0.1, reach=None, debias=True)"
    assert "directed=True" in repr(ChamferLoss(directed=True)) and "'euclidean'" in repr(HausdorffLoss())


def test_half_precision() -> None:
    x, y = X.half(), Y.half()
    for value in (samples_loss(x, y, blur=0.5), samples_loss(x, y, loss="energy"), chamfer_distance(x, y), hausdorff_distance(x, y)):
        assert value.dtype == torch.float32 and value.isfinite()


BAD: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (ValueError, "loss='hausdorff'", lambda: samples_loss(X, Y, loss="hausdorff")),  # type: ignore[arg-type]
    (ValueError, "reach was given with loss='energy'", lambda: samples_loss(X, Y, loss="energy", reach=1.0)),
    (ValueError, "blur was given with loss='energy'", lambda: samples_loss(X, Y, loss="energy", blur=1.0)),
    (ValueError, "tol was given with loss='gaussian'", lambda: samples_loss(X, Y, loss="gaussian", tol=1.0)),
    (ValueError, "blur=0", lambda: samples_loss(X, Y, loss="gaussian", blur=0.0)),
    (ValueError, "blur=-1", lambda: samples_loss(X, Y, blur=-1.0)),
    (ValueError, "p=3", lambda: samples_loss(X, Y, p=3)),
    (ValueError, "reach=0", lambda: samples_loss(X, Y, reach=0.0)),
    (ValueError, "half_cost=True with p=1", lambda: blur_to_epsilon(1.0, 1, True)),
    (ValueError, "a cloud has no points", lambda: samples_loss(X[:0], Y, loss="energy")),
    (ValueError, "b to 2", lambda: samples_loss(X, Y, A, 2 * B)),
    (ValueError, "clouds is empty", lambda: free_support_barycenter([], points=X, epsilon=1.0)),
    (ValueError, "2 clouds and 1 weights", lambda: free_support_barycenter([X, Y], [A], points=X, epsilon=1.0)),
    (ValueError, "2 clouds and 1 shares", lambda: free_support_barycenter([X, Y], shares=[1.0], points=X, epsilon=1.0)),
    (ValueError, "shares sum to 0.7", lambda: free_support_barycenter([X, Y], shares=[0.3, 0.4], points=X, epsilon=1.0)),
    (ValueError, "shares has a negative", lambda: free_support_barycenter([X, Y], shares=[1.5, -0.5], points=X, epsilon=1.0)),
    (TypeError, "3 arguments were given", lambda: SamplesLoss()(A, X, Y)),
    (ValueError, "return_result was given", lambda: gradient_flow_step(X, Y, return_result=True)),
    (ValueError, "point_reduction='max'", lambda: chamfer_distance(X, Y, point_reduction="max")),  # type: ignore[arg-type]
    (ValueError, "reduction='max'", lambda: ChamferLoss(reduction="max")),  # type: ignore[arg-type]
    (ValueError, "Y has a cloud without points", lambda: chamfer_distance(X, Y[:0])),
    (ValueError, "X has a cloud without points", lambda: hausdorff_distance(X, Y, keep_x=torch.zeros(20, dtype=torch.bool))),
    (TypeError, "X is list", lambda: chamfer_distance([[1.0]], Y)),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("error", "words", "call"), BAD, ids=[words for _, words, _ in BAD])
def test_bad_input(error: type[Exception], words: str, call: Callable[[], Any]) -> None:
    with pytest.raises(error, match=words):
        call()
