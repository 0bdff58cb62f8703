"""InfoNCE, NT-Xent and CLIP: logistic losses of every row against all other rows, without the [N, N] matrix of logits.

All are written as log(1 + sum of exp(negative - positive)), with the positive pair left out of the streamed sum: the
loss is never negative and keeps its digits when the rows are well separated, where logsumexp minus the positive would
leave rounding noise.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from torchpairwise._precision import widened
from torchpairwise.expression import PairwiseExpression, lazy
from torchpairwise.sweep import sweep

Reduction = Literal["none", "mean", "sum"]


def info_nce(
    query: Tensor,  # [*batch, N, D]
    positive: Tensor,  # [*batch, N, D]
    negatives: Tensor | None = None,  # [*batch, M, D], or [*batch, N, M, D] if paired
    *,
    temperature: float | Tensor = 0.1,
    negative_mode: Literal["unpaired", "paired"] = "unpaired",
    normalize: bool = True,
    reduction: Reduction = "mean",
) -> Tensor:
    """InfoNCE: each query should be closer to its own positive than to every negative.

    loss_i = -log( exp(s(q_i, p_i) / t) / (exp(s(q_i, p_i) / t) + sum_j exp(s(q_i, n_j) / t)) ),  s = cosine similarity

    Arguments:
        query: [*batch, N, D].
        positive: [*batch, N, D]; row i belongs to query i.
        negatives: None takes the positives of the other queries in the batch. Otherwise [*batch, M, D], shared by all
            queries, or with `negative_mode="paired"` [*batch, N, M, D], M for each query.
        temperature: t > 0, a number or a 0-dim tensor, which may require gradients.
        negative_mode: "unpaired" or "paired"; only read where negatives are given.
        normalize: True compares by cosine similarity, False by dot product.
        reduction: "mean", "sum", or "none" for one loss a query.

    Returns:
        A 0-dim tensor, or [*batch, N] with `reduction="none"`. Half precision inputs are computed and returned in
        float32. Without queries the mean is 0 with zero gradient, and a query without negatives has loss 0.

    Raises:
        ValueError: temperature <= 0, shapes that do not match, or an unknown option.

    Notes:
        Memory grows with (N + M) D; gradients of any order, streamed for the first. A zero row has similarity 0 to all
        and gradient 0. The temperature is read once per call to check it, which waits for the device; compiled code
        does not check.

    Example:
        >>> import torch
        >>> from torchpairwise.contrastive import info_nce
        >>> query = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> info_nce(query, query, temperature=0.5)  # log(1 + exp(-2))
        tensor(0.1269)
        >>> info_nce(query, query, negatives=-query, temperature=0.5, reduction="none")
        tensor([0.1429, 0.1429])
    """
    _check_pair("query", query, "positive", positive)
    _check_options(temperature, reduction)
    query, positive = widened(query), widened(positive)
    temperature = _as_operand(temperature, query)
    scores = _logits(query, positive, normalize, temperature)
    match = scores.diagonal()
    if negatives is None:
        mass = scores.logsumexp(-1, exclude_self=True)
    else:
        _check_negatives(query, negatives, negative_mode)
        negatives = widened(negatives)
        if negative_mode == "paired":
            mass = _logits(query.unsqueeze(-2), negatives, normalize, temperature).logsumexp(-1).squeeze(-1)
        else:
            mass = _logits(query, negatives, normalize, temperature).logsumexp(-1)
    return _reduce(_logistic(match, mass), reduction)


def nt_xent(
    first: Tensor,  # [*batch, N, D]
    second: Tensor,  # [*batch, N, D]
    *,
    temperature: float | Tensor = 0.07,
    normalize: bool = True,
    reduction: Reduction = "mean",
) -> Tensor:
    """NT-Xent, the loss of SimCLR: each of the 2 N views should be closest to the other view of its sample.

    loss_i = -log( exp(s(z_i, z_i') / t) / sum_{j != i} exp(s(z_i, z_j) / t) )
    z = all 2 N rows,  z_i' = the other view of z_i

    Arguments:
        first, second: [*batch, N, D], two views of the same N samples; row i of one belongs to row i of the other.
        temperature: t > 0, a number or a 0-dim tensor, which may require gradients.
        normalize: True compares by cosine similarity, False by dot product.
        reduction: "mean", "sum", or "none" for one loss a view, those of `first` before those of `second`.

    Returns:
        A 0-dim tensor, or [*batch, 2 N] with `reduction="none"`. Half precision inputs are computed and returned in
        float32. A view is never compared with itself, by index; a single sample has loss 0.

    Raises:
        ValueError: temperature <= 0, shapes that differ, or an unknown option.

    Notes:
        Memory grows with N D; gradients of any order, streamed for the first. See `info_nce` for the check of the
        temperature.

    Example:
        >>> import torch
        >>> from torchpairwise.contrastive import nt_xent
        >>> first, second = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> nt_xent(first, second, temperature=0.5)  # log(1 + 2 exp(-2))
        tensor(0.2395)
    """
    _check_pair("first", first, "second", second)
    _check_options(temperature, reduction)
    first, second = widened(first), widened(second)
    temperature = _as_operand(temperature, first)
    across = _logits(first, second, normalize, temperature)
    match = across.diagonal()
    both_sides = sweep(across, ["logsumexp"], ["logsumexp"], exclude_self=True)
    losses = [
        _logistic(match, _logits(view, None, normalize, temperature).logsumexp(-1, exclude_self=True), mass)
        for view, mass in zip((first, second), both_sides, strict=True)
    ]
    return _reduce(torch.cat(losses, -1), reduction)


def clip(
    first: Tensor,  # [*batch, N, D]
    second: Tensor,  # [*batch, N, D]
    *,
    temperature: float | Tensor = 0.07,
    normalize: bool = True,
    reduction: Reduction = "mean",
) -> Tensor:
    """CLIP: each row of one side should find its partner among all rows of the other, in both directions.

    loss_i = (CE(s_i., i) + CE(s_.i, i)) / 2 with logits s_ij = cosine(first_i, second_j) / t and CE the cross entropy

    Arguments:
        first, second: [*batch, N, D], for example images and texts; row i belongs to row i.
        temperature: t > 0, a number or a 0-dim tensor, which may require gradients (a logit scale is 1 / t).
        normalize: True compares by cosine similarity, False by dot product.
        reduction: "mean", "sum", or "none" for one loss a pair.

    Returns:
        A 0-dim tensor, or [*batch, N] with `reduction="none"`; float32 for half precision inputs. Without rows the mean is 0.

    Raises:
        ValueError: temperature <= 0, shapes that differ, or an unknown option.

    Notes:
        Every pair is evaluated once for both directions. Memory grows with N D. Radford et al. 2021, "Learning transferable visual models
        from natural language supervision".

    Example:
        >>> import torch
        >>> from torchpairwise.contrastive import clip
        >>> clip(torch.eye(2), torch.eye(2), temperature=0.5)  # log(1 + exp(-2))
        tensor(0.1269)
    """
    _check_pair("first", first, "second", second)
    _check_options(temperature, reduction)
    first, second = widened(first), widened(second)
    logits = _logits(first, second, normalize, _as_operand(temperature, first))
    match = logits.diagonal()
    rows, columns = sweep(logits, ["logsumexp"], ["logsumexp"], exclude_self=True)
    return _reduce(0.5 * (_logistic(match, rows) + _logistic(match, columns)), reduction)


def _logits(X: Tensor, Y: Tensor | None, normalize: bool, temperature: float | Tensor) -> PairwiseExpression:
    return lazy(X, Y, metric="cosine_similarity" if normalize else "linear") / temperature


def _logistic(match: Tensor, *masses: Tensor) -> Tensor:
    """log(1 + sum_k exp(mass_k - match)), whose digits are kept where it is small; 0 with zero gradients where all masses are -inf."""
    total = masses[0]
    for mass in masses[1:]:
        nothing = (total == -math.inf) & (mass == -math.inf)
        joined = torch.logaddexp(torch.where(nothing, 0.0, total), torch.where(nothing, 0.0, mass))
        total = torch.where(nothing, -math.inf, joined)
    return torch.logaddexp(total - match, torch.zeros_like(match))


def _reduce(losses: Tensor, reduction: Reduction) -> Tensor:
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / max(losses.numel(), 1)


def _as_operand(temperature: float | Tensor, x: Tensor) -> float | Tensor:
    return temperature.to(x.dtype) if isinstance(temperature, Tensor) else temperature


def _check_options(temperature: float | Tensor, reduction: str) -> None:
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction is {reduction!r}; expected 'none', 'mean' or 'sum'")
    if isinstance(temperature, Tensor):
        if temperature.numel() != 1:
            raise ValueError(f"temperature has shape {list(temperature.shape)}; expected a number or a 0-dim tensor")
        if torch.compiler.is_compiling():
            return
        temperature = temperature.detach()
    if not float(temperature) > 0:
        raise ValueError(f"temperature is {float(temperature)}; expected a number > 0, such as 0.1 (logits are divided by it)")


def _check_pair(first_name: str, first: Tensor, second_name: str, second: Tensor) -> None:
    if first.ndim < 2 or first.shape != second.shape:
        raise ValueError(
            f"{first_name} has shape {list(first.shape)} and {second_name} {list(second.shape)}; expected one shape "
            f"[*batch, N, D], row i of {second_name} belonging to row i of {first_name}"
        )


def _check_negatives(query: Tensor, negatives: Tensor, mode: str) -> None:
    if mode not in ("unpaired", "paired"):
        raise ValueError(f"negative_mode is {mode!r}; expected 'unpaired' (negatives [*batch, M, D]) or 'paired' ([*batch, N, M, D])")
    expected = "[*batch, N, M, D]" if mode == "paired" else "[*batch, M, D]"
    paired = mode == "paired"
    fits = negatives.ndim >= 2 + paired and negatives.shape[-1] == query.shape[-1]
    if paired and fits:
        fits = negatives.shape[-3] == query.shape[-2]
    if not fits:
        raise ValueError(
            f"negatives has shape {list(negatives.shape)} and query {list(query.shape)}; with negative_mode={mode!r} "
            f"expected negatives {expected}"
        )
