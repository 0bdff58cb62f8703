"""Nearest neighbours as scikit-learn estimators, with scikit-learn's parameters, answers and errors."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from scipy.sparse import csr_matrix
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from torchpairwise._estimators import Array, TensorEstimator, like, options_of, to_numpy, to_tensor
from torchpairwise._registry import metric_info
from torchpairwise.neighbors.functional import knn

Weights: TypeAlias = str | Callable[[Array], Array] | None


class NeighborsEstimator(TensorEstimator):
    """Base: training rows, and the search among them. Subclasses declare the parameters named below."""

    n_neighbors: int
    metric: Any
    metric_params: Mapping[str, Any] | None
    chunk_size: int | None

    def kneighbors(self, X: Array = None, n_neighbors: int | None = None, return_distance: bool = True) -> Any:
        """The nearest training rows of each row of X, nearest first, ties by the lower index.

        Arguments:
            X: queries [T, D]; None asks for the training rows, and none is then its own neighbour.
            n_neighbors: in place of the constructor's.
            return_distance: False returns the indices only.

        Returns:
            distances [T, k] and indices [T, k], as tensors if X (or, for None, the training data) is a tensor.
        """
        template = self._template_of(X)
        distances, indices = self._search(X, n_neighbors)
        return (like(distances, template), like(indices, template)) if return_distance else like(indices, template)

    def kneighbors_graph(self, X: Array = None, n_neighbors: int | None = None, mode: str = "connectivity") -> Any:
        """The neighbours as a sparse [T, N] matrix: 1 for a neighbour, or its distance with mode="distance".

        Returns:
            A SciPy CSR matrix, or a torch CSR tensor where the data are tensors.
        """
        template = self._template_of(X)
        if mode not in ("connectivity", "distance"):
            raise ValueError(f"mode is {mode!r}; expected 'connectivity' or 'distance'")
        distances, indices = self._search(X, n_neighbors)
        values = torch.ones_like(distances) if mode == "connectivity" else distances
        n_rows, k = indices.shape
        starts = torch.arange(0, n_rows * k + 1, k) if k else torch.zeros(n_rows + 1, dtype=torch.int64)
        shape = (n_rows, self.n_samples_fit_)
        values, indices = values.flatten(), indices.flatten()
        if isinstance(template, Tensor):
            # A CSR tensor wants the columns of a row in order.
            order = torch.argsort(indices + torch.arange(n_rows, device=indices.device).repeat_interleave(k) * shape[1])
            parts = (starts.to(template.device), indices[order].to(template.device), values[order].to(template.device))
            return torch.sparse_csr_tensor(*parts, size=shape, check_invariants=True)
        return csr_matrix((to_numpy(values), to_numpy(indices), to_numpy(starts)), shape=shape)

    def _template_of(self, X: Array) -> Array:
        """What the answer should be like: the queries, or the training data."""
        check_is_fitted(self)
        return self._template if X is None else X

    def _remember(self, X: Array, features: Tensor) -> None:
        _check_count(self.n_neighbors)
        if isinstance(self.metric, str) and metric_info(self.metric).kind != "distance":
            raise ValueError(f"metric is {self.metric!r}, a {metric_info(self.metric).kind}; expected a distance such as 'euclidean'")
        self._fit_X = features
        # An empty stand-in that remembers the kind and device of the training data.
        self._template = X.new_empty(0) if isinstance(X, Tensor) else np.empty(0)
        self.n_samples_fit_ = features.shape[0]
        self._neighbors_of(features[:1], 1)  # a wrong metric or option raises here

    def _search(self, X: Array, n_neighbors: int | None) -> tuple[Tensor, Tensor]:
        k = self.n_neighbors if n_neighbors is None else n_neighbors
        _check_count(k)
        available = self.n_samples_fit_ - (X is None)
        query = None if X is None else self._query_features(X, self._fit_X)
        if k > available:
            relation = "<" if X is None else "<="
            n_samples = self.n_samples_fit_ if query is None else query.shape[0]
            raise ValueError(
                f"Expected n_neighbors {relation} n_samples_fit, but n_neighbors = {k}, "
                f"n_samples_fit = {self.n_samples_fit_}, n_samples = {n_samples}"
            )
        return self._neighbors_of(query, k)

    def _neighbors_of(self, query: Tensor | None, k: int) -> tuple[Tensor, Tensor]:
        options = {
            "k": int(k),
            "metric": self.metric,
            "largest": False,
            "chunk_size": self.chunk_size,
            **options_of(self.metric_params),
        }
        with torch.no_grad():
            result = knn(self._fit_X, **options) if query is None else knn(query, self._fit_X, **options)
        return result.values, result.indices


class NearestNeighbors(NeighborsEstimator):
    """Search for the nearest training rows; scikit-learn's `NearestNeighbors`, exact and streamed.

    Arguments:
        n_neighbors: neighbours that `kneighbors` returns by default, 5.
        metric: a distance's name or a pairwise comparison, "euclidean" by default.
        metric_params: options of the metric, such as {"gamma": 0.1}.
        device: where to compute; None means the CPU for arrays and the tensor's own device.
        chunk_size: as in `tp.lazy`.

    Attributes:
        n_samples_fit_, n_features_in_, feature_names_in_: as in scikit-learn.

    Notes:
        Memory grows with the rows of training and query data. Every pair is compared.

    Example:
        >>> from torchpairwise.neighbors import NearestNeighbors
        >>> search = NearestNeighbors(n_neighbors=1).fit([[0.0], [1.0], [3.0]])
        >>> search.kneighbors([[2.5]])
        (array([[0.5]]), array([[2]]))
    """

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        metric: Any = "euclidean",
        metric_params: Mapping[str, Any] | None = None,
        device: torch.device | str | None = None,
        chunk_size: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.metric_params = metric_params
        self.device = device
        self.chunk_size = chunk_size

    def fit(self, X: Array, y: Array = None) -> NearestNeighbors:
        """Keeps X [N, D]; y is there for scikit-learn's call form and is not read."""
        self._remember(X, self._fit_features(X))
        return self


