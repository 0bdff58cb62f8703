"""The registry of the native library as records: metrics, nodes, masks and consumers, with lookup by name and alias."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from torchpairwise import _native

__all__ = ["MetricInfo", "Parameter", "metric_info", "metrics"]


@dataclass(frozen=True)
class Parameter:
    """A parameter of a metric: its name, its default (a number, ``1/D``, or empty where it must be given) and what it means."""

    name: str
    value: str
    meaning: str


@dataclass(frozen=True)
class MetricInfo:
    """A metric: row transform, source and program, parameters, and what is known about it."""

    name: str
    aliases: tuple[str, ...]
    kind: str
    transform: str
    source: str
    program: str
    parameters: tuple[Parameter, ...]
    symmetric: bool
    zero_diagonal: bool
    formula: str


def _read() -> dict[str, MetricInfo]:
    table: dict[str, MetricInfo] = {}
    for row in _native.describe()["metrics"]:
        fields = dict(row, aliases=tuple(row["aliases"]), parameters=tuple(Parameter(**p) for p in row["parameters"]))
        info = MetricInfo(**fields)
        for name in (info.name, *info.aliases):
            table[name] = info
    return table


_METRICS = _read()


def metrics() -> list[MetricInfo]:
    """All metrics that ``tp.lazy`` takes, as records, in the order of the registry.

    Example:
        >>> import torchpairwise as tp
        >>> [info.name for info in tp.metrics()][:3]
        ['linear', 'sqeuclidean', 'euclidean']
    """
    return list({info.name: info for info in _METRICS.values()}.values())


def metric_info(name: str) -> MetricInfo:
    """The record of a metric, by name or alias.

    Raises:
        ValueError: There is no such metric; the message names the nearest ones.

    Example:
        >>> import torchpairwise as tp
        >>> tp.metric_info("gaussian").formula
        'exp(-gamma |x - y|^2)'
    """
    if name in _METRICS:
        return _METRICS[name]
    near = difflib.get_close_matches(str(name), _METRICS, n=3)
    hint = f" Did you mean {' or '.join(repr(x) for x in near)}?" if near else ""
    raise ValueError(f"metric={name!r} is unknown.{hint} tp.metrics() lists all: {', '.join(x.name for x in metrics())}")
