"""Encoded features, statement by statement: what the interface's description says of `tp.make_feature_pairwise`, in its order.

A counting encoder says how often it ran and on how many samples; answers are compared with NumPy or plain dense torch in float64.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import torchpairwise as tp


class Counting(nn.Module):
    """Flattens and projects; remembers the number of samples of each call."""

    def __init__(self, n_in: int = 12, n_out: int = 5) -> None:
        super().__init__()
        self.linear = nn.Linear(n_in, n_out, dtype=torch.float64)
        self.calls: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append(len(x))
        return self.linear(x.flatten(1))


class Tree(Counting):
    """A dictionary with a vector, and a tuple of a matrix and a whole number."""

    def forward(self, x: Tensor) -> dict[str, Any]:
        vector = super().forward(x)
        return {"vector": vector, "rest": (vector.unsqueeze(-1) * vector.unsqueeze(-2), (vector[:, 0] > 0).long())}


def samples(*lead: int, seed: int = 0) -> Tensor:
    """[*lead, 3, 2, 2]."""
    return torch.randn(*lead, 3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + sum(lead)))


def made(encoder: Any = None, metric: str | None = "sqeuclidean", **options: Any) -> tp.FeaturePairwise:
    return tp.make_feature_pairwise(Counting() if encoder is None else encoder, metric, sample_ndim=3, **options)


def plain_features(encoder: Counting, x: Tensor) -> np.ndarray:
    weight, bias = (p.detach().numpy() for p in encoder.linear.parameters())
    return x.numpy().reshape(*x.shape[:-3], -1) @ weight.T + bias


def squared(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return ((a[..., :, None, :] - b[..., None, :, :]) ** 2).sum(-1)


def close(ours: Tensor, oracle: np.ndarray) -> None:
    assert tuple(ours.shape) == oracle.shape
    np.testing.assert_allclose(ours.detach().numpy(), oracle, rtol=1e-10, atol=1e-12)


def chebyshev(x: Tensor, y: Tensor) -> Tensor:
    return (x - y).abs().amax(-1)


def tree_score(x: Any, y: Any) -> Tensor:
    same = (x["rest"][1] == y["rest"][1]).double()
    return (x["vector"] * y["vector"]).sum(-1) + (x["rest"][0] - y["rest"][0]).abs().sum((-1, -2)) + same


def dense_tree_score(encoder: Counting, X: Tensor, Y: Tensor) -> np.ndarray:
    a, b = plain_features(encoder, X), plain_features(encoder, Y)
    outer = np.abs((a[:, :, None] * a[:, None])[:, None] - (b[:, :, None] * b[:, None])[None]).sum((-1, -2))
    return a @ b.T + outer + ((a[:, None, 0] > 0) == (b[None, :, 0] > 0))


# Custom comparisons: encoded feature reuse


def test_one_encoding_per_input_sample_instead_of_two_per_pair() -> None:
    encoder = Counting()
    made(encoder)(samples(3), samples(5))
    assert encoder.calls == [3, 5]


def test_neither_encoder_nor_head_is_restricted() -> None:
    """An encoder that is no module, a head that is no distance."""
    comparison = tp.make_feature_pairwise(torch.sin, head=tp.make_pairwise(lambda x, y: x[..., 0] - 2 * y[..., 1]))
    X, Y = torch.randn(3, 2, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64)
    close(comparison(X, Y), np.sin(X.numpy()[:, None, 0]) - 2 * np.sin(Y.numpy()[None, :, 1]))


# Encode before pairing


def test_example_of_encode_before_pairing() -> None:
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 16))
    images, references = torch.randn(3, 3, 8, 8), torch.randn(5, 3, 8, 8)
    comparison = tp.make_feature_pairwise(encoder, "sqeuclidean", sample_ndim=3)
    values = comparison(images, references)
    single = comparison(images[0], references[0], mode="single")
    assert values.shape == (3, 5) and single.shape == ()
    torch.testing.assert_close(single, values[0, 0])
    torch.testing.assert_close(values, torch.cdist(encoder(images), encoder(references)).square(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("lead_x", "lead_y"), [((3,), (5,)), ((2, 3), (5,)), ((2, 1, 3), (4, 5))])
def test_table_row_encoder_receives_original_samples(lead_x: tuple[int, ...], lead_y: tuple[int, ...]) -> None:
    seen = []

    class Seeing(Counting):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(tuple(x.shape))
            return super().forward(x)

    encoder = Seeing()
    X, Y = samples(*lead_x), samples(*lead_y)
    close(made(encoder)(X, Y), squared(plain_features(encoder, X), plain_features(encoder, Y)))
    assert seen == [(int(np.prod(lead_x)), 3, 2, 2), (int(np.prod(lead_y)), 3, 2, 2)]


def test_table_row_features_are_restored_to_the_collection() -> None:
    encoder = Tree()
    features = made(encoder, None, head=lambda x, y: x).encode(samples(2, 4))
    assert features["vector"].shape == (2, 4, 5)
    assert features["rest"][0].shape == (2, 4, 5, 5) and features["rest"][1].shape == (2, 4)
    close(features["vector"], plain_features(encoder, samples(2, 4)))


def test_table_row_single_mode_has_no_sample_axis() -> None:
    encoder = Counting()
    X, Y = samples(4), samples(4, seed=9)
    a, b = plain_features(encoder, X), plain_features(encoder, Y)
    close(made(encoder)(X[1], Y[2], mode="single"), ((a[1] - b[2]) ** 2).sum())
    close(made(encoder)(X, Y, mode="single"), ((a - b) ** 2).sum(-1))  # [..., *sample] with one leading dimension
    assert encoder.calls == [1, 1, 4, 4]
    head = tp.make_pairwise(chebyshev)
    close(made(encoder, None, head=head)(X[1], Y[2], mode="single"), np.abs(a[1] - b[2]).max())


@pytest.mark.parametrize("metric", ["sqeuclidean", "rbf", "cosine_distances", "manhattan", "linear"])
def test_table_row_scalar_head_of_all_pairs(metric: str) -> None:
    encoder = Counting()
    X, Y = samples(3), samples(5)
    values = made(encoder, metric)(X, Y)
    a, b = (torch.from_numpy(plain_features(encoder, x)) for x in (X, Y))
    torch.testing.assert_close(values, tp.lazy(a, b, metric).dense())
    assert values.shape == (3, 5)


def test_each_original_collection_is_encoded_before_batch_broadcasting() -> None:
    encoder = Counting()
    X, Y = samples(1, 4), samples(3, 5)
    values = made(encoder)(X, Y)
    assert encoder.calls == [4, 15] and values.shape == (3, 4, 5)
    close(values, squared(plain_features(encoder, X), plain_features(encoder, Y)))


@pytest.mark.parametrize("omitted", [True, False])
def test_omitted_second_collection_or_the_same_object_encodes_once(omitted: bool) -> None:
    encoder = Counting()
    X = samples(4)
    comparison = made(encoder)
    values = comparison(X) if omitted else comparison(X, X)
    assert encoder.calls == [4]
    assert torch.equal(values, values.T) and not values.diagonal().any()
    prepared = comparison.prepare(X, None if omitted else X)
    assert prepared.columns is prepared.rows
    for k, S in enumerate((tp.lazy(prepared), tp.lazy(X, None if omitted else X, comparison))):
        assert len(S._lower()[0]) == 1, k  # rows and columns are one operand


def test_the_same_feature_tree_stands_on_both_sides() -> None:
    given = []
    made(Tree(), None, head=lambda x, y: given.append((x, y)))(samples(4), None)
    assert given[0][0] is given[0][1]


def test_distinct_tensor_objects_are_encoded_independently() -> None:
    encoder = Counting()
    X = samples(4)
    made(encoder)(X, X.clone())
    made(encoder)(X, X.view_as(X))
    assert encoder.calls == [4] * 4


@pytest.mark.parametrize(
    "output",
    [lambda v: (v,), lambda v: [v, {"a": v}], lambda v: {"a": v, 3: (v, [v])}],
    ids=["tuple", "list", "dict"],
)
def test_encoders_return_tuple_list_and_dict_trees(output: Callable[[Tensor], Any]) -> None:
    X = torch.randn(4, 2, dtype=torch.float64)
    comparison = tp.make_feature_pairwise(output, head=lambda x, y: (x, y), encode_chunk_size=3)
    x, y = comparison(X)
    assert x is y and repr(x) == repr(output(X)) and type(x) is type(output(X))


class Named(dict):
    """A subclass, as model libraries return."""


@pytest.mark.parametrize(
    ("output", "error", "words"),
    [
        (lambda x: (), ValueError, r"the encoder's output is an empty tuple"),
        (lambda x: {"a": x, "b": []}, ValueError, r"the encoder's output\['b'\] is an empty list"),
        (lambda x: {"a": None}, TypeError, r"output\['a'\] is NoneType; expected a tensor, or an ordinary tuple, list or dict"),
        (lambda x: [x, 3.0], TypeError, r"output\[1\] is float 3.0"),
        (lambda x: Named(a=x), TypeError, r"output is Named; .*convert it"),
        (lambda x: x[:-1], ValueError, r"returned a tensor \[3, 2\] for 4 samples; .*first axis, \[4, \*feature\]"),
        (lambda x: (x, x.sum()), ValueError, r"returned a tensor \[\] for 4 samples"),
    ],
)
def test_every_leaf_needs_the_encoded_count_as_its_first_axis(output: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        tp.make_feature_pairwise(output, head=tp.make_pairwise(chebyshev))(torch.ones(4, 2))


def test_chunks_must_agree() -> None:
    calls: list[int] = []

    def changing(output: Callable[[Tensor, int], Any]) -> Callable[[Tensor], Any]:
        def encoder(x: Tensor) -> Any:
            calls.append(1)
            return output(x, len(calls))

        return encoder

    for output, words in (
        (lambda x, n: x if n % 2 else (x,), r"returned (tensor|tuple\(tensor\)) for one chunk and (tensor|tuple\(tensor\)) for another"),
        (lambda x, n: x[:, : 1 + n % 2], r"returned features \[[12]\] of torch.float32 for one chunk and .*leave encode_chunk_size out"),
        (lambda x, n: x if n % 2 else x.double(), r"of torch.float(32|64) for one chunk and \[2\] of"),
    ):
        with pytest.raises(ValueError, match=words):
            tp.make_feature_pairwise(changing(output), "linear", encode_chunk_size=2)(torch.ones(4, 2))


def test_a_head_owns_how_leaves_become_inputs() -> None:
    encoder = Tree()
    X, Y = samples(3), samples(5)
    comparison = made(encoder, None, head=tp.make_pairwise(tree_score))
    close(comparison(X, Y), dense_tree_score(encoder, X, Y))
    assert encoder.calls == [3, 5]


def test_a_feature_tree_is_not_flattened_into_one_vector() -> None:
    with pytest.raises(ValueError, match=r"made a tree of features \{'vector': tensor, 'rest': .* of X, .*give head=tp.make_pairwise"):
        made(Tree())(samples(3))
    with pytest.raises(ValueError, match=r"made a tree of features tuple\(tensor\)"):
        tp.make_feature_pairwise(lambda x: (x,), "linear")(torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"made features with 3 dimensions of X"):
        tp.make_feature_pairwise(nn.Identity(), "linear", sample_ndim=3)(samples(3))


# Prepare once, use several consumers


def test_example_of_prepare() -> None:
    encoder = Counting()
    images, references = samples(3), samples(5)
    comparison = made(encoder)
    prepared = comparison.prepare(images, references)
    A = tp.lazy(prepared, chunk_size=2)
    row_mean = A.mean(-1)
    nearest = A.topk(2, largest=False)
    V = torch.randn(5, 4, dtype=torch.float64)
    product = A.matmul(V)
    dense = prepared()
    oracle = squared(plain_features(encoder, images), plain_features(encoder, references))
    assert A.shape == (3, 5)
    close(row_mean, oracle.mean(-1))
    close(nearest.values, np.sort(oracle)[:, :2])
    assert nearest.indices.tolist() == np.argsort(oracle)[:, :2].tolist()
    close(product, oracle @ V.numpy())
    close(dense, oracle)
    assert encoder.calls == [3, 5]


CONSUMERS: dict[str, Callable[[tp.PairwiseExpression], Any]] = {
    "sum": lambda S: S.sum(-1),
    "sum over rows": lambda S: S.sum(-2),
    "mean": lambda S: S.mean(),
    "logsumexp": lambda S: S.logsumexp(-1),
    "softmax_matmul": lambda S: S.softmax_matmul(torch.ones(5, 2, dtype=S.dtype)),
    "matmul": lambda S: S @ torch.arange(5.0, dtype=S.dtype),
    "min": lambda S: S.min(-1).values,
    "max": lambda S: S.max(-2).values,
    "argmin": lambda S: S.argmin(-1),
    "argmax": lambda S: S.argmax(),
    "topk": lambda S: S.topk(3).values,
    "diagonal": lambda S: S.diagonal(),
    "dense": lambda S: S.dense(),
    "steps": lambda S: (S * 0.1 + 1).exp().add_rows(torch.ones(3, dtype=S.dtype)).masked(tp.masks.causal()).logsumexp(-1),
    "transposed": lambda S: S.T.sum(-1),
    "explain": lambda S: S.explain("sum").pairs,
}
HEADS: dict[str, Any] = {
    "metric": {"metric": "sqeuclidean"},
    "broadcast": {"metric": None, "head": tp.make_pairwise(lambda x, y: (x - y).square().sum(-1))},
    "vmap": {"metric": None, "head": tp.make_pairwise(lambda x, y: (x - y).square().sum(), pairwise="vmap")},
}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_neither_binding_nor_consumers_rerun_the_encoder(consumer: str, head: str) -> None:
    encoder = Counting()
    X, Y = samples(3), samples(5)
    comparison = made(encoder, **HEADS[head])
    prepared = comparison.prepare(X, Y)
    assert encoder.calls == [3, 5]
    ours = CONSUMERS[consumer](tp.lazy(prepared, chunk_size=2))
    assert encoder.calls == [3, 5]
    a, b = (torch.from_numpy(plain_features(encoder, x)) for x in (X, Y))
    torch.testing.assert_close(ours, CONSUMERS[consumer](tp.lazy(a, b)))


def test_each_consumer_evaluates_the_tiles_of_the_head_again() -> None:
    tiles = []
    encoder = Counting()

    def head(x: Tensor, y: Tensor) -> Tensor:
        tiles.append((x.shape[-3], y.shape[-2]))
        return chebyshev(x, y)

    S = tp.lazy(made(encoder, None, head=tp.make_pairwise(head)).prepare(samples(3), samples(5)), chunk_size=2)
    assert tiles == []
    S.sum(-1)
    once = list(tiles)
    assert sum(r * c for r, c in once) == 15 and max(r for r, _ in once) <= 2 and max(c for _, c in once) <= 2
    S.sum(-1)
    assert tiles == once * 2 and encoder.calls == [3, 5]


def test_preparation_is_a_snapshot() -> None:
    """Later changes of the model and of the inputs, in place, do not reach it, even where features share memory with these."""
    table = nn.Parameter(torch.arange(6.0).reshape(3, 2))

    class Lookup(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = table

        def forward(self, x: Tensor) -> Tensor:
            return self.table

    for encoder in (nn.Identity(), nn.Flatten(), Lookup(), nn.Linear(2, 2)):
        X, Y = torch.randn(3, 2), torch.randn(3, 2)
        comparison = tp.make_feature_pairwise(encoder, "sqeuclidean")
        prepared = comparison.prepare(X, Y)
        before = prepared().clone()
        with torch.no_grad():
            X += 1
            Y *= 2
            for parameter in encoder.parameters():
                parameter.mul_(3).sub_(torch.arange(parameter.numel()).view_as(parameter))
        torch.testing.assert_close(prepared(), before)
        torch.testing.assert_close(tp.lazy(prepared).dense(), before)
        assert isinstance(encoder, Lookup) or not torch.allclose(comparison.prepare(X, Y)(), before)


def test_normal_calls_encode_anew() -> None:
    encoder = Counting()
    comparison = made(encoder)
    X = samples(3)
    first = comparison(X)
    with torch.no_grad():
        encoder.linear.weight.mul_(2)
    torch.testing.assert_close(comparison(X), 4 * first)
    tp.lazy(X, None, comparison).sum()
    assert encoder.calls == [3, 3, 3]


def test_features_for_several_heads() -> None:
    encoder = Counting()
    comparison = made(encoder)
    images, references = samples(3), samples(5)
    features, other_features = comparison.encode(images), comparison.encode(references)
    assert encoder.calls == [3, 5] and features.shape == (3, 5)
    cosine = tp.lazy(features, other_features, metric="cosine_distances")
    rbf = tp.lazy(features, other_features, metric="rbf", gamma=0.2)
    a, b = plain_features(encoder, images), plain_features(encoder, references)
    close(cosine.dense(), 1 - (a @ b.T) / np.linalg.norm(a, axis=-1)[:, None] / np.linalg.norm(b, axis=-1))
    close(rbf.sum(-1), np.exp(-0.2 * squared(a, b)).sum(-1))


def test_lazy_with_a_comparison_encodes_once_and_binds_the_head() -> None:
    encoder = Counting()
    X, Y = samples(3), samples(5)
    S = tp.lazy(X, Y, made(encoder))
    S.sum(-1), S.logsumexp(-1)
    assert encoder.calls == [3, 5] and S.metric == "sqeuclidean"
    close(S.sum(-1), squared(plain_features(encoder, X), plain_features(encoder, Y)).sum(-1))
    assert tp.neighbors.knn(X, Y, k=2, metric=made(encoder)).indices.shape == (3, 2)


@pytest.mark.parametrize(
    ("arguments", "keywords", "words"),
    [
        ((), {}, "neither metric= nor head= was given; expected exactly one"),
        (("linear",), {"head": tp.make_pairwise(chebyshev)}, "metric='linear' and head= was given; expected exactly one"),
        ((tp.make_pairwise(chebyshev),), {}, "expected the name of a metric; give a comparison or function as head="),
        ((3,), {}, "metric is int 3; expected the name of a metric"),
        ((), {"head": "linear"}, "head is str 'linear'; .*a metric's name is given as metric="),
        ((), {"head": 3}, "head is int 3; expected a comparison"),
    ],
)
def test_exactly_one_head_and_no_callable_positional_head(arguments: Any, keywords: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        tp.make_feature_pairwise(nn.Identity(), *arguments, **keywords)
    assert tp.make_feature_pairwise(nn.Identity(), metric="linear")(torch.eye(2)).tolist() == [[1, 0], [0, 1]]


def test_metric_options_only_with_metric() -> None:
    X = torch.randn(3, 2, dtype=torch.float64)
    close(tp.make_feature_pairwise(nn.Identity(), "rbf", gamma=0.2)(X), np.exp(-0.2 * squared(X.numpy(), X.numpy())))
    with pytest.raises(TypeError, match="option 'gamma' was given with head="):
        tp.make_feature_pairwise(nn.Identity(), head=tp.make_pairwise(chebyshev), gamma=0.2)
    with pytest.raises(TypeError, match="metric 'sqeuclidean' has no option 'gamma'"):
        tp.make_feature_pairwise(nn.Identity(), "sqeuclidean", gamma=0.2)
    with pytest.raises(ValueError, match="metric='sqeuclid' is unknown. Did you mean"):
        tp.make_feature_pairwise(nn.Identity(), "sqeuclid")


def test_tensor_options_are_learned_and_saved() -> None:
    gamma = nn.Parameter(torch.tensor(0.3, dtype=torch.float64))
    widths = torch.tensor([0.5, 2.0], dtype=torch.float64)
    X = torch.randn(3, 2, dtype=torch.float64)
    comparison = tp.make_feature_pairwise(nn.Identity(), "rbf", gamma=gamma)
    assert [name for name, _ in comparison.named_parameters()] == ["head.gamma"]
    (gradient,) = torch.autograd.grad(tp.lazy(X, None, comparison).sum(), gamma)
    S = squared(X.numpy(), X.numpy())
    np.testing.assert_allclose(gradient.item(), (-S * np.exp(-0.3 * S)).sum(), rtol=1e-10)
    assert list(tp.make_feature_pairwise(nn.Identity(), "rbf", gamma=widths).state_dict()) == ["head.gamma"]


def test_construction_mode_is_the_default_and_call_mode_overrides_it() -> None:
    encoder = Counting()
    X, Y = samples(4), samples(4, seed=5)
    oracle = squared(plain_features(encoder, X), plain_features(encoder, Y))
    comparison = made(encoder, mode="paired")
    close(comparison(X, Y), np.diagonal(oracle))
    close(comparison(X, Y, mode="all_pairs"), oracle)
    close(comparison.prepare(X, Y)(), np.diagonal(oracle))
    close(comparison.prepare(X, Y, mode="all_pairs")(), oracle)
    with pytest.raises(ValueError, match="mode='pairs'; expected"):
        made(mode="pairs")
    with pytest.raises(ValueError, match="mode='pairs'; expected"):
        comparison(X, mode="pairs")


def test_built_in_heads_default_to_all_pairs() -> None:
    assert made()(samples(4), samples(4)).shape == (4, 4)


def test_custom_comparison_heads_use_their_own_default() -> None:
    head = tp.make_pairwise(chebyshev, mode="paired")
    assert made(None, None, head=head)(samples(4), samples(4)).shape == (4,)
    assert made(None, None, head=head, mode="all_pairs")(samples(4), samples(4)).shape == (4, 4)
    assert made(None, None, head=head)(samples(4), samples(4), mode="single").shape == (4,)


def test_plain_heads_use_their_mode_if_present_and_otherwise_receive_none() -> None:
    class Head:
        def __init__(self) -> None:
            self.mode = "paired"
            self.given: list[Any] = []

        def __call__(self, x: Tensor, y: Tensor, **keywords: Any) -> Tensor:
            self.given.append((keywords, x.shape, y.shape))
            return x

    with_mode, given = Head(), []
    made(None, None, head=with_mode)(samples(4), samples(4))
    made(None, None, head=with_mode)(samples(3), samples(5), mode="all_pairs")
    made(None, None, head=with_mode, mode="single")(samples(2), samples(2))
    assert [keywords["mode"] for keywords, *_ in with_mode.given] == ["paired", "all_pairs", "single"]

    def plain(x: Tensor, y: Tensor, **keywords: Any) -> Tensor:
        given.append(keywords)
        return x @ y.mT

    comparison = made(None, None, head=plain)
    assert comparison(samples(3), samples(5)).shape == (3, 5)
    comparison(samples(3), samples(3), mode="paired")
    assert given == [{}, {"mode": "paired"}]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("chunk_size", [None, 2])
def test_table_of_heads_metrics_and_pairwise_comparisons_are_eager_and_lazy(head: str, chunk_size: int | None) -> None:
    encoder = Counting()
    X, Y = samples(2, 3), samples(5)
    oracle = squared(plain_features(encoder, X), plain_features(encoder, Y))
    comparison = made(encoder, chunk_size=chunk_size, **HEADS[head])
    close(comparison(X, Y), oracle)
    close(tp.lazy(X, Y, comparison).dense(), oracle)


def test_table_of_heads_tile_replay_of_a_feature_tree() -> None:
    """Gradients of a tree's leaves, streamed, equal those of the stored matrix."""
    encoder = Tree()
    X, Y = samples(3).requires_grad_(), samples(5)
    comparison = made(encoder, None, head=tp.make_pairwise(tree_score))
    S = tp.lazy(X, Y, comparison, chunk_size=2)
    wanted = comparison(X, Y).logsumexp(-1)
    torch.testing.assert_close(S.logsumexp(-1), wanted)
    leaves = (X, *encoder.parameters())
    torch.testing.assert_close(
        torch.autograd.grad(S.logsumexp(-1).sum(), leaves, retain_graph=True), torch.autograd.grad(wanted.sum(), leaves)
    )


