"""`config`: limits that hold for a block of code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torchpairwise._checks import describe

__all__ = ["checked_workspace", "config", "workspace_limit"]

# The limits of the blocks that are being executed, the innermost last; None: no limit.
_workspace_limits: list[int | None] = [None]


def checked_workspace(value: object) -> int | None:
    """A number of bytes, or None.

    Raises:
        ValueError: not a positive integer.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"workspace_bytes is {describe(value)}; expected a positive integer or None")
    return value


def workspace_limit() -> int | None:
    """The limit for expressions that are bound now."""
    return _workspace_limits[-1]


@contextmanager
def config(*, workspace_bytes: int | None = None) -> Iterator[None]:
    """Limits the memory that calls take beyond inputs and outputs, for expressions bound inside the block.

    Arguments:
        workspace_bytes: at most so many bytes for tiles and states, over all threads; None for what the plan chooses (a few MB). Tiles
            shrink to one register tile of each thread before the limit is exceeded. `tp.lazy(..., workspace_bytes=)` does the same for
            one expression. Results change within rounding only.

    Raises:
        ValueError: not a positive integer.

    Notes:
        Two-sided sweeps keep a state for every row and column, which is not limited; the symmetric mode, which does the same, is off.

    Example:
        >>> import torch, torchpairwise as tp
        >>> X = torch.randn(5000, 64)
        >>> with tp.config(workspace_bytes=100_000):
        ...     S = tp.lazy(X, X + 1)
        >>> S.explain("sum").workspace_bytes <= 100_000
        True
    """
    _workspace_limits.append(checked_workspace(workspace_bytes))
    try:
        yield
    finally:
        _workspace_limits.pop()
