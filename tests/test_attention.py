"""attention, kernel_attention, KernelAttention and NadarayaWatson against naive NumPy, and at their edges."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import torchpairwise as tp
from torchpairwise.attention import KernelAttention, NadarayaWatson, attention, kernel_attention

Array = np.ndarray


def rows(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def inputs(batch: tuple[int, ...] = (2, 3), n: int = 5, m: int = 7, e: int = 4, c: int = 3) -> list[Tensor]:
    return [rows(*batch, n, e), rows(*batch, m, e, seed=1), rows(*batch, m, c, seed=2)]


# Oracles


def score(metric: str, q: Array, k: Array, gamma: float = 0.3) -> Array:
    x, y = q[..., :, None, :], k[..., None, :, :]
    square, absolute = ((x - y) ** 2).sum(-1), np.abs(x - y).sum(-1)
    return {
        "linear": (x * y).sum(-1),
        "sqeuclidean": -square,
        "euclidean": -np.sqrt(square),
        "manhattan": -absolute,
        "rbf": np.exp(-gamma * square),
        "laplacian": np.exp(-gamma * absolute),
        "polynomial": (gamma * (x * y).sum(-1) + 1.5) ** 2,
    }[metric]


def weighted(logits: Array, keep: Any, values: Array) -> Array:
    """softmax over the kept columns, times values; 0 for rows without any."""
    keep = np.broadcast_to(keep, logits.shape)
    weights = np.where(keep, np.exp(logits - np.where(keep, logits, -np.inf).max(-1, keepdims=True, initial=-1e300)), 0)
    mass = weights.sum(-1, keepdims=True)
    return np.where(mass > 0, weights @ values / np.where(mass > 0, mass, 1), 0.0)


def close(result: Tensor, expected: Array, tolerance: float = 1e-12) -> None:
    np.testing.assert_allclose(result.detach().double().numpy(), expected, rtol=tolerance, atol=tolerance)


# attention


@pytest.mark.parametrize("scale", [None, 0.7])
@pytest.mark.parametrize("metric", ["linear", "sqeuclidean", "euclidean", "manhattan", "rbf"])
def test_metrics_and_scales(metric: str, scale: float | None) -> None:
    q, k, v = inputs()
    options = {"gamma": 0.3} if metric == "rbf" else {}
    factor = scale if scale is not None else (4**-0.5 if metric == "linear" else 1.0)
    expected = weighted(factor * score(metric, q.numpy(), k.numpy()), True, v.numpy())
    close(attention(q, k, v, metric=metric, scale=scale, **options), expected)


@pytest.mark.parametrize("causal", [False, True])
def test_agrees_with_scaled_dot_product_attention(causal: bool) -> None:
    q, k, v = inputs(n=7)
    mask = tp.masks.causal() if causal else None
    torch.testing.assert_close(attention(q, k, v, mask=mask), F.scaled_dot_product_attention(q, k, v, is_causal=causal))


def test_every_option_at_once() -> None:
    q, k, v = inputs()
    positions, others = rows(5, 2, seed=3), rows(7, 2, seed=4)
    key_mask = torch.tensor([[[True] * 7], [[True, False, True, True, False, True, True]]])
    slopes = torch.tensor([0.5, 0.1, 0.02], dtype=torch.float64)
    result, logsumexp = attention(
        q,
        k,
        v,
        scale=0.9,
        softcap=1.5,
        bias=-tp.lazy(positions, others, "manhattan"),
        alibi=slopes,
        mask=tp.masks.causal(),
        key_mask=key_mask,
        return_aux=True,
    )
    s = 1.5 * np.tanh(0.9 * score("linear", q.numpy(), k.numpy()) / 1.5)
    s = s + score("manhattan", positions.numpy(), others.numpy())
    i, j = np.arange(5)[:, None], np.arange(7)
    s = s - slopes.numpy()[:, None, None] * np.abs(i + 2 - j)
    keep = (j <= i + 2) & key_mask.numpy()[..., None, :]
    close(result, weighted(s, keep, v.numpy()))
    close(logsumexp, np.log(np.where(np.broadcast_to(keep, s.shape), np.exp(s), 0).sum(-1)))


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_grouped_heads_are_repeated_heads(groups: int) -> None:
    q, (_, k, v) = rows(2, 6, 5, 4), inputs((2, groups))
    slopes = torch.linspace(0.1, 0.6, 6, dtype=torch.float64)
    key_mask = torch.rand(2, groups, 7, generator=torch.Generator().manual_seed(0)) > 0.3
    repeat = lambda x: x.repeat_interleave(6 // groups, 1)  # noqa: E731
    options = {"alibi": slopes, "mask": tp.masks.band(3, 4)}
    result, aux = attention(q, k, v, enable_gqa=True, key_mask=key_mask, return_aux=True, **options)
    expected, expected_aux = attention(q, repeat(k), repeat(v), key_mask=repeat(key_mask), return_aux=True, **options)
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(aux, expected_aux)
    assert result.shape == (2, 6, 5, 3)


def test_gradients_to_every_tensor() -> None:
    q, k, v = (x.requires_grad_() for x in inputs((2,), 3, 4, 2, 2))
    positions = rows(4, 1, seed=3).requires_grad_()
    slopes, scale = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in ([0.3, 0.1], 0.8))

    def run(q: Tensor, k: Tensor, v: Tensor, positions: Tensor, slopes: Tensor, scale: Tensor) -> Tensor:
        bias = -tp.lazy(positions[:3], positions, "sqeuclidean")
        return attention(q, k, v, scale=scale, softcap=2.0, bias=bias, alibi=slopes, mask=tp.masks.causal())

    assert torch.autograd.gradcheck(run, (q, k, v, positions, slopes, scale))


def test_a_query_without_keys_gives_zero_and_no_gradient() -> None:
    q, k, v = (x.requires_grad_() for x in inputs((), 4, 2, 3, 2))
    result = attention(q, k, v, mask=tp.masks.causal())  # the first two queries see no key
    result.sum().backward()
    assert (result[:2] == 0).all() and (q.grad[:2] == 0).all() and q.grad[2:].isfinite().all()
    everything = attention(q, k, v, key_mask=torch.zeros(2, dtype=torch.bool))
    assert (everything == 0).all()


def test_what_stands_behind_the_key_mask_does_not_matter() -> None:
    q, k, v = inputs((), 4, 6)
    keep = torch.tensor([True, True, False, True, False, True])
    expected = attention(q, k[keep], v[keep])
    k[~keep], v[~keep] = torch.nan, torch.inf
    k.requires_grad_()
    result = attention(q, k, v, key_mask=keep)
    torch.testing.assert_close(result, expected)
    result.sum().backward()
    assert (k.grad[~keep] == 0).all() and k.grad.isfinite().all()


@pytest.mark.parametrize("metric", ["linear", "sqeuclidean"])
def test_half_precision(metric: str) -> None:
    halves = [x.half() for x in inputs()]
    expected = attention(*(x.float() for x in halves), metric=metric).half()
    assert torch.equal(attention(*halves, metric=metric), expected)


def test_learned_comparison() -> None:
    q, k, v = inputs(())
    comparison = tp.make_pairwise(lambda x, y: -(x - y).abs().pow(1.5).sum(-1))
    expected = torch.softmax(-(q[:, None] - k).abs().pow(1.5).sum(-1), -1) @ v
    torch.testing.assert_close(attention(q, k, v, metric=comparison), expected)


# kernel_attention


@pytest.mark.parametrize("metric", ["rbf", "laplacian", "polynomial"])
def test_kernel_weights(metric: str) -> None:
    q, k, v = inputs()
    options = {"coef0": 1.5, "degree": 2} if metric == "polynomial" else {}
    kernel = score(metric, q.numpy(), k.numpy())
    keep = np.arange(7) <= np.arange(5)[:, None] + 2
    for mask, kept in ((None, True), (tp.masks.causal(), keep)):
        expected = weighted(np.log(kernel), kept, v.numpy())
        close(kernel_attention(q, k, v, metric=metric, gamma=0.3, mask=mask, **options), expected, 1e-10)


@pytest.mark.parametrize("metric", ["rbf", "laplacian", "polynomial"])
def test_kernel_gradients(metric: str) -> None:
    q, k, v = (x.requires_grad_() for x in inputs((), 3, 4, 2, 2))
    gamma = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    run = lambda q, k, v, g: kernel_attention(q, k, v, metric=metric, gamma=g)  # noqa: E731
    assert torch.autograd.gradcheck(run, (q, k, v, gamma))
    if metric != "polynomial":
        widths = torch.tensor([0.5, 0.2], dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(run, (q, k, v, widths))


@pytest.mark.parametrize("metric", ["rbf", "laplacian", "cosine_similarity"])
def test_leave_one_out(metric: str) -> None:
    x, v = rows(6, 3).abs(), rows(6, 2)
    result = kernel_attention(x, x, v, metric=metric, exclude_self=True)
    for i in range(6):
        others = torch.arange(6) != i
        expected = kernel_attention(x[i : i + 1], x[others], v[others], metric=metric)[0]
        torch.testing.assert_close(result[i], expected)


def test_far_queries_take_the_nearest_value() -> None:
    key, value = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[1.0], [5.0], [9.0]])
    far = torch.tensor([[1e3], [-1e3]], requires_grad=True)
    for metric in ("rbf", "laplacian"):
        result = kernel_attention(far, key, value, metric=metric, gamma=10.0)
        assert result.flatten().tolist() == pytest.approx([9.0, 1.0], abs=1e-3)
        assert torch.autograd.grad(result.sum(), far)[0].isfinite().all()


def test_rows_without_mass_give_zero() -> None:
    key, value = rows(3, 2), rows(3, 2)
    query = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    result = kernel_attention(query, key, value, metric="cosine_similarity")
    result.sum().backward()
    assert (result == 0).all() and query.grad.isfinite().all()
    nothing = kernel_attention(query, key, value, metric="rbf", key_mask=torch.zeros(3, dtype=torch.bool))
    assert (nothing == 0).all()


def test_half_precision_sums_do_not_overflow() -> None:
    key = torch.ones(3000, 4, dtype=torch.float16)
    result = kernel_attention(key[:2], key, torch.full((3000, 1), 100.0, dtype=torch.float16), metric="linear")
    assert result.dtype == torch.float16 and result.flatten().tolist() == [100.0, 100.0]


# Errors


def test_bad_arguments_are_named() -> None:
    q, k, v = inputs(())
    with pytest.raises(ValueError, match=r"query has shape \[5, 4\], key \[7, 3\] and value \[7, 3\]"):
        attention(q, v, v)
    with pytest.raises(ValueError, match=r"key \[7, 4\] and value \[6, 3\]"):
        kernel_attention(q, k, v[:6])
    with pytest.raises(TypeError, match="mask is a tensor .*tp.masks.*key_mask"):
        attention(q, k, v, mask=torch.ones(5, 7).bool())
    with pytest.raises(TypeError, match="bias is Tensor; expected a lazy expression"):
        attention(q, k, v, bias=torch.ones(5, 7))
    with pytest.raises(ValueError, match="softcap is 0"):
        attention(q, k, v, softcap=0)
    with pytest.raises(ValueError, match="query has 4 heads, key 3 and value 3"):
        attention(rows(4, 5, 4), rows(3, 7, 4), rows(3, 7, 3), enable_gqa=True)
    with pytest.raises(ValueError, match="unknown.*Did you mean"):
        attention(q, k, v, metric="linaer")
    with pytest.raises(ValueError, match="metric is 'cosine'; expected one of"):
        KernelAttention(8, metric="cosine")
    with pytest.raises(ValueError, match="embed_dim is 8 and num_heads 3"):
        KernelAttention(8, 3)
    with pytest.raises(ValueError, match="lengthscale is -1"):
        KernelAttention(8, lengthscale=-1.0)


# KernelAttention


@pytest.mark.parametrize("metric", ["rbf", "laplacian", "linear"])
def test_module_against_dense_heads(metric: str) -> None:
    torch.manual_seed(0)
    layer = KernelAttention(12, 3, metric=metric, key_dim=5, value_dim=6, lengthscale=1.3).double()
    layer.log_lengthscale.data += torch.tensor([0.0, 0.2, -0.3])
    q, k, v = rows(2, 4, 12), rows(2, 7, 5, seed=1), rows(2, 7, 6, seed=2)
    key_mask = torch.tensor([[True] * 7, [True] * 5 + [False] * 2])
    result = layer(q, k, v, mask=tp.masks.causal(), key_mask=key_mask)

    heads = []
    query, key, value = layer.query_projection(q), layer.key_projection(k), layer.value_projection(v)
    for h in range(3):
        part = slice(4 * h, 4 * h + 4)
        difference = query[..., None, part] - key[:, None, :, part]
        width = layer.log_lengthscale[h].exp() ** 2
        logits = {
            "rbf": -difference.square().sum(-1) / (2 * width),
            "laplacian": -difference.abs().sum(-1) / (2 * width),
            "linear": query[..., part] @ key[..., part].mT / width,
        }[metric]
        keep = torch.ones(4, 7).bool().tril(3) & key_mask[:, None]
        heads.append(torch.softmax(logits.masked_fill(~keep, -torch.inf), -1) @ value[..., part])
    torch.testing.assert_close(result, layer.output_projection(torch.cat(heads, -1)))
    result.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


def test_module_defaults_to_self_attention() -> None:
    torch.manual_seed(0)
    layer, x = KernelAttention(8, 2), rows(3, 5, 8, dtype=torch.float32)
    torch.testing.assert_close(layer(x), layer(x, x, x))
    torch.testing.assert_close(layer(x)[1], layer(x[1]))


def test_linear_module_starts_as_scaled_dot_product_attention() -> None:
    layer = KernelAttention(16, 4, metric="linear")
    torch.testing.assert_close(torch.exp(-2 * layer.log_lengthscale), torch.full((4,), 0.5))


def test_module_is_copied_saved_and_shown() -> None:
    layer, x = KernelAttention(8, 2, learn_lengthscale=False), rows(4, 8, dtype=torch.float32)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(x), layer(x))
    other = KernelAttention(8, 2, lengthscale=9.0)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), layer(x))
    assert "metric='rbf'" in repr(layer) and not layer.log_lengthscale.requires_grad


def test_module_compiles_to_one_graph() -> None:
    layer, x = KernelAttention(8, 2), rows(6, 8, dtype=torch.float32)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, mask=tp.masks.causal()), layer(x, mask=tp.masks.causal()))


# NadarayaWatson


def regression(n: int = 60, d: int = 3, outputs: int = 2) -> tuple[Array, Array]:
    generator = np.random.default_rng(0)
    X = generator.normal(size=(n, d))
    return X, np.stack([np.sin(2 * X[:, 0]), X[:, 1] ** 2], -1)[:, :outputs] + 0.05 * generator.normal(size=(n, outputs))


@pytest.mark.parametrize("metric", ["rbf", "laplacian"])
@pytest.mark.parametrize("width", [{"gamma": 0.7}, {"gamma": [0.7, 0.1, 2.0]}, {"lengthscale": [0.5, 1.0, 2.0]}])
def test_nadaraya_watson_is_a_weighted_average(metric: str, width: dict[str, Any]) -> None:
    X, y = regression()
    model = NadarayaWatson(metric, **width).fit(X[:50], y[:50])
    gamma = np.array(width["gamma"] if "gamma" in width else 0.5 / np.array(width["lengthscale"]) ** 2)
    difference = np.abs(X[50:, None] - X[None, :50])
    kernel = np.exp(-(gamma * (difference**2 if metric == "rbf" else difference)).sum(-1))
    expected = kernel @ y[:50] / kernel.sum(-1, keepdims=True)
    np.testing.assert_allclose(model.predict(X[50:]), expected, rtol=1e-9)
    np.testing.assert_allclose(model.gamma_, gamma)


def test_rules_of_bandwidth() -> None:
    X, y = regression()
    X[:, 2] = 3.0  # a constant feature counts with standard deviation 1
    deviation = np.array([*X[:, :2].std(0, ddof=1), 1.0])
    scott = deviation * 60 ** (-1 / 7)
    np.testing.assert_allclose(NadarayaWatson().fit(X, y).gamma_, 0.5 / scott**2)
    np.testing.assert_allclose(NadarayaWatson("laplacian").fit(X, y).gamma_, 1 / scott)
    silverman = scott * (4 / 5) ** (1 / 7)
    np.testing.assert_allclose(NadarayaWatson(bandwidth="silverman").fit(X, y).gamma_, 0.5 / silverman**2)


def leave_one_out_error(X: Array, y: Array, gamma: Any) -> float:
    kernel = np.exp(-(gamma * (X[:, None] - X[None]) ** 2).sum(-1))
    np.fill_diagonal(kernel, 0)
    return float(((kernel @ y / kernel.sum(-1, keepdims=True) - y) ** 2).mean())


def test_leave_one_out_finds_the_minimum() -> None:
    X, y = regression(120)
    model = NadarayaWatson(bandwidth="loo").fit(X, y)
    assert model.loo_error_ == pytest.approx(leave_one_out_error(X, y, model.gamma_), rel=1e-8)
    for factor in (0.8, 0.95, 1.05, 1.25):
        assert leave_one_out_error(X, y, model.gamma_ * factor) > model.loo_error_
    each = NadarayaWatson(bandwidth="loo_ard").fit(X, y)
    assert each.loo_error_ < 0.9 * model.loo_error_
    assert each.gamma_[2] < 0.3 * each.gamma_[:2].min()  # the third feature does not matter
    assert 1 < each.n_evaluations_ <= 60 + 25
    assert model.score(X, y) > 0.8


def test_targets_keep_their_form_and_kind() -> None:
    X, y = regression()
    single = NadarayaWatson().fit(X, y[:, 0]).predict(X)
    column = NadarayaWatson().fit(X, y[:, :1]).predict(X)
    assert single.shape == (60,) and column.shape == (60, 1)
    np.testing.assert_array_equal(single, column[:, 0])
    X32, y32 = torch.tensor(X, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
    model = NadarayaWatson(bandwidth="loo").fit(X32, y32)
    result = model.predict(X32)
    assert isinstance(result, Tensor) and result.dtype == torch.float32 and isinstance(model.gamma_, Tensor)
    assert isinstance(model.predict(X), np.ndarray)
    assert model.score(X32, y32) == pytest.approx(NadarayaWatson(bandwidth="loo").fit(X, y).score(X, y), abs=1e-3)


def test_nadaraya_watson_far_from_the_data() -> None:
    X, y = regression(outputs=1)
    prediction = NadarayaWatson(gamma=5.0).fit(X.astype(np.float32), y).predict(np.full((1, 3), 500, np.float32))
    nearest = np.argmin(((X - 500) ** 2).sum(-1))
    np.testing.assert_allclose(prediction[0], y[nearest], rtol=1e-5)


def test_other_kernels_take_their_own_options() -> None:
    X, y = regression()
    X = np.abs(X)
    model = NadarayaWatson("polynomial", gamma=0.5, metric_params={"degree": 2, "coef0": 1.0}).fit(X, y)
    kernel = (0.5 * X @ X.T + 1) ** 2
    np.testing.assert_allclose(model.predict(X), kernel @ y / kernel.sum(-1, keepdims=True), rtol=1e-9)
    assert NadarayaWatson("cosine_similarity").fit(X, y).gamma_ is None


def test_bad_options_of_nadaraya_watson() -> None:
    X, y = regression()
    for options, message in (
        ({"gamma": 1.0, "lengthscale": 1.0}, "at most one"),
        ({"gamma": -1.0}, "gamma is -1.0; expected a number > 0"),
        ({"lengthscale": [1.0, 2.0]}, "one for each of the 3 features"),
        ({"bandwidth": "cv"}, "bandwidth is 'cv'; expected one of"),
        ({"metric": "linear", "bandwidth": "loo"}, "need a kernel with a width"),
        ({"metric": "rfb"}, "unknown"),
    ):
        with pytest.raises(ValueError, match=message):
            NadarayaWatson(**options).fit(X, y)
    with pytest.raises(ValueError, match="needs at least 2 samples"):
        NadarayaWatson(bandwidth="loo").fit(X[:1], y[:1])