def test_table_of_heads_plain_heads_are_eager_only() -> None:
    encoder = Counting()

    class Head(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x @ y.mT

    def function(x: Tensor, y: Tensor) -> Tensor:
        return x @ y.mT

    for head, name in ((Head(), "Head"), (function, "function")):
        comparison = made(encoder, None, head=head)
        assert comparison(samples(3), samples(5)).shape == (3, 5)
        encoder.calls.clear()
        for call in (lambda c=comparison: tp.lazy(samples(3), samples(5), c), lambda c=comparison: tp.lazy(c.prepare(samples(3)))):
            with pytest.raises(TypeError, match=f"head={name} is a function of whole collections.*tp.make_pairwise"):
                call()
        assert encoder.calls == [3]  # only the preparation; a binding that cannot be is refused before


def test_table_of_heads_keops_is_refused_where_it_is_not_available() -> None:
    with pytest.raises(ValueError, match="keops=True: this version has no KeOps backend"):
        tp.make_pairwise(chebyshev, keops=True)


def test_built_in_heads_bind_the_canonical_operator() -> None:
    S = tp.lazy(samples(3), samples(5), made(None, "rbf", gamma=0.1))
    assert S.metric == "rbf" and "sqeuclidean" in repr(S) and S.explain("sum").path == "native"


def test_lazy_bindings_require_all_pairs() -> None:
    encoder = Counting()
    for mode in ("paired", "condensed", "single"):
        with pytest.raises(ValueError, match=f"mode='{mode}' has no score matrix to stream; prepare with mode='all_pairs'"):
            tp.lazy(samples(3), None, made(encoder, mode=mode))
    assert encoder.calls == []


def test_lazy_bindings_of_metric_heads_require_a_single_feature_tensor() -> None:
    with pytest.raises(ValueError, match="made a tree of features .*give head=tp.make_pairwise"):
        tp.lazy(samples(3), samples(5), made(Tree()))


def test_a_single_mode_preparation_cannot_become_a_streaming_matrix() -> None:
    prepared = made().prepare(samples(3)[0], samples(5)[0], mode="single")
    assert prepared().shape == ()
    with pytest.raises(ValueError, match="mode='single' has no score matrix"):
        tp.lazy(prepared)


def test_prepared_features_take_no_other_arguments() -> None:
    prepared = made().prepare(samples(3))
    for keywords, words in (
        ({"Y": samples(3)}, "Y was given with prepared features"),
        ({"metric": "rbf"}, "metric was given with prepared"),
        ({"gamma": 1.0}, "gamma was given with prepared"),
    ):
        with pytest.raises(TypeError, match=words):
            tp.lazy(prepared, **keywords)
    with pytest.raises(TypeError, match="option 'gamma' was given with a comparison"):
        tp.lazy(samples(3), None, made(), gamma=1.0)


# Two-tower retrieval


def two_towers(**options: Any) -> tuple[Counting, Counting, tp.FeaturePairwise]:
    query, reference = Counting(), Counting()
    return query, reference, tp.make_feature_pairwise((query, reference), "sqeuclidean", sample_ndim=3, **options)


def test_example_of_two_towers() -> None:
    query, reference, retrieval = two_towers()
    images, references = samples(3), samples(5)
    values, indices = tp.lazy(images, references, retrieval).topk(2, largest=False)
    oracle = squared(plain_features(query, images), plain_features(reference, references))
    close(values, np.sort(oracle)[:, :2])
    assert indices.tolist() == np.argsort(oracle)[:, :2].tolist()
    close(retrieval.encode(images, tower="query"), plain_features(query, images))
    close(retrieval.encode(references, tower="reference"), plain_features(reference, references))
    assert query.calls == [3, 3] and reference.calls == [5, 5]


@pytest.mark.parametrize("omitted", [True, False])
def test_omitting_the_second_input_runs_both_towers(omitted: bool) -> None:
    query, reference, retrieval = two_towers()
    images = samples(4)
    values = retrieval(images) if omitted else retrieval(images, images)
    close(values, squared(plain_features(query, images), plain_features(reference, images)))
    assert query.calls == reference.calls == [4]


def test_two_towers_reject_condensed() -> None:
    query, reference, retrieval = two_towers()
    for call in (lambda: retrieval(samples(3), mode="condensed"), lambda: two_towers(mode="condensed")):
        with pytest.raises(ValueError, match="mode='condensed' needs .* two encoders make it asymmetric"):
            call()
    assert query.calls == reference.calls == []


def test_encode_requires_its_tower() -> None:
    _, _, retrieval = two_towers()
    for tower in (None, "queries"):
        with pytest.raises(ValueError, match="there are two encoders, expected 'query' or 'reference'"):
            retrieval.encode(samples(3), tower=tower)
    with pytest.raises(ValueError, match="tower='query'; there is one encoder, expected tower=None"):
        made().encode(samples(3), tower="query")


def test_both_towers_obey_chunks_and_model_state() -> None:
    query, reference, retrieval = two_towers(encode_chunk_size=2)
    query.eval()
    retrieval(samples(3), samples(5))
    assert query.calls == [2, 1] and reference.calls == [2, 2, 1]
    assert not query.training and reference.training
    with pytest.raises(ValueError, match="encoder has 3 parts; expected one encoder, or a pair"):
        tp.make_feature_pairwise((query,) * 3, "linear")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="encoder is str 'name'; expected a callable"):
        tp.make_feature_pairwise("name", "linear")  # type: ignore[arg-type]


