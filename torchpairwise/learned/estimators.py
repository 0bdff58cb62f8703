"""Neighborhood components analysis as a scikit-learn estimator."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d
from torch import Tensor

from torchpairwise import masks
from torchpairwise._estimators import Array, TensorEstimator, like, to_numpy
from torchpairwise.expression import lazy

__all__ = ["NeighborhoodComponentsAnalysis"]

_STARTS = ("auto", "pca", "lda", "identity", "random")


class NeighborhoodComponentsAnalysis(ClassNamePrefixFeaturesOutMixin, TransformerMixin, TensorEstimator):
    """A linear map in which neighbours have the same class; scikit-learn's `NeighborhoodComponentsAnalysis`, streamed.

    maximises sum_i p_i,  p_i = sum_{j != i, y_j = y_i} exp(-|A x_i - A x_j|^2) / sum_{j != i} exp(-|A x_i - A x_j|^2)

    Arguments:
        n_components: rows of A; None means D.
        init: start of A: "auto" (lda, pca or identity, whichever fits first), "pca", "lda", "identity", "random", or an array
            [n_components, D].
        warm_start: start from `components_` of the last `fit`.
        max_iter: at most so many iterations of L-BFGS, 50.
        tol: tolerance on the projected gradient, 1e-5.
        callback: called after each iteration with A, flat, and the number of iterations.
        verbose: above 0 prints the objective of each iteration.
        random_state: of the random start and of pca.
        device: where to compute; None means the CPU for arrays and the tensor's own device.
        chunk_size: as in `tp.lazy`.

    Attributes:
        components_: A, an array [n_components, D].
        n_iter_: iterations.
        random_state_, n_features_in_, feature_names_in_: as in scikit-learn.

    Notes:
        Memory grows with N, where a stored matrix takes N^2. Computed in float64.
        The objective is not convex: the answer depends on the start.

    References:
        Goldberger, Hinton, Roweis and Salakhutdinov, Neighbourhood components analysis, NIPS 2004.

    Example:
        >>> import numpy as np
        >>> from torchpairwise.learned import NeighborhoodComponentsAnalysis
        >>> X = np.array([[0.0, 9.0], [0.1, -9.0], [1.0, 8.0], [1.1, -8.0]])  # the second feature only disturbs
        >>> model = NeighborhoodComponentsAnalysis(n_components=1, init="identity").fit(X, [0, 0, 1, 1])
        >>> model.transform(X).shape
        (4, 1)
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        init: Any = "auto",
        warm_start: bool = False,
        max_iter: int = 50,
        tol: float = 1e-5,
        callback: Callable[..., Any] | None = None,
        verbose: int = 0,
        random_state: Any = None,
        device: torch.device | str | None = None,
        chunk_size: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.init = init
        self.warm_start = warm_start
        self.max_iter = max_iter
        self.tol = tol
        self.callback = callback
        self.verbose = verbose
        self.random_state = random_state
        self.device = device
        self.chunk_size = chunk_size

    def fit(self, X: Array, y: Array) -> NeighborhoodComponentsAnalysis:
        """Learns A from samples X [N, D] and classes y [N]."""
        features, target = self._fit_pairs(X, y, numeric=False)
        if features.shape[0] < 2:
            raise ValueError("Found array with 1 sample(s), while a minimum of 2 is required: one sample has no neighbor")
        target = column_or_1d(target, warn=True)
        check_classification_targets(target)
        classes, codes = np.unique(target, return_inverse=True)
        self.random_state_ = check_random_state(self.random_state)
        start = self._start(to_numpy(features), codes, len(classes))
        self.n_iter_ = 0
        objective = _Objective(features.double(), torch.from_numpy(codes).to(features.device), start.shape, self.chunk_size)
        result = minimize(
            objective,
            start.ravel(),
            method="L-BFGS-B",
            jac=True,
            tol=self.tol,
            options={"maxiter": self.max_iter},
            callback=self._after_iteration(objective),
        )
        self.n_iter_ = result.nit
        if not result.success and result.nit >= self.max_iter:
            warnings.warn(
                f"NeighborhoodComponentsAnalysis did not converge in max_iter={self.max_iter} iterations; raise it, or scale the features",
                ConvergenceWarning,
                stacklevel=2,
            )
        self.components_ = result.x.reshape(start.shape).astype(to_numpy(features).dtype)
        self._n_features_out = len(self.components_)
        return self

    def transform(self, X: Array) -> Array:
        """A x for each row of X: [T, n_components], as a tensor if X is one."""
        check_is_fitted(self)
        components = torch.from_numpy(self.components_)
        device = X.device if isinstance(X, Tensor) and self.device is None else self.device
        components = components if device is None else components.to(device)
        return like(self._query_features(X, components) @ components.mT, X)

    def _after_iteration(self, objective: _Objective) -> Callable[[Any], None]:
        began = time.perf_counter()

        def report(point: Any) -> None:
            self.n_iter_ += 1
            if self.verbose:
                print(f"iteration {self.n_iter_}: objective {-objective.value:.6g} ({time.perf_counter() - began:.2f} s)")
            if self.callback is not None:
                self.callback(point, self.n_iter_)

        return report

    def _start(self, X: Any, codes: Any, n_classes: int) -> Any:
        """A [n_components, D] to begin with."""
        n_samples, n_features = X.shape
        n_components = n_features if self.n_components is None else self.n_components
        if not 1 <= n_components <= n_features:
            raise ValueError(f"n_components={n_components}; expected at least 1 and at most the {n_features} features of X")
        if self.warm_start and hasattr(self, "components_"):
            return self._given(self.components_, n_components, n_features, "components_ of the last fit")
        if not isinstance(self.init, str):
            return self._given(self.init, n_components, n_features, "init")
        if self.init not in _STARTS:
            raise ValueError(f"init={self.init!r}; expected {', '.join(map(repr, _STARTS))} or an array")
        kind = self.init
        if kind == "auto":
            kind = "lda" if n_components <= min(n_features, n_classes - 1) else "pca"
            kind = "identity" if kind == "pca" and n_components >= min(n_features, n_samples) else kind
        if kind == "identity":
            return np.eye(n_components, n_features)
        if kind == "random":
            return self.random_state_.standard_normal((n_components, n_features))
        if kind == "pca":
            return PCA(n_components, random_state=self.random_state_).fit(X).components_.astype(np.float64)
        return LinearDiscriminantAnalysis(n_components=n_components).fit(X, codes).scalings_.T[:n_components].astype(np.float64)

    @staticmethod
    def _given(array: Any, n_components: int, n_features: int, name: str) -> Any:
        checked = check_array(array, dtype=np.float64)
        if checked.shape != (n_components, n_features):
            raise ValueError(f"{name} has shape {list(checked.shape)}; expected [n_components, features] = [{n_components}, {n_features}]")
        return checked

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


class _Objective:
    """- sum_i p_i and its gradient in A; `value` is that of the last call."""

    def __init__(self, X: Tensor, labels: Tensor, shape: tuple[int, int], chunk_size: int | None) -> None:
        self.X, self.shape, self.chunk_size = X, shape, chunk_size
        self.same = masks.same_group(labels)
        self.value = float("nan")

    def __call__(self, point: Any) -> tuple[float, Any]:
        A = torch.from_numpy(point.reshape(self.shape)).to(self.X).requires_grad_()
        with torch.enable_grad():
            logits = -lazy(self.X @ A.mT, chunk_size=self.chunk_size)
            own = logits.masked(self.same).logsumexp(-1, exclude_self=True)  # -inf where a class has one sample
            loss = -(own - logits.logsumexp(-1, exclude_self=True)).exp().sum()
        (gradient,) = torch.autograd.grad(loss, A)
        self.value = loss.item()
        return self.value, to_numpy(gradient).ravel().astype(np.float64)
