"""Attention by any score of query and key, and by any kernel. Neither stores the [N, M] weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchpairwise._precision import widened
from torchpairwise._registry import metric_info
from torchpairwise.expression import PairwiseExpression, lazy


def attention(
    query: Tensor,  # [*batch, N, E]
    key: Tensor,  # [*batch, M, E]
    value: Tensor,  # [*batch, M, C]
    *,
    metric: Any = "linear",
    scale: float | Tensor | None = None,
    mask: Any = None,
    key_mask: Tensor | None = None,  # [*batch, M]
    bias: PairwiseExpression | None = None,
    softcap: float | None = None,
    alibi: Tensor | None = None,  # [*batch], usually [heads]
    enable_gqa: bool = False,
    return_aux: bool = False,
    chunk_size: int | None = None,
    backend: str = "auto",
    **options: Any,
) -> Any:
    """Softmax attention whose score is any comparison of query and key.

    output_i = sum_j softmax_j(l_ij) value_j
    l_ij = softcap(scale * score(query_i, key_j)) + bias_ij - slope |i + M - N - j|

    Arguments:
        query: [*batch, N, E], for example [B, heads, N, E]. Leading dimensions broadcast.
        key: [*batch, M, E].
        value: [*batch, M, C].
        metric: a metric's name or a pairwise comparison. A distance enters with a minus sign: near keys weigh more.
        scale: factor of the score, a number or a 0-dim tensor; None means 1 / sqrt(E) for "linear" and 1 for any other
            metric.
        mask: a pair mask of `tp.masks`, True = keep: `causal()`, `band`, `same_group` and their `& | ~`.
        key_mask: boolean [*batch, M], True = keep; for padded keys of [B, heads, M, E] give [B, 1, M].
        bias: a lazy expression over the same rows and columns that is added to the score, such as
            `-tp.lazy(p, p, "manhattan")`.
        softcap: c > 0 replaces the scaled score s by c tanh(s / c), before bias and mask.
        alibi: slopes [heads] (or [*batch]) of a penalty that grows with the distance of positions, keys aligned to the
            last query.
        enable_gqa: the heads (dimension -3) of query may be a multiple of those of key and value; no head is copied.
        return_aux: also return the logsumexp of the scores.
        chunk_size, backend: as in `tp.lazy`.
        options: the metric's, such as gamma.

    Returns:
        [*batch, N, C]; with `return_aux=True` the pair (output, logsumexp [*batch, N]). A query without any key left
        gives 0.

    Raises:
        TypeError: a stored mask or bias.
        ValueError: shapes or values that do not fit.

    Notes:
        Memory grows with N + M. First derivatives are streamed, for every tensor given; higher ones may store N * M
        values.

    Example:
        >>> import torch
        >>> from torchpairwise.attention import attention
        >>> query, key, value = torch.eye(2), torch.eye(2), torch.tensor([[1.0], [3.0]])
        >>> attention(query, key, value, metric="sqeuclidean", scale=0.5)  # softmax of (0, -1) and (-1, 0)
        tensor([[1.5379],
                [2.4621]])
    """
    _check_inputs(query, key, value, mask, bias, softcap)
    grouped = enable_gqa and query.shape[-3] != key.shape[-3]
    if grouped:
        query, key, value, key_mask, alibi = _group_heads(query, key, value, key_mask, alibi)
    scores = _scaled_scores(query, key, metric, scale, chunk_size, backend, options)
    if softcap is not None:
        scores = (scores / softcap).tanh() * softcap
    if bias is not None:
        scores = scores + bias
    if alibi is not None:
        scores = scores + _distance_penalty(alibi, query, key)
    if key_mask is not None:
        scores = scores.mask_columns(key_mask)
    result = scores.softmax_matmul(value, mask=mask, return_aux=return_aux)
    if not grouped:
        return result
    if not return_aux:
        return result.flatten(-4, -3)
    return type(result)(result[0].flatten(-4, -3), result[1].flatten(-3, -2))


def kernel_attention(
    query: Tensor,  # [*batch, N, D]
    key: Tensor,  # [*batch, M, D]
    value: Tensor,  # [*batch, M, C]
    *,
    metric: str = "rbf",
    mask: Any = None,
    key_mask: Tensor | None = None,  # [*batch, M]
    exclude_self: bool = False,
    chunk_size: int | None = None,
    backend: str = "auto",
    **options: Any,
) -> Tensor:
    """Attention whose weights are proportional to a kernel: the Nadaraya-Watson average of the values.

    output_i = sum_j k(query_i, key_j) value_j / sum_j k(query_i, key_j)

    Arguments:
        query: [*batch, N, D]. Leading dimensions broadcast.
        key: [*batch, M, D].
        value: [*batch, M, C].
        metric: the kernel's name.
        mask, key_mask, chunk_size, backend: as in `attention`.
        exclude_self: leave out the pair of each row with itself, by index: the leave-one-out average where query is
            key. Needs N == M.
        options: the kernel's, such as gamma or lengthscale; they may be tensors with gradients.

    Returns:
        [*batch, N, C]. A query without any key left, or without mass, gives 0.

    Notes:
        A kernel that is an exponential (rbf, laplacian) is not evaluated by itself: its logarithm goes through a
        softmax, which stays exact far from all keys, where the kernel's values underflow and the quotient would be
        0 / 0. Other kernels take one product with the values and a column of ones. Memory grows with N + M. First
        derivatives are streamed, for every tensor given; higher ones may store N * M values.

    Example:
        >>> import torch
        >>> from torchpairwise.attention import kernel_attention
        >>> key, value = torch.tensor([[0.0], [1.0]]), torch.tensor([[1.0], [3.0]])
        >>> kernel_attention(torch.tensor([[0.5], [1e4]]), key, value, lengthscale=1.0)
        tensor([[2.],
                [3.]])
    """
    _check_inputs(query, key, value, mask, None, None)
    dtype = value.dtype
    query, key, value = widened(query), widened(key), widened(value)
    kernel = lazy(query, key, metric=metric, chunk_size=chunk_size, backend=backend, **options)
    if mask is not None:
        kernel = kernel.masked(mask)
    if key_mask is not None:
        kernel = kernel.mask_columns(key_mask)
    if metric_info(metric).program.endswith("exp"):
        # The logarithm of an exponential is the step before it.
        return kernel.log().softmax_matmul(value, exclude_self=exclude_self).to(dtype)
    return _normalized_product(kernel, value, exclude_self).to(dtype)


def _normalized_product(kernel: PairwiseExpression, value: Tensor, exclude_self: bool) -> Tensor:
    """Weighted values divided by the mass of each row, from one product with [value, 1]; 0 where there is no mass."""
    sums = kernel.matmul(torch.cat([value, torch.ones_like(value[..., :1])], -1), exclude_self=exclude_self)
    mass = sums[..., -1:]
    empty = mass == 0
    return torch.where(empty, 0.0, sums[..., :-1] / torch.where(empty, 1.0, mass))


def _scaled_scores(
    query: Tensor,
    key: Tensor,
    metric: Any,
    scale: float | Tensor | None,
    chunk_size: int | None,
    backend: str,
    options: dict[str, Any],
) -> PairwiseExpression:
    """scale * score, with the sign that makes near keys weigh more."""
    scores = lazy(query, key, metric, chunk_size=chunk_size, backend=backend, **options)
    record = metric_info(metric) if isinstance(metric, str) else None
    if scale is None:
        scale = query.shape[-1] ** -0.5 if record is not None and record.name == "linear" else 1.0
    if record is not None and record.kind == "distance":
        scale = -scale
    return scores * scale


def _distance_penalty(slopes: Tensor, query: Tensor, key: Tensor) -> PairwiseExpression:
    """-slope |i + M - N - j|: a Manhattan distance of positions in one dimension, exact for whole numbers."""
    n_rows, n_columns = query.shape[-2], key.shape[-2]
    positions = torch.arange(max(n_rows, n_columns), dtype=slopes.dtype, device=slopes.device).unsqueeze(-1)
    distance = lazy(positions[:n_rows] + (n_columns - n_rows), positions[:n_columns], metric="manhattan")
    return distance.weight_rows(-slopes.unsqueeze(-1).expand(*slopes.shape, n_rows))


def _group_heads(
    query: Tensor, key: Tensor, value: Tensor, key_mask: Tensor | None, alibi: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """[*, heads, N, E] as [*, groups, heads / groups, N, E] against [*, groups, 1, M, E]: the groups share keys by
    broadcasting."""
    heads, groups = query.shape[-3], key.shape[-3]
    if groups == 0 or heads % groups or value.shape[-3] != groups:
        raise ValueError(
            f"query has {heads} heads, key {groups} and value {value.shape[-3]}; with enable_gqa expected as many in "
            f"key as in value, and a multiple of them in query"
        )
    if key_mask is not None and key_mask.ndim > 1:
        key_mask = key_mask.unsqueeze(-2)
    if alibi is not None:
        alibi = alibi.unflatten(-1, (groups, heads // groups))
    return query.unflatten(-3, (groups, heads // groups)), key.unsqueeze(-3), value.unsqueeze(-3), key_mask, alibi


def _check_inputs(query: Tensor, key: Tensor, value: Tensor, mask: Any, bias: Any, softcap: float | None) -> None:
    if min(query.ndim, key.ndim, value.ndim) < 2 or query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ValueError(
            f"query has shape {list(query.shape)}, key {list(key.shape)} and value {list(value.shape)}; "
            f"expected [*batch, N, E], [*batch, M, E] and [*batch, M, C]"
        )
    if isinstance(mask, Tensor):
        raise TypeError(
            f"mask is a tensor of shape {list(mask.shape)}; expected a pair mask of tp.masks, which needs no [N, M] "
            f"memory. Give padded keys as key_mask [*batch, M]"
        )
    if bias is not None and not isinstance(bias, PairwiseExpression):
        raise TypeError(
            f"bias is {type(bias).__name__}; expected a lazy expression over the same rows and columns, such as "
            f'-tp.lazy(positions, positions, metric="manhattan"), which needs no [N, M] memory'
        )
    if softcap is not None and not softcap > 0:
        raise ValueError(f"softcap is {softcap}; expected a number > 0, or None for no cap")
