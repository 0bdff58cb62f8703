"""Every estimator obeys scikit-learn's rules, works inside its tools, and survives copying."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from torchpairwise.attention import NadarayaWatson
from torchpairwise.learned import NeighborhoodComponentsAnalysis
from torchpairwise.neighbors import KNeighborsClassifier, KNeighborsRegressor, NearestNeighbors

ESTIMATORS = [
    NeighborhoodComponentsAnalysis(max_iter=5),
    KNeighborsClassifier(),
    KNeighborsClassifier(weights="distance", metric="manhattan"),
    KNeighborsRegressor(),
    NearestNeighbors(),
    NadarayaWatson(),
    NadarayaWatson("laplacian", bandwidth="loo"),
]


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def fitted(estimator: Any) -> tuple[Any, np.ndarray]:
    X, y = load_diabetes(return_X_y=True)
    return clone(estimator).fit(X, np.digitize(y, [100, 200])), X


def answer(estimator: Any, X: Any) -> np.ndarray:
    if isinstance(estimator, NearestNeighbors):
        return estimator.kneighbors(X)[0]
    return estimator.predict(X) if hasattr(estimator, "predict") else estimator.transform(X)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_fitted_estimators_are_copied_and_saved(estimator: Any) -> None:
    model, X = fitted(estimator)
    expected = answer(model, X)
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), loaded):
        np.testing.assert_array_equal(answer(other, X), expected)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_rows_are_predicted_alone_as_together(estimator: Any) -> None:
    model, X = fitted(estimator)
    together = answer(model, X[:20])
    alone = np.concatenate([answer(model, X[i : i + 1]) for i in range(20)])
    np.testing.assert_allclose(together, alone, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_parameters_of_torch_and_numpy_agree(estimator: Any) -> None:
    model, X = fitted(estimator)
    y = np.digitize(load_diabetes().target, [100, 200])
    other = clone(estimator).fit(torch.from_numpy(X), torch.from_numpy(y))
    result = answer(other, torch.from_numpy(X))
    assert isinstance(result, torch.Tensor)
    np.testing.assert_array_equal(result.numpy(), answer(model, X))


def test_inside_search_and_pipeline() -> None:
    X, y = load_digits(return_X_y=True)
    search = GridSearchCV(KNeighborsClassifier(), {"n_neighbors": [1, 3], "weights": ["uniform", "distance"]}, cv=3)
    search.fit(X[:600], y[:600])
    assert search.best_score_ > 0.9
    features, target = load_diabetes(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), NadarayaWatson(bandwidth="loo"))
    assert cross_val_score(pipeline, features, target, cv=3).mean() > 0.3


def test_column_names_are_kept_and_checked() -> None:
    pandas = pytest.importorskip("pandas")
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    model = KNeighborsRegressor().fit(X, y)
    assert list(model.feature_names_in_) == list(X.columns)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(pandas.DataFrame(X.values, columns=[f"x{i}" for i in range(10)]))


def test_inputs_are_not_changed() -> None:
    X, y = load_diabetes(return_X_y=True)
    features, target = torch.from_numpy(X.copy()), torch.from_numpy(y.copy())
    for estimator in (KNeighborsRegressor(weights="distance"), NadarayaWatson(bandwidth="loo_ard")):
        estimator.fit(features, target).predict(features)
    assert np.array_equal(features.numpy(), X) and np.array_equal(target.numpy(), y)