class KNeighborsClassifier(ClassifierMixin, NeighborsEstimator):
    """Vote of the nearest training rows; scikit-learn's `KNeighborsClassifier`, exact and streamed.

    p(class c | x) = sum_{j among the k nearest, y_j = c} w_j / sum_{j among the k nearest} w_j

    Arguments:
        n_neighbors: k, 5 by default.
        weights: "uniform" (w = 1), "distance" (w = 1 / distance; rows at distance 0, if any, vote alone), or a function
            from the distances [T, k] to weights [T, k].
        metric, metric_params, device, chunk_size: as in `NearestNeighbors`.

    Attributes:
        classes_: the sorted classes, an array; a list of arrays for several outputs.
        outputs_2d_: whether y had several outputs.
        n_samples_fit_, n_features_in_, feature_names_in_: as in scikit-learn.

    Notes:
        Equal votes go to the class that sorts first. Memory grows with the rows of training and query data.

    Example:
        >>> from torchpairwise.neighbors import KNeighborsClassifier
        >>> model = KNeighborsClassifier(n_neighbors=3).fit([[0.0], [1.0], [2.0], [3.0]], ["a", "a", "b", "b"])
        >>> model.predict([[0.4]]), model.predict_proba([[0.4]]).round(2)
        (array(['a'], dtype='<U1'), array([[0.67, 0.33]]))
    """

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        weights: Weights = "uniform",
        metric: Any = "euclidean",
        metric_params: Mapping[str, Any] | None = None,
        device: torch.device | str | None = None,
        chunk_size: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.metric = metric
        self.metric_params = metric_params
        self.device = device
        self.chunk_size = chunk_size

    def fit(self, X: Array, y: Array) -> KNeighborsClassifier:
        """Keeps X [N, D] and the classes y [N] or [N, outputs], numbers or strings."""
        _check_weights(self.weights)
        features, target = self._fit_pairs(X, y, numeric=False)
        check_classification_targets(target)
        if target.ndim == 2 and target.shape[1] == 1:
            _warn_of_column(self)
        self.outputs_2d_ = target.ndim == 2 and target.shape[1] > 1
        pairs = [np.unique(column, return_inverse=True) for column in target.reshape(target.shape[0], -1).T]
        self.classes_ = [classes for classes, _ in pairs] if self.outputs_2d_ else pairs[0][0]
        self._codes = torch.from_numpy(np.stack([codes.ravel() for _, codes in pairs], -1)).to(features.device, torch.int64)
        self._remember(X, features)
        return self

    def predict(self, X: Array) -> Array:
        """Classes [T] or [T, outputs], as a tensor if X is one and the classes are numbers.

        X=None predicts the training rows, each without itself.
        """
        template, columns = self._template_of(X), []
        for classes, votes in zip(self._class_list(), self._votes(X), strict=True):
            best = votes.argmax(-1)
            numeric = isinstance(template, Tensor) and classes.dtype.kind in "biuf"
            columns.append(like(torch.from_numpy(classes)[best.cpu()], template) if numeric else classes[to_numpy(best)])
        if not self.outputs_2d_:
            return columns[0]
        return torch.stack(columns, -1) if isinstance(columns[0], Tensor) else np.stack(columns, -1)

    def predict_proba(self, X: Array) -> Any:
        """Shares of the votes [T, classes], in the order of `classes_`; a list of them for several outputs."""
        template = self._template_of(X)
        shares = [like(votes / votes.sum(-1, keepdim=True), template) for votes in self._votes(X)]
        return shares if self.outputs_2d_ else shares[0]

    def score(self, X: Array, y: Array, sample_weight: Array = None) -> float:
        """Share of right predictions."""
        return float(accuracy_score(to_numpy(y), to_numpy(self.predict(X)), sample_weight=sample_weight))

    def _class_list(self) -> Any:
        return self.classes_ if self.outputs_2d_ else [self.classes_]

    def _votes(self, X: Array) -> list[Tensor]:
        """For each output the summed weights [T, classes]."""
        distances, indices = self._search(X, None)
        weights = _weights_of(distances, self.weights, self._template_of(X))
        if bool((weights == 0).all(-1).any()):
            raise ValueError(
                "All neighbors of some sample is getting zero weights. Please modify 'weights' to avoid this case if "
                "you are using a user-defined function."
            )
        codes = self._codes[indices]
        return [
            weights.new_zeros(len(weights), len(classes)).scatter_add_(-1, codes[..., output], weights)
            for output, classes in enumerate(self._class_list())
        ]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class KNeighborsRegressor(RegressorMixin, NeighborsEstimator):
    """Average of the nearest training targets; scikit-learn's `KNeighborsRegressor`, exact and streamed.

    y(x) = sum_{j among the k nearest} w_j y_j / sum_{j among the k nearest} w_j

    Arguments:
        n_neighbors, weights, metric, metric_params, device, chunk_size: as in `KNeighborsClassifier`.

    Attributes:
        n_samples_fit_, n_features_in_, feature_names_in_: as in scikit-learn.

    Example:
        >>> from torchpairwise.neighbors import KNeighborsRegressor
        >>> KNeighborsRegressor(n_neighbors=2).fit([[0.0], [1.0], [5.0]], [0.0, 2.0, 9.0]).predict([[0.4]])
        array([1.])
    """

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        weights: Weights = "uniform",
        metric: Any = "euclidean",
        metric_params: Mapping[str, Any] | None = None,
        device: torch.device | str | None = None,
        chunk_size: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.metric = metric
        self.metric_params = metric_params
        self.device = device
        self.chunk_size = chunk_size

    def fit(self, X: Array, y: Array) -> KNeighborsRegressor:
        """Keeps X [N, D] and the targets y [N] or [N, C]."""
        _check_weights(self.weights)
        features, target = self._fit_pairs(X, y, numeric=True)
        self._single_output = target.ndim == 1
        self._targets = to_tensor(target, features.device, features.dtype).reshape(features.shape[0], -1)
        self._remember(X, features)
        return self

    def predict(self, X: Array) -> Array:
        """Averages [T] or [T, C], as a tensor if X is one. X=None leaves each training row itself out."""
        template = self._template_of(X)
        distances, indices = self._search(X, None)
        weights = _weights_of(distances, self.weights, template).unsqueeze(-1)
        result = (weights * self._targets[indices]).sum(-2) / weights.sum(-2)
        return like(result.squeeze(-1) if self._single_output else result, template)

    def score(self, X: Array, y: Array, sample_weight: Array = None) -> float:
        """R^2 of the predictions, averaged over outputs."""
        return float(r2_score(to_numpy(y), to_numpy(self.predict(X)), sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _check_count(n_neighbors: Any) -> None:
    if isinstance(n_neighbors, bool) or not isinstance(n_neighbors, numbers.Integral):
        raise TypeError(f"n_neighbors does not take {type(n_neighbors)} value, enter integer value")
    if n_neighbors <= 0:
        raise ValueError(f"Expected n_neighbors > 0. Got {n_neighbors}")


def _check_weights(weights: Weights) -> None:
    if weights not in (None, "uniform", "distance") and not callable(weights):
        raise ValueError(f"weights is {weights!r}; expected 'uniform', 'distance' or a function from distances to weights")


def _warn_of_column(estimator: NeighborsEstimator) -> None:
    warnings.warn(
        f"A column-vector y was passed to {type(estimator).__name__} when a 1d array was expected. Please change the "
        f"shape of y to (n_samples,), for example using ravel().",
        DataConversionWarning,
        stacklevel=3,
    )


def _weights_of(distances: Tensor, weights: Weights, template: Array) -> Tensor:
    """Weights [T, k]; a function gets and gives what the caller works with, arrays or tensors."""
    if weights in (None, "uniform"):
        return torch.ones_like(distances)
    if weights == "distance":
        exact = distances == 0
        return torch.where(exact.any(-1, keepdim=True), exact.to(distances.dtype), 1.0 / distances)
    given = weights(like(distances, template))  # type: ignore[operator]
    if given.shape != distances.shape:
        raise ValueError(f"weights(distances) has shape {list(given.shape)}; expected that of the distances, {list(distances.shape)}")
    return to_tensor(given, distances.device, distances.dtype)
