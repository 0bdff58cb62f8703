"""Comparisons written in Python: values, gradients, modules that a function uses, modes, copies, and how long they live."""

from __future__ import annotations

import functools
import gc
import pickle
import weakref
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchpairwise as tp
from torchpairwise.comparisons import custom

FORMS = pytest.mark.parametrize("form", ["broadcast", "vmap"])


def chebyshev(x: Tensor, y: Tensor) -> Tensor:
    return (x - y).abs().amax(-1)


class Weighted(nn.Module):
    """f(x, y) = sum_d |x_d - y_d| w_d b_d, b a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64))
        self.register_buffer("factor", torch.tensor(2.0, dtype=torch.float64))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return ((x - y).abs() * self.weight * self.factor).sum(-1)


def samples(n: int, *batch: int) -> Tensor:
    return torch.randn(*batch, n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(n))


def weighted(X: Tensor, Y: Tensor, weight: Tensor) -> Tensor:
    return ((X.unsqueeze(-2) - Y.unsqueeze(-3)).abs() * weight * 2).sum(-1)


@FORMS
@pytest.mark.parametrize("chunk_size", [None, 1, 2, 100])
def test_values_of_every_consumer(form: str, chunk_size: int | None) -> None:
    X, Y = samples(5, 2, 1), samples(7, 3)
    V = torch.randn(7, 2, dtype=torch.float64)
    wanted = (X.unsqueeze(-2) - Y.unsqueeze(-3)).abs().amax(-1)
    comparison = tp.make_pairwise(chebyshev, pairwise=form)
    S = tp.lazy(X, Y, comparison, chunk_size=chunk_size)
    assert S.shape == wanted.shape and S.metric == "chebyshev"
    torch.testing.assert_close(comparison(X, Y), wanted)
    for got, dense in (
        (S.dense(), wanted),
        (S.sum(-1), wanted.sum(-1)),
        (S.mean(-2), wanted.mean(-2)),
        (S.logsumexp(-1), wanted.logsumexp(-1)),
        (S @ V, wanted @ V),
        ((-S).softmax_matmul(V), (-wanted).softmax(-1) @ V),
        (S.min(-1).values, wanted.amin(-1)),
        (S.topk(3).values, wanted.topk(3).values),
        (S.diagonal(), wanted.diagonal(dim1=-2, dim2=-1)),
        (S.T.sum(-1), wanted.sum(-2)),
        ((S * tp.lazy(X, Y, "linear") + 1.0).sum(), (wanted * (X @ Y.mT) + 1).sum((-1, -2))),
    ):
        torch.testing.assert_close(got, dense)
    i, j = torch.arange(5)[:, None], torch.arange(7)
    torch.testing.assert_close(S.masked(tp.masks.causal()).sum(-1), torch.where(j <= i + 2, wanted, 0.0).sum(-1))


def test_a_comparison_need_not_be_symmetric() -> None:
    X, Y = samples(4), samples(6)
    S = tp.lazy(X, Y, tp.make_pairwise(lambda x, y: x[..., 0] - 3 * y[..., 1]))
    wanted = X[:, None, 0] - 3 * Y[:, 1]
    torch.testing.assert_close(S.T.dense(), wanted.T)
    torch.testing.assert_close(S.sum(-2), wanted.sum(-2))


@FORMS
def test_gradients_of_features_parameters_and_buffers(form: str) -> None:
    module = Weighted()
    S = tp.lazy(samples(4).requires_grad_(), samples(5), tp.make_pairwise(module, pairwise=form), chunk_size=2)
    X, Y = samples(4).requires_grad_(), samples(5)
    for ours, dense in (
        (lambda S: S.logsumexp(-1), lambda s: s.logsumexp(-1)),
        (lambda S: S.min(-1).values, lambda s: s.amin(-1)),
        (lambda S: S.softmax_matmul(Y), lambda s: s.softmax(-1) @ Y),
    ):
        S = tp.lazy(X, Y, tp.make_pairwise(module, pairwise=form), chunk_size=2)
        got = torch.autograd.grad(ours(S).sum(), (X, module.weight))
        wanted = torch.autograd.grad(dense(weighted(X, Y, module.weight)).sum(), (X, module.weight))
        torch.testing.assert_close(got, wanted)


def test_second_derivatives() -> None:
    module = Weighted()
    comparison = tp.make_pairwise(lambda x, y: module(x, y).square())
    X, Y = samples(3).requires_grad_(), samples(4)

    def penalty(scores: Tensor) -> tuple[Tensor, ...]:
        (gradient,) = torch.autograd.grad(scores.sum(), X, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), (X, module.weight))

    got = penalty(tp.lazy(X, Y, comparison).logsumexp(-1))
    torch.testing.assert_close(got, penalty(weighted(X, Y, module.weight).square().logsumexp(-1)))


class Method:
    def __init__(self) -> None:
        self.head = Weighted()

    def compare(self, x: Tensor, y: Tensor) -> Tensor:
        return self.head(x, y)

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return self.head(x, y)


def with_keyword(x: Tensor, y: Tensor, head: nn.Module) -> Tensor:
    return head(x, y)


@pytest.mark.parametrize("kind", ["closure", "default", "partial", "method of module", "callable object"])
def test_modules_that_a_function_uses_get_gradients(kind: str) -> None:
    module, thing = Weighted(), Method()
    functions = {
        "closure": lambda x, y: module(x, y),
        "default": lambda x, y, head=module: head(x, y),
        "partial": functools.partial(with_keyword, head=module),
        "method of module": module.forward,
        "callable object": thing,
    }
    if kind == "callable object":
        module = thing.head
    X, Y = samples(4), samples(5)
    S = tp.lazy(X, Y, tp.make_pairwise(functions[kind]))
    assert S.requires_grad
    (got,) = torch.autograd.grad(S.logsumexp(-1).sum(), module.weight)
    (wanted,) = torch.autograd.grad(weighted(X, Y, module.weight).logsumexp(-1).sum(), module.weight)
    torch.testing.assert_close(got, wanted)


def test_training_changes_the_scores() -> None:
    module = Weighted()
    comparison = tp.make_pairwise(module)
    X = samples(4)
    before = tp.lazy(X, metric=comparison).sum()
    with torch.no_grad():
        module.weight.mul_(3)
    torch.testing.assert_close(tp.lazy(X, metric=comparison).sum(), 3 * before)


@FORMS
def test_modes(form: str) -> None:
    comparison = tp.make_pairwise(chebyshev, symmetric=True, zero_diagonal=True, pairwise=form)
    X, Y = samples(5, 2), samples(5)
    dense = comparison(X, Y)
    assert dense.shape == (2, 5, 5)
    torch.testing.assert_close(comparison(X, Y, mode="paired"), dense.diagonal(dim1=-2, dim2=-1))
    torch.testing.assert_close(comparison(X[0, 1], Y[2], mode="single"), dense[0, 1, 2])
    i, j = torch.triu_indices(5, 5, 1)
    torch.testing.assert_close(comparison(Y, mode="condensed"), comparison(Y)[i, j])
    assert tp.make_pairwise(chebyshev, mode="single")(X[0, 0], Y[0]).shape == ()
    assert "chebyshev" in repr(comparison)


@FORMS
def test_empty_collections(form: str) -> None:
    comparison = tp.make_pairwise(chebyshev, pairwise=form)
    X = samples(3).requires_grad_()
    assert comparison(X, X[:0]).shape == (3, 0)
    assert tp.lazy(X, X[:0], comparison).sum(-1).tolist() == [0, 0, 0]
    assert tp.lazy(X[:0], X, comparison).sum(-1).requires_grad


def test_features_may_differ_in_size() -> None:
    project = tp.make_pairwise(lambda x, y: (x[..., :2] * y).sum(-1))
    X, Y = samples(3), samples(4)[:, :2]
    torch.testing.assert_close(tp.lazy(X, Y, project).sum(-1), (X[:, :2] @ Y.T).sum(-1))


def test_half_precision_is_computed_in_float32() -> None:
    seen = []
    comparison = tp.make_pairwise(lambda x, y: (seen.append(x.dtype), chebyshev(x, y))[1])
    assert tp.lazy(samples(3).half(), samples(4).half(), comparison).sum(-1).dtype == torch.float16
    assert set(seen) == {torch.float32}


def test_transforms_of_torch_func() -> None:
    X, Y = samples(3), samples(4)
    broadcast, mapped = (tp.make_pairwise(chebyshev, pairwise=form) for form in ("broadcast", "vmap"))

    def loss(X: Tensor, comparison: tp.CustomComparison = broadcast) -> Tensor:
        return tp.lazy(X, Y, comparison).logsumexp(-1).sum()

    def dense(X: Tensor) -> Tensor:
        return chebyshev(X[:, None], Y).logsumexp(-1).sum()

    torch.testing.assert_close(torch.func.grad(loss)(X), torch.func.grad(dense)(X))
    torch.testing.assert_close(torch.func.jvp(loss, (X,), (X,)), torch.func.jvp(dense, (X,), (X,)))
    with pytest.raises(NotImplementedError, match="torch.vmap over .* chebyshev; give X and Y batch dimensions"):
        torch.vmap(loss)(samples(3, 2))
    with pytest.raises(NotImplementedError, match='transforms over .* pairwise="vmap"; write it as a broadcast'):
        torch.func.grad(lambda X: loss(X, mapped))(X)


# Life


def test_a_comparison_lives_as_long_as_what_needs_it() -> None:
    module = Weighted()
    X = samples(3).requires_grad_()
    comparison = tp.make_pairwise(lambda x, y: module(x, y))
    key, gone = comparison.key, weakref.ref(comparison)
    S = tp.lazy(X, metric=comparison)
    del comparison
    loss = S.logsumexp(-1).sum()
    del S
    (gradient,) = torch.autograd.grad(loss, X, create_graph=True)
    del loss
    assert gone() is not None  # the graph of the gradient needs it still
    gradient.square().sum().backward()
    assert X.grad is not None and X.grad.isfinite().all()
    del gradient
    X.grad = None
    gc.collect()
    assert gone() is None and key not in custom._COMPARISONS


def test_a_comparison_of_another_process_is_named() -> None:
    X = torch.ones(2, 1)
    with pytest.raises(RuntimeError, match=r"comparison 'elsewhere' is gone, or was made in another process; keep what"):
        torch.ops.torchpairwise.sum([X, X], "custom elsewhere 0 1", [], -1)


def test_copies_of_expressions() -> None:
    module = Weighted()
    S = tp.lazy(samples(3), samples(4), tp.make_pairwise(module))
    for copy in (pickle.loads(pickle.dumps(S)), deepcopy(S)):
        torch.testing.assert_close(copy.sum(-1), S.sum(-1))
        assert repr(copy) == repr(S) and copy._steps[0].comparison.key != S._steps[0].comparison.key
    for changed in (S.detach(), S.to(torch.float32)):
        torch.testing.assert_close(changed.sum(-1).double(), S.sum(-1).detach(), atol=1e-5, rtol=1e-5)
    assert not S.detach().requires_grad
    again = pickle.loads(pickle.dumps(tp.make_pairwise(chebyshev, symmetric=True, zero_diagonal=True)))
    assert again(samples(3), mode="condensed").shape == (3,)


def test_explain_names_the_reason() -> None:
    explanation = tp.lazy(samples(3), metric=tp.make_pairwise(chebyshev)).explain("sum")
    assert explanation.path == "tiles" and "function" in explanation.reasons[0]


def test_a_tensor_whose_gradient_is_switched_on_later_is_refused() -> None:
    weight = torch.ones(3)
    comparison = tp.make_pairwise(lambda x, y: ((x - y).square() * weight).sum(-1))
    S = tp.lazy(torch.zeros(2, 3), torch.ones(4, 3), comparison)
    assert S.sum() == 24
    weight.requires_grad_()
    with pytest.raises(ValueError, match="uses weight, a tensor that requires a gradient"):
        S.sum()


# Samples of any shape, and trees


def set_distance(x: Tensor, y: Tensor) -> Tensor:
    """Of two sets of points [T, D]: the mean distance to the nearest point of the other."""
    return (x.unsqueeze(-2) - y.unsqueeze(-3)).square().sum(-1).amin(-1).mean(-1)


@FORMS
@pytest.mark.parametrize("chunk_size", [None, 2])
def test_samples_may_be_arrays(form: str, chunk_size: int | None) -> None:
    X, Y = (torch.randn(*shape, 4, 3, dtype=torch.float64).requires_grad_() for shape in ((2, 5), (6,)))
    comparison = tp.make_pairwise(set_distance, pairwise=form, sample_ndim=2)
    dense = set_distance(X.unsqueeze(-3), Y.unsqueeze(-4))
    S = tp.lazy(X, Y, comparison, chunk_size=chunk_size)
    assert S.shape == (2, 5, 6)
    torch.testing.assert_close(comparison(X, Y), dense)
    torch.testing.assert_close(S.dense(), dense)
    torch.testing.assert_close(S.T.topk(2).values, dense.mT.topk(2).values)
    torch.testing.assert_close(S.min(-1).values, dense.amin(-1))
    torch.testing.assert_close(S.diagonal(), dense.diagonal(dim1=-2, dim2=-1))
    i, j = torch.arange(5)[:, None], torch.arange(6)
    torch.testing.assert_close(S.masked(tp.masks.causal()).sum(-1), torch.where(j <= i + 1, dense, 0.0).sum(-1))
    got = torch.autograd.grad(S.logsumexp(-1).sum(), (X, Y))
    torch.testing.assert_close(got, torch.autograd.grad(dense.logsumexp(-1).sum(), (X, Y)))
    torch.testing.assert_close(comparison(X[0, 0], Y[1], mode="single"), dense[0, 0, 1])
    torch.testing.assert_close(comparison(X[:, :5], Y[:5], mode="paired"), dense[:, :, :5].diagonal(dim1=-2, dim2=-1))


@FORMS
def test_samples_may_be_single_numbers(form: str) -> None:
    X, Y = torch.arange(3.0), torch.tensor([1.0, 5.0])
    comparison = tp.make_pairwise(lambda x, y: (x - y).abs(), pairwise=form, sample_ndim=0)
    assert comparison(X, Y).tolist() == tp.lazy(X, Y, comparison).dense().tolist() == [[1, 5], [0, 4], [1, 3]]


def tree_score(x: dict[str, Tensor], y: dict[str, Tensor]) -> Tensor:
    assert x["label"].dtype == torch.int64 and x["flag"].dtype == torch.bool
    same = (x["label"] == y["label"]) & x["flag"]
    return torch.where(same, (x["points"] - y["points"]).abs().sum((-1, -2)), x["scale"].squeeze(-1) * 0.5)


def tree(n: int, *batch: int) -> dict[str, Tensor]:
    return {
        "points": torch.randn(*batch, n, 2, 3),
        "label": torch.randint(0, 3, (*batch, n)),
        "flag": torch.rand(*batch, n) > 0.3,
        "scale": torch.randn(*batch, n, 1, dtype=torch.float64),
    }


@FORMS
def test_samples_may_be_trees_of_several_dtypes(form: str) -> None:
    torch.manual_seed(0)
    X, Y = tree(5, 2), tree(6)
    comparison = tp.make_pairwise(tree_score, pairwise=form, sample_ndim={"points": 2, "label": 0, "flag": 0, "scale": 1})
    same = (X["label"][..., :, None] == Y["label"]) & X["flag"][..., :, None]
    distances = (X["points"][..., :, None, :, :] - Y["points"]).abs().sum((-1, -2))
    dense = torch.where(same, distances.double(), X["scale"] * 0.5)
    torch.testing.assert_close(comparison(X, Y), dense)
    S = tp.lazy(X, Y, comparison, chunk_size=2)
    assert S.dtype == torch.float64
    torch.testing.assert_close(S.dense(), dense, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(S.sum(-2), dense.sum(-2), atol=1e-5, rtol=1e-5)
    for copied in (pickle.loads(pickle.dumps(S)) if form == "broadcast" else deepcopy(S), deepcopy(S)):
        torch.testing.assert_close(copied.sum(-2), S.sum(-2))
    torch.testing.assert_close(S.to(torch.float32).sum(-2), S.sum(-2).float())


def test_trees_live_as_long_as_what_needs_them() -> None:
    X = {"a": torch.ones(3, 2, requires_grad=True)}
    comparison = tp.make_pairwise(lambda x, y: (x["a"] * y["a"]).sum(-1))
    loss = tp.lazy(X, None, comparison).sum()
    del comparison
    gc.collect()
    loss.backward()
    assert X["a"].grad.tolist() == [[6, 6]] * 3


@pytest.mark.parametrize(
    ("words", "call"),
    [
        (r"leaves of X have shapes \{'a': \[3, 2\], 'b': \[4, 2\]\}, whose leading", lambda c: c({"a": A, "b": torch.ones(4, 2)})),
        (r"sample_ndim=\{'a': 1\} does not have the structure of the samples, \{'a': tensor, 'b': tensor\}",
         lambda c: tp.make_pairwise(chebyshev, sample_ndim={"a": 1})({"a": A, "b": A})),
        (r"sample_ndim=True; expected", lambda c: tp.make_pairwise(chebyshev, sample_ndim=True)),
        (r"sample_ndim=-1; expected", lambda c: tp.make_pairwise(chebyshev, sample_ndim=[1, -1])),
        (r"sample_ndim='2'; expected", lambda c: tp.make_pairwise(chebyshev, sample_ndim="2")),
        (r"holds whole numbers beyond 16777216, which torch.float32", lambda c: tp.lazy([A, torch.full((3, 1), 2**25)], None, c)),
        (r"leaves of a sample are on cpu and meta", lambda c: tp.lazy({"a": A, "b": A.to("meta")}, None, c)),
        (r"X is on cpu, but Y is on meta", lambda c: tp.lazy(A, A.to("meta"), c)),
    ],
)  # fmt: skip
def test_samples_that_do_not_fit(words: str, call: Any) -> None:
    with pytest.raises(ValueError, match=words):
        call(tp.make_pairwise(chebyshev))


A = torch.ones(3, 2)


def test_samples_of_other_types() -> None:
    comparison = tp.make_pairwise(chebyshev)
    for words, call in (
        ("X has dtype torch.complex64; complex", lambda: tp.lazy(A + 0j, None, comparison)),
        ("X has dtype torch.float32, but Y has torch.float64", lambda: tp.lazy(A, A.double(), comparison)),
        (r"X\['a'\] is str 'text'; expected a tensor", lambda: comparison({"a": "text"})),
    ):
        with pytest.raises(TypeError, match=words):
            call()


# What streaming cannot do


@pytest.mark.parametrize("kind", ["rand", "dropout", "dropout module"])
def test_random_numbers_are_refused_when_streamed_and_fine_when_stored(kind: str) -> None:
    dropout = nn.Dropout(0.5)
    function = {
        "rand": lambda x, y: chebyshev(x, y) + torch.rand(()),
        "dropout": lambda x, y: torch.nn.functional.dropout(x - y, 0.5).sum(-1),
        "dropout module": lambda x, y: dropout(x - y).sum(-1),
    }[kind]
    comparison = tp.make_pairwise(function)
    X, Y = samples(3), samples(4)
    with pytest.raises(ValueError, match=r"draws random numbers \(aten.*Call .eval\(\) on its dropout"):
        tp.lazy(X, Y, comparison).sum(-1)
    assert comparison(X, Y).shape == (3, 4)
    if kind == "dropout module":
        dropout.eval()
        torch.testing.assert_close(tp.lazy(X, Y, comparison).sum(-1), (X[:, None] - Y).sum((-1, -2)))


def test_numbers_that_another_thread_draws_are_no_reason_to_refuse() -> None:
    state = torch.get_rng_state()

    def function(x: Tensor, y: Tensor) -> Tensor:
        torch.set_rng_state(torch.Generator().manual_seed(5).get_state())  # moves without an operation of torch
        seen.append(1)
        return chebyshev(x, y)

    seen: list[int] = []
    X = samples(3)
    try:
        assert tp.lazy(X, None, tp.make_pairwise(function)).sum(-1).shape == (3,)
    finally:
        torch.set_rng_state(state)
    assert len(seen) == 2  # evaluated again to be sure


def test_buffers_that_change_are_refused_when_streamed() -> None:
    norm = nn.BatchNorm1d(1, dtype=torch.float64)

    def function(x: Tensor, y: Tensor) -> Tensor:
        distance = chebyshev(x, y)
        return norm(distance.reshape(-1, 1)).reshape(distance.shape)

    comparison = tp.make_pairwise(function)
    with pytest.raises(ValueError, match="changes a buffer in place, as batch normalisation does in training.*eval"):
        tp.lazy(samples(3), samples(4), comparison).sum(-1)
    comparison.eval()
    assert not norm.training
    torch.testing.assert_close(tp.lazy(samples(3), samples(4), comparison).dense(), comparison(samples(3), samples(4)))


@pytest.mark.parametrize(
    ("function", "facts", "words"),
    [
        (lambda x, y: x[..., 0] - y[..., 0], {"symmetric": True}, r"declared symmetric=True, but f\(x, y\) and f\(y, x\) differ by up to"),
        (lambda x, y: (x * y).sum(-1), {"zero_diagonal": True}, r"declared zero_diagonal=True, but f\(x, x\) and 0 differ by up to"),
        (lambda x, y: chebyshev(x, y) - chebyshev(x, y).mean(-1, keepdim=True), {}, "in dependence on the other columns of its tile"),
        (lambda x, y: chebyshev(x, y) - chebyshev(x, y).mean(-2, keepdim=True), {}, "in dependence on the other rows of its tile"),
    ],
)
def test_check_finds_what_does_not_hold(function: Any, facts: dict[str, bool], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tp.make_pairwise(function, **facts).check(samples(4), samples(5))


def test_check_finds_a_function_that_changes() -> None:
    calls: list[int] = []

    def counting(x: Tensor, y: Tensor) -> Tensor:
        calls.append(1)
        return chebyshev(x, y) + len(calls)

    with pytest.raises(ValueError, match="gives other scores when it is evaluated again: they differ by up to 1"):
        tp.make_pairwise(counting).check(samples(4))


@FORMS
def test_check_passes_what_holds(form: str) -> None:
    comparison = tp.make_pairwise(chebyshev, pairwise=form, symmetric=True, zero_diagonal=True)
    comparison.check(samples(4), samples(5))
    comparison.check(samples(1))
    tp.make_pairwise(set_distance, sample_ndim=2).check(torch.randn(3, 4, 2))


# Module


def test_a_comparison_is_a_module() -> None:
    module = Weighted()
    comparison = tp.make_pairwise(module)
    assert list(comparison.state_dict()) == ["function.weight", "function.factor"]
    assert [name for name, _ in comparison.named_parameters()] == ["function.weight"]
    closed = tp.make_pairwise(lambda x, y: module(x, y))
    assert list(closed.state_dict()) == ["modules_used.0.weight", "modules_used.0.factor"]
    other = tp.make_pairwise(Weighted())
    with torch.no_grad():
        other.function.weight.fill_(7)
    other.load_state_dict(comparison.state_dict())
    X = samples(3)
    torch.testing.assert_close(tp.lazy(X, None, other).sum(), tp.lazy(X, None, comparison).sum())
    copy = deepcopy(comparison)
    with torch.no_grad():
        copy.function.weight.mul_(2)
    torch.testing.assert_close(tp.lazy(X, None, copy).sum(), 2 * tp.lazy(X, None, comparison).sum())
    comparison.float()
    assert tp.lazy(X.float(), None, comparison).sum().dtype == torch.float32
    assert comparison.eval().function.training is False


def test_streamed_scores_are_computed_without_autocast_and_stored_ones_with_it() -> None:
    layer, seen = nn.Linear(3, 2), []

    def function(x: Tensor, y: Tensor) -> Tensor:
        projected = layer(x)
        seen.append(projected.dtype)
        return (projected - layer(y)).square().sum(-1)

    comparison, X = tp.make_pairwise(function), samples(3).float().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        loss = tp.lazy(X, None, comparison).logsumexp(-1).sum()
        assert set(seen) == {torch.float32}
        comparison(X)
        assert seen.pop() == torch.bfloat16
    loss.backward()
    assert set(seen) == {torch.float32} and X.grad.isfinite().all()


def test_parts_of_a_matrix_of_trees() -> None:
    X = {"a": torch.randn(5, 2), "b": torch.randn(5, 3)}
    S = tp.lazy(X, None, tp.make_pairwise(lambda x, y: (x["a"] * y["a"]).sum(-1) + (x["b"] - y["b"]).abs().sum(-1)))
    torch.testing.assert_close(S[1:4, [0, 2]].dense(), S.dense()[1:4, [0, 2]])
    torch.testing.assert_close(S[torch.tensor([1, 3]), torch.tensor([0, 4])], S.dense()[[1, 3], [0, 4]])


def test_memory_of_a_learned_head_is_that_of_a_tile() -> None:
    """No tile of forward or backward comes near N M pairs, without any choice of the caller."""
    head, tiles = nn.Linear(8, 1), []

    def function(x: Tensor, y: Tensor) -> Tensor:
        tiles.append(x.shape[-3] * y.shape[-2])
        return head((x - y).abs()).squeeze(-1)

    X = torch.randn(1500, 8, requires_grad=True)
    tp.lazy(X, None, tp.make_pairwise(function)).logsumexp(-1).sum().backward()
    assert sum(tiles) >= 2 * 1500**2 and max(tiles) * 20 <= 1500**2
