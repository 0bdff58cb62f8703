"""Checks of what a caller gives, with messages that say what was given, what was expected and what to do."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["as_number", "as_scalar", "broadcast_batch", "check_device", "describe", "matching", "promoted"]


def describe(value: Any) -> str:
    """What was given, for a message: shape and dtype of a tensor, the type of anything else."""
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)} of {value.dtype}"
    return f"{type(value).__name__} {value!r}" if isinstance(value, (str, bytes, numbers.Number)) else type(value).__name__


def as_number(value: Any, name: str, expected: str = "a number") -> float:
    """A number as float; strings, arrays and complex numbers are refused."""
    if isinstance(value, (numbers.Real, torch.SymInt, torch.SymFloat)):
        return float(value)
    raise TypeError(f"{name} is {describe(value)}; expected {expected}")


def as_scalar(value: Any, name: str, like: Tensor) -> Tensor | float:
    """A number, or a tensor of one element as a 0-dim operand in the dtype of `like`; neither ever promotes."""
    if not isinstance(value, Tensor):
        return as_number(value, name, "a number or a 0-dim tensor")
    if value.is_complex():
        raise TypeError(f"{name} has dtype {value.dtype}; complex numbers are not supported")
    if value.dim() > 1 or (value.dim() == 1 and value.shape[0] != 1):
        raise ValueError(
            f"{name} has shape {list(value.shape)}; expected a number or a 0-dim tensor. Use add_rows, add_columns, weight_rows or "
            f"weight_columns for vectors"
        )
    if value.device.type != "cpu":
        check_device(value, name, like)
    return (value if value.dim() == 0 else value.squeeze(0)).to(like)


def check_device(value: Tensor, name: str, like: Tensor) -> None:
    """Raises if two tensors are on different devices."""
    if value.device != like.device:
        raise ValueError(f"{name} is on {value.device}, but X is on {like.device}; move one of them")


def promoted(value: Tensor) -> torch.dtype:
    """The floating dtype that a tensor stands for: integers and booleans become the default dtype."""
    return value.dtype if value.is_floating_point() else torch.get_default_dtype()


def matching(value: Tensor, name: str, like: Tensor, dtype: torch.dtype) -> Tensor:
    """A tensor operand of an expression of `dtype`, in the dtype of the computation, which is that of `like`."""
    check_device(value, name, like)
    if value.is_complex():
        raise TypeError(f"{name} has dtype {value.dtype}; complex numbers are not supported")
    if promoted(value) != dtype:
        raise TypeError(f"{name} has dtype {value.dtype}, but X has {dtype}; convert one of them")
    return value.to(like.dtype)


def broadcast_batch(have: Sequence[int], added: Sequence[int], name: str) -> tuple[int, ...]:
    """The batch dimensions of both; an error names the operand that does not fit."""
    if len(added) == 0:
        return tuple(have)
    if len(have) == 0:
        return tuple(added)
    try:
        return tuple(torch.broadcast_shapes(tuple(have), tuple(added)))
    except RuntimeError:
        raise ValueError(
            f"{name} has batch dimensions {list(added)}, which do not broadcast with {list(have)}; give the same ones, or 1"
        ) from None
