"""Retrieval with features or with learned comparisons: late interaction, search, near duplicates."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchpairwise._checks import describe
from torchpairwise.comparisons import make_pairwise
from torchpairwise.encoding import higher_is_better
from torchpairwise.expression import PairwiseExpression, lazy

__all__ = ["ScoredPairs", "max_sim", "near_duplicates", "semantic_search"]


class ScoredPairs(NamedTuple):
    """Pairs i < j, the best first: `values`, and int64 `rows` (i) and `columns` (j), all [pairs]."""

    values: Tensor
    rows: Tensor
    columns: Tensor


def _late_interaction(x: Any, y: Any) -> Tensor:
    """x and y: tokens [..., T, D] and flags [..., T], True = keep."""
    similarities = torch.einsum("...td,...ud->...tu", x["tokens"], y["tokens"])
    kept = y["keep"].unsqueeze(-2)
    best = torch.where(kept, similarities, -torch.inf).amax(-1)
    return torch.where(x["keep"] & kept.any(-1), best, 0.0).sum(-1)


_MAX_SIM = make_pairwise(_late_interaction, sample_ndim={"tokens": 2, "keep": 1})


def max_sim(
    X: Tensor,  # [*batch, N, T, D]
    Y: Tensor,  # [*batch, M, U, D]
    *,
    x_mask: Tensor | None = None,  # [*batch, N, T]
    y_mask: Tensor | None = None,  # [*batch, M, U]
    chunk_size: int | None = None,
) -> PairwiseExpression:
    """Late interaction of queries and documents of tokens: ``s_ij = sum_t max_u <x_it, y_ju>``, as a lazy matrix.

    Arguments:
        X: tokens of the queries [*batch, N, T, D].
        Y: tokens of the documents [*batch, M, U, D].
        x_mask, y_mask: True = keep; tokens of padding are False. None keeps all.
        chunk_size: as in `tp.lazy`.

    Returns:
        A `PairwiseExpression` [*batch, N, M]: every consumer, step and mask of `tp.lazy`, so ``max_sim(Q, D).topk(k)`` is retrieval and
        ``max_sim(Q, D) / t`` with `logsumexp` a contrastive loss. A document without kept tokens scores 0.

    Raises:
        TypeError: a mask that is not boolean.
        ValueError: shapes that do not fit.

    Notes:
        Memory is that of the tokens and of a tile. Gradients go to the best token of each query token (equal parts to ties).
        Give unit tokens for cosines.

    References:
        Khattab and Zaharia, ColBERT: efficient and effective passage search via contextualized late interaction over BERT, SIGIR 2020.

    Example:
        >>> import torch, torchpairwise as tp
        >>> queries, documents = torch.eye(2).expand(3, 2, 2), torch.eye(2)[:, None]
        >>> tp.learned.max_sim(queries, documents).dense()[0]
        tensor([1., 1.])
    """
    sides = []
    for name, tokens, mask in (("X", X, x_mask), ("Y", Y, y_mask)):
        if not isinstance(tokens, Tensor) or tokens.dim() < 3:
            raise ValueError(f"{name} is {describe(tokens)}; expected tokens [..., samples, tokens, D]")
        flags = torch.ones(tokens.shape[:-1], dtype=torch.bool, device=tokens.device) if mask is None else mask
        if flags.dtype != torch.bool:
            raise TypeError(f"{name.lower()}_mask has dtype {flags.dtype}; expected torch.bool, True = keep")
        if flags.shape != tokens.shape[:-1]:
            raise ValueError(f"{name.lower()}_mask has shape {list(flags.shape)}; expected {list(tokens.shape[:-1])}, one flag a token")
        sides.append({"tokens": tokens, "keep": flags})
    if X.shape[-1] != Y.shape[-1]:
        raise ValueError(f"tokens of X have {X.shape[-1]} features and those of Y {Y.shape[-1]}; both need the same D")
    return lazy(sides[0], sides[1], _MAX_SIM, chunk_size=chunk_size)


def semantic_search(
    queries: Any,  # [*batch, N, D]
    corpus: Any,  # [*batch, M, D]
    *,
    k: int = 10,
    metric: Any = "cosine_similarity",
    largest: bool | None = None,
    chunk_size: int | None = None,
    **options: Any,
) -> Any:
    """The k entries of a corpus that fit each query best, best first, ties by the lower index.

    Arguments:
        queries, corpus: features; or samples of any kind with a comparison of `tp.make_feature_pairwise`, which encodes them once.
        k: entries for each query, at most M.
        metric: a metric's name, or a comparison.
        largest: whether a larger score fits better; None takes it from the metric: True for similarities and kernels, False for
            distances and for functions.
        chunk_size: as in `tp.lazy`.
        options: the metric's.

    Returns:
        The named tuple (values, indices), both [*batch, N, k]; values have gradients.

    Raises:
        ValueError: k is larger than the corpus.

    Notes:
        Exact: every query is compared with every entry; memory grows with N + M.

    Example:
        >>> import torch, torchpairwise as tp
        >>> tp.learned.semantic_search(torch.tensor([[1.0, 0.1]]), torch.eye(2), k=1).indices
        tensor([[0]])
    """
    larger = higher_is_better(metric) if largest is None else largest
    return lazy(queries, corpus, metric, chunk_size=chunk_size, **options).topk(k, largest=larger)


def near_duplicates(
    X: Any,  # [N, D]
    *,
    threshold: float,
    metric: Any = "cosine_similarity",
    largest: bool | None = None,
    max_pairs: int | None = None,
    block_size: int = 1024,
    **options: Any,
) -> ScoredPairs:
    """All pairs i < j whose score reaches a threshold: ``s_ij >= threshold`` for similarities, ``s_ij <= threshold`` for distances.

    Arguments:
        X: features [N, D], or samples with a comparison of `tp.make_feature_pairwise`.
        threshold: a score that is reached counts.
        metric: a metric's name, or a comparison; symmetric, since only i < j is looked at.
        largest: whether a larger score is nearer; None takes it from the metric, as in `semantic_search`.
        max_pairs: keep no more than the best ones; None keeps all.
        block_size: rows whose scores are stored at a time.
        options: the metric's.

    Returns:
        `ScoredPairs` (values, rows, columns), best first, equal scores in the order of the pairs; without gradients.

    Raises:
        ValueError: batch dimensions; sizes below 1.

    Notes:
        Memory is ``block_size * N`` scores and the pairs that are found. NaN reaches no threshold.

    Example:
        >>> import torch, torchpairwise as tp
        >>> X = torch.tensor([[0.0], [5.0], [0.1], [5.3]])
        >>> found = tp.learned.near_duplicates(X, threshold=0.5, metric="euclidean")
        >>> found.rows.tolist(), found.columns.tolist()
        ([0, 1], [2, 3])
    """
    for name, size in (("block_size", block_size), ("max_pairs", max_pairs)):
        if size is not None and size < 1:
            raise ValueError(f"{name}={size}; expected 1 or more")
    larger = higher_is_better(metric) if largest is None else largest
    with torch.no_grad():
        S = lazy(X, None, metric, **options)
        if S.ndim != 2:
            raise ValueError(f"the scores are {list(S.shape)}; expected X without batch dimensions")
        best = ScoredPairs(*(torch.empty(0, dtype=dtype, device=S.device) for dtype in (S.dtype, torch.int64, torch.int64)))
        for begin in range(0, S.shape[0], block_size):
            scores = S[begin : begin + block_size, begin:].dense()
            reached = (scores >= threshold if larger else scores <= threshold).triu(1)
            rows, columns = reached.nonzero(as_tuple=True)
            added = (scores[rows, columns], rows + begin, columns + begin)
            merged = [torch.cat(parts) for parts in zip(best, added, strict=True)]
            order = torch.sort(merged[0], descending=larger, stable=True).indices[:max_pairs]
            best = ScoredPairs(*(part[order] for part in merged))
    return best
