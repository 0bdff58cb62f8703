"""Kernel regression as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from torchpairwise._estimators import Array, TensorEstimator, like, options_of, to_numpy, to_tensor
from torchpairwise.attention.functional import kernel_attention

# gamma of a bandwidth h in the units of the features, for the kernels that have a width.
_GAMMA_OF_BANDWIDTH = {"rbf": lambda h: 0.5 / h**2, "laplacian": lambda h: 1.0 / h}
_RULES = ("scott", "silverman", "loo", "loo_ard")
# Factors of Scott's rule that the leave-one-out search tries before it descends.
_STARTS = (0.25, 0.5, 1.0, 2.0, 4.0)


class NadarayaWatson(RegressorMixin, TensorEstimator):
    """Kernel regression: the prediction is the average of the training targets, weighted by a kernel.

    y(x) = sum_j k(x, x_j) y_j / sum_j k(x, x_j)

    Arguments:
        metric: the kernel, "rbf" exp(-gamma |x - x_j|^2) by default, or "laplacian", or another kernel's name.
        gamma: width, a number or one per feature.
        lengthscale: l in place of gamma, gamma = 1 / (2 l^2). At most one of the two.
        bandwidth: the rule where neither is given; it chooses h per feature, and gamma = 1 / (2 h^2) for "rbf", 1 / h
            for "laplacian". "scott": h = std N^(-1 / (D + 4)); "silverman": the same times (4 / (D + 2))^(1 / (D + 4));
            "loo": Scott's h times one factor that minimises the squared leave-one-out error, found by its gradient;
            "loo_ard": one factor per feature. Constant features count with std 1.
        max_evaluations: limit of the leave-one-out errors with gradient that are computed.
        metric_params: further options of the metric, such as {"degree": 2}.
        device: where to compute; None means the CPU for arrays and the tensor's own device.
        chunk_size: as in `tp.lazy`.

    Attributes:
        gamma_: the width in use, a float or one per feature; None for a kernel without width.
        loo_error_: mean squared leave-one-out error at gamma_, only after "loo" or "loo_ard".
        n_evaluations_: leave-one-out errors computed with gradient, likewise.
        n_features_in_, feature_names_in_: as in scikit-learn.

    Notes:
        Memory grows with N, in `fit` and `predict`; the leave-one-out error and its gradient are streamed. The
        weights of rbf and laplacian are a softmax of logarithms: far from all training points the prediction tends to
        the target of the nearest one, where a quotient of sums would be 0 / 0. Targets may be [N] or [N, C], and
        predictions have the same form.

    Example:
        >>> from torchpairwise.attention import NadarayaWatson
        >>> import numpy as np
        >>> X, y = np.arange(4.0)[:, None], np.array([0.0, 1.0, 4.0, 9.0])
        >>> NadarayaWatson(lengthscale=0.25).fit(X, y).predict(np.array([[2.0], [100.0]])).round(2)
        array([4., 9.])
    """

    def __init__(
        self,
        metric: str = "rbf",
        *,
        gamma: float | Array | None = None,
        lengthscale: float | Array | None = None,
        bandwidth: str = "scott",
        max_evaluations: int = 60,
        metric_params: Mapping[str, Any] | None = None,
        device: torch.device | str | None = None,
        chunk_size: int | None = None,
    ) -> None:
        self.metric = metric
        self.gamma = gamma
        self.lengthscale = lengthscale
        self.bandwidth = bandwidth
        self.max_evaluations = max_evaluations
        self.metric_params = metric_params
        self.device = device
        self.chunk_size = chunk_size

    def fit(self, X: Array, y: Array) -> NadarayaWatson:
        """Keeps X [N, D] and y [N] or [N, C], and chooses the width."""
        self._check_options()
        features, target = self._fit_pairs(X, y, numeric=True)
        self._fit_X = features
        self._single_output = target.ndim == 1
        self._fit_y = to_tensor(target, features.device, features.dtype).reshape(features.shape[0], -1)
        self._width = self._choose_width()
        self.gamma_ = self._width if self._width is None or isinstance(self._width, float) else like(self._width, X)
        self._average(features[:1])  # a wrong kernel or option raises here
        return self

    def predict(self, X: Array) -> Array:
        """Predictions [T] or [T, C] for X [T, D], as a tensor if X is one."""
        check_is_fitted(self)
        result = self._average(self._query_features(X, self._fit_X))
        return like(result.squeeze(-1) if self._single_output else result, X)

    def score(self, X: Array, y: Array, sample_weight: Array = None) -> float:
        """R^2 of the predictions, averaged over outputs."""
        return float(r2_score(to_numpy(y), to_numpy(self.predict(X)), sample_weight=sample_weight))

    def _average(self, query: Tensor) -> Tensor:
        with torch.no_grad():
            return kernel_attention(query, self._fit_X, self._fit_y, **self._kernel_options(self._width))

    def _kernel_options(self, width: Any) -> dict[str, Any]:
        options = options_of(self.metric_params)
        if width is not None:
            options["gamma"] = width
        return {"metric": self.metric, "chunk_size": self.chunk_size, **options}

    def _check_options(self) -> None:
        if self.gamma is not None and self.lengthscale is not None:
            raise ValueError(f"gamma is {self.gamma} and lengthscale is {self.lengthscale}; expected at most one of them")
        if self.bandwidth not in _RULES:
            raise ValueError(f"bandwidth is {self.bandwidth!r}; expected one of {list(_RULES)}, or give gamma or lengthscale")
        if self.metric not in _GAMMA_OF_BANDWIDTH and (self.lengthscale is not None or self.bandwidth != "scott"):
            raise ValueError(
                f"metric is {self.metric!r}; lengthscale and bandwidth need a kernel with a width, one of "
                f"{sorted(_GAMMA_OF_BANDWIDTH)}. Give the options of others as gamma or metric_params"
            )

    def _choose_width(self) -> Any:
        """gamma: given, from the lengthscale or by the rule: a float, a tensor [D], or None for the kernel's own."""
        if self.gamma is not None:
            return self._checked_width("gamma", self.gamma)
        if self.metric not in _GAMMA_OF_BANDWIDTH:
            return None
        if self.lengthscale is not None:
            return 0.5 / self._checked_width("lengthscale", self.lengthscale) ** 2
        bandwidth = self._reference_bandwidth()
        if self.bandwidth.startswith("loo"):
            bandwidth = self._search(bandwidth)
        return _GAMMA_OF_BANDWIDTH[self.metric](bandwidth)

    def _checked_width(self, name: str, width: Any) -> float | Tensor:
        values = to_tensor(to_numpy(width), self._fit_X.device, self._fit_X.dtype)
        if values.shape not in ((), (1,), (self.n_features_in_,)) or not bool((values > 0).all()):
            raise ValueError(f"{name} is {width}; expected a number > 0 or one for each of the {self.n_features_in_} features")
        return float(values) if values.numel() == 1 else values

    def _reference_bandwidth(self) -> Tensor:
        n_rows, n_features = self._fit_X.shape
        deviation = self._fit_X.std(0, correction=1) if n_rows > 1 else torch.ones_like(self._fit_X[0])
        deviation = torch.where(deviation > 0, deviation, 1.0)
        factor = (4.0 / (n_features + 2)) if self.bandwidth == "silverman" else 1.0
        return deviation * (factor / n_rows) ** (1.0 / (n_features + 4))

    def _search(self, start: Tensor) -> Tensor:
        """Minimises the leave-one-out error over the logarithm of one factor, or of one factor per feature."""
        if self._fit_X.shape[0] < 2:
            raise ValueError(f"bandwidth={self.bandwidth!r} needs at least 2 samples; n_samples = {self._fit_X.shape[0]}")
        with torch.no_grad():
            errors = [float(self._leave_one_out(start * factor)) for factor in _STARTS]
        start = start * _STARTS[errors.index(min(errors))]
        variance = float(self._fit_y.var(0, correction=0).mean()) or 1.0
        log_factor = torch.zeros(start.shape[0] if self.bandwidth == "loo_ard" else 1, dtype=start.dtype, device=start.device)
        log_factor.requires_grad_()
        optimizer = torch.optim.LBFGS(
            [log_factor],
            max_iter=self.max_evaluations,
            max_eval=self.max_evaluations,
            tolerance_change=1e-6,
            line_search_fn="strong_wolfe",
        )
        best, best_factor, n_evaluations = float("inf"), torch.ones_like(log_factor), 0

        def evaluate() -> Tensor:
            nonlocal best, best_factor, n_evaluations
            optimizer.zero_grad()
            error = self._leave_one_out(start * log_factor.exp())
            (error / variance).backward()
            n_evaluations += 1
            error = error.detach()
            if float(error) < best:
                best, best_factor = float(error), log_factor.detach().exp()
            return error / variance

        with torch.enable_grad():
            optimizer.step(evaluate)
        self.loo_error_, self.n_evaluations_ = best, n_evaluations
        return start * best_factor

    def _leave_one_out(self, bandwidth: Tensor) -> Tensor:
        """Mean over samples of |y_i - prediction from the others|^2, averaged over outputs."""
        options = self._kernel_options(_GAMMA_OF_BANDWIDTH[self.metric](bandwidth))
        return (kernel_attention(self._fit_X, self._fit_X, self._fit_y, exclude_self=True, **options) - self._fit_y).square().mean()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
