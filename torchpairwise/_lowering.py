"""From the arguments of `tp.lazy` to the steps of an expression, by the metric's record."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch import Tensor

from torchpairwise._checks import as_scalar, broadcast_batch, check_device, describe, matching, promoted
from torchpairwise._registry import MetricInfo, metric_info
from torchpairwise._steps import Step
from torchpairwise.comparisons.collections import Collection, collect
from torchpairwise.comparisons.custom import CustomComparison, anchor, bind_collections

__all__ = ["bind_features", "check_options", "lower_metric"]


def bind_features(X: Any, Y: Any) -> tuple[Tensor, Tensor, torch.dtype]:
    """Checks two collections of features; returns them in the dtype of the computation, and the dtype of results."""
    for name, value, axis in (("X", X, "N"), ("Y", Y, "M")):
        if value is None and name == "Y":
            continue
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} is {describe(value)}; expected a torch.Tensor [..., {axis}, D] (rows, features)")
        if value.is_complex():
            raise TypeError(f"{name} has dtype {value.dtype}; complex features are not supported")
        if value.dim() < 2:
            raise ValueError(f"{name} has shape {list(value.shape)}; expected [..., rows, features]")
    dtype = promoted(X)
    compute = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    rows = X.to(compute)
    if Y is None or Y is X:
        return rows, rows, dtype
    if X.device != Y.device:
        raise ValueError(f"X is on {X.device}, but Y is on {Y.device}; move one of them")
    if promoted(Y) != dtype:
        raise TypeError(f"X has dtype {X.dtype}, but Y has {Y.dtype}; convert one of them")
    return rows, Y.to(compute), dtype


Lowered: TypeAlias = tuple[tuple[Step, ...], tuple[int, ...], torch.dtype, str]


def lower_metric(X: Any, Y: Any, metric: Any, options: dict[str, Any]) -> Lowered:
    """Steps, shape, dtype and name of a bound metric."""
    if isinstance(metric, CustomComparison):
        if options:
            raise TypeError(f"option {sorted(options)[0]!r} was given with a comparison; a comparison holds its own parameters")
        rows_of, columns_of = _collected(metric, X, "X"), None if Y is None or Y is X else _collected(metric, Y, "Y")
        return _compared(metric, rows_of, columns_of)
    if not isinstance(metric, str):
        hint = "; wrap a function with tp.make_pairwise" if callable(metric) else ""
        raise TypeError(f"metric is {describe(metric)}; expected a name of tp.metrics() or a comparison of tp.make_pairwise{hint}")
    rows, columns, dtype = bind_features(X, Y)
    info = metric_info(metric)
    if rows.shape[-1] != columns.shape[-1]:
        raise ValueError(f"X has {rows.shape[-1]} features and Y has {columns.shape[-1]}; both need the same D")
    return _named(info, rows, columns, dtype, options), _shape(rows, columns), dtype, info.name


def _collected(comparison: CustomComparison, samples: Any, name: str) -> Collection:
    return samples if isinstance(samples, Collection) else collect(samples, comparison.sample_ndim, name, 1)


def _compared(comparison: CustomComparison, x: Collection, y: Collection | None) -> Lowered:
    rows, columns, dtype, evaluated = bind_collections(comparison, x, y)
    step = Step("custom", (rows, columns, *comparison.operands(), *anchor(evaluated, rows.device)), (), evaluated)
    return (step,), _shape(rows, columns), dtype, comparison.name


def _shape(rows: Tensor, columns: Tensor) -> tuple[int, ...]:
    return (*broadcast_batch(rows.shape[:-2], columns.shape[:-2], "Y"), rows.shape[-2], columns.shape[-2])


def _named(info: MetricInfo, rows: Tensor, columns: Tensor, dtype: torch.dtype, options: dict[str, Any]) -> tuple[Step, ...]:
    values = _parameters(info, options, rows, dtype)
    gamma = values.get("gamma")
    scaled = info.transform == "normalize" or (isinstance(gamma, Tensor) and gamma.dim() == 1)
    if isinstance(gamma, Tensor) and gamma.dim() == 1:
        rows, columns = _scale_features(info, rows, columns, gamma)
        values["gamma"] = 1.0
    if info.transform == "normalize":
        same = rows is columns
        rows, zero_rows = _normalize(rows)
        columns, zero_columns = (rows, zero_rows) if same else _normalize(columns)
        values.update(zero_rows=zero_rows, zero_columns=zero_columns)
    steps = [Step(info.source, (rows, columns), scaled=scaled)]
    for text in info.program.split("; ") if info.program else []:
        word, *arguments = text.split(" ")
        tensors: list[Tensor] = []
        numbers: list[float] = []
        for argument in arguments:
            value = _value(argument, values)
            if isinstance(value, Tensor):
                tensors.append(value)
            else:
                numbers.append(value)
        steps.append(Step(word, tuple(tensors), tuple(numbers)))
    return tuple(steps)


def _value(argument: str, values: dict[str, Any]) -> Any:
    """An argument of a program: a parameter, a parameter with a minus sign, or a number."""
    name = argument.removeprefix("-")
    if name not in values:
        return float(argument)
    return -values[name] if argument.startswith("-") else values[name]


def check_options(info: MetricInfo, options: dict[str, Any]) -> bool:
    """Raises TypeError for an option that the metric does not have; returns whether it has a width, gamma or lengthscale."""
    accepted = [parameter.name for parameter in info.parameters]
    has_width = any(parameter.name == "gamma" and parameter.meaning.startswith("width") for parameter in info.parameters)
    for option in options:
        if option not in accepted and not (has_width and option == "lengthscale"):
            known = ", ".join([*accepted, *(["lengthscale"] if has_width else [])]) or "no options"
            raise TypeError(f"metric {info.name!r} has no option {option!r}; it takes {known}")
    return has_width


def _parameters(info: MetricInfo, options: dict[str, Any], features: Tensor, dtype: torch.dtype) -> dict[str, Any]:
    """Numbers, 0-dim tensors, or a vector gamma, by name; defaults where nothing was given."""
    has_width = check_options(info, options)
    given = {name: value for name, value in options.items() if value is not None}
    if "lengthscale" in given:
        if "gamma" in given:
            raise ValueError("gamma and lengthscale were both given; gamma = 1 / (2 lengthscale^2), give one")
        lengthscale = _parameter("lengthscale", given.pop("lengthscale"), True, features, dtype)
        if not isinstance(lengthscale, Tensor) and lengthscale == 0:
            raise ValueError("lengthscale is 0; expected a number > 0")
        given["gamma"] = 0.5 / lengthscale**2
    n_features = max(1, features.shape[-1])
    values: dict[str, Any] = {}
    for parameter in info.parameters:
        default = 1.0 / n_features if parameter.value == "1/D" else float(parameter.value)
        vector = has_width and parameter.name == "gamma"
        values[parameter.name] = _parameter(parameter.name, given.get(parameter.name, default), vector, features, dtype)
    return values


def _parameter(name: str, value: Any, may_be_vector: bool, features: Tensor, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor) and name == "degree":
        raise TypeError("degree is a tensor; expected a number")
    n_features = features.shape[-1]
    if not isinstance(value, Tensor) or value.dim() == 0 or (value.dim() == 1 and value.shape[0] == 1):
        return as_scalar(value, name, features)
    if may_be_vector and value.dim() == 1 and value.shape[0] == n_features:
        return matching(value, name, features, dtype)
    vector = f" or a vector [{n_features}]" if may_be_vector else ""
    raise ValueError(f"{name} has shape {list(value.shape)}; expected a number, a 0-dim tensor{vector}")


def _scale_features(info: MetricInfo, rows: Tensor, columns: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    """One width a feature: scaled features, with gradient 0 where a width is 0. A negative width gives NaN.

    The features are moved to the middle of the columns first: scaling rounds them, and far from the origin that would cost digits of the
    differences.
    """
    factor = gamma
    if info.source == "sqeuclidean":
        zero = gamma == 0
        factor = torch.where(zero, 0.0, torch.where(zero, 1.0, gamma).sqrt())
    same = rows is columns
    check_device(gamma, "gamma", rows)
    middle = _middle(columns)
    rows = (rows - middle) * factor
    return rows, rows if same else (columns - middle) * factor


def _middle(x: Tensor) -> Tensor:
    """The mean of the finite entries of each feature, as a constant."""
    features = x.detach().flatten(0, -2)
    finite = features.isfinite()
    return torch.where(finite, features, 0.0).sum(0) / finite.sum(0).clamp(min=1)


def _normalize(x: Tensor) -> tuple[Tensor, Tensor]:
    """Unit rows whatever their scale, zero rows staying zero; and the vector that is 1/2 at zero rows."""
    largest = x.detach().abs().amax(-1, keepdim=True) if x.shape[-1] > 0 else x.new_zeros((*x.shape[:-1], 1))
    zero = largest == 0
    scaled = x / torch.where(zero, 1.0, largest)
    norm = torch.where(zero, 1.0, scaled.square().sum(-1, keepdim=True)).sqrt()
    return torch.where(zero, 0.0, scaled / norm), zero.squeeze(-1).to(x.dtype) * 0.5
