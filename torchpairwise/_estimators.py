"""What every estimator shares: NumPy arrays or torch tensors in, the same kind out, checked by scikit-learn's own
    rules.

Hyper-parameters keep scikit-learn's names and rules: a constructor stores its arguments and nothing else, what `fit`
learns ends with an underscore, and bad input raises scikit-learn's messages. Estimators compute without gradients; the
functions and modules have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data
from torch import Tensor

from torchpairwise._precision import widened

Array: TypeAlias = Any  # np.ndarray | Tensor, and what scikit-learn turns into an array (lists, frames)
FLOATING = [np.float64, np.float32]


def to_numpy(data: Array) -> Array:
    """A tensor as the array that scikit-learn checks; anything else as it is."""
    if not isinstance(data, Tensor):
        return data
    return widened(data.detach().cpu()).numpy()


def to_tensor(data: Array, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor, over the memory of `data` if possible. Integers become `dtype`, or the default floating dtype."""
    if not isinstance(data, Tensor):
        array = np.asarray(data)
        # Tensors know no read-only memory and no negative strides.
        data = torch.from_numpy(array if array.flags.writeable and min(array.strides, default=0) >= 0 else array.copy())
    data = data.detach()
    if dtype is None:
        dtype = data.dtype if data.dtype.is_floating_point else torch.get_default_dtype()
    return data.to(device=device, dtype=dtype)


def like(result: Tensor, template: Array) -> Array:
    """`result` as the kind of the caller's input: a tensor on its device, or a NumPy array."""
    return result.to(template.device) if isinstance(template, Tensor) else to_numpy(result)


class TensorEstimator(BaseEstimator):
    """Base of the estimators: checks of features and targets, and the device. Subclasses have a parameter `device`."""

    device: torch.device | str | None

    def _fit_features(self, X: Array) -> Tensor:
        """Checks the training data and sets `n_features_in_`; returns X as a tensor on the device."""
        checked = validate_data(self, to_numpy(X), dtype=FLOATING)
        return to_tensor(X if isinstance(X, Tensor) else checked, self.device)

    def _fit_pairs(self, X: Array, y: Array, numeric: bool) -> tuple[Tensor, Array]:
        """The same with targets [N] or [N, C], returned as a NumPy array; `numeric` turns targets of dtype object into
        floats."""
        checked, target = validate_data(self, to_numpy(X), to_numpy(y), dtype=FLOATING, multi_output=True, y_numeric=numeric)
        return to_tensor(X if isinstance(X, Tensor) else checked, self.device), target

    def _query_features(self, X: Array, fitted: Tensor) -> Tensor:
        """Checks data given after `fit`; returns it in the dtype and on the device of the training data."""
        checked = validate_data(self, to_numpy(X), dtype=FLOATING, reset=False)
        return to_tensor(X if isinstance(X, Tensor) else checked, fitted.device, fitted.dtype)


def options_of(metric_params: Mapping[str, Any] | None) -> dict[str, Any]:
    """The metric's options as keyword arguments; None means none."""
    return dict(metric_params or {})
