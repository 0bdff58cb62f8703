"""knn and the neighbour estimators against NumPy and against scikit-learn's brute force."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn.neighbors
import torch
from sklearn.datasets import load_diabetes, load_digits
from sklearn.exceptions import DataConversionWarning, NotFittedError
from torch import Tensor

import torchpairwise as tp
from torchpairwise.neighbors import KNeighborsClassifier, KNeighborsRegressor, NearestNeighbors, knn

Array = np.ndarray
# Features, labels, and the rows that are asked for. Whole numbers, so that distances are exact and ties are real ties.
X, Y = load_digits(return_X_y=True)
TRAIN, TEST, LABELS, TEST_LABELS = X[:1200], X[1200:], Y[:1200], Y[1200:]


def rows(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def ordered(distances: Array, k: int) -> tuple[Array, Array]:
    """The k smallest of each row, ties by the lower index."""
    indices = np.argsort(distances, -1, kind="stable")[..., :k]
    return np.take_along_axis(distances, indices, -1), indices


# knn


@pytest.mark.parametrize(("backend", "chunk_size"), [("native", None), ("tiles", None), ("tiles", 1), ("tiles", 7)])
def test_ties_go_to_the_lower_index(backend: str, chunk_size: int | None) -> None:
    grid = torch.cartesian_prod(torch.arange(5.0), torch.arange(4.0))
    distances = (grid[:, None] - grid[None]).square().sum(-1).numpy()
    for k in (1, 4, 9, 20):
        found = knn(grid, grid, k=k, metric="sqeuclidean", backend=backend, chunk_size=chunk_size)
        values, indices = ordered(distances, k)
        assert np.array_equal(found.values.numpy(), values) and np.array_equal(found.indices.numpy(), indices)


def test_ties_of_real_data_go_to_the_lower_index() -> None:
    distances, indices = ordered(np.abs(TEST[:200, None] - TRAIN[None, :400]).sum(-1), 20)
    found = knn(torch.from_numpy(TEST[:200]), torch.from_numpy(TRAIN[:400]), k=20, metric="manhattan")
    assert np.array_equal(found.values.numpy(), distances) and np.array_equal(found.indices.numpy(), indices)


def test_without_references_a_row_is_not_its_own_neighbour() -> None:
    points = torch.tensor([[0.0], [0.0], [3.0], [4.0]])  # rows 0 and 1 are equal
    found = knn(points, k=2)
    assert found.indices.tolist() == [[1, 2], [0, 2], [3, 0], [2, 0]]
    assert found.values.tolist() == [[0, 3], [0, 3], [1, 3], [1, 4]]


def test_mirror_images_under_the_cosine_distance() -> None:
    points = torch.tensor([[2.0, 3.0], [2.0, -3.0], [-2.0, 3.0], [-2.0, -3.0]])
    found = knn(points, k=2, metric="cosine")
    assert found.indices.tolist() == [[2, 1], [3, 0], [0, 3], [1, 2]]
    torch.testing.assert_close(found.values[0], torch.tensor([1 - 5 / 13, 1 + 5 / 13]))


def test_similarities_and_kernels_rank_the_largest_first() -> None:
    q, r = rows(5, 3), rows(8, 3, seed=1)
    assert torch.equal(knn(q, r, k=3, metric="linear").indices, (q @ r.T).topk(3).indices)
    assert torch.equal(knn(q, r, k=3, metric="rbf", gamma=0.5).indices, knn(q, r, k=3, metric="euclidean").indices)
    assert torch.equal(knn(q, r, k=3, metric="linear", largest=False).indices, (-q @ r.T).topk(3).indices)
    comparison = tp.make_pairwise(lambda x, y: (x - y).abs().amax(-1))
    expected = ordered((q[:, None] - r).abs().amax(-1).numpy(), 3)[1]
    assert np.array_equal(knn(q, r, k=3, metric=comparison).indices.numpy(), expected)


def test_batches_and_gradients() -> None:
    q, r = rows(2, 5, 3).requires_grad_(), rows(8, 3, seed=1).requires_grad_()
    assert knn(q, r, k=3).indices.shape == (2, 5, 3)
    assert torch.equal(knn(q, r, k=3).indices[1], knn(q[1], r, k=3).indices)
    assert torch.autograd.gradcheck(lambda q, r: knn(q, r, k=3).values, (q, r))


@pytest.mark.parametrize("k", [100, 1024, 2049, 3000])
def test_large_k(k: int) -> None:
    q, r = rows(2, 3), rows(3000, 3, seed=1)
    values, indices = ordered((q[:, None] - r).square().sum(-1).numpy(), k)
    found = knn(q, r, k=k, metric="sqeuclidean")
    assert np.array_equal(found.indices.numpy(), indices)
    np.testing.assert_allclose(found.values.numpy(), values)


def test_nan_ranks_last() -> None:
    r = rows(6, 2)
    expected = knn(rows(4, 2, seed=1), r[1:], k=5).indices + 1
    r[0] = torch.nan
    assert torch.equal(knn(rows(4, 2, seed=1), r, k=6).indices[:, :5], expected)


def test_numbers_of_neighbours_that_do_not_exist() -> None:
    points = torch.eye(3)
    assert knn(points, points, k=0).indices.shape == (3, 0)
    for k, references in ((4, points), (3, None), (-1, points)):
        with pytest.raises(ValueError, match=rf"k={k}.*[23]"):
            knn(points, references, k=k)


# Against scikit-learn


@pytest.mark.parametrize("weights", ["uniform", "distance", lambda d: 1 / (1 + d)])
@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine"])
def test_classifier_equals_scikit_learn_on_digits(metric: str, weights: Any) -> None:
    options = {"n_neighbors": 5, "weights": weights, "metric": metric}
    ours = KNeighborsClassifier(**options).fit(TRAIN, LABELS)
    theirs = sklearn.neighbors.KNeighborsClassifier(algorithm="brute", **options).fit(TRAIN, LABELS)
    distances, indices = ours.kneighbors(TEST, 6)
    np.testing.assert_allclose(distances, theirs.kneighbors(TEST, 6)[0], atol=1e-7)
    # scikit-learn promises nothing about which of several rows at the same distance are the neighbours.
    clear = distances[:, 4] < distances[:, 5] - 1e-9
    assert clear.mean() > 0.8
    their_indices = theirs.kneighbors(TEST, 5, return_distance=False)
    np.testing.assert_array_equal(np.sort(indices[clear, :5]), np.sort(their_indices[clear]))
    np.testing.assert_allclose(ours.predict_proba(TEST)[clear], theirs.predict_proba(TEST)[clear], atol=1e-7)
    np.testing.assert_array_equal(ours.predict(TEST)[clear], theirs.predict(TEST)[clear])
    assert abs(ours.score(TEST, TEST_LABELS) - theirs.score(TEST, TEST_LABELS)) < 0.01


@pytest.mark.parametrize("weights", ["uniform", "distance", lambda d: np.exp(-d)])
@pytest.mark.parametrize("outputs", [1, 2])
def test_regressor_equals_scikit_learn(outputs: int, weights: Any) -> None:
    features, target = load_diabetes(return_X_y=True)
    if outputs == 2:
        target = np.stack([target, features[:, 0]], -1)
    ours = KNeighborsRegressor(7, weights=weights).fit(features[:300], target[:300])
    theirs = sklearn.neighbors.KNeighborsRegressor(7, weights=weights, algorithm="brute")
    theirs.fit(features[:300], target[:300])
    np.testing.assert_allclose(ours.predict(features[300:]), theirs.predict(features[300:]), rtol=1e-9)
    assert ours.score(features[300:], target[300:]) == pytest.approx(theirs.score(features[300:], target[300:]))


def test_several_outputs_equal_scikit_learn() -> None:
    labels = np.stack([LABELS, LABELS % 2 + 10, LABELS // 3], -1)
    ours = KNeighborsClassifier(3).fit(TRAIN, labels)
    theirs = sklearn.neighbors.KNeighborsClassifier(3, algorithm="brute").fit(TRAIN, labels)
    for classes, expected in zip(ours.classes_, theirs.classes_, strict=True):
        np.testing.assert_array_equal(classes, expected)
    assert (ours.predict(TEST) != theirs.predict(TEST)).mean() < 0.005
    for shares, expected in zip(ours.predict_proba(TEST), theirs.predict_proba(TEST), strict=True):
        assert shares.shape == expected.shape and (np.abs(shares - expected) > 1e-9).any(-1).mean() < 0.01


def test_training_rows_without_themselves_equal_scikit_learn() -> None:
    part, labels = TRAIN[:200] + 0.1 * rows(200, 64).numpy(), LABELS[:200]  # without ties
    ours = KNeighborsClassifier(4).fit(part, labels)
    theirs = sklearn.neighbors.KNeighborsClassifier(4, algorithm="brute").fit(part, labels)
    np.testing.assert_allclose(ours.kneighbors()[0], theirs.kneighbors()[0])
    assert not (ours.kneighbors()[1] == np.arange(200)[:, None]).any()
    np.testing.assert_array_equal(ours.predict(None), theirs.predict(None))
    for mode in ("connectivity", "distance"):
        for given in (None, TEST[:20]):
            graph, expected = (model.kneighbors_graph(given, mode=mode) for model in (ours, theirs))
            assert graph.shape == expected.shape and graph.format == "csr"
            np.testing.assert_allclose(graph.toarray(), expected.toarray())


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_equal_votes_go_to_the_first_class(weights: str) -> None:
    points, labels = np.array([[-1.0], [1.0], [-2.0], [2.0]]), np.array(["d", "c", "b", "a"])
    for k, expected in ((2, "c"), (4, "a" if weights == "uniform" else "c")):
        model = KNeighborsClassifier(k, weights=weights).fit(points, labels)
        theirs = sklearn.neighbors.KNeighborsClassifier(k, weights=weights, algorithm="brute").fit(points, labels)
        assert model.predict([[0.0]]) == theirs.predict([[0.0]]) == [expected]


def test_rows_at_distance_zero_vote_alone() -> None:
    points, labels = np.array([[0.0], [0.0], [0.0], [1.0], [1.0]]), np.array([2, 1, 2, 0, 0])
    model = KNeighborsClassifier(5, weights="distance").fit(points, labels)
    np.testing.assert_allclose(model.predict_proba([[0.0]]), [[0, 1 / 3, 2 / 3]])
    average = KNeighborsRegressor(5, weights="distance").fit(points, labels.astype(float))
    np.testing.assert_allclose(average.predict([[0.0]]), [5 / 3])


# Tensors and options


def test_tensors_give_tensors() -> None:
    features, labels = torch.tensor(TRAIN, dtype=torch.float32), torch.tensor(LABELS)
    test = torch.tensor(TEST, dtype=torch.float32)
    model = KNeighborsClassifier().fit(features, labels)
    reference = KNeighborsClassifier().fit(TRAIN.astype(np.float32), LABELS)
    predicted, shares = model.predict(test), model.predict_proba(test)
    assert isinstance(predicted, Tensor) and predicted.dtype == torch.int64
    assert isinstance(shares, Tensor) and shares.dtype == torch.float32
    np.testing.assert_array_equal(predicted.numpy(), reference.predict(TEST.astype(np.float32)))
    distances, indices = model.kneighbors()
    assert isinstance(distances, Tensor) and isinstance(indices, Tensor) and len(indices) == 1200
    assert isinstance(model.predict(TEST), np.ndarray)  # the kind of what is asked
    assert model.score(test, torch.tensor(TEST_LABELS)) == reference.score(TEST.astype(np.float32), TEST_LABELS)
    graph = model.kneighbors_graph(test[:10], mode="distance")
    assert graph.layout == torch.sparse_csr and graph.shape == (10, 1200)
    found = model.kneighbors(test[:10])
    torch.testing.assert_close(graph.to_dense().gather(1, found[1]), found[0])
    regressor = KNeighborsRegressor(weights=lambda d: torch.exp(-d)).fit(features, labels.float())
    assert isinstance(regressor.predict(test), Tensor)


def test_tensors_of_several_kinds() -> None:
    whole, labels = torch.tensor(TRAIN[:100]).long(), torch.tensor(LABELS[:100])
    model = KNeighborsClassifier(3).fit(whole, labels)
    assert model.kneighbors(whole[:2])[0].dtype == torch.float32  # the default dtype
    half = KNeighborsClassifier(3).fit(whole.half(), labels)
    assert half.kneighbors()[0].dtype == torch.float16
    with_gradient = whole.double().requires_grad_()
    assert not KNeighborsClassifier(3).fit(with_gradient, labels).predict_proba(with_gradient).requires_grad
    names = KNeighborsClassifier(3).fit(whole, np.array(list("abcdefghij"))[labels])
    assert isinstance(names.predict(whole), np.ndarray) and names.predict(whole).dtype.kind == "U"


def test_device_is_where_it_is_computed() -> None:
    model = NearestNeighbors(device="cpu").fit(torch.eye(6))
    assert model.kneighbors(torch.eye(6))[0].device == torch.device("cpu")
    with pytest.raises((RuntimeError, AssertionError)):
        NearestNeighbors(device="nowhere").fit(np.eye(6))


def test_other_metrics_and_their_options() -> None:
    comparison = tp.make_pairwise(lambda x, y: (x - y).abs().amax(-1))
    found = NearestNeighbors(2, metric=comparison).fit(TRAIN[:50]).kneighbors(TEST[:5])
    theirs = sklearn.neighbors.NearestNeighbors(n_neighbors=2, metric="chebyshev", algorithm="brute").fit(TRAIN[:50])
    np.testing.assert_allclose(found[0], theirs.kneighbors(TEST[:5])[0])
    points = rows(50, 3).numpy()
    chunked = NearestNeighbors(3, chunk_size=5).fit(points).kneighbors()
    np.testing.assert_array_equal(chunked[1], NearestNeighbors(3).fit(points).kneighbors()[1])
    assert NearestNeighbors(2).fit(TRAIN).kneighbors(TEST, 7, return_distance=False).shape == (len(TEST), 7)


def test_a_column_of_labels_warns() -> None:
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        model = KNeighborsClassifier(1).fit(TRAIN[:20], LABELS[:20, None])
    assert model.predict(TRAIN[:20]).shape == (20,) and model.outputs_2d_ is False


# Errors


def test_bad_options_are_named() -> None:
    for estimator, error, message in (
        (KNeighborsClassifier(0), ValueError, "Expected n_neighbors > 0. Got 0"),
        (KNeighborsClassifier(2.5), TypeError, "n_neighbors does not take"),
        (KNeighborsClassifier(weights="near"), ValueError, "weights is 'near'; expected"),
        (KNeighborsClassifier(metric="euclidian"), ValueError, "Did you mean 'euclidean'"),
        (KNeighborsClassifier(metric="rbf"), ValueError, "metric is 'rbf', a kernel; expected a distance"),
        (KNeighborsClassifier(metric_params={"p": 3}), TypeError, "no option 'p'"),
        (KNeighborsClassifier(chunk_size=0), ValueError, "chunk_size=0"),
    ):
        with pytest.raises(error, match=message):
            estimator.fit(TRAIN[:20], LABELS[:20])
    model = KNeighborsClassifier(5).fit(TRAIN[:5], LABELS[:5])
    with pytest.raises(ValueError, match="Expected n_neighbors <= n_samples_fit, but n_neighbors = 6, n_samples_fit = 5"):
        model.kneighbors(TEST, 6)
    with pytest.raises(ValueError, match="Expected n_neighbors < n_samples_fit, but n_neighbors = 5"):
        model.kneighbors()
    with pytest.raises(ValueError, match="mode is 'graph'"):
        model.kneighbors_graph(mode="graph")
    for weights in (lambda d: 0 * d, lambda d: d[:, :1]):
        with pytest.raises(ValueError, match="zero weights|weights.distances. has shape"):
            KNeighborsClassifier(weights=weights).fit(TRAIN[:9], LABELS[:9]).predict(TEST[:2])
    with pytest.raises(NotFittedError):
        NearestNeighbors().kneighbors(TEST)
    with pytest.raises(ValueError, match="contains NaN"):
        NearestNeighbors().fit(torch.tensor([[torch.nan]]))
    with pytest.raises(ValueError, match="expecting 64 features"):
        model.predict(torch.zeros(2, 3))
