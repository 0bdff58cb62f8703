"""`tp.lazy` and `PairwiseExpression`: an immutable description of a score matrix that is never stored."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchpairwise._lowering import lower_metric
from torchpairwise.consume import Consumers
from torchpairwise.masks import MaskStep, PairMask

__all__ = ["PairwiseExpression", "lazy"]

# A value step: its word, its tensors, its numbers.
Step = tuple[str, tuple[Tensor, ...], tuple[float, ...]]


# Torch functions that an operator between a tensor and an expression arrives as: the method for (expression, tensor) and the one for
# (tensor, expression).
_ARITHMETIC = {
    "add": ("__add__", "__radd__"),
    "__add__": ("__add__", "__radd__"),
    "__radd__": ("__radd__", "__add__"),
    "sub": ("__sub__", "__rsub__"),
    "__sub__": ("__sub__", "__rsub__"),
    "rsub": ("__rsub__", "__sub__"),
    "__rsub__": ("__rsub__", "__sub__"),
    "mul": ("__mul__", "__rmul__"),
    "__mul__": ("__mul__", "__rmul__"),
    "__rmul__": ("__rmul__", "__mul__"),
    "div": ("__truediv__", "__rtruediv__"),
    "true_divide": ("__truediv__", "__rtruediv__"),
    "__truediv__": ("__truediv__", "__rtruediv__"),
    "__rtruediv__": ("__rtruediv__", "__truediv__"),
    "__rdiv__": ("__rtruediv__", "__truediv__"),
}


class PairwiseExpression(Consumers):
    """A lazy [..., N, M] matrix of pair scores: sources, elementwise steps and masks. Made by `tp.lazy`; every method returns a new one.

    Nodes change scores (``+ - * /``, `exp`, `add_rows`, ...), consumers reduce them (`sum`, `logsumexp`, `softmax_matmul`, ...). The matrix
    is evaluated in tiles by each consumer and never stored; gradients evaluate the tiles again.
    """

    __slots__ = ("_batch", "_choices", "_dtype", "_masks", "_metric", "_shape", "_steps", "_transposed")

    def __init__(
        self,
        steps: Sequence[Step],
        masks: Sequence[MaskStep],
        shape: Sequence[int],
        dtype: torch.dtype,
        metric: str,
        choices: str = "",
        transposed: bool = False,
    ) -> None:
        self._steps, self._masks, self._shape = tuple(steps), tuple(masks), tuple(shape)
        self._dtype, self._metric, self._choices, self._transposed = dtype, metric, choices, transposed

    # Facts

    @property
    def shape(self) -> torch.Size:
        """[..., N, M]."""
        batch, n, m = self._shape[:-2], self._shape[-2], self._shape[-1]
        return torch.Size((*batch, m, n) if self._transposed else (*batch, n, m))

    @property
    def ndim(self) -> int:
        """Number of dimensions of the matrix."""
        return len(self._shape)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of results."""
        return self._dtype

    @property
    def device(self) -> torch.device:
        """The device of all operands."""
        return self._steps[0][1][0].device

    @property
    def metric(self) -> str:
        """The metric that the expression started from."""
        return self._metric

    @property
    def requires_grad(self) -> bool:
        """True if any operand requires a gradient."""
        return any(t.requires_grad for _, tensors, _ in self._steps for t in tensors)

    @property
    def mT(self) -> PairwiseExpression:
        """The transposed matrix: rows and columns exchanged."""
        return self._replace(transposed=not self._transposed)

    T = mT

    def __repr__(self) -> str:
        operands, program, constants = self._lower()
        for index, value in sorted(enumerate(constants), reverse=True):
            program = program.replace(f"#{index}", f"{value:g}")
        transposed = ", transposed" if self._transposed else ""
        return f"PairwiseExpression({list(self.shape)}, {self.dtype}, {program!r}, {len(operands)} tensors{transposed})"

    # Nodes

    def add_rows(self, vector: Tensor) -> PairwiseExpression:
        """``s_ij + r_i``; `vector` [..., N]."""
        return self._vector("rows", "add", vector)

    def add_columns(self, vector: Tensor) -> PairwiseExpression:
        """``s_ij + c_j``; `vector` [..., M]."""
        return self._vector("columns", "add", vector)

    def weight_rows(self, vector: Tensor) -> PairwiseExpression:
        """``s_ij r_i``; `vector` [..., N]."""
        return self._vector("rows", "weight", vector)

    def weight_columns(self, vector: Tensor) -> PairwiseExpression:
        """``s_ij c_j``; `vector` [..., M]."""
        return self._vector("columns", "weight", vector)

    def exp(self) -> PairwiseExpression:
        """``exp(s_ij)``."""
        return self._node("exp")

    def log(self) -> PairwiseExpression:
        """``log(s_ij)``; after `exp` the two cancel, so that the logarithm of a kernel does not underflow."""
        name, _, _ = self._steps[-1]
        return self._replace(steps=self._steps[:-1]) if name == "exp" else self._node("log")

    def log1p(self) -> PairwiseExpression:
        """``log(1 + s_ij)``."""
        return self._node("log1p")

    def sqrt(self) -> PairwiseExpression:
        """``sqrt(s_ij)``, with derivative 0 at 0."""
        return self._node("sqrt")

    def square(self) -> PairwiseExpression:
        """``s_ij^2``."""
        return self._node("square")

    def abs(self) -> PairwiseExpression:
        """``|s_ij|``, with derivative 0 at 0."""
        return self._node("abs")

    def reciprocal(self) -> PairwiseExpression:
        """``1 / s_ij``."""
        return self._node("reciprocal")

    def tanh(self) -> PairwiseExpression:
        """``tanh(s_ij)``."""
        return self._node("tanh")

    def pow(self, exponent: float) -> PairwiseExpression:
        """``s_ij^exponent``; the exponent is a number."""
        if isinstance(exponent, Tensor) or not isinstance(exponent, numbers.Real):
            raise TypeError(f"pow(exponent) got {type(exponent).__name__}; expected a number")
        return self._node("pow", (), (float(exponent),))

    def minimum(self, value: float | Tensor) -> PairwiseExpression:
        """``min(s_ij, value)``; ties get half of the gradient each."""
        return self._scalar("minimum", value)

    def maximum(self, value: float | Tensor) -> PairwiseExpression:
        """``max(s_ij, value)``; ties get half of the gradient each."""
        return self._scalar("maximum", value)

    def clamp(self, min: float | None = None, max: float | None = None) -> PairwiseExpression:
        """``min(max(s_ij, min), max)``; the gradient passes on the closed interval, as in torch."""
        if min is None and max is None:
            raise ValueError("clamp() got neither min nor max; give at least one")
        limits = (float("-inf") if min is None else float(min), float("inf") if max is None else float(max))
        return self._node("clamp", (), limits)

    def masked(self, mask: PairMask) -> PairwiseExpression:
        """Keeps the pairs for which `mask` (of `tp.masks`) is True; the others are absent from every result."""
        if not isinstance(mask, PairMask):
            raise TypeError(
                f"mask is {type(mask).__name__}; expected a pair mask of tp.masks (a dense [N, M] mask would have to be stored), "
                f"or boolean vectors through mask_rows and mask_columns"
            )
        steps = mask.steps if not self._transposed else _transpose_masks(mask.steps)
        return self._replace(masks=_both(self._masks, steps))

    def mask_rows(self, keep: Tensor) -> PairwiseExpression:
        """Keeps the rows where `keep` (bool [..., N]) is True."""
        return self._flags("columns" if self._transposed else "rows", keep, "mask_rows", self.shape[-2])

    def mask_columns(self, keep: Tensor) -> PairwiseExpression:
        """Keeps the columns where `keep` (bool [..., M]) is True."""
        return self._flags("rows" if self._transposed else "columns", keep, "mask_columns", self.shape[-1])

    def detach(self) -> PairwiseExpression:
        """The same scores without gradients."""
        return self._map(lambda t: t.detach())

    def to(self, device: torch.device | str) -> PairwiseExpression:
        """The same scores with all operands on `device`."""
        return self._map(lambda t: t.to(device))

    def __neg__(self) -> PairwiseExpression:
        return self._scalar("scale", -1.0)

    def __add__(self, other: Any) -> PairwiseExpression:
        return self._join("add", other) if isinstance(other, PairwiseExpression) else self._shift(other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> PairwiseExpression:
        return self + (-other)

    def __rsub__(self, other: Any) -> PairwiseExpression:
        return -self + other

    def __mul__(self, other: Any) -> PairwiseExpression:
        return self._join("multiply", other) if isinstance(other, PairwiseExpression) else self._scalar("scale", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> PairwiseExpression:
        if isinstance(other, PairwiseExpression):
            return self._join("multiply", other.reciprocal())
        return self._scalar("scale", other.reciprocal() if isinstance(other, Tensor) else 1.0 / other)

    def __rtruediv__(self, other: Any) -> PairwiseExpression:
        return self.reciprocal() * other

    def __pow__(self, exponent: float) -> PairwiseExpression:
        return self.pow(exponent)

    def __bool__(self) -> bool:
        raise TypeError("a lazy score matrix has no truth value; reduce it first, for example with S.max(-1)")

    def __len__(self) -> int:
        raise TypeError("len() of a lazy score matrix; use S.shape")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a lazy score matrix is not converted to an array; call S.dense() to store all N * M values")

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.__name__
        if len(args) == 2 and not kwargs and name in _ARITHMETIC:
            forward, reflected = _ARITHMETIC[name]
            if isinstance(args[0], PairwiseExpression):
                return getattr(args[0], forward)(args[1])
            return getattr(args[1], reflected)(args[0])
        raise TypeError(
            f"torch.{name} does not take a lazy score matrix; use its methods: nodes such as S.exp() and S * 2, then a consumer such as "
            f"S.sum(-1), S.logsumexp(-1), S.softmax_matmul(V), S.topk(k), or S.dense() to store all N * M values"
        )

    # Making new expressions

    def _replace(self, **changes: Any) -> PairwiseExpression:
        fields = {name: getattr(self, "_" + name) for name in ("steps", "masks", "shape", "dtype", "metric", "choices", "transposed")}
        fields.update(changes)
        return PairwiseExpression(**fields)

    def _node(self, name: str, tensors: tuple[Tensor, ...] = (), constants: tuple[float, ...] = ()) -> PairwiseExpression:
        return self._replace(steps=(*self._steps, (name, tensors, constants)))

    def _map(self, change: Any) -> PairwiseExpression:
        steps = [(name, tuple(change(t) for t in tensors), numbers_) for name, tensors, numbers_ in self._steps]
        masks = [(name, tuple(change(t) for t in tensors), numbers_) for name, tensors, numbers_ in self._masks]
        return self._replace(steps=steps, masks=masks)

    def _operand(self, tensor: Tensor, name: str) -> Tensor:
        first = self._steps[0][1][0]
        if tensor.device != first.device:
            raise ValueError(f"{name} is on {tensor.device}, but X is on {first.device}; move one of them")
        if tensor.dtype != self._dtype:
            raise TypeError(f"{name} has dtype {tensor.dtype}, but X has {self._dtype}; convert one of them")
        return tensor.to(first.dtype)

    def _scalar(self, name: str, value: Any) -> PairwiseExpression:
        if isinstance(value, Tensor):
            if value.numel() != 1 or value.dim() > 1:
                raise ValueError(
                    f"a tensor of shape {list(value.shape)} cannot {name} the scores; expected a number or a 0-dim tensor. Use add_rows, "
                    f"add_columns, weight_rows or weight_columns for vectors"
                )
            # A 0-dim tensor never promotes.
            return self._node(name, (value.reshape(()).to(self._steps[0][1][0]),))
        return self._node(name, (), (float(value),))

    def _shift(self, other: Any) -> PairwiseExpression:
        if isinstance(other, Tensor) and other.dim() >= 2:
            n, m = self.shape[-2:]
            if other.shape[-1] == 1 and other.shape[-2] == n:
                return self.add_rows(other.squeeze(-1))
            if other.shape[-2] == 1 and other.shape[-1] == m:
                return self.add_columns(other.squeeze(-2))
            raise ValueError(
                f"a tensor of shape {list(other.shape)} cannot be added to scores {list(self.shape)}; expected [N, 1] or [1, M], or use "
                f"add_rows and add_columns. A dense [N, M] bias would have to be stored; add a lazy expression instead"
            )
        return self._scalar("shift", other)

    def _vector(self, side: str, verb: str, vector: Tensor) -> PairwiseExpression:
        size = self.shape[-2] if side == "rows" else self.shape[-1]
        label = f"{verb}_{side}(vector)"
        if not isinstance(vector, Tensor) or vector.dim() == 0 or vector.shape[-1] != size:
            given = list(vector.shape) if isinstance(vector, Tensor) else type(vector).__name__
            raise ValueError(f"{label} got {given}; expected a tensor [..., {size}] for scores {list(self.shape)}")
        side = side if not self._transposed else ("columns" if side == "rows" else "rows")
        vector = self._operand(vector, label)
        return self._node(f"{verb}_{side}", (vector,))._widen(vector.shape[:-1])

    def _widen(self, batch: Sequence[int]) -> PairwiseExpression:
        if len(batch) == 0:
            return self
        return self._replace(shape=(*torch.broadcast_shapes(self._shape[:-2], batch), *self._shape[-2:]))

    def _flags(self, side: str, keep: Tensor, label: str, size: int) -> PairwiseExpression:
        if not isinstance(keep, Tensor) or keep.dtype != torch.bool or keep.dim() == 0 or keep.shape[-1] != size:
            given = f"{keep.dtype} {list(keep.shape)}" if isinstance(keep, Tensor) else type(keep).__name__
            raise ValueError(f"{label}(keep) got {given}; expected a boolean tensor [..., {size}], True = keep")
        step: MaskStep = (side, (keep,), ())
        return self._replace(masks=_both(self._masks, (step,)))._widen(keep.shape[:-1])

    def _join(self, name: str, other: PairwiseExpression) -> PairwiseExpression:
        if self.shape[-2:] != other.shape[-2:]:
            raise ValueError(
                f"scores {list(self.shape)} and {list(other.shape)} differ in rows or columns; both sides need the same [N, M]"
            )
        if self._transposed != other._transposed:
            raise ValueError("a transposed and an untransposed expression cannot be joined; transpose the result instead")
        if self.dtype != other.dtype or self.device != other.device:
            raise TypeError(f"scores of {self.dtype} on {self.device} and of {other.dtype} on {other.device} cannot be joined")
        masks = self._masks if not other._masks else _both(self._masks, other._masks)
        joined = self._replace(steps=(*self._steps, *other._steps, (name, (), ())), masks=masks)
        return joined._widen(other._shape[:-2])

    def _lower(self, extra: Sequence[MaskStep] = ()) -> tuple[list[Tensor], str, list[float]]:
        """Operands, program text and constants of the native call; a tensor that is used twice is one operand."""
        operands: list[Tensor] = []
        constants: list[float] = []
        masks = self._masks if not extra else _both(self._masks, extra)
        parts = ["; ".join(_word(step, operands, constants) for step in steps) for steps in (self._steps, masks) if steps]
        text = " | ".join(parts)
        return operands, f"{self._choices}: {text}" if self._choices else text, constants


def _word(step: Step, operands: list[Tensor], constants: list[float]) -> str:
    name, tensors, values = step
    words = [name]
    for tensor in tensors:
        slot = next((n for n, operand in enumerate(operands) if operand is tensor), len(operands))
        if slot == len(operands):
            operands.append(tensor)
        words.append(str(slot))
    for value in values:
        words.append(f"#{len(constants)}")
        constants.append(value)
    return " ".join(words)


def _both(first: Sequence[MaskStep], second: Sequence[MaskStep]) -> tuple[MaskStep, ...]:
    return (*first, *second, ("and", (), ())) if first else tuple(second)


def _transpose_masks(steps: Sequence[MaskStep]) -> tuple[MaskStep, ...]:
    out: list[MaskStep] = []
    for name, tensors, values in steps:
        if name == "same_group":
            out.append((name, (tensors[1], tensors[0]), values))
        elif name == "band":
            out.append((name, tensors, (values[1], values[0])))
        elif name == "causal":
            raise ValueError("a causal mask on a transposed expression; mask the expression before it is transposed")
        else:
            out.append((name, tensors, values))
    return tuple(out)


def lazy(
    X: Any,
    Y: Any = None,
    metric: Any = "sqeuclidean",
    *,
    chunk_size: int | None = None,
    precision: str | None = None,
    backend: str = "auto",
    **options: Any,
) -> PairwiseExpression:
    """Describes the matrix of scores ``metric(X_i, Y_j)`` without computing it.

    Arguments:
        X: rows [..., N, D].
        Y: columns [..., M, D]; None compares X with itself. Batch dimensions broadcast.
        metric: a name of `tp.metrics()`, or a comparison of `tp.make_pairwise`.
        chunk_size: limit for the rows and columns of a tile on the tensor path; None lets the plan choose.
        precision: None, or "fast" to allow the plain expansion of squared distances, without its rescue.
        backend: "auto", "native" (an error with reasons where it cannot run) or "tiles".
        options: parameters of the metric. `gamma=` or `lengthscale=` (gamma = 1 / (2 lengthscale^2)) may be a number, a 0-dim tensor, or
            a vector [D] (ARD); all may require gradients.

    Returns:
        A `PairwiseExpression` [..., N, M].

    Raises:
        ValueError: unknown metric, shapes that do not fit, operands on different devices.
        TypeError: dtypes that differ, complex inputs, an option that the metric does not have.

    Memory is that of the inputs. float16 and bfloat16 are computed in float32; integers become the default dtype.

    Example:
        >>> import torch, torchpairwise as tp
        >>> tp.lazy(torch.tensor([[0.0], [1.0]]), torch.tensor([[3.0]])).sum(-1)
        tensor([9., 4.])
    """
    if backend not in ("auto", "native", "tiles"):
        raise ValueError(f"backend={backend!r}; expected 'auto', 'native' or 'tiles'")
    if precision not in (None, "fast"):
        raise ValueError(f"precision={precision!r}; expected None or 'fast'")
    if chunk_size is not None and (isinstance(chunk_size, bool) or not isinstance(chunk_size, int) or chunk_size < 1):
        raise ValueError(f"chunk_size={chunk_size!r}; expected a positive integer or None")
    words = [backend] if backend != "auto" else []
    words += [f"chunk={chunk_size}"] if chunk_size is not None else []
    words += ["fast"] if precision == "fast" else []
    steps, shape, dtype, name = lower_metric(X, Y, metric, options)
    return PairwiseExpression(steps, (), shape, dtype, name, " ".join(words))
