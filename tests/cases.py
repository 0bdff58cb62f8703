"""The table of tests. A row of `EXPRESSIONS` is evaluated by the library, by the oracle and by plain torch, with the inputs of `CASES`,
under the rules of `MASKS`, and reduced by the `CONSUMERS`. Values, gradients and invariances are tested for every row.

A new metric, node, join, mask rule or consumer is one new row here, and its definition in `oracles.py` and `plain.py`.
"""

from __future__ import annotations

import operator
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import oracles
import plain
import torch

import torchpairwise as tp

# Inputs


@dataclass(frozen=True)
class Case:
    """Sizes, batch shapes of X and Y, kind of numbers, memory layout."""

    name: str
    n: int
    m: int
    d: int
    x_batch: tuple[int, ...] = ()
    y_batch: tuple[int, ...] = ()
    numbers: str = "normal"  # normal, grid (small whole numbers: ties, zeros, equal rows), zeros, equal (rows of X in Y), offset
    layout: str = "contiguous"  # contiguous, transposed, sliced, shifted (storage offset), expanded (one row, stride 0)

    def operands(self, n_values: int = 5) -> dict[str, np.ndarray]:
        """Every operand that a row may use, in float64 numbers that float32 holds exactly."""
        generator = np.random.default_rng(zlib.crc32(self.name.encode()))
        x, y, n, m = self.x_batch, self.y_batch, self.n, self.m
        X, Y = (self._features(generator, shape) for shape in ((*x, n, self.d), (*y, m, self.d)))
        if self.numbers == "equal":
            Y[..., : min(n, m) : 2, :] = X.reshape(-1, n, self.d)[0, : min(n, m) : 2]
        out: dict[str, np.ndarray] = {"X": X, "Y": Y}
        shapes = {
            **{"X2": (*x, n, 3), "Y2": (*y, m, 3), "V": (*y, m, n_values), "U": (*x, n, n_values)},
            **{"rows": (*x, n), "columns": (*y, m), "scalar": (), "shift": ()},
        }
        out |= {name: generator.normal(size=shape) for name, shape in shapes.items()}
        out |= {"gamma": np.array(0.3), "widths": generator.uniform(0.1, 0.6, max(1, self.d))}
        return {name: np.asarray(value, np.float32).astype(np.float64) for name, value in out.items()}

    def labels(self) -> dict[str, np.ndarray]:
        """Operands of masks."""
        n, m = self.n, self.m
        return {
            **{"row_labels": np.arange(n) % 3, "column_labels": np.arange(m) // 4 % 4},
            **{"row_flags": np.arange(n) % 4 != 1, "column_flags": np.arange(m) % 5 != 2},
            **{"batch_flags": (np.arange(2)[:, None] + np.arange(m)) % 3 != 0, "no_flags": np.zeros(m, bool)},
        }

    def _features(self, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        if self.numbers == "grid":
            X = generator.integers(-1, 2, shape).astype(float)
        elif self.numbers == "zeros":
            X = np.zeros(shape)
        else:
            X = generator.normal(size=shape) + (30.0 if self.numbers == "offset" else 0.0)
        return np.broadcast_to(X[..., :1, :], shape).copy() if self.layout == "expanded" else X

    def tensor(self, values: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
        """The numbers in the memory layout of the case."""
        x = torch.tensor(values, dtype=dtype)
        return arranged(x, self.layout) if x.dim() >= 2 else x

    def tensors(self, dtype: torch.dtype, **kinds: int) -> SimpleNamespace:
        """All operands as tensors: floating ones of `dtype`, labels and flags."""
        floating = {name: self.tensor(value, dtype) for name, value in self.operands(**kinds).items()}
        return SimpleNamespace(**floating, **{name: torch.tensor(value) for name, value in self.labels().items()})

    def arrays(self, **kinds: int) -> SimpleNamespace:
        return SimpleNamespace(**self.operands(**kinds), **self.labels())


def arranged(x: torch.Tensor, layout: str) -> torch.Tensor:
    """Equal numbers with other strides; differentiable."""
    if layout == "transposed":
        return x.mT.contiguous().mT
    if layout == "sliced":
        wide = torch.nn.functional.pad(x.repeat_interleave(2, -1).repeat_interleave(2, -2), (1, 1, 1, 1))
        return wide[..., 1:-1:2, 1:-1:2]
    if layout == "shifted":
        return torch.nn.functional.pad(x.flatten(), (3, 0))[3:].view(x.shape)
    if layout == "expanded" and x.shape[-2] > 0 and bool((x == x[..., :1, :]).all()):
        return x[..., :1, :].expand(x.shape)
    return x


CASES = [
    Case("one pair", 1, 1, 1),
    Case("one row", 1, 70, 3),
    Case("one column", 70, 1, 2),
    Case("one feature", 14, 19, 1),
    Case("odd sizes", 13, 37, 5),
    Case("zeros", 6, 7, 3, numbers="zeros"),
    Case("equal rows", 16, 18, 4, numbers="equal"),
    Case("ties and zeros", 20, 33, 2, numbers="grid"),
    Case("difference form limit", 25, 40, 16),
    Case("gram form", 25, 70, 17),
    Case("gram form, ties", 30, 45, 33, numbers="grid"),
    Case("gram form, equal rows", 30, 45, 20, numbers="equal"),
    Case("offset", 14, 30, 20, numbers="offset"),
    Case("several tiles", 40, 1100, 8),
    Case("batch", 9, 11, 4, (3,), (3,)),
    Case("broadcast batch", 9, 11, 4, (2, 1), (3,)),
    Case("transposed memory", 13, 17, 6, layout="transposed"),
    Case("sliced memory", 13, 17, 20, (2,), (), layout="sliced"),
    Case("storage offset", 13, 17, 6, layout="shifted"),
    Case("expanded rows", 13, 17, 6, layout="expanded"),
]
SMALL_CASES = [case for case in CASES if case.name in ("one pair", "odd sizes", "ties and zeros", "broadcast batch")]

# Expressions

Scores = Any


@dataclass(frozen=True)
class Algebra:
    """Something that evaluates expressions: the library, the oracle, plain torch."""

    metric: Callable[..., Scores]
    node: Callable[..., Scores]
    join: Callable[[str, Scores, Scores], Scores]


# Nodes and joins of the registry that are operators or have other names.
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    **{"scale": operator.mul, "multiply": operator.mul, "shift": operator.add, "add": operator.add},
    **{"greater": operator.gt, "greater_equal": operator.ge, "less": operator.lt, "less_equal": operator.le},
    **{"equal": lambda S, T: S.eq(T), "not_equal": lambda S, T: S.ne(T)},
    **{"minimum": lambda S, T: S.minimum(T), "maximum": lambda S, T: S.maximum(T)},
}


def library(**choices: Any) -> Algebra:
    """The library, with `backend=`, `chunk_size=`, `precision=`."""

    def metric(name: str, X: Any, Y: Any, **options: Any) -> tp.PairwiseExpression:
        return tp.lazy(X, Y, name, **choices, **options)

    def node(name: str, S: Any, *arguments: Any) -> tp.PairwiseExpression:
        return OPERATORS[name](S, *arguments) if name in OPERATORS else getattr(S, name)(*arguments)

    def join(name: str, S: Any, T: Any) -> tp.PairwiseExpression:
        return OPERATORS[name.removesuffix("_of")](S, T)

    return Algebra(metric, node, join)


def tables(module: Any) -> Algebra:
    return Algebra(
        lambda name, X, Y, **options: module.METRICS[name](X, Y, **options),
        lambda name, S, *arguments: module.NODES[name](S, *arguments),
        lambda name, S, T: module.JOINS[name](S, T),
    )


ORACLE, PLAIN = tables(oracles), tables(plain)
Build = Callable[[Algebra, Any], Scores]


@dataclass(frozen=True)
class Expression:
    """`record`: the name in the registry that the row stands for. Words among the arguments are names of operands.

    `factor`: error allowed, in multiples of that of plain torch. `orders`: derivatives that are compared with finite differences.
    `exact`: whole numbers give exact scores, so that ties are ties in every dtype. `cancels`: a score may be the small difference of
    numbers of size 1 and more, and its rounding is theirs.
    """

    record: str
    build: Build
    label: str = ""
    factor: float = 8.0
    orders: int = 2
    exact: bool = False
    cancels: bool = False

    @property
    def name(self) -> str:
        return self.label or self.record


def _given(arguments: Any, operands: Any) -> Any:
    pick = lambda x: getattr(operands, x) if isinstance(x, str) else x  # noqa: E731
    if isinstance(arguments, Mapping):
        return {name: pick(x) for name, x in arguments.items()}
    return [pick(x) for x in arguments]


def metric(name: str, X: str = "X", Y: str = "Y", **options: Any) -> Build:
    return lambda a, o: a.metric(name, getattr(o, X), getattr(o, Y), **_given(options, o))


def node(name: str, build: Build, *arguments: Any) -> Build:
    return lambda a, o: a.node(name, build(a, o), *_given(arguments, o))


def join(name: str, first: Build, second: Build) -> Build:
    return lambda a, o: a.join(name, first(a, o), second(a, o))


METRICS = [
    Expression("linear", metric("linear"), exact=True),
    # The product form of squared distances may lose a few bits that the difference form keeps: decided bound 1e-5.
    Expression("sqeuclidean", metric("sqeuclidean"), factor=40, exact=True),
    Expression("euclidean", metric("euclidean"), factor=40, exact=True),
    Expression("manhattan", metric("manhattan"), exact=True, orders=1),
    Expression("rbf", metric("rbf"), factor=20),
    Expression("rbf", metric("rbf", gamma="gamma"), "rbf, learned width", factor=20),
    Expression("rbf", metric("rbf", gamma="widths"), "rbf, a width a feature", factor=20),
    Expression("laplacian", metric("laplacian", gamma=0.3), orders=1),
    Expression("laplacian", metric("laplacian", gamma="widths"), "laplacian, a width a feature", orders=1),
    Expression("cosine_similarity", metric("cosine_similarity")),
    Expression("cosine_distances", metric("cosine_distances"), factor=20),
    Expression("polynomial", metric("polynomial")),
    Expression("polynomial", metric("polynomial", gamma="gamma", coef0="shift", degree=2), "polynomial, learned"),
    Expression("sigmoid", metric("sigmoid", gamma=0.2, coef0=-0.5)),
    Expression("sigmoid", metric("sigmoid", gamma="gamma", coef0="shift"), "sigmoid, learned"),
]

_ANY, _POSITIVE = node("scale", metric("linear"), 0.5), node("shift", metric("sqeuclidean"), 0.25)

NODES = [
    Expression("scale", node("scale", metric("linear"), -1.5), exact=True),
    Expression("scale", node("scale", metric("manhattan"), "scalar"), "scale, learned", orders=1),
    Expression("shift", node("shift", metric("linear"), 2.0), exact=True),
    Expression("shift", node("shift", metric("rbf"), "scalar"), "shift, learned", factor=20),
    Expression("add_rows", node("add_rows", _ANY, "rows")),
    Expression("add_columns", node("add_columns", _ANY, "columns")),
    Expression("weight_rows", node("weight_rows", _ANY, "rows")),
    Expression("weight_columns", node("weight_columns", _ANY, "columns")),
    Expression("exp", node("exp", _ANY)),
    Expression("log", node("log", _POSITIVE)),
    Expression("log", node("log", metric("rbf")), "log of rbf", factor=20),
    Expression("log1p", node("log1p", _POSITIVE)),
    Expression("sqrt", node("sqrt", _POSITIVE)),
    Expression("square", node("square", _ANY)),
    Expression("pow", node("pow", _ANY, 3.0), "pow 3"),
    Expression("pow", node("pow", _POSITIVE, 1.5), "pow 1.5"),
    Expression("pow", node("pow", _POSITIVE, -0.5), "pow -0.5"),
    Expression("abs", node("abs", _ANY), orders=1),
    Expression("reciprocal", node("reciprocal", _POSITIVE)),
    Expression("tanh", node("tanh", _ANY)),
    Expression("rsqrt", node("rsqrt", _POSITIVE)),
    Expression("sin", node("sin", _ANY)),
    Expression("cos", node("cos", _ANY)),
    Expression("sigmoid", node("sigmoid", _ANY)),
    Expression("softplus", node("softplus", _ANY)),
    Expression("relu", node("relu", _ANY), orders=1),
    Expression("greater", node("greater", _ANY, 0.3123), orders=1),
    Expression("greater_equal", node("greater_equal", metric("linear"), 1.0), orders=1, exact=True),
    Expression("less", node("less", _ANY, "scalar"), "less, a tensor", orders=1),
    Expression("less_equal", node("less_equal", metric("linear"), 1.0), orders=1, exact=True),
    Expression("equal", node("equal", metric("linear"), 1.0), orders=1, exact=True),
    Expression("not_equal", node("not_equal", metric("linear"), 1.0), orders=1, exact=True),
    Expression("minimum", node("minimum", _ANY, 0.3), orders=1),
    Expression("minimum", node("minimum", _ANY, "scalar"), "minimum, learned", orders=1),
    Expression("maximum", node("maximum", _ANY, 0.3), orders=1),
    Expression("maximum", node("maximum", _ANY, "scalar"), "maximum, learned", orders=1),
    Expression("clamp", node("clamp", _ANY, -0.4, 0.6), orders=1),
]

_OTHER = metric("linear", X="X2", Y="Y2")

JOINS = [
    Expression("add", join("add", metric("rbf", gamma="gamma"), _OTHER), "sum of two sources", factor=20, cancels=True),
    Expression("multiply", join("multiply", metric("rbf"), node("shift", _OTHER, "shift")), "product of two sources", factor=20),
    Expression("multiply", join("multiply", _ANY, node("reciprocal", _POSITIVE)), "quotient"),
    Expression("minimum_of", join("minimum_of", _ANY, _OTHER), orders=1),
    Expression("maximum_of", join("maximum_of", metric("sqeuclidean"), _OTHER), orders=1, factor=40),
    Expression("greater_of", join("greater_of", _ANY, _OTHER), orders=1),
    Expression("greater_equal_of", join("greater_equal_of", metric("linear"), _OTHER), orders=1, exact=True),
    Expression("equal_of", join("equal_of", metric("linear"), metric("linear")), orders=1, exact=True),
    Expression("not_equal_of", join("not_equal_of", _ANY, _OTHER), orders=1),
    Expression(
        "add",
        join("add", join("multiply", metric("laplacian"), metric("rbf", X="X2", Y="Y2")), node("weight_rows", _ANY, "rows")),
        "product plus weighted",
        factor=20,
        orders=1,
    ),
]

EXPRESSIONS = METRICS + NODES + JOINS

# Masks


@dataclass(frozen=True)
class Mask:
    """`records`: the rules that it uses. `apply` masks an expression, `keep` is the same by the oracles' rules."""

    name: str
    records: tuple[str, ...]
    apply: Callable[[Any, Any], Any]
    keep: Callable[[int, int, Any], np.ndarray]


def _same(o: Any) -> Any:
    return tp.masks.same_group(o.row_labels, o.column_labels)


_rule = oracles.MASKS

MASKS = [
    Mask("causal", ("causal",), lambda S, o: S.masked(tp.masks.causal()), lambda n, m, o: _rule["causal"](n, m)),
    Mask(
        "causal, upper left",
        ("causal",),
        lambda S, o: S.masked(tp.masks.causal(align="upper_left")),
        lambda n, m, o: _rule["causal"](n, m, 0.0),
    ),
    Mask("band", ("band",), lambda S, o: S.masked(tp.masks.band(1, 3)), lambda n, m, o: _rule["band"](n, m, 1, 3)),
    Mask("half band", ("band",), lambda S, o: S.masked(tp.masks.band(lower=2)), lambda n, m, o: _rule["band"](n, m, 2, np.inf)),
    Mask(
        "same group",
        ("same_group",),
        lambda S, o: S.masked(_same(o)),
        lambda n, m, o: _rule["same_group"](n, m, o.row_labels, o.column_labels),
    ),
    Mask("rows", ("rows",), lambda S, o: S.mask_rows(o.row_flags), lambda n, m, o: _rule["rows"](n, m, o.row_flags)),
    Mask("columns", ("columns",), lambda S, o: S.mask_columns(o.column_flags), lambda n, m, o: _rule["columns"](n, m, o.column_flags)),
    Mask("nothing kept", ("columns",), lambda S, o: S.mask_columns(o.no_flags), lambda n, m, o: _rule["columns"](n, m, o.no_flags)),
    Mask(
        "flags with a batch",
        ("columns",),
        lambda S, o: S.mask_columns(o.batch_flags[:, None]),
        lambda n, m, o: _rule["columns"](n, m, o.batch_flags[:, None]),
    ),
    Mask(
        "rules together",
        ("causal", "same_group", "band", "rows"),
        lambda S, o: S.masked(tp.masks.causal() & ~_same(o) | tp.masks.band(0, 0)).mask_rows(o.row_flags),
        lambda n, m, o: (
            (_rule["causal"](n, m) & ~_rule["same_group"](n, m, o.row_labels, o.column_labels) | _rule["band"](n, m, 0, 0))
            & _rule["rows"](n, m, o.row_flags)
        ),
    ),
]

# Consumers

BOTH = (-1, -2, (-2, -1))


@dataclass(frozen=True)
class Consumer:
    """A method of an expression. `results` are the names of what it returns; `dims` is empty where the method has no `dim`."""

    record: str
    method: str
    results: tuple[str, ...]
    dims: tuple[Any, ...] = BOTH
    options: dict[str, Any] = field(default_factory=dict)
    values: bool = False
    orders: int = 2  # of derivatives

    @property
    def name(self) -> str:
        over = " over both axes" if self.dims == ((-2, -1),) else ""
        return self.method + "".join(f" {key}={value}" for key, value in self.options.items()) + over

    @property
    def is_selection(self) -> bool:
        return "indices" in self.results

    def run(self, S: Any, o: Any, dim: Any = -1, **options: Any) -> dict[str, torch.Tensor]:
        """By the library."""
        arguments: list[Any] = [(o.V if dim == -1 else o.U)] if self.values else []
        kept = self._options(S.shape, dim) | ({"return_aux": True} if len(self.results) == 2 and self.values else {})
        result = getattr(S, self.method)(*arguments, **kept, **({"dim": dim} if self.dims else {}), **options)
        return dict(zip(self.results, result if isinstance(result, tuple) else (result,), strict=True))

    def expected(self, module: Any, S: Any, keep: Any, o: Any, dim: Any = -1) -> dict[str, Any]:
        """By `oracles` or `plain`: scores and `keep` are stored matrices of the same shape."""
        if self.dims and dim != -1:
            S, keep = ((x.swapaxes(-1, -2) if dim == -2 else x.reshape(*x.shape[:-2], -1)) for x in (S, keep))
        arguments = [(o.V if dim == -1 else o.U)] if self.values else []
        result = module.CONSUMERS[self.record](S, keep, *arguments, **self._options(S.shape, -1))
        if self.record == "softmax_matmul":
            result = (result, module.CONSUMERS["logsumexp"](S, keep))
        elif isinstance(result, tuple):
            result = dict(zip(("values", "indices"), result, strict=True))
            result = tuple(result[name] for name in self.results)
        return dict(zip(self.results, result if isinstance(result, tuple) else (result,), strict=True))

    def _options(self, shape: Any, dim: Any) -> dict[str, Any]:
        return dict(self.options, k=min(self.options["k"], shape[dim])) if "k" in self.options else self.options


CONSUMERS = [
    Consumer("sum", "sum", ("sum",)),
    Consumer("mean", "mean", ("mean",)),
    Consumer("logsumexp", "logsumexp", ("logsumexp",)),
    Consumer("matmul", "matmul", ("product",), (-1, -2), values=True),
    Consumer("softmax_matmul", "softmax_matmul", ("output", "logsumexp"), (-1, -2), values=True),
    Consumer("min", "min", ("values", "indices"), (-1, -2), orders=1),
    Consumer("max", "max", ("values", "indices"), (-1, -2), orders=1),
    Consumer("min", "min", ("values",), ((-2, -1),), orders=1),
    Consumer("max", "max", ("values",), ((-2, -1),), orders=1),
    Consumer("min", "argmin", ("indices",), (-1, -2), orders=0),
    Consumer("max", "argmax", ("indices",), (-1, -2), orders=0),
    Consumer("topk", "topk", ("values", "indices"), (-1, -2), {"k": 4, "largest": False}, orders=1),
    Consumer("topk", "topk", ("values", "indices"), (-1, -2), {"k": 7, "largest": True}, orders=1),
    Consumer("diagonal", "diagonal", ("diagonal",), ()),
    Consumer("dense", "dense", ("scores",), ()),
]


def named(row: Any) -> str:
    return row.name
