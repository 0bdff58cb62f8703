"""From the arguments of `tp.lazy` to the steps of a program, by the metric's record."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchpairwise._registry import MetricInfo, metric_info
from torchpairwise.pairwise import CustomComparison

__all__ = ["bind_features", "lower_metric"]


def bind_features(X: Any, Y: Any) -> tuple[Tensor, Tensor, torch.dtype]:
    """Checks two feature collections; returns them in the dtype of the computation, and the dtype of results."""
    for name, value in (("X", X), ("Y", Y)):
        if value is None and name == "Y":
            continue
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} is {type(value).__name__}; expected a torch.Tensor [..., rows, features]")
        if value.is_complex():
            raise TypeError(f"{name} has dtype {value.dtype}; complex features are not supported")
        if value.dim() < 2:
            raise ValueError(f"{name} has shape {list(value.shape)}; expected [..., rows, features]")
    if Y is not None:
        if X.device != Y.device:
            raise ValueError(f"X is on {X.device}, but Y is on {Y.device}; move one of them")
        if X.dtype != Y.dtype:
            raise TypeError(f"X has dtype {X.dtype}, but Y has {Y.dtype}; convert one of them")
    dtype = X.dtype if X.is_floating_point() else torch.get_default_dtype()
    compute = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    rows = X.to(compute)
    return rows, rows if Y is None or Y is X else Y.to(compute), dtype


def lower_metric(X: Any, Y: Any, metric: Any, options: dict[str, Any]) -> tuple[Any, tuple[int, ...], torch.dtype, str]:
    """Steps, shape, dtype and name of a bound metric."""
    rows, columns, dtype = bind_features(X, Y)
    if isinstance(metric, CustomComparison):
        if options:
            raise TypeError(f"options {sorted(options)} belong to named metrics; a comparison holds its own")
        steps: list[Any] = [(f"custom {metric.key}", (rows, columns, *metric.operands()), ())]
        name = metric.name
    else:
        if not isinstance(metric, str):
            raise TypeError(f"metric is {type(metric).__name__}; expected a name or a comparison of tp.make_pairwise")
        info = metric_info(metric)
        if rows.shape[-1] != columns.shape[-1]:
            raise ValueError(f"X has {rows.shape[-1]} features and Y has {columns.shape[-1]}; both need the same D")
        steps, name = _named(info, rows, columns, dict(options)), info.name
    batch = torch.broadcast_shapes(rows.shape[:-2], columns.shape[:-2])
    return steps, (*batch, rows.shape[-2], columns.shape[-2]), dtype, name


def _named(info: MetricInfo, rows: Tensor, columns: Tensor, options: dict[str, Any]) -> list[Any]:
    values = _parameters(info, options, rows)
    gamma = values.get("gamma")
    if isinstance(gamma, Tensor) and gamma.dim() == 1 and gamma.numel() > 1:
        rows, columns = _scale_features(info, rows, columns, gamma)
        values["gamma"] = 1.0
    if info.transform == "normalize":
        same = rows is columns
        rows, zero_rows = _normalize(rows)
        columns, zero_columns = (rows, zero_rows) if same else _normalize(columns)
        values.update(zero_rows=zero_rows, zero_columns=zero_columns)
    steps: list[Any] = [(info.source, (rows, columns), ())]
    for text in info.program.split("; ") if info.program else []:
        name, *arguments = text.split(" ")
        tensors: list[Tensor] = []
        constants: list[float] = []
        for argument in arguments:
            value = _value(argument, values)
            (tensors if isinstance(value, Tensor) else constants).append(value)
        steps.append((name, tuple(tensors), tuple(constants)))
    return steps


def _value(argument: str, values: dict[str, Any]) -> Any:
    name = argument.removeprefix("-")
    if name not in values:
        return float(argument)
    return -values[name] if argument.startswith("-") else values[name]


def _parameters(info: MetricInfo, options: dict[str, Any], features: Tensor) -> dict[str, Any]:
    accepted = [p.name for p in info.parameters]
    width = "gamma" in accepted and info.parameters[0].meaning.startswith("width")
    if width and options.get("lengthscale") is not None:
        if options.get("gamma") is not None:
            raise ValueError("gamma and lengthscale were both given; gamma = 1 / (2 lengthscale^2), give one")
        lengthscale = options.pop("lengthscale")
        options["gamma"] = 0.5 / lengthscale**2
    options.pop("lengthscale", None) if width else None
    unknown = sorted(set(options) - set(accepted))
    if unknown:
        known = ", ".join([*accepted, *(["lengthscale"] if width else [])]) or "no options"
        raise TypeError(f"metric {info.name!r} has no option {unknown[0]!r}; it takes {known}")
    n_features = max(1, features.shape[-1])
    values: dict[str, Any] = {}
    for parameter in info.parameters:
        value = options.get(parameter.name)
        if value is None:
            value = 1.0 / n_features if parameter.value == "1/D" else float(parameter.value)
        values[parameter.name] = _number(value, parameter.name, features)
    return values


def _number(value: Any, name: str, features: Tensor) -> Any:
    if not isinstance(value, Tensor):
        return float(value)
    if name == "degree":
        raise TypeError("degree is a tensor; expected a number")
    if value.numel() == 1 and value.dim() <= 1:
        return value.reshape(()).to(features)
    if name == "gamma" and value.dim() == 1 and value.shape[0] == features.shape[-1]:
        return value.to(features)
    raise ValueError(f"{name} has shape {list(value.shape)}; expected a number, a 0-dim tensor or a vector [{features.shape[-1]}]")


def _scale_features(info: MetricInfo, rows: Tensor, columns: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    """One width a feature: scaled features, with gradient 0 where a width is 0."""
    if info.source == "linear":
        raise ValueError(f"gamma is a vector; metric {info.name!r} takes one number")
    factor = gamma
    if info.source == "sqeuclidean":
        positive = gamma > 0
        factor = torch.where(positive, torch.where(positive, gamma, 1.0).sqrt(), 0.0)
    same = rows is columns
    rows = rows * factor
    return rows, rows if same else columns * factor


def _normalize(x: Tensor) -> tuple[Tensor, Tensor]:
    """Unit rows whatever their scale, zero rows staying zero; and the vector that is 1/2 at zero rows."""
    largest = x.detach().abs().amax(-1, keepdim=True) if x.shape[-1] > 0 else x.new_zeros((*x.shape[:-1], 1))
    zero = largest == 0
    scaled = x / torch.where(zero, 1.0, largest)
    norm = torch.where(zero, 1.0, scaled.square().sum(-1, keepdim=True)).sqrt()
    return torch.where(zero, 0.0, scaled / norm), zero.squeeze(-1).to(x.dtype) * 0.5
