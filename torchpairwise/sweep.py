"""`sweep`: several consumers of both sides of a matrix in one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from torchpairwise._checks import describe
from torchpairwise._registry import CONSUMERS, did_you_mean
from torchpairwise.consume import Selection, SoftmaxOutput
from torchpairwise.expression import PairwiseExpression

__all__ = ["sweep"]

# Names that are parts of another consumer's results.
_INDICES_OF = {"argmin": "min", "argmax": "max"}
_NAMES = ["sum", "mean", "logsumexp", "matmul", "softmax_matmul", "min", "max", "topk", *_INDICES_OF]
_DEFAULTS = {"k": None, "largest": True, "values": None, "return_aux": False}


def sweep(S: PairwiseExpression, rows: Sequence[Any] = (), columns: Sequence[Any] = (), *, exclude_self: bool = False) -> list[Any]:
    """Evaluates each pair once for any number of consumers, of rows and of columns.

    Arguments:
        S: a lazy expression [*batch, N, M].
        rows: consumers with dim=-1. An item is a name (sum, mean, logsumexp, matmul, softmax_matmul, min, max, argmin, argmax, topk) or a
            pair of a name and a dict of its arguments, such as ``("topk", {"k": 5})`` or ``("matmul", {"values": V})``.
        columns: consumers with dim=-2, likewise.
        exclude_self: leave out the pairs i == j.

    Returns:
        A list with what each consumer returns, rows first: those of ``S.NAME(dim=-1)`` and ``S.NAME(dim=-2)``.

    Raises:
        ValueError: an unknown consumer, nothing to do, k out of range, values that do not fit.
        TypeError: not an expression, an item of another form, an unknown argument.

    Notes:
        Where the native kernels do not run, each consumer takes a pass of its own. Backward takes one pass for each consumer.
        Memory: inputs and outputs, and the states of all rows and columns (topk: about 32 k bytes each).

    Example:
        >>> import torch, torchpairwise as tp
        >>> S = tp.lazy(torch.tensor([[0.0], [3.0]]), torch.tensor([[1.0], [2.0], [5.0]]), "manhattan")
        >>> nearest_column, nearest_row = tp.sweep(S, rows=["min"], columns=["min"])
        >>> nearest_column.values, nearest_row.values
        (tensor([1., 1.]), tensor([1., 1., 2.]))
    """
    if not isinstance(S, PairwiseExpression):
        raise TypeError(f"S is {describe(S)}; expected an expression of tp.lazy")
    items = [(*_item(item, S, -1, exclude_self), -1) for item in rows] + [(*_item(item, S, -2, exclude_self), -2) for item in columns]
    if not items:
        raise ValueError("sweep() got no consumers; give rows=[...] or columns=[...]")
    names = [_INDICES_OF.get(name, name) for name, _, _ in items]
    for name, (_, options, axis) in zip(names, items, strict=True):
        letter, size = ("M", S.shape[-1]) if axis == -1 else ("N", S.shape[-2])
        if CONSUMERS[name].empty == "" and size == 0 and options["k"] != 0:
            raise ValueError(f"{name} over an empty axis: {letter} (dim={axis}) is 0 in scores {list(S.shape)}")
    operands, program, constants = S._lower(S._extra_masks(exclude_self))
    results = torch.ops.torchpairwise.sweep(
        operands,
        program,
        constants,
        names,
        [S._native_dim(axis) for _, _, axis in items],
        [options["values"] for _, options, _ in items],
        [options["k"] or 0 for _, options, _ in items],
        [options["largest"] for _, options, _ in items],
    )
    out: list[Any] = []
    place = 0
    for name, options, _ in items:
        n_results = len(CONSUMERS[_INDICES_OF.get(name, name)].results.split())
        out.append(_returned(name, options, [S._cast(x) for x in results[place : place + n_results]]))
        place += n_results
    return out


def _item(item: Any, S: PairwiseExpression, axis: int, exclude_self: bool) -> tuple[str, dict[str, Any]]:
    """Name and complete arguments of a consumer; `vector` says that its values were a vector."""
    name, given = (item, {}) if isinstance(item, str) else item if isinstance(item, tuple) and len(item) == 2 else (None, {})
    if not isinstance(name, str) or not isinstance(given, Mapping):
        raise TypeError(f"sweep item {item!r}; expected a name or (name, {{arguments}}) such as ('topk', {{'k': 5}})")
    if name not in _NAMES:
        raise ValueError(f"sweep has no consumer {name!r}.{did_you_mean(name, _NAMES)} It takes {', '.join(_NAMES)}")
    allowed = {"topk": ("k", "largest"), "matmul": ("values",), "softmax_matmul": ("values", "return_aux")}.get(name, ())
    for key in given:
        if key not in allowed:
            raise TypeError(f"sweep: {name} has no argument {key!r}; it takes {', '.join(allowed) or 'none'}")
    options = {**_DEFAULTS, **given, "vector": False}
    if "values" in allowed:
        values = options["values"]
        options["vector"] = name == "matmul" and isinstance(values, Tensor) and values.dim() == 1
        options["values"] = S._checked_values(values.unsqueeze(-1) if options["vector"] else values, axis, name == "matmul")
    if name == "topk":
        S._check_k(options["k"], axis, exclude_self)
    return name, options


def _returned(name: str, options: dict[str, Any], results: list[Tensor]) -> Any:
    if name in _INDICES_OF:
        return results[1]
    if name in ("min", "max", "topk"):
        return Selection(*results)
    if name == "softmax_matmul" and options["return_aux"]:
        return SoftmaxOutput(results[0], results[1])
    return results[0].squeeze(-1) if options["vector"] else results[0]
