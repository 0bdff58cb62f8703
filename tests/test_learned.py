"""Heads with parameters, late interaction, search, near duplicates and neighborhood components analysis."""

from __future__ import annotations

import doctest
import importlib
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, load_iris, make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NeighborhoodComponentsAnalysis as Reference
from torch import Tensor, nn

import torchpairwise as tp
from torchpairwise.learned import Bilinear, Mahalanobis, NeighborhoodComponentsAnalysis, PairMLP


def data(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def numpy_scores(head: nn.Module, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """The three heads by their definitions, pair by pair."""
    state = {name: value.numpy() for name, value in head.state_dict().items()}

    def score(x: np.ndarray, y: np.ndarray) -> float:
        if isinstance(head, Mahalanobis):
            return float((x - y) @ state["factor"].T @ state["factor"] @ (x - y))
        if isinstance(head, Bilinear):
            return float(x @ state["weight"] @ y + state.get("bias", 0.0))
        v = np.concatenate([np.abs(x - y), x * y])
        for n in range(0, 2 * (len(head.layers) // 2), 2):
            v = relu(state[f"layers.{n}.weight"] @ v + state[f"layers.{n}.bias"])
        last = len(head.layers) - 1
        return float((state[f"layers.{last}.weight"] @ v + state[f"layers.{last}.bias"])[0])

    return np.array([[score(x, y) for y in Y] for x in X])


HEADS = {
    "mahalanobis": lambda g: Mahalanobis(4),
    "mahalanobis of rank 2": lambda g: Mahalanobis(4, 2, generator=g),
    "bilinear": lambda g: Bilinear(4, 3, generator=g),
    "bilinear without bias": lambda g: Bilinear(4, bias=False, generator=g),
    "network": lambda g: PairMLP(4, (5, 3)),
    "network without hidden layer": lambda g: PairMLP(4, ()),
}


@pytest.mark.parametrize("form", ["broadcast", "vmap"])
@pytest.mark.parametrize("name", HEADS)
def test_heads_values_and_streamed_gradients(name: str, form: str) -> None:
    torch.manual_seed(1)
    head = HEADS[name](torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    X, Y = data(5, 4).requires_grad_(), data(6, 3 if name == "bilinear" else 4, seed=1)
    comparison = tp.make_pairwise(head, pairwise=form)
    S = tp.lazy(X, Y, comparison, chunk_size=3)
    np.testing.assert_allclose(S.dense().detach(), numpy_scores(head, X.detach().numpy(), Y.numpy()), rtol=1e-10, atol=1e-12)
    leaves = (X, *head.parameters())
    got = torch.autograd.grad(S.logsumexp(-1).sum(), leaves)
    torch.testing.assert_close(got, torch.autograd.grad(comparison(X, Y).logsumexp(-1).sum(), leaves))


def test_heads_keep_what_they_promise() -> None:
    X = data(6, 4)
    tp.make_pairwise(Mahalanobis(4, 2).double(), symmetric=True, zero_diagonal=True).check(X, data(3, 4))
    tp.make_pairwise(PairMLP(4).double(), symmetric=True).check(X)
    start = tp.lazy(X, None, tp.make_pairwise(Mahalanobis(4).double()))
    torch.testing.assert_close(start.sum(-1), tp.lazy(X).sum(-1))
    factor = Mahalanobis(4, 2).factor
    torch.testing.assert_close(factor @ factor.T, torch.eye(2))
    with pytest.raises(ValueError, match="rank=5; expected 1 <= rank <= n_features=4"):
        Mahalanobis(4, 5)


def numpy_max_sim(X: np.ndarray, Y: np.ndarray, keep_x: np.ndarray, keep_y: np.ndarray) -> np.ndarray:
    out = np.zeros((len(X), len(Y)))
    for i in range(len(X)):
        for j in range(len(Y)):
            tokens = Y[j][keep_y[j]]
            if len(tokens):
                out[i, j] = sum((tokens @ token).max() for token in X[i][keep_x[i]])
    return out


@pytest.mark.parametrize("chunk_size", [None, 2])
def test_max_sim(chunk_size: int | None) -> None:
    X, Y = data(3, 4, 2).requires_grad_(), data(5, 3, 2, seed=1).requires_grad_()
    keep_x, keep_y = torch.arange(4) < torch.tensor([[4], [2], [0]]), torch.arange(3) < torch.tensor([[3], [1], [0], [2], [3]])
    everything = tp.learned.max_sim(X, Y, chunk_size=chunk_size).dense()
    numbers = X.detach().numpy(), Y.detach().numpy()
    np.testing.assert_allclose(everything.detach(), numpy_max_sim(*numbers, np.ones((3, 4), bool), np.ones((5, 3), bool)))
    S = tp.learned.max_sim(X, Y, x_mask=keep_x, y_mask=keep_y, chunk_size=chunk_size)
    np.testing.assert_allclose(S.dense().detach(), numpy_max_sim(*numbers, keep_x.numpy(), keep_y.numpy()))
    assert S.topk(1).indices.shape == (3, 1)
    tokens = torch.einsum("itd,jud->ijtu", X, Y).masked_fill(~keep_y[:, None], -torch.inf).amax(-1)
    dense = torch.where(keep_x[:, None] & keep_y.any(-1)[None, :, None], tokens, 0.0).sum(-1)
    got = torch.autograd.grad((S / 0.7).logsumexp(-1).sum(), (X, Y))
    torch.testing.assert_close(got, torch.autograd.grad((dense / 0.7).logsumexp(-1).sum(), (X, Y)))
    assert tp.learned.max_sim(data(2, 3, 4, 2), Y).shape == (2, 3, 5)
    # What stands in padding never reaches an answer.
    spoiled = torch.where(keep_y[..., None], Y.detach(), torch.inf)
    np.testing.assert_allclose(tp.learned.max_sim(X, spoiled, x_mask=keep_x, y_mask=keep_y).dense()[0, 1].item(), S.dense()[0, 1].item())


def test_max_sim_errors() -> None:
    X = torch.ones(2, 3, 4)
    for error, words, call in (
        (ValueError, r"X is a tensor \[2, 3\].*expected tokens", lambda: tp.learned.max_sim(X[..., 0], X)),
        (TypeError, "y_mask has dtype torch.int64; expected torch.bool", lambda: tp.learned.max_sim(X, X, y_mask=torch.ones(2, 3).long())),
        (
            ValueError,
            r"x_mask has shape \[2\]; expected \[2, 3\], one flag a token",
            lambda: tp.learned.max_sim(X, X, x_mask=torch.ones(2).bool()),
        ),
        (ValueError, "tokens of X have 4 features and those of Y 3", lambda: tp.learned.max_sim(X, X[..., :3])),
    ):
        with pytest.raises(error, match=words):
            call()


def test_semantic_search() -> None:
    queries, corpus = data(4, 3), data(9, 3, seed=1)
    cosine = (queries / queries.norm(dim=-1, keepdim=True)) @ (corpus / corpus.norm(dim=-1, keepdim=True)).T
    found = tp.learned.semantic_search(queries, corpus, k=3)
    torch.testing.assert_close(found, tp.Selection(*cosine.topk(3)))
    for metric, larger in (("euclidean", False), ("rbf", True), (tp.make_pairwise(lambda x, y: (x - y).abs().sum(-1)), False)):
        dense = tp.lazy(queries, corpus, metric).dense()
        assert tp.learned.semantic_search(queries, corpus, k=2, metric=metric).indices.equal(dense.topk(2, largest=larger).indices)
    calls: list[int] = []

    def encoder(x: Tensor) -> Tensor:
        calls.append(len(x))
        return x.sin()

    comparison = tp.make_feature_pairwise(encoder, "cosine_similarity")
    got = tp.learned.semantic_search(queries, corpus, k=2, metric=comparison)
    torch.testing.assert_close(got, tp.learned.semantic_search(queries.sin(), corpus.sin(), k=2))
    torch.testing.assert_close(tp.neighbors.knn(queries, corpus, k=2, metric=comparison), got)
    assert calls == [4, 9, 4, 9]
    with pytest.raises(ValueError, match="k=10 is out of range for M=9"):
        tp.learned.semantic_search(queries, corpus)


@pytest.mark.parametrize("block_size", [1, 3, 1024])
@pytest.mark.parametrize(("metric", "threshold"), [("cosine_similarity", 0.8), ("euclidean", 1.0), ("rbf", 0.7)])
def test_near_duplicates(metric: str, threshold: float, block_size: int) -> None:
    X = data(20, 3)
    scores = tp.lazy(X, None, metric).dense().numpy()
    larger = metric != "euclidean"
    wanted = [(scores[i, j], i, j) for i in range(20) for j in range(i + 1, 20) if (scores[i, j] >= threshold) == larger]
    wanted.sort(key=lambda pair: (-pair[0] if larger else pair[0], *pair[1:]))
    assert len(wanted) > 5
    found = tp.learned.near_duplicates(X.requires_grad_(), threshold=threshold, metric=metric, block_size=block_size)
    assert list(zip(found.rows.tolist(), found.columns.tolist(), strict=True)) == [pair[1:] for pair in wanted]
    np.testing.assert_allclose(found.values, [pair[0] for pair in wanted], rtol=1e-12)
    best = tp.learned.near_duplicates(X, threshold=threshold, metric=metric, block_size=block_size, max_pairs=4)
    assert all(part.equal(whole[:4]) for part, whole in zip(best, found, strict=True)) and not best.values.requires_grad


def test_near_duplicates_ties_features_and_errors() -> None:
    X = torch.zeros(5, 2)
    found = tp.learned.near_duplicates(X, threshold=0.0, metric="euclidean", block_size=2, max_pairs=6)
    assert list(zip(found.rows.tolist(), found.columns.tolist(), strict=True)) == [(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3)]
    comparison = tp.make_feature_pairwise(lambda x: x.flatten(1), "sqeuclidean", sample_ndim=2)
    assert tp.learned.near_duplicates(torch.ones(3, 2, 2), threshold=0.1, metric=comparison).values.tolist() == [0, 0, 0]
    assert tp.learned.near_duplicates(X, threshold=-1.0, metric="euclidean").values.shape == (0,)
    for words, keywords in (("block_size=0; expected 1", {"block_size": 0}), ("max_pairs=0; expected 1", {"max_pairs": 0})):
        with pytest.raises(ValueError, match=words):
            tp.learned.near_duplicates(X, threshold=0.5, **keywords)
    with pytest.raises(ValueError, match=r"the scores are \[2, 3, 3\]; expected X without batch"):
        tp.learned.near_duplicates(torch.ones(2, 3, 4), threshold=0.5)


@pytest.mark.parametrize(
    "options",
    [{}, {"n_components": 2}, {"n_components": 2, "init": "pca"}, {"n_components": 2, "init": "lda"}, {"init": "identity"},
     {"n_components": 3, "init": "random"}, {"n_components": 2, "init": np.arange(8.0).reshape(2, 4) / 10}],
    ids=str,
)  # fmt: skip
def test_neighborhood_components_analysis_is_that_of_scikit_learn(options: dict[str, Any]) -> None:
    X, y = load_iris(return_X_y=True)
    ours = NeighborhoodComponentsAnalysis(**options, max_iter=15, random_state=0)
    reference = Reference(**options, max_iter=15, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ours.fit(X, y), reference.fit(X, y)
    np.testing.assert_allclose(ours.components_, reference.components_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours.transform(X), reference.transform(X), rtol=1e-5, atol=1e-6)


def test_neighborhood_components_analysis_improves_neighbors() -> None:
    X, y = load_digits(return_X_y=True)
    X, rest, y, rest_y = X[:500] / 16, X[500:1000] / 16, y[:500], y[500:1000]
    model = NeighborhoodComponentsAnalysis(n_components=3, init="pca", max_iter=15)
    with pytest.warns(ConvergenceWarning, match="did not converge in max_iter=15 iterations"):
        model.fit(X, y)

    def accuracy(train: Any, test: Any) -> float:
        return tp.neighbors.KNeighborsClassifier(1).fit(train, y).score(test, rest_y)

    pca = np.linalg.svd(X - X.mean(0), full_matrices=False)[2][:3]
    assert accuracy(model.transform(X), model.transform(rest)) > accuracy(X @ pca.T, rest @ pca.T) + 0.1


def test_neighborhood_components_analysis_options(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = make_blobs(60, 3, random_state=0)
    seen: list[int] = []
    model = NeighborhoodComponentsAnalysis(max_iter=4, verbose=1, callback=lambda point, n: seen.append(n), warm_start=True, tol=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
        first = model.components_
        assert seen == list(range(1, model.n_iter_ + 1)) and capsys.readouterr().out.count("objective") == len(seen)
        model.fit(X, y)
        assert not np.allclose(model.components_, first)  # it went on from there
        tensor = NeighborhoodComponentsAnalysis(max_iter=4).fit(torch.tensor(X, dtype=torch.float32), y)
    assert isinstance(tensor.transform(torch.tensor(X, dtype=torch.float32)), Tensor) and tensor.components_.dtype == np.float32
    assert list(tensor.get_feature_names_out()) == [f"neighborhoodcomponentsanalysis{n}" for n in range(3)]
    for words, options in (
        ("n_components=4; expected at least 1 and at most the 3 features", {"n_components": 4}),
        ("init='best'; expected 'auto'", {"init": "best"}),
        (r"init has shape \[1, 2\]; expected \[n_components, features\] = \[3, 3\]", {"init": np.ones((1, 2))}),
    ):
        with pytest.raises(ValueError, match=words):
            NeighborhoodComponentsAnalysis(**options).fit(X, y)
    with pytest.raises(ValueError, match="a minimum of 2 is required"):
        NeighborhoodComponentsAnalysis().fit(X[:1], y[:1])


@pytest.mark.parametrize("name", ["heads", "search", "estimators"])
def test_examples_of_docstrings(name: str) -> None:
    results = doctest.testmod(importlib.import_module(f"torchpairwise.learned.{name}"), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.failed == 0 and results.attempted > 0
