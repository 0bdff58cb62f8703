"""Solvers loop until they converge, which torch.compile cannot know: compiled code calls them as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

__all__ = ["untraced"]

Function = TypeVar("Function", bound=Callable[..., Any])


def untraced(function: Function) -> Function:
    """The function, which torch.compile leaves alone; its signature and documentation stay."""
    return cast(Function, torch.compiler.disable(function))