# Training and memory


@pytest.mark.parametrize("head", HEADS)
def test_streamed_gradients_flow_through_features_into_the_encoder(head: str) -> None:
    encoder = Counting()
    X, Y = samples(3).requires_grad_(), samples(5)
    leaves = (X, *encoder.parameters())
    S = tp.lazy(X, Y, made(encoder, **HEADS[head]), chunk_size=2)
    got = torch.autograd.grad(S.logsumexp(-1).sum(), leaves)
    a, b = encoder.linear(X.flatten(1)), encoder.linear(Y.flatten(1))
    dense = (a[:, None] - b).square().sum(-1)
    torch.testing.assert_close(got, torch.autograd.grad(dense.logsumexp(-1).sum(), leaves))


def test_losses_combine_into_one_backward_or_retain_the_graph() -> None:
    encoder = Counting()
    prepared = made(encoder).prepare(samples(3), samples(5))
    S = tp.lazy(prepared)
    (S.mean() + S.logsumexp(-1).sum()).backward()
    first = encoder.linear.weight.grad
    encoder.linear.weight.grad = None
    prepared = made(encoder).prepare(samples(3), samples(5))
    S.mean(), tp.lazy(prepared).mean().backward(retain_graph=True)
    tp.lazy(prepared).logsumexp(-1).sum().backward()
    torch.testing.assert_close(encoder.linear.weight.grad, first)
    layers = nn.Sequential(nn.Flatten(), nn.Linear(12, 4, dtype=torch.float64), nn.Tanh())
    twice = tp.make_feature_pairwise(layers, "sqeuclidean", sample_ndim=3).prepare(samples(3))
    tp.lazy(twice).mean().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        tp.lazy(twice).mean().backward()


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_encode_chunk_size_limits_original_samples_per_call(size: int) -> None:
    encoder = Counting()
    X = samples(2, 3)
    values = made(encoder, encode_chunk_size=size)(X)
    assert sum(encoder.calls) == 6 and max(encoder.calls) <= size and len(encoder.calls) == -(-6 // size)
    close(values, squared(plain_features(encoder, X), plain_features(encoder, X)))


def test_chunk_size_limits_tiles_and_not_encoder_calls() -> None:
    encoder, tiles = Counting(), []

    def head(x: Tensor, y: Tensor) -> Tensor:
        tiles.append(max(x.shape[-3], y.shape[-2]))
        return chebyshev(x, y)

    comparison = made(encoder, None, head=tp.make_pairwise(head), chunk_size=2)
    for run in (lambda: tp.lazy(samples(3), samples(5), comparison).sum(), lambda: comparison(samples(3), samples(5))):
        run()
        assert max(tiles) <= 2 and encoder.calls == [3, 5]
        tiles.clear(), encoder.calls.clear()
    tp.lazy(samples(3), samples(5), comparison, chunk_size=1).sum()
    assert max(tiles) == 1
    for name in ("chunk_size", "encode_chunk_size"):
        for size in (0, -1, 2.5, True):
            with pytest.raises(ValueError, match=f"{name}={size!r}; expected a positive integer or None"):
                made(**{name: size})
    with pytest.raises(ValueError, match="chunk_size=2 was given with a head of whole collections"):
        made(None, None, head=torch.matmul, chunk_size=2)


def test_encoder_chunks_change_batch_normalization() -> None:
    encoder = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(12, dtype=torch.float64))
    X = samples(6)
    whole = made(encoder).encode(X)
    assert not torch.allclose(made(encoder, encode_chunk_size=3).encode(X), whole)
    encoder.eval()
    torch.testing.assert_close(made(encoder, encode_chunk_size=3).encode(X), made(encoder).encode(X))


