"""Writes the tables of the reference from the registry of the native library, and the lists of public names."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torchpairwise as tp
from torchpairwise import _native

Record = dict[str, Any]

_NODE_ARGUMENTS = {"s": "number or 0-dim tensor", "#": "number", "r": "row vector [N]", "c": "column vector [M]"}
_MASK_ARGUMENTS = {"#": "number", "R": "row labels [N]", "C": "column labels [M]", "r": "row flags [N]", "c": "column flags [M]"}
_TABLE_ARGUMENTS = {"t": "table [T]", "R": "places of rows", "C": "places of columns", "I": "indices [N, M]", "#": "number"}
_SIZES = {"N": "[N]", "NC": "[N, C]", "Nk": "[N, k]", "P": "[min(N, M)]", "NM": "[N, M]"}
TABLES = ("sources.md", "metrics.md", "parameters.md", "nodes.md", "masks.md", "lookups.md", "consumers.md")
# Where the Python call that states a mask rule has another name than the rule.
_MASK_CALLS = {
    "rows": "`S.mask_rows(a)`",
    "columns": "`S.mask_columns(a)`",
    "off_diagonal": "`exclude_self=True`",
    "between": "`S[rows]`, `S[:, columns]` of a band or causal mask",
    "first_rows": "`tp.masks.prefix(a)` of a transposed matrix",
    "first_columns": "`tp.masks.prefix(a)`",
}
# Steps that are written as operators; the others are methods.
_OPERATORS = {
    **{"scale": "S * a", "shift": "S + a", "add": "S + T", "multiply": "S * T"},
    **{"greater": "S > a", "greater_equal": "S >= a", "less": "S < a", "less_equal": "S <= a", "equal": "S.eq(a)", "not_equal": "S.ne(a)"},
    **{"greater_of": "S > T", "greater_equal_of": "S >= T", "equal_of": "S.eq(T)", "not_equal_of": "S.ne(T)"},
    **{"minimum_of": "S.minimum(T)", "maximum_of": "S.maximum(T)"},
}
# The Python calls that make a table step.
_TABLE_CALLS = {
    "relative": "`S.bias_table(t, tp.masks.relative_position(m))`, `S.where(mask, number)`",
    "diagonals": "`tp.eye_like(S)`",
    "lookup": "`S.bias_table(t, I)`",
}
_PACKAGES = (
    "torchpairwise.masks",
    "torchpairwise.attention",
    "torchpairwise.contrastive",
    "torchpairwise.learned",
    "torchpairwise.neighbors",
    "torchpairwise.optimize",
    "torchpairwise.statistics",
    "torchpairwise.transport",
)


def _code(text: str) -> str:
    return f"`{text}`".replace("|", r"\|") if text else ""


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    header = list(header)
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _arguments(signature: str, words: dict[str, str]) -> str:
    letters = "abcde"
    return ", ".join(f"`{letters[n]}`: {words[letter]}" for n, letter in enumerate(signature)) or "none"


def _metric(record: Record) -> list[str]:
    parameters = ", ".join(_code(p["name"] + (f"={p['value']}" if p["value"] else "")) for p in record["parameters"])
    aliases = ", ".join(_code(alias) for alias in record["aliases"])
    return [_code(record["name"]), aliases, record["kind"], _code(record["formula"]), parameters]


def _parameters(metrics: Iterable[Record]) -> list[list[str]]:
    """One row for each parameter and meaning, with the metrics that have it."""
    metrics_of: dict[tuple[str, str], list[str]] = {}
    for record in metrics:
        for parameter in record["parameters"]:
            metrics_of.setdefault((parameter["name"], parameter["meaning"]), []).append(record["name"])
    return [[_code(name), ", ".join(map(_code, names)), meaning] for (name, meaning), names in metrics_of.items()]


def _node(record: Record) -> list[str]:
    call = f"S.{record['name']}({', '.join('ab'[: len(record['signature'])])})"
    written = _OPERATORS.get(record["name"], call)
    return [_code(written), _code(record["formula"]), _arguments(record["signature"], _NODE_ARGUMENTS)]


def _consumer(record: Record) -> list[str]:
    results = []
    for word in record["results"].split():
        note = " int64" if word[-1] in "#%" else (" without gradient" if word.endswith("!") else "")
        results.append(_SIZES[word.rstrip("#!%")] + note)
    path = "native kernels" if record["fused"] else "tiles of tensors"
    return [_code(record["name"]), _code(record["formula"]), "; ".join(results), record["empty"] or "raises", path]


def _mask(record: Record) -> list[str]:
    call = _MASK_CALLS.get(record["name"], _code(f"tp.masks.{record['name']}"))
    return [call, _code(record["formula"]), _arguments(record["signature"], _MASK_ARGUMENTS)]


def _lookup(record: Record) -> list[str]:
    return [_TABLE_CALLS[record["name"]], _code(record["formula"]), _arguments(record["signature"], _TABLE_ARGUMENTS)]


def tables(registry: dict[str, list[Record]]) -> dict[str, str]:
    """Return the text of each of TABLES by file name."""
    joins = [[_code(_OPERATORS[r["name"]]), _code(r["formula"]), "`t`: score of another expression"] for r in registry["joins"]]
    sources = [[_code(r["name"]), _code(r["formula"]), r["form"]] for r in registry["sources"]]
    return {
        "sources.md": _table(["source", "score", "evaluated as"], sources),
        "metrics.md": _table(["metric", "aliases", "kind", "formula", "parameters"], map(_metric, registry["metrics"])),
        "parameters.md": _table(["parameter", "of", "meaning"], _parameters(registry["metrics"])),
        "nodes.md": _table(["written as", "score", "arguments"], [*map(_node, registry["nodes"]), *joins]),
        "masks.md": _table(["written as", "keeps the pair (i, j) if", "arguments"], map(_mask, registry["masks"])),
        "lookups.md": _table(["written as", "score", "arguments"], map(_lookup, registry["tables"])),
        "consumers.md": _table(["consumer", "formula", "results", "over nothing", "on the CPU"], map(_consumer, registry["consumers"])),
    }


def _autosummary(names: Iterable[str]) -> str:
    listed = "\n".join(f"   {name}" for name in names)
    return f"```{{eval-rst}}\n.. autosummary::\n   :toctree: api\n   :nosignatures:\n\n{listed}\n```\n"


def public_names() -> str:
    """Return lists of the public names of the package and of its domains, from their ``__all__``."""
    own = [name for name in tp.__all__ if callable(getattr(tp, name)) and not inspect.ismodule(getattr(tp, name))]
    parts = ["# Public names\n", "## torchpairwise\n", _autosummary(f"torchpairwise.{name}" for name in own)]
    for package in _PACKAGES:
        module = importlib.import_module(package)
        names = [name for name in module.__all__ if callable(getattr(module, name))]
        parts += [f"## {package}\n", _autosummary(f"{package}.{name}" for name in names)]
    return "\n".join(parts)


def _write(path: Path, text: str) -> None:
    """Write only what changed, so that Sphinx reads only what changed."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def write_all(folder: Path) -> None:
    """Write all tables and lists into ``folder``."""
    for name, text in tables(_native.describe()).items():
        _write(folder / name, text)
    _write(folder / "names.md", public_names())
