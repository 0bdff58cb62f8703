"""Expressions: every step and operator against dense torch, transposition, both axes, dtypes, copies, and the examples of docstrings."""

from __future__ import annotations

import doctest
import importlib
import math
import pickle
from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import torchpairwise as tp
from torchpairwise import __main__, _registry

BACKENDS = pytest.mark.parametrize("backend", ["native", "tiles"])
N, M = 6, 9


def features(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(N, 3, dtype=dtype, generator=generator) + 0.1, torch.rand(M, 3, dtype=dtype, generator=generator) + 0.1


def vector(size: int, seed: int = 1) -> Tensor:
    return torch.rand(size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) + 0.5


# Steps


Apply = Callable[[tp.PairwiseExpression], tp.PairwiseExpression]
STEPS: dict[str, tuple[Apply, Callable[[Tensor], Tensor]]] = {
    "scale": (lambda S: S * 1.5, lambda s: s * 1.5),
    "shift": (lambda S: S + 0.5, lambda s: s + 0.5),
    "add_rows": (lambda S: S.add_rows(vector(S.shape[-2])), lambda s: s + vector(s.shape[-2])[:, None]),
    "add_columns": (lambda S: S.add_columns(vector(S.shape[-1])), lambda s: s + vector(s.shape[-1])),
    "weight_rows": (lambda S: S.weight_rows(vector(S.shape[-2])), lambda s: s * vector(s.shape[-2])[:, None]),
    "weight_columns": (lambda S: S.weight_columns(vector(S.shape[-1])), lambda s: s * vector(s.shape[-1])),
    "exp": (lambda S: S.exp(), torch.exp),
    "log": (lambda S: S.log(), torch.log),
    "log1p": (lambda S: S.log1p(), torch.log1p),
    "sqrt": (lambda S: S.sqrt(), torch.sqrt),
    "square": (lambda S: S.square(), torch.square),
    "pow": (lambda S: S.pow(2.5), lambda s: s**2.5),
    "abs": (lambda S: (S - 0.7).abs(), lambda s: (s - 0.7).abs()),
    "reciprocal": (lambda S: S.reciprocal(), torch.reciprocal),
    "tanh": (lambda S: S.tanh(), torch.tanh),
    "minimum": (lambda S: S.minimum(0.8), lambda s: s.clamp(max=0.8)),
    "maximum": (lambda S: S.maximum(0.8), lambda s: s.clamp(min=0.8)),
    "clamp": (lambda S: S.clamp(0.5, 0.9), lambda s: s.clamp(0.5, 0.9)),
    **{
        name: (lambda S, name=name: getattr(S - 0.7, name)(), lambda s, name=name: getattr(torch, name)(s - 0.7))
        for name in ("sin", "cos", "sigmoid", "relu")
    },
    "rsqrt": (lambda S: S.rsqrt(), torch.rsqrt),
    "softplus": (lambda S: S.softplus(), torch.nn.functional.softplus),
    "greater": (lambda S: S > vector(S.shape[-2])[:, None], lambda s: (s > vector(s.shape[-2])[:, None]).double()),
    "greater_equal": (lambda S: S >= 0.8, lambda s: (s >= 0.8).double()),
    "less": (lambda S: S < vector(S.shape[-1])[None], lambda s: (s < vector(s.shape[-1])).double()),
    "less_equal": (lambda S: torch.tensor(0.8, dtype=S.dtype) >= S, lambda s: (s <= 0.8).double()),
    "equal": (lambda S: S.eq(0.8), lambda s: (s == 0.8).double()),
    "not_equal": (lambda S: S.ne(0.8), lambda s: (s != 0.8).double()),
}
OPERATORS = ("scale", "shift", "greater", "greater_equal", "less", "less_equal", "equal", "not_equal")


def test_every_node_of_the_registry_has_a_row_and_a_method() -> None:
    assert set(STEPS) == set(_registry.NODES)
    assert all(hasattr(tp.PairwiseExpression, name) for name in _registry.NODES if name not in OPERATORS)


@BACKENDS
@pytest.mark.parametrize("name", STEPS)
def test_steps(name: str, backend: str) -> None:
    X, Y = features()
    ours, dense = STEPS[name]
    torch.testing.assert_close(ours(tp.lazy(X, Y, "linear", backend=backend)).dense(), dense(X @ Y.T))
    transposed = ours(tp.lazy(X, Y, "linear", backend=backend).T)
    torch.testing.assert_close(transposed.dense(), dense(Y @ X.T))
    torch.testing.assert_close(transposed.T.sum(-1), dense(Y @ X.T).sum(-2))


@BACKENDS
def test_operators(backend: str) -> None:
    X, Y = features()
    s, S = X @ Y.T, tp.lazy(X, Y, "linear", backend=backend)
    k, K = torch.exp(-torch.cdist(X, Y).square()), tp.lazy(X, Y, "rbf", gamma=1.0, backend=backend)
    t, one = torch.tensor(0.7, dtype=torch.float64), torch.tensor([0.7])
    row, column = vector(N)[:, None], vector(M)[None]
    for got, wanted in (
        (2 * S - 1, 2 * s - 1),
        (1 - S / 4, 1 - s / 4),
        (-S, -s),
        (3 / S, 3 / s),
        (S**2, s**2),
        (t * S + t, t * s + t),
        ((t - S) / t, (t - s) / t),
        (t / S, t / s),
        (S * one - one, s * one.double() - one.double()),
        (S + row, s + row),
        (row - S, row - s),
        (S - column, s - column),
        (column + S, column + s),
        (S * row, s * row),
        (column * S / row, column * s / row),
        (S + K, s + k),
        (S - K, s - k),
        (S * K, s * k),
        (K / S, k / s),
        (S / 0, torch.full_like(s, math.inf)),
    ):
        torch.testing.assert_close(got.dense(), wanted)


def test_a_batch_of_vectors_widens_the_expression() -> None:
    X, Y = features()
    bias = torch.rand(4, N, 1, dtype=torch.float64)
    S = tp.lazy(X, Y, "linear") + bias
    assert S.shape == (4, N, M) and S.ndim == 3
    torch.testing.assert_close(S.sum(-1), (X @ Y.T + bias).sum(-1))
    S = tp.lazy(X, Y, "linear").mask_rows(torch.ones(2, N, dtype=torch.bool))
    assert S.shape == (2, N, M) and S.sum(-1).shape == (2, N)
    joined = tp.lazy(X, Y) + tp.lazy(X.expand(5, N, 3), Y)
    assert joined.shape == (5, N, M) and joined.mean().shape == (5,)


def test_gradients_reach_every_operand_of_an_operator() -> None:
    X, Y = features()
    leaves = [x.requires_grad_() for x in (X, Y, vector(N), torch.tensor(0.7, dtype=torch.float64))]

    def run(X: Tensor, Y: Tensor, r: Tensor, t: Tensor) -> Tensor:
        S = tp.lazy(X, Y, "linear")
        return ((S / t + r[:, None]) * S.minimum(t) - t / S).logsumexp(-1)

    assert torch.autograd.gradcheck(run, leaves)


def test_log_after_exp_cancels() -> None:
    X = torch.tensor([[0.0], [40.0]])
    assert tp.lazy(X, metric="rbf", gamma=1.0).log().min().item() == -1600.0


def test_a_tensor_that_is_used_twice_is_one_operand() -> None:
    X, Y = features()
    r = vector(N)
    assert repr(tp.lazy(X, X, "linear")).endswith("'linear 0 0', 1 tensors)")
    assert repr(tp.lazy(X, metric="linear").detach()).endswith("'linear 0 0', 1 tensors)")
    S = tp.lazy(X, Y, "linear").add_rows(r) * tp.lazy(X, Y, "sqeuclidean").weight_rows(r) * 2
    assert repr(S).startswith(
        f"PairwiseExpression([{N}, {M}], torch.float64, 'linear 0 1; add_rows 2; sqeuclidean 0 1; weight_rows 2; multiply; scale 2'"
    )


def test_attributes() -> None:
    X, Y = features(torch.float32)
    S = tp.lazy(X, Y.requires_grad_(), "gaussian")
    assert S.shape == (N, M) and S.dtype == torch.float32 and S.device == X.device and S.metric == "rbf" and S.requires_grad
    assert not S.detach().requires_grad and S.T.shape == (M, N) and S.mT.T.shape == (N, M)


# Transposition


@BACKENDS
def test_transposed_consumers(backend: str) -> None:
    X, Y = features()
    S = tp.lazy(X, Y, "sqeuclidean", backend=backend).add_rows(vector(N)).masked(tp.masks.band(4, 3))
    dense, T = S.dense(), S.T
    V = torch.rand(N, 2, dtype=torch.float64)
    for name in ("sum", "mean", "logsumexp", "argmin", "argmax"):
        for dim in (-1, -2):
            torch.testing.assert_close(getattr(T, name)(dim), getattr(S, name)(-3 - dim))
    torch.testing.assert_close(T.dense(), dense.T)
    torch.testing.assert_close(T @ V, dense.T @ V)
    torch.testing.assert_close(T.softmax_matmul(V), S.softmax_matmul(V, dim=-2))
    torch.testing.assert_close(T.diagonal(), S.diagonal())
    for ours, wanted in zip(T.topk(3, -2), S.topk(3, -1), strict=True):
        torch.testing.assert_close(ours, wanted)
    assert T.explain("sum").pairs == S.explain("sum").pairs == N * M


@BACKENDS
def test_joining_a_transposed_expression(backend: str) -> None:
    X, Y = features()
    labels = torch.arange(N) % 2, torch.arange(M) % 2
    masks = tp.masks.band(3, 1) | ~tp.masks.causal() & tp.masks.same_group(*labels)
    flags = torch.arange(N) != 2
    A = tp.lazy(Y, X, "linear", backend=backend).T
    for align in ("lower_right", "upper_left"):
        B = tp.lazy(X, Y, "rbf", backend=backend).add_rows(vector(N)).masked(masks & tp.masks.causal(align)).mask_rows(flags)
        wanted = torch.where(B.dense(math.nan).isnan(), 0.0, X @ Y.T + B.dense())
        torch.testing.assert_close((A + B).dense(), wanted)
        torch.testing.assert_close((B + A).dense(), wanted)
        torch.testing.assert_close((B.T + A.T).dense(), wanted.T)


# Both axes


@BACKENDS
@pytest.mark.parametrize("both", [None, (-2, -1), (0, 1), [-1, -2]])
def test_both_axes(both: object, backend: str) -> None:
    X, Y = features()
    S = tp.lazy(X, Y, "manhattan", backend=backend).masked(tp.masks.causal("upper_left")).mask_rows(torch.arange(N) > 0)
    keep = ~S.dense(math.nan).isnan()
    kept = S.dense()[keep]
    for name, wanted in (
        ("sum", kept.sum()),
        ("mean", kept.mean()),
        ("logsumexp", kept.logsumexp(0)),
        ("min", kept.min()),
        ("max", kept.max()),
    ):
        result = getattr(S, name)(both)
        torch.testing.assert_close(result, wanted)
        assert getattr(S, name)(both, keepdim=True).shape == (1, 1)
    assert S.argmin() == S.dense(math.inf).argmin() and S.argmax() == S.dense(-math.inf).argmax()
    assert S.argmax(keepdim=True).shape == (1, 1)


def test_both_axes_in_batches_with_ties_and_nan() -> None:
    rows = torch.tensor([[[1.0], [0.0], [1.0]], [[math.nan], [2.0], [2.0]], [[math.nan], [math.nan], [math.nan]]], requires_grad=True)
    S = tp.lazy(rows, torch.ones(4, 1), "linear")
    assert S.argmax().tolist() == [0, 4, 0] and S.argmin().tolist() == [4, 4, 0]
    assert S.max().tolist()[:2] == [1.0, 2.0] and S.max()[2].isnan() and S.min()[:2].tolist() == [0.0, 2.0]
    (gradient,) = torch.autograd.grad(S.max()[0], rows)
    assert gradient[0].flatten().tolist() == [1.0, 0.0, 0.0]  # one pair, not a share for each


def test_masked_infinity_comes_before_nan_over_both_axes() -> None:
    S = tp.lazy(torch.tensor([[math.nan], [1.0]]), torch.ones(2, 1), "linear").mask_rows(torch.tensor([True, False]))
    assert S.min().item() == math.inf and S.max().item() == -math.inf


def test_nothing_of_size_n_times_m_is_made_over_both_axes() -> None:
    class Largest(TorchDispatchMode):
        size = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            out = function(*args, **(kwargs or {}))
            for x in out if isinstance(out, (tuple, list)) else [out]:
                self.size = max(self.size, x.numel() if isinstance(x, Tensor) else 0)
            return out

    X, Y = torch.randn(300, 2), torch.randn(400, 2)
    with Largest() as largest:
        S = tp.lazy(X, Y, "rbf")
        S.sum(), S.mean(), S.logsumexp(None), S.min(), S.max(), S.argmin(), S.argmax()
    assert 0 < largest.size <= 800


def test_half_precision_over_both_axes_does_not_overflow() -> None:
    X, Y = torch.full((64, 1), 30.0).half(), torch.zeros(64, 1).half()
    S = tp.lazy(X, Y)
    assert S.mean() == 900 and S.mean().dtype == torch.float16 and S.mean(-1).dtype == torch.float16
    assert S.argmin().dtype == S.topk(1).indices.dtype == torch.int64


def test_keepdim_and_dims_of_torch() -> None:
    X, Y = torch.randn(2, N, 3), torch.randn(M, 3)
    S, D = tp.lazy(X, Y), tp.lazy(X[0], Y)
    for name in ("sum", "mean", "logsumexp", "argmin", "argmax"):
        assert getattr(S, name)(-1, keepdim=True).shape == (2, N, 1)
        assert getattr(S, name)(1, True).shape == (2, 1, M)
        assert torch.equal(getattr(D, name)(0), getattr(D, name)(-2)) and torch.equal(getattr(D, name)(1), getattr(D, name)(-1))
    assert S.min(-1, keepdim=True).values.shape == (2, N, 1) and S.max(-2, keepdim=True).indices.shape == (2, 1, M)
    assert S.sum().shape == (2,) and S.sum(keepdim=True).shape == (2, 1, 1)


def test_exclude_self_on_every_consumer() -> None:
    X = torch.randn(7, 3, dtype=torch.float64)
    V = torch.randn(7, 2, dtype=torch.float64)
    S, rest = tp.lazy(X, metric="linear"), tp.lazy(X, metric="linear").masked(~tp.masks.band(0, 0))
    for call in (
        lambda S, **e: S.sum(**e),
        lambda S, **e: S.mean(**e),
        lambda S, **e: S.logsumexp(-2, **e),
        lambda S, **e: S.min(-1, **e).values,
        lambda S, **e: S.max(**e),
        lambda S, **e: S.argmin(-1, **e),
        lambda S, **e: S.argmax(**e),
        lambda S, **e: S.topk(3, **e).indices,
        lambda S, **e: S.matmul(V, **e),
        lambda S, **e: S.softmax_matmul(V, **e),
        lambda S, **e: S.dense(7.0, **e),
    ):
        assert torch.equal(call(S, exclude_self=True), call(rest))


def test_vectors_and_columns_as_values() -> None:
    X, Y = features()
    S, s, v, u = tp.lazy(X, Y, "linear"), X @ Y.T, vector(M), vector(N)
    torch.testing.assert_close(S @ v, s @ v)
    torch.testing.assert_close(S.matmul(u, dim=-2), s.T @ u)
    V = torch.rand(4, M, 2, dtype=torch.float64)
    torch.testing.assert_close(S @ V, s @ V)
    output, logsumexp = S.softmax_matmul(V, return_aux=True)
    torch.testing.assert_close(output, s.softmax(-1) @ V)
    torch.testing.assert_close(logsumexp, s.logsumexp(-1).expand(logsumexp.shape))


# dtypes and devices


def test_numbers_and_scalars_never_promote() -> None:
    X = torch.rand(4, 2)
    for value in (2, True, 2.0, torch.tensor(2.0, dtype=torch.float64), torch.tensor([2]), pytest.importorskip("numpy").float64(2)):
        for S in (value * tp.lazy(X), tp.lazy(X) + value, tp.lazy(X).minimum(value), tp.lazy(X, metric="rbf", gamma=value)):
            assert S.sum(-1).dtype == torch.float32
    assert ((torch.tensor(2.0).half() * tp.lazy(X.double())).sum().dtype) == torch.float64


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_comes_back_as_it_came(dtype: torch.dtype) -> None:
    X, Y, V = (torch.rand(n, 3).to(dtype).requires_grad_() for n in (N, M, M))
    S = tp.lazy(X, Y, "rbf", gamma=torch.rand(3).to(dtype)).add_rows(X[:, 0])
    results = [
        S.sum(),
        S.mean(-1),
        S.logsumexp(-1),
        S @ V,
        S.softmax_matmul(V),
        S.min(-1).values,
        S.topk(2).values,
        S.diagonal(),
        S.dense(),
    ]
    assert all(result.dtype == dtype for result in results)
    assert torch.autograd.grad(S.sum(), X)[0].dtype == dtype


def test_integers_become_the_default_dtype() -> None:
    X, Y = torch.arange(6).reshape(3, 2), torch.rand(4, 2)
    wanted = torch.cdist(X.float(), Y) ** 2
    torch.testing.assert_close(tp.lazy(X, Y).dense(), wanted)
    torch.testing.assert_close(
        tp.lazy(X, Y).add_rows(torch.arange(3)) @ torch.ones(4, dtype=torch.bool), (wanted + torch.arange(3)[:, None]).sum(-1)
    )


def test_to_and_detach() -> None:
    X, Y = features(torch.float32)
    keep = torch.arange(N) > 1
    S = tp.lazy(X.requires_grad_(), Y, "rbf", gamma=torch.tensor(0.3)).mask_rows(keep)
    wide = S.to(torch.float64)
    assert wide.dtype == wide.sum().dtype == torch.float64 and S.to(dtype=torch.float16).sum().dtype == torch.float16
    torch.testing.assert_close(wide.sum(-1).float(), S.sum(-1))
    assert torch.autograd.grad(wide.sum(), X)[0].abs().sum() > 0
    assert S.to("meta").device.type == "meta" and S.to("cpu").device.type == "cpu"
    assert torch.equal(S.detach().sum(-1), S.sum(-1).detach())


@BACKENDS
def test_autocast_changes_nothing(backend: str) -> None:
    X, Y, V = torch.randn(40, 30), torch.randn(50, 30), torch.randn(50, 3)
    for metric in ("linear", "sqeuclidean", "rbf"):
        leaves = [t.clone().requires_grad_() for t in (X, Y, V)]

        def run(leaves: list[Tensor] = leaves, metric: str = metric) -> list[Tensor]:
            S = tp.lazy(*leaves[:2], metric, backend=backend)
            results = [S @ leaves[2], S.softmax_matmul(leaves[2]), S.logsumexp(-1), S.dense()]
            return [*results, *torch.autograd.grad(sum(result.sum() for result in results), leaves)]

        plain = run()
        with torch.autocast("cpu", torch.bfloat16):
            mixed = run()
        assert all(torch.equal(a, b) for a, b in zip(plain, mixed, strict=True))


# Parameters of metrics


def test_widths() -> None:
    X, Y = features()
    square = ((X[:, None] - Y) ** 2).sum(-1)
    for options in (
        {"gamma": 0.3},
        {"gamma": torch.tensor([0.3])},
        {"lengthscale": (0.5 / 0.3) ** 0.5},
        {"gamma": torch.full((3,), 0.3).double()},
    ):
        torch.testing.assert_close(tp.lazy(X, Y, "rbf", **options).dense(), torch.exp(-0.3 * square))
    torch.testing.assert_close(tp.lazy(X, Y, "rbf", gamma=None).dense(), torch.exp(-square / 3))
    width = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)
    torch.testing.assert_close(
        tp.lazy(X, Y, "rbf", lengthscale=width).dense(), torch.exp(-((X[:, None] - Y) ** 2 / (2 * width**2)).sum(-1))
    )
    torch.testing.assert_close(tp.lazy(X, Y, "laplacian", gamma=width).dense(), torch.exp(-((X[:, None] - Y).abs() * width).sum(-1)))
    scores = (torch.tensor(0.2) * (X @ Y.T) + 0.7) ** 2
    torch.testing.assert_close(
        tp.lazy(X, Y, "polynomial", gamma=0.2, coef0=torch.tensor(0.7), degree=2).dense(), scores.double(), atol=1e-7, rtol=1e-6
    )


