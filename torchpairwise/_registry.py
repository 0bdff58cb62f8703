"""The registry of the native library as records, read once: metrics, steps, masks and consumers, with lookup by name and alias."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torchpairwise import _native

__all__ = [
    "CONSUMERS",
    "JOINS",
    "MASKS",
    "NODES",
    "SOURCES",
    "TABLES",
    "ConsumerInfo",
    "JoinInfo",
    "MaskInfo",
    "MetricInfo",
    "NodeInfo",
    "ParameterInfo",
    "SourceInfo",
    "TableInfo",
    "did_you_mean",
    "metric_info",
    "metrics",
]


@dataclass(frozen=True)
class ParameterInfo:
    """A parameter of a metric: its name, its default (a number, ``1/D``, or empty where it must be given) and what it means."""

    name: str
    value: str
    meaning: str


@dataclass(frozen=True)
class MetricInfo:
    """A metric as the native library records it; the fields of what `tp.metrics` lists.

    Arguments:
        name: what `tp.lazy` takes.
        aliases: other names for it.
        kind: "similarity", "distance" or "kernel".
        transform: what happens to each row first, "none" or "normalize".
        source: raw score that the program starts from.
        program: steps after the source, with parameters by name.
        parameters: the options that `tp.lazy` takes, as records with `name`, `value` (the default) and `meaning`.
        symmetric: score(x, y) equals score(y, x).
        zero_diagonal: score(x, x) is exactly 0.
        formula: the definition.

    Example:
        >>> import torchpairwise as tp
        >>> info = tp.metric_info("euclidean")
        >>> info.kind, info.zero_diagonal
        ('distance', True)
    """

    name: str
    aliases: tuple[str, ...]
    kind: str
    transform: str
    source: str
    program: str
    parameters: tuple[ParameterInfo, ...]
    symmetric: bool
    zero_diagonal: bool
    formula: str


@dataclass(frozen=True)
class SourceInfo:
    """A raw score of two feature vectors."""

    name: str
    formula: str
    form: str
    symmetric: bool
    zero_diagonal: bool


@dataclass(frozen=True)
class NodeInfo:
    """An elementwise step; `transposed` is the step that does the same to the transposed matrix."""

    name: str
    signature: str
    transposed: str
    formula: str


@dataclass(frozen=True)
class JoinInfo:
    """A step that makes one score of two."""

    name: str
    formula: str


@dataclass(frozen=True)
class MaskInfo:
    """A rule over pairs."""

    name: str
    signature: str
    formula: str


@dataclass(frozen=True)
class TableInfo:
    """A score that is looked up by the places of row and column."""

    name: str
    signature: str
    formula: str


@dataclass(frozen=True)
class ConsumerInfo:
    """A streamed reduction; `fused`: native kernels run it; `inputs`: the names of its arguments after operands, program and constants."""

    name: str
    formula: str
    arguments: str
    returns: str
    results: str
    saved: str
    takes_values: bool
    differentiable: bool
    empty: str
    fused: bool
    inputs: tuple[str, ...]


def _table(kind: type[Any], section: str) -> dict[str, Any]:
    return {row["name"]: kind(**row) for row in _native.describe()[section]}


def _read_consumers() -> dict[str, ConsumerInfo]:
    table = {}
    for row in _native.describe()["consumers"]:
        inputs = tuple(argument.split(" ")[-1] for argument in row["arguments"].split(", ") if argument)
        table[row["name"]] = ConsumerInfo(**row, inputs=inputs)
    return table


def _read_metrics() -> dict[str, MetricInfo]:
    table = {}
    for row in _native.describe()["metrics"]:
        parameters = tuple(ParameterInfo(**parameter) for parameter in row["parameters"])
        info = MetricInfo(**dict(row, aliases=tuple(row["aliases"]), parameters=parameters))
        for name in (info.name, *info.aliases):
            table[name] = info
    return table


SOURCES: dict[str, SourceInfo] = _table(SourceInfo, "sources")
NODES: dict[str, NodeInfo] = _table(NodeInfo, "nodes")
JOINS: dict[str, JoinInfo] = _table(JoinInfo, "joins")
MASKS: dict[str, MaskInfo] = _table(MaskInfo, "masks")
TABLES: dict[str, TableInfo] = _table(TableInfo, "tables")
CONSUMERS: dict[str, ConsumerInfo] = _read_consumers()
_METRICS = _read_metrics()


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """A sentence that names what is spelled like `name`, with a space before it; empty if nothing is."""
    near = difflib.get_close_matches(str(name), known, n=3)
    return f" Did you mean {' or '.join(repr(x) for x in near)}?" if near else ""


def metrics() -> list[MetricInfo]:
    """All metrics that `tp.lazy` takes.

    Returns:
        Records `MetricInfo`, in the order of the registry.

    Example:
        >>> import torchpairwise as tp
        >>> [info.name for info in tp.metrics()][:3]
        ['linear', 'sqeuclidean', 'euclidean']
        >>> [info.name for info in tp.metrics() if info.kind == "distance"][-1]
        'cosine_distances'
    """
    return list({info.name: info for info in _METRICS.values()}.values())


def metric_info(name: str) -> MetricInfo:
    """The record of a metric.

    Arguments:
        name: a name or an alias.

    Raises:
        ValueError: there is no such metric; the message names the nearest ones.

    Example:
        >>> import torchpairwise as tp
        >>> tp.metric_info("gaussian").name
        'rbf'
        >>> tp.metric_info("rbf").formula
        'exp(-gamma |x - y|^2)'
    """
    if name in _METRICS:
        return _METRICS[name]
    listed = ", ".join(info.name for info in metrics())
    raise ValueError(f"metric={name!r} is unknown.{did_you_mean(name, _METRICS)} tp.metrics() lists all: {listed}")