def test_head_replay_does_not_recompute_the_encoder() -> None:
    encoder = Counting()
    tp.lazy(samples(3), samples(5), made(encoder)).logsumexp(-1).sum().backward()
    assert encoder.calls == [3, 5]


class Noisy(nn.Module):
    """Batch normalisation, dropout, and calls that are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, 4)).double()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layers(x)


@pytest.mark.parametrize("size", [None, 2])
def test_a_checkpointed_encoder_gives_the_gradients_of_the_plain_run(size: int | None) -> None:
    results = []
    for checkpoint in (False, True):
        torch.manual_seed(0)
        encoder = Noisy()
        X = samples(6).requires_grad_()
        comparison = made(encoder, "linear", encode_chunk_size=size, checkpoint=checkpoint)
        loss = tp.lazy(X, samples(4), comparison).logsumexp(-1).sum()
        calls = encoder.calls
        loss.backward()
        assert encoder.calls == calls * (2 if checkpoint else 1)
        results.append((loss.detach(), X.grad, [p.grad for p in encoder.parameters()], list(encoder.buffers())))
    torch.testing.assert_close(*results, rtol=0, atol=0)


def test_a_checkpointed_encoder_keeps_no_activations() -> None:
    stored: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        stored.append(tensor.numel())
        return tensor

    sizes = []
    encoder = nn.Sequential(nn.Linear(4, 500), nn.Tanh(), nn.Linear(500, 2))
    for checkpoint in (False, True):
        stored.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            features = tp.make_feature_pairwise(encoder, "linear", checkpoint=checkpoint, encode_chunk_size=8).encode(torch.ones(64, 4))
        sizes.append(sum(stored))
        features.sum().backward()
    assert sizes[0] > 64 * 500 and sizes[1] < 64 * 10


def test_a_checkpointed_encoder_without_gradients_is_just_called() -> None:
    encoder = Counting()
    with torch.no_grad():
        made(encoder, checkpoint=True)(samples(3))
    assert encoder.calls == [3]
    assert made(lambda x: x.flatten(1), checkpoint=True)(samples(3).requires_grad_()).requires_grad


@pytest.mark.parametrize("training", [True, False])
def test_the_wrapper_preserves_train_and_eval_state(training: bool) -> None:
    encoder = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(12, 3, dtype=torch.float64)).train(training)
    comparison = made(encoder)
    comparison(samples(3)), comparison.prepare(samples(3)), comparison.encode(samples(3)), tp.lazy(samples(3), None, comparison).sum()
    assert all(module.training is training for module in encoder.modules())
    assert comparison.train(not training).encoder[1].training is not training


def test_the_wrapper_preserves_gradients_device_and_dtype() -> None:
    X = torch.randn(3, 4, requires_grad=True)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        comparison = tp.make_feature_pairwise(lambda x, dtype=dtype: x.to(dtype), "linear")
        values = comparison(X)
        assert values.dtype == dtype and values.requires_grad and values.device == X.device
        with torch.no_grad():
            assert not comparison(X).requires_grad
        with torch.inference_mode():
            assert comparison(X).is_inference()


def test_the_wrapper_preserves_the_autocast_context() -> None:
    seen = []

    def encoder(x: Tensor) -> Tensor:
        seen.append((torch.is_autocast_enabled("cpu"), (x @ x.mT).dtype))
        return x

    comparison = tp.make_feature_pairwise(encoder, "linear")
    with torch.autocast("cpu", torch.bfloat16):
        comparison(torch.ones(3, 4)), tp.lazy(torch.ones(3, 4), None, comparison).sum()
        assert torch.is_autocast_enabled("cpu")
    comparison(torch.ones(3, 4))
    assert seen == [(True, torch.bfloat16)] * 2 + [(False, torch.float32)]


def test_a_checkpointed_encoder_is_recomputed_under_the_same_autocast_state() -> None:
    gradients = []
    for checkpoint in (False, True):
        torch.manual_seed(0)
        encoder = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
        with torch.autocast("cpu", torch.bfloat16):
            S = tp.lazy(torch.ones(3, 4), torch.eye(4), tp.make_feature_pairwise(encoder, "linear", checkpoint=checkpoint))
            loss = S.logsumexp(-1).float().sum()
        loss.backward()
        gradients.append([p.grad for p in encoder.parameters()])
    torch.testing.assert_close(*gradients, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("X", "Y", "words"),
    [
        (samples(0), None, r"X has shape \[0, 3, 2, 2\], without any sample"),
        (samples(3), samples(0), r"Y has shape \[0, 3, 2, 2\], without any sample"),
        (samples(2, 0), samples(3), r"X has shape \[2, 0, 3, 2, 2\]"),
        (samples(0, 3), samples(3), r"X has shape \[0, 3, 3, 2, 2\]"),
    ],
)
def test_empty_collections_are_rejected_before_user_code(X: Tensor, Y: Tensor | None, words: str) -> None:
    encoder = Counting()
    comparison = made(encoder)
    for call in (lambda: comparison(X, Y), lambda: comparison.prepare(X, Y), lambda: tp.lazy(X, Y, comparison)):
        with pytest.raises(ValueError, match=words):
            call()
    if Y is None:
        with pytest.raises(ValueError, match=words):
            comparison.encode(X)
    assert encoder.calls == []


def test_inputs_that_do_not_fit_are_rejected_before_user_code() -> None:
    encoder = Counting()
    comparison = made(encoder)
    for error, words, call in (
        (TypeError, "X is str 'images'; expected a tensor", lambda: comparison("images")),
        (ValueError, r"X has shape \[3, 2, 2\]; expected at least 4 dimensions for a collection", lambda: comparison(samples(3)[0])),
        (ValueError, r"X has shape \[2, 2\]; expected at least 3 dimensions for one", lambda: comparison(samples(3)[0, 0], mode="single")),
        (ValueError, r"Y has batch dimensions \[3\]", lambda: comparison(samples(2, 4), samples(3, 4))),
        (ValueError, "mode='paired' compares row i .* X has 3 rows and Y has 4", lambda: comparison(samples(3), samples(4), mode="paired")),
        (ValueError, "mode='condensed' compares one collection with itself", lambda: comparison(samples(3), samples(4), mode="condensed")),
        (ValueError, "mode='condensed' needs a symmetric metric with", lambda: made(encoder, "rbf")(samples(3), mode="condensed")),
        (ValueError, "mode='condensed' needs a symmetric metric", lambda: made(encoder, "rbf", mode="condensed")),
        (ValueError, "mode='condensed' needs one collection, and a comparison made with symmetric=True",
         lambda: made(encoder, None, head=tp.make_pairwise(chebyshev), mode="condensed")),
        (ValueError, "sample_ndim=-1; expected how many", lambda: tp.make_feature_pairwise(encoder, "linear", sample_ndim=-1)),
    ):  # fmt: skip
        with pytest.raises(error, match=words):
            call()
    assert encoder.calls == []


@pytest.mark.parametrize("head", ["metric", "broadcast", "vmap"])
def test_all_four_modes(head: str) -> None:
    encoder = Counting()
    options = dict(HEADS[head])
    if options["metric"] is None:
        function, form = options["head"].function, options["head"].pairwise
        options["head"] = tp.make_pairwise(function, pairwise=form, symmetric=True, zero_diagonal=True)
    comparison = made(encoder, **options)
    X, Y = samples(2, 4), samples(4)
    a, b = plain_features(encoder, X), plain_features(encoder, Y)
    oracle = squared(a, b)
    close(comparison(X, Y, mode="all_pairs"), oracle)
    close(comparison(X, Y, mode="paired"), np.diagonal(oracle, axis1=-2, axis2=-1))
    close(comparison(X[0, 1], Y[2], mode="single"), oracle[0, 1, 2])
    i, j = np.triu_indices(4, 1)
    own = squared(a, a)[..., i, j]
    for values in (comparison(X, mode="condensed"), comparison(X, X, mode="condensed"), comparison.prepare(X, mode="condensed")()):
        close(values, own)


# Native deployment


def test_features_of_a_loaded_encoder_go_to_lazy() -> None:
    encoder = nn.Linear(4, 2)
    images, references = torch.randn(3, 4), torch.randn(5, 4)
    A = tp.lazy(encoder(images), encoder(references), metric="sqeuclidean")
    torch.testing.assert_close(A.mean(-1), tp.make_feature_pairwise(encoder, "sqeuclidean")(images, references).mean(-1))


# Deployment of the comparison itself


def test_copies_pickles_and_state_dicts() -> None:
    X, Y = samples(3), samples(5)
    for comparison in (
        made(Counting(), "rbf", gamma=0.1),
        made(Tree(), None, head=tp.make_pairwise(tree_score)),
        tp.make_feature_pairwise((Counting(), Counting()), "linear", sample_ndim=3, checkpoint=True),
    ):
        wanted = tp.lazy(X, Y, comparison).sum(-1)
        buffer = io.BytesIO()
        torch.save(comparison, buffer)
        buffer.seek(0)
        for copy in (deepcopy(comparison), pickle.loads(pickle.dumps(comparison)), torch.load(buffer, weights_only=False)):
            torch.testing.assert_close(tp.lazy(X, Y, copy).sum(-1), wanted)
            assert list(copy.state_dict()) == list(comparison.state_dict())
            with torch.no_grad():
                for parameter in copy.parameters():
                    parameter.mul_(2)
            assert not torch.allclose(tp.lazy(X, Y, copy).sum(-1), wanted)
            copy.load_state_dict(comparison.state_dict())
            torch.testing.assert_close(tp.lazy(X, Y, copy).sum(-1), wanted)
        prepared = comparison.prepare(X, Y)
        for copy in (pickle.loads(pickle.dumps(prepared.detach())), deepcopy(prepared.detach())):
            torch.testing.assert_close(tp.lazy(copy).sum(-1), wanted.detach())
            assert repr(copy) == repr(prepared) and not tp.lazy(copy).detach().requires_grad
    assert "sample_ndim=3" in repr(made()) and "'sqeuclidean'" in repr(made())


def test_prepared_features_of_trees_are_shown() -> None:
    prepared = made(Tree(), None, head=tp.make_pairwise(tree_score)).prepare(samples(3), samples(5))
    assert "rows {'vector': [3, 5], 'rest': ([3, 5, 5], [3])}, columns {'vector': [5, 5]" in repr(prepared)
    assert prepared.columns["vector"].shape == (5, 5)