def test_a_width_of_zero_has_gradient_zero_and_a_negative_one_is_nan() -> None:
    X, Y = features()
    gamma = torch.tensor([0.5, 0.0, 1.0], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(tp.lazy(X, Y, "rbf", gamma=gamma).sum(), gamma)
    assert gradient[1] == 0 and gradient.isfinite().all() and (gradient[[0, 2]] != 0).all()
    assert tp.lazy(X, Y, "rbf", gamma=torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)).sum().isnan()


def test_choices_reach_the_native_call() -> None:
    X = torch.randn(8, 3)
    S = tp.lazy(X, chunk_size=3, precision="fast", backend="tiles")
    assert "'tiles chunk=3 fast: sqeuclidean 0 0'" in repr(S)
    explanation = S.explain("sum")
    assert explanation.path == "tiles" and explanation.precision == "fast" and explanation.instruction_set == ""
    assert max(explanation.tile) <= 3
    torch.testing.assert_close((tp.lazy(X) + S).sum(-1), 2 * tp.lazy(X).sum(-1))
    assert (tp.lazy(X) + S).explain("sum").path == "tiles"
    assert tp.lazy(X).explain("argmin").consumer == "min" and tp.lazy(X).explain("matmul", torch.ones(8)).flops > 0


# Copies, records, examples


