"""The steps of an expression, the program text that they become, and their transposition.

Steps stand in postfix order, as in the program text: a source pushes a score, a node changes the last one, a join makes one of the last
two. Rules of a mask push, `and`, `or` and `not` combine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from torchpairwise._registry import NODES, SOURCES, TABLES

__all__ = ["UNLIMITED", "Step", "both_masks", "lower", "transposed_masks", "transposed_steps"]

# The limit of a band that has none; every difference of two indices is smaller.
UNLIMITED = 1e18

_TRANSPOSED_RULES = {"rows": "columns", "columns": "rows", "first_rows": "first_columns", "first_columns": "first_rows"}


class Step(NamedTuple):
    """A step: its word, its tensors in the order of its signature, its numbers; for a comparison written in Python the object too; for a
    select the steps of its mask."""

    word: str
    tensors: tuple[Tensor, ...] = ()
    numbers: tuple[float, ...] = ()
    comparison: Any = None
    mask: tuple[Any, ...] = ()
    scaled: bool = False  # the features are not those that the caller gave


Steps = tuple[Step, ...]


def lower(steps: Sequence[Step], masks: Sequence[Step]) -> tuple[list[Tensor], str, list[float]]:
    """Operands, program text and constants; a tensor that is used twice is one operand."""
    operands: list[Tensor] = []
    constants: list[float] = []
    texts = []
    selects: list[Sequence[Step]] = []
    for step in steps:
        if step.word == "select":
            selects.append(step.mask)
            texts.append(f"select {len(selects)}")
        else:
            texts.append(_text(step, operands, constants))
    parts = ["; ".join(texts)]
    for part in ([masks] if masks or selects else []) + selects:
        parts.append("; ".join([_text(step, operands, constants) for step in part]) or "all")
    return operands, " | ".join(parts), constants


def _text(step: Step, operands: list[Tensor], constants: list[float]) -> str:
    words = [step.word if step.comparison is None else f"{step.word} {step.comparison.key}"]
    for tensor in step.tensors:
        # By identity, in a loop: torch.compile traces it, and equal values at two places stay two operands.
        slot = len(operands)
        for index, operand in enumerate(operands):
            if operand is tensor:
                slot = index
                break
        if slot == len(operands):
            operands.append(tensor)
        words.append(str(slot))
    for number in step.numbers:
        words.append(f"#{len(constants)}")
        constants.append(number)
    return " ".join(words)


def both_masks(first: Sequence[Step], second: Sequence[Step]) -> Steps:
    """A pair is kept if both masks keep it; no steps keep all pairs."""
    if not first or not second:
        return tuple(first) or tuple(second)
    return (*first, *second, Step("and"))


def transposed_steps(steps: Sequence[Step], n_rows: int, n_columns: int) -> Steps:
    """The same scores with rows and columns exchanged; the sizes are those before the exchange.

    Raises:
        ValueError: a step is a comparison written in Python, whose two arguments are not known to be exchangeable.
    """
    out: list[Step] = []
    for step in steps:
        if step.comparison is not None:
            raise ValueError(
                f"an expression of the comparison {step.comparison.name} and a transposed one cannot be joined; "
                f"bind the other with X and Y exchanged instead of transposing it"
            )
        if step.word in SOURCES:
            step = step._replace(tensors=(step.tensors[1], step.tensors[0]))
        elif step.word == "lookup":
            step = step._replace(tensors=(step.tensors[0], step.tensors[1].mT))
        elif step.word in TABLES:
            # The difference of places changes its sign, and with it the order of the table.
            table, rows, columns = step.tensors
            step = step._replace(tensors=(table.flip(-1), columns, rows), numbers=(-step.numbers[1], -step.numbers[0]))
        elif step.word in NODES:
            step = step._replace(word=NODES[step.word].transposed)
        elif step.word == "select":
            step = step._replace(mask=transposed_masks(step.mask, n_rows, n_columns))
        out.append(step)
    return tuple(out)


def transposed_masks(steps: Sequence[Step], n_rows: int, n_columns: int) -> Steps:
    """The same pairs with rows and columns exchanged; the sizes are those before the exchange."""
    out: list[Step] = []
    for step in steps:
        if step.word in ("same_group", "between"):
            numbers = (step.numbers[1], step.numbers[0]) if step.numbers else ()
            step = step._replace(tensors=(step.tensors[1], step.tensors[0]), numbers=numbers)
        elif step.word == "band":
            step = step._replace(numbers=(step.numbers[1], step.numbers[0]))
        elif step.word == "causal":
            # j <= i + a (M - N), with i and j exchanged, is a band with one limit.
            limit = float(n_columns - n_rows) if step.numbers[0] != 0 and n_rows != n_columns else 0.0
            step = Step("band", (), (limit, UNLIMITED))
        else:
            step = step._replace(word=_TRANSPOSED_RULES.get(step.word, step.word))
        out.append(step)
    return tuple(out)
