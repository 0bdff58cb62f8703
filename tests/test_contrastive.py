"""InfoNCE and NT-Xent against naive NumPy, and at their edges."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import torchpairwise as tp
from torchpairwise.contrastive import CLIP, InfoNCE, NTXent, clip, info_nce, nt_xent

Array = np.ndarray


# Oracles, one row after the other


def similarity(x: Array, y: Array, normalize: bool) -> float:
    if not normalize:
        return float(x @ y)
    norms = np.linalg.norm(x) * np.linalg.norm(y)
    return float(x @ y / norms) if norms > 0 else 0.0


def cross_entropy(match: float, others: list[float], t: float) -> float:
    logits = np.array([match, *others]) / t
    return float(np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[0])


def info_nce_oracle(q: Array, p: Array, negatives: Array | None, t: float, normalize: bool) -> Array:
    losses = []
    for i in range(len(q)):
        if negatives is None:
            others = [p[j] for j in range(len(p)) if j != i]
        else:
            others = list(negatives[i] if negatives.ndim == 3 else negatives)
        scores = [similarity(q[i], other, normalize) for other in others]
        losses.append(cross_entropy(similarity(q[i], p[i], normalize), scores, t))
    return np.array(losses)


def nt_xent_oracle(a: Array, b: Array, t: float, normalize: bool) -> Array:
    z, n = np.concatenate([a, b]), len(a)
    losses = []
    for i in range(2 * n):
        match = (i + n) % (2 * n)
        others = [similarity(z[i], z[j], normalize) for j in range(2 * n) if j not in (i, match)]
        losses.append(cross_entropy(similarity(z[i], z[match], normalize), others, t))
    return np.array(losses)


def rows(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


CASES: dict[str, tuple[Callable[..., Tensor], list[Tensor]]] = {
    "in the batch": (info_nce, [rows(7, 5), rows(7, 5, seed=1)]),
    "shared negatives": (info_nce, [rows(7, 5), rows(7, 5, seed=1), rows(4, 5, seed=2)]),
    "paired negatives": (
        lambda *x, **options: info_nce(*x, negative_mode="paired", **options),
        [rows(7, 5), rows(7, 5, seed=1), rows(7, 4, 5, seed=2)],
    ),
    "two views": (nt_xent, [rows(6, 5), rows(6, 5, seed=1)]),
}


def oracle(name: str, inputs: list[Tensor], t: float, normalize: bool) -> Array:
    arrays = [x.double().numpy() for x in inputs]
    if name == "two views":
        return nt_xent_oracle(*arrays, t, normalize)
    return info_nce_oracle(*arrays[:2], arrays[2] if len(arrays) > 2 else None, t, normalize)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, normalize: bool) -> None:
    loss, inputs = CASES[name]
    expected = oracle(name, inputs, 0.3, normalize)
    each = loss(*inputs, temperature=0.3, normalize=normalize, reduction="none")
    np.testing.assert_allclose(each.numpy(), expected, rtol=1e-12, atol=1e-13)
    for reduction in ("mean", "sum"):
        value = loss(*inputs, temperature=0.3, normalize=normalize, reduction=reduction)
        assert value.shape == ()
        np.testing.assert_allclose(value.item(), getattr(expected, reduction)(), rtol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_gradients_to_features_and_temperature(name: str) -> None:
    loss, inputs = CASES[name]
    inputs = [x.clone().requires_grad_() for x in inputs]
    temperature = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    run = lambda t, *x: loss(*x, temperature=t, reduction="none")  # noqa: E731
    assert torch.autograd.gradcheck(run, (temperature, *inputs))
    assert torch.autograd.gradgradcheck(run, (temperature, *inputs))


def test_default_temperatures() -> None:
    q, p = rows(5, 3), rows(5, 3, seed=1)
    assert torch.equal(info_nce(q, p), info_nce(q, p, temperature=0.1))
    assert torch.equal(nt_xent(q, p), nt_xent(q, p, temperature=0.07))
    assert torch.equal(InfoNCE()(q, p), info_nce(q, p)) and torch.equal(NTXent()(q, p), nt_xent(q, p))


def test_batches_are_independent() -> None:
    q, p, n = rows(3, 4, 6, 5), rows(3, 4, 6, 5, seed=1), rows(3, 4, 2, 5, seed=2)
    for loss, inputs in ((info_nce, (q, p)), (info_nce, (q, p, n)), (nt_xent, (q, p))):
        whole = loss(*inputs, reduction="none")
        single = torch.stack([torch.stack([loss(*(x[a, b] for x in inputs), reduction="none") for b in range(4)]) for a in range(3)])
        torch.testing.assert_close(whole, single)
    # Shared negatives of one batch entry broadcast.
    expected = torch.stack([info_nce(q[0, b], p[0, b], n[0, 0], reduction="none") for b in range(4)])
    torch.testing.assert_close(info_nce(q[0], p[0], n[0, 0], reduction="none"), expected)


def test_permutation_of_samples_permutes_losses() -> None:
    q, p = rows(9, 5), rows(9, 5, seed=1)
    order = torch.randperm(9)
    torch.testing.assert_close(info_nce(q[order], p[order], reduction="none"), info_nce(q, p, reduction="none")[order])


@pytest.mark.parametrize("name", CASES)
def test_float32_error_is_that_of_plain_torch(name: str) -> None:
    loss, inputs = CASES[name]
    inputs = [F.normalize(x.float(), dim=-1) for x in inputs]
    expected = oracle(name, inputs, 0.05, True)
    ours = np.abs(loss(*inputs, temperature=0.05, reduction="none").double().numpy() - expected).max()
    if name == "two views":
        z = torch.cat(inputs)
        logits = (z @ z.T / 0.05).masked_fill(torch.eye(12).bool(), -torch.inf)
        plain = F.cross_entropy(logits, torch.arange(12).roll(6), reduction="none")
    else:
        match = (inputs[0] * inputs[1]).sum(-1, keepdim=True)
        others = inputs[0] @ inputs[-1].mT if inputs[-1].ndim == 2 else (inputs[0][:, None] * inputs[-1]).sum(-1)
        if name == "in the batch":
            others = others.masked_fill(torch.eye(7).bool(), -torch.inf)
        plain = F.cross_entropy(torch.cat([match, others], -1) / 0.05, torch.zeros(7).long(), reduction="none")
    assert ours <= 3 * np.abs(plain.double().numpy() - expected).max() + 1e-6


def test_well_separated_rows_keep_a_loss_of_zero_or_more() -> None:
    z = F.normalize(rows(64, 64, dtype=torch.float32), dim=-1)
    z = torch.linalg.qr(z).Q
    for loss in (info_nce, nt_xent):
        values = loss(z, z, temperature=0.02, reduction="none")
        assert (values >= 0).all() and (values < 1e-6).all()


# Edges


@pytest.mark.parametrize("loss", [info_nce, nt_xent])
def test_a_single_sample_has_nothing_to_compare(loss: Callable[..., Tensor]) -> None:
    q, p = rows(1, 3).requires_grad_(), rows(1, 3, seed=1).requires_grad_()
    value = loss(q, p)
    value.backward()
    assert value == 0 and q.grad.abs().max() == 0 and p.grad.abs().max() == 0


@pytest.mark.parametrize("loss", [info_nce, nt_xent])
def test_no_sample_at_all(loss: Callable[..., Tensor]) -> None:
    q = torch.zeros(0, 3, requires_grad=True)
    value = loss(q, torch.zeros(0, 3))
    value.backward()
    assert value == 0 and q.grad.shape == (0, 3)
    assert loss(q, torch.zeros(0, 3), reduction="none").shape == (0,)


def test_no_negatives_at_all() -> None:
    q, p = rows(4, 3).requires_grad_(), rows(4, 3, seed=1)
    for negatives, mode in ((torch.zeros(0, 3), "unpaired"), (torch.zeros(4, 0, 3), "paired")):
        value = info_nce(q, p, negatives.double(), negative_mode=mode)
        (gradient,) = torch.autograd.grad(value, q)
        assert value == 0 and gradient.abs().max() == 0


def test_zero_rows_have_similarity_zero_and_no_gradient() -> None:
    q, p = rows(5, 3), rows(5, 3, seed=1)
    q[2], p[3] = 0, 0
    expected = info_nce_oracle(q.numpy(), p.numpy(), None, 0.2, True)
    q.requires_grad_()
    losses = info_nce(q, p, temperature=0.2, reduction="none")
    np.testing.assert_allclose(losses.detach().numpy(), expected, rtol=1e-12)
    losses.sum().backward()
    assert q.grad.isfinite().all() and q.grad[2].abs().max() == 0


def test_equal_rows_are_excluded_by_index_only() -> None:
    z = rows(3, 4).repeat(2, 1)
    expected = nt_xent_oracle(z.numpy(), z.numpy(), 0.1, True)
    np.testing.assert_allclose(nt_xent(z, z, temperature=0.1, reduction="none").numpy(), expected, rtol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_half_precision_is_computed_and_returned_in_float32(name: str, dtype: torch.dtype) -> None:
    loss, inputs = CASES[name]
    halves = [x.to(dtype).requires_grad_() for x in inputs]
    value = loss(*halves, temperature=0.05)
    torch.testing.assert_close(value, loss(*(x.detach().float() for x in halves), temperature=0.05))
    value.backward()
    assert value.dtype == torch.float32 and all(x.grad.dtype == dtype and x.grad.isfinite().all() for x in halves)


@pytest.mark.parametrize("name", CASES)
def test_autocast_changes_nothing(name: str) -> None:
    loss, inputs = CASES[name]
    inputs = [x.float() for x in inputs]
    with torch.autocast("cpu", torch.bfloat16):
        value = loss(*inputs, temperature=0.05)
    assert torch.equal(value, loss(*inputs, temperature=0.05))


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_normalised_losses_do_not_see_the_scale(scale: float) -> None:
    q, p = rows(6, 4), rows(6, 4, seed=1)
    torch.testing.assert_close(info_nce(q * scale, p), info_nce(q, p))


# Modules


@pytest.mark.parametrize("kind", [InfoNCE, NTXent])
def test_learned_temperature(kind: Any) -> None:
    module = kind(temperature=0.2, learnable_temperature=True)
    q, p = rows(6, 4, dtype=torch.float32), rows(6, 4, dtype=torch.float32, seed=1)
    module(q, p).backward()
    assert list(module.state_dict()) == ["temperature.log_value"]
    assert module.temperature.log_value.grad.abs() > 0
    torch.testing.assert_close(module(q, p), kind(temperature=0.2)(q, p))
    other = kind(temperature=5.0, learnable_temperature=True)
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(q, p), module(q, p))
    assert list(kind().state_dict()) == []


@pytest.mark.parametrize("module", [InfoNCE(reduction="none", normalize=False), NTXent(learnable_temperature=True)])
def test_modules_are_copied_saved_and_shown(module: torch.nn.Module) -> None:
    q, p = rows(5, 4, dtype=torch.float32), rows(5, 4, dtype=torch.float32, seed=1)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(other(q, p), module(q, p))
    assert "normalize" in repr(module) and "temperature" in repr(module)


def test_module_passes_its_options_on() -> None:
    q, p, n = rows(5, 4), rows(5, 4, seed=1), rows(5, 3, 4, seed=2)
    options = {"temperature": 0.3, "negative_mode": "paired", "normalize": False, "reduction": "sum"}
    assert torch.equal(InfoNCE(**options)(q, p, n), info_nce(q, p, n, **options))


def test_a_training_step_compiles_to_one_graph() -> None:
    module = InfoNCE(learnable_temperature=True)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    q, p = rows(6, 4, dtype=torch.float32).requires_grad_(), rows(6, 4, dtype=torch.float32, seed=1)
    (ours,) = torch.autograd.grad(compiled(q, p), q)
    (expected,) = torch.autograd.grad(module(q, p), q)
    torch.testing.assert_close(ours, expected)


# Errors


@pytest.mark.parametrize("temperature", [0.0, -0.1, float("nan"), torch.tensor(0.0), torch.tensor([-1.0])])
def test_temperature_must_be_positive(temperature: Any) -> None:
    for loss in (info_nce, nt_xent):
        with pytest.raises(ValueError, match="temperature is .*expected a number > 0"):
            loss(torch.eye(2), torch.eye(2), temperature=temperature)
    if not isinstance(temperature, Tensor):
        with pytest.raises(ValueError, match="temperature is .*expected a number > 0"):
            InfoNCE(temperature=temperature)


def test_bad_arguments_are_named() -> None:
    x = torch.eye(3)
    with pytest.raises(ValueError, match=r"temperature has shape \[3\]"):
        info_nce(x, x, temperature=torch.ones(3))
    with pytest.raises(ValueError, match="reduction is 'average'"):
        nt_xent(x, x, reduction="average")
    with pytest.raises(ValueError, match=r"query has shape \[3, 3\] and positive \[2, 3\]"):
        info_nce(x, x[:2])
    with pytest.raises(ValueError, match=r"first has shape \[3, 3\] and second \[3, 2\]"):
        nt_xent(x, x[:, :2])
    with pytest.raises(ValueError, match="negative_mode is 'pairs'"):
        info_nce(x, x, x, negative_mode="pairs")
    for negatives, mode in ((x[:, :2], "unpaired"), (x, "paired"), (torch.zeros(2, 4, 3), "paired")):
        with pytest.raises(ValueError, match="negatives has shape"):
            info_nce(x, x, negatives, negative_mode=mode)


def test_loss_and_gradient_store_no_matrix() -> None:
    from torchpairwise.demo.measuring import peak_memory, return_freed_memory

    n = 6000
    q, p = torch.randn(n, 16, requires_grad=True), torch.randn(n, 16)
    info_nce(q[:100], p[:100]).backward()
    return_freed_memory(True)
    with peak_memory() as peak:
        nt_xent(q, p).backward()
        info_nce(q, p).backward()
    return_freed_memory(False)
    if not peak:
        pytest.skip("peak memory cannot be read on this system")
    assert peak[0] < n * n * 4 / 4


def test_names() -> None:
    assert tp.contrastive.__all__ == ["CLIP", "InfoNCE", "NTXent", "clip", "info_nce", "nt_xent"]


# CLIP


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_clip_equals_two_cross_entropies(normalize: bool, batch: tuple[int, ...]) -> None:
    a, b = (rows(*batch, 7, 4, seed=s).requires_grad_() for s in (0, 1))
    t = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    x, y = (F.normalize(z, dim=-1) if normalize else z for z in (a, b))
    logits = (x @ y.mT / t).reshape(-1, 7, 7)
    target = torch.arange(7).expand(len(logits), 7)
    expected = 0.5 * (F.cross_entropy(logits.mT, target, reduction="none") + F.cross_entropy(logits, target, reduction="none"))
    got = clip(a, b, temperature=t, normalize=normalize, reduction="none")
    torch.testing.assert_close(got, expected.view(*batch, 7))
    torch.testing.assert_close(clip(a, b, temperature=t, normalize=normalize), expected.mean())
    for ours, theirs in zip(
        torch.autograd.grad(got.square().sum(), (a, b, t)), torch.autograd.grad(expected.square().sum(), (a, b, t)), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_clip_evaluates_each_pair_once_and_keeps_its_digits() -> None:
    a = torch.eye(40)
    before = torch.ops.torchpairwise.evaluated_pairs()
    loss = clip(a, a, temperature=0.02)
    assert torch.ops.torchpairwise.evaluated_pairs() - before <= 40 * 40 + 40  # and the partners
    assert 0 < loss < 1e-20 and clip(a[:0], a[:0]) == 0
    module = CLIP()
    assert [name for name, _ in module.named_parameters()] == ["temperature.log_value"]
    torch.testing.assert_close(module(a, a.roll(1, 0)), clip(a, a.roll(1, 0)))
    assert "reduction='mean'" in repr(module) and pickle.loads(pickle.dumps(module))(a, a).isfinite()
    with pytest.raises(ValueError, match="temperature"):
        clip(a, a, temperature=0)
    with pytest.raises(ValueError, match="second"):
        clip(a, a[:3])