def test_copies() -> None:
    X = torch.randn(5, 3)
    S = tp.lazy(X, metric="rbf", gamma=torch.tensor(0.3)).add_rows(torch.randn(5)).masked(tp.masks.causal() & ~tp.masks.band(0, 0))
    for copy in (pickle.loads(pickle.dumps(S)), deepcopy(S), S.T.mT):
        assert torch.equal(copy.sum(-1), S.sum(-1)) and repr(copy) == repr(S)


def test_records() -> None:
    assert tp.metric_info("l2") is tp.metric_info("euclidean") and len({info.name for info in tp.metrics()}) == len(tp.metrics())
    assert _registry.CONSUMERS["topk"].inputs == ("k", "dim", "largest") and _registry.CONSUMERS["diagonal"].inputs == ()
    assert {"causal", "band", "same_group", "rows", "columns", "off_diagonal"} <= set(_registry.MASKS)
    assert {"add", "multiply"} <= set(_registry.JOINS) and "sqeuclidean" in _registry.SOURCES
    with pytest.raises(AttributeError):
        tp.metric_info("rbf").name = "other"  # type: ignore[misc]


def test_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main() == 0
    text = capsys.readouterr().out
    for words in (tp.__version__, torch.__version__, "running: ", "backends", "self-check     passed"):
        assert words in text


MODULES = ["_native", "_registry", "configuration", "consume", "elementwise", "explain", "expression", "masks", "nodes"]
MODULES += ["comparisons.custom", "encoding.feature_pairwise", "encoding.prepared"]
MODULES += ["optimize.box_qp", "optimize.results", "optimize.sinkhorn", "statistics"]
MODULES += ["transport.barycenter", "transport.functional", "transport.modules"]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_docstrings(name: str) -> None:
    module = importlib.import_module(f"torchpairwise.{name}")
    results = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert results.failed == 0 and results.attempted > 0
