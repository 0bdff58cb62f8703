"""The immutable fields of an expression, and how they become the arguments of a native call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchpairwise._steps import Step, both_masks, lower

if TYPE_CHECKING:
    from torchpairwise.expression import PairwiseExpression

__all__ = ["Description"]

_FIELDS = ("steps", "masks", "shape", "dtype", "metric", "choices", "transposed")


class Description:
    """What `Steps` and `Consumers` are written on; `PairwiseExpression` is the class that is made.

    Steps and masks are kept as they were bound; `transposed` says that the matrix is meant with rows and columns exchanged, so that
    transposing works for every source.
    """

    __slots__ = tuple("_" + name for name in _FIELDS)

    _steps: tuple[Step, ...]
    _masks: tuple[Step, ...]
    _shape: tuple[int, ...]  # before transposition
    _dtype: torch.dtype
    _metric: str
    _choices: str  # the words before the colon of the program: path, chunk size, precision
    _transposed: bool

    def __init__(
        self,
        steps: Sequence[Step],
        masks: Sequence[Step],
        shape: Sequence[int],
        dtype: torch.dtype,
        metric: str,
        choices: str = "",
        transposed: bool = False,
    ) -> None:
        self._steps, self._masks, self._shape = tuple(steps), tuple(masks), tuple(shape)
        self._dtype, self._metric, self._choices, self._transposed = dtype, metric, choices, transposed

    @property
    def shape(self) -> torch.Size:
        """[*batch, N, M]."""
        batch, n, m = self._shape[:-2], self._shape[-2], self._shape[-1]
        return torch.Size((*batch, m, n) if self._transposed else (*batch, n, m))

    @property
    def ndim(self) -> int:
        """Number of dimensions of the matrix."""
        return len(self._shape)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of results. float16 and bfloat16 are computed in float32."""
        return self._dtype

    @property
    def device(self) -> torch.device:
        """The device of all operands."""
        return self._features.device

    @property
    def metric(self) -> str:
        """The metric that the expression started from."""
        return self._metric

    @property
    def requires_grad(self) -> bool:
        """True if any operand requires a gradient."""
        return any(t.requires_grad for step in self._steps for t in step.tensors)

    @property
    def _features(self) -> Tensor:
        """The first operand; its dtype is that of the computation."""
        return self._steps[0].tensors[0]

    def _replace(self, **changes: Any) -> PairwiseExpression:
        fields = {name: getattr(self, "_" + name) for name in _FIELDS}
        fields.update(changes)
        return type(self)(**fields)  # type: ignore[return-value]

    def _lower(self, extra: Sequence[Step] = ()) -> tuple[list[Tensor], str, list[float]]:
        """Operands, program and constants of the native call, with more mask steps."""
        operands, text, constants = lower(self._steps, both_masks(self._masks, extra))
        return operands, f"{self._choices}: {text}" if self._choices else text, constants

    def _native_dim(self, axis: int) -> int:
        """The dim of the native call for the axis -1 or -2 of this matrix."""
        return -3 - axis if self._transposed else axis
