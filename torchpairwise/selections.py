"""Selections made of the native ones: order statistics, neighbours within a radius, the best pairs, and reductions of groups."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchpairwise._axes import one_axis
from torchpairwise._checks import as_number, describe
from torchpairwise.consume import Selection
from torchpairwise.reductions import Reductions

__all__ = ["PairSelection", "RadiusOutput", "Selections"]

# Candidates (values and indices) that a block of rows may hold.
_HELD_CANDIDATES = 2**21
_BINS = 2048
_GROUP_OPERATIONS = ("sum", "mean", "min", "max", "logsumexp", "count")


class RadiusOutput(NamedTuple):
    """Pairs in compressed rows: row i has `col_indices` and `values` from `crow_indices[i]` to `crow_indices[i + 1]`."""

    crow_indices: Tensor
    col_indices: Tensor
    values: Tensor


class PairSelection(NamedTuple):
    """Selected pairs: `values`, and the `rows` and `columns` where they stand, all [k]."""

    values: Tensor
    rows: Tensor
    columns: Tensor


class Selections(Reductions):
    """Selections of `PairwiseExpression`. Ties go to the lower index; NaN and dropped pairs rank last."""

    __slots__ = ()

    def kth_value(self, k: int, dim: int = -1, keepdim: bool = False, *, exclude_self: bool = False) -> Selection:
        """The k-th smallest score of each row or column and where it stands; k counts from 1, as in `torch.kthvalue`.

        Raises:
            ValueError: k is less than 1 or more than the candidates.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.zeros(1, 1), torch.tensor([[3.0], [1.0], [2.0]]), "manhattan").kth_value(2)
            Selection(values=tensor([2.]), indices=tensor([2]))
        """
        if isinstance(k, int) and not isinstance(k, bool) and k < 1:
            raise ValueError(f"k={k}; the k-th value counts from 1")
        values, indices = self.topk(k, dim, largest=False, exclude_self=exclude_self)
        axis = one_axis(self.shape, dim)
        return Selection(*((x[..., -1].unsqueeze(axis) if keepdim else x[..., -1]) for x in (values, indices)))

    def rank_of(self, scores: Tensor, dim: int = -1, largest: bool = True, *, exclude_self: bool = False) -> Tensor:
        """How many scores of a row are strictly better than a given one; the best has rank 0.

        Arguments:
            scores: [*batch, N] or [*batch, N, T] (dim=-2: M in place of N), for example those of the relevant columns.
            dim: -1 or -2.
            largest: larger scores are better; False for smaller ones.

        Returns:
            int64, in the shape of `scores`.

        Example:
            >>> import torch, torchpairwise as tp
            >>> S = tp.lazy(torch.ones(1, 1), torch.tensor([[3.0], [1.0], [2.0]]), "linear")
            >>> S.rank_of(torch.tensor([2.0]))
            tensor([1])
        """
        axis = one_axis(self.shape, dim)
        size = self.shape[-2 if axis == -1 else -1]
        n_batch = len(self.shape) - 2
        if not isinstance(scores, Tensor) or scores.dim() < 1 or size not in scores.shape[-2:]:
            raise ValueError(f"scores is {describe(scores)}; expected a tensor [..., {size}] or [..., {size}, T]")
        several = scores.dim() > n_batch + 1 if n_batch else scores.dim() == 2
        columns = scores.unbind(-1) if several else (scores,)
        sign = ">" if largest else "<"
        ranks = [
            self.count(column.unsqueeze(-1 if axis == -1 else -2).to(self.dtype), sign, axis, exclude_self=exclude_self)
            for column in columns
        ]
        return torch.stack(ranks, -1) if several else ranks[0]

    def radius(self, radius: float, *, sort: str = "index", exclude_self: bool = False) -> RadiusOutput:
        """The pairs with ``s_ij <= radius`` as a compressed sparse row structure: first counted, then filled.

        Arguments:
            radius: a number.
            sort: "index" orders each row by column, "value" by score.
            exclude_self: leave out the pairs i == j.

        Returns:
            The named tuple (crow_indices [N + 1], col_indices [P], values [P]) of `torch.sparse_csr_tensor`; values carry gradients.

        Raises:
            ValueError: batch dimensions; an unknown order.

        Notes:
            Memory is that of the result and of a bounded number of candidates.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.tensor([[0.0], [1.0], [5.0]]), metric="manhattan").radius(1.0, exclude_self=True)
            RadiusOutput(crow_indices=tensor([0, 1, 2, 2]), col_indices=tensor([1, 0]), values=tensor([1., 1.]))
        """
        radius = as_number(radius, "radius")
        if sort not in ("index", "value"):
            raise ValueError(f"sort={sort!r}; expected 'index' or 'value'")
        if len(self.shape) > 2:
            raise ValueError(f"radius() of scores {list(self.shape)}: rows of different lengths have no batch; call it for each entry")
        S = self._any()
        if exclude_self and self._extra_masks(True):
            S = S.masked(_other_places())
        counts = S.count(radius, dim=-1)
        crow = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        rows, columns, values = [], [], []
        for block, k in _blocks_of_like_counts(counts):
            picked = S[block].topk(k, largest=False)
            valid = torch.arange(k, device=self.device) < counts[block, None]
            rows.append(block[:, None].expand_as(valid)[valid])
            columns.append(picked.indices[valid])
            values.append(picked.values[valid])
        if not rows:
            return RadiusOutput(crow, crow.new_zeros(0), torch.zeros(0, dtype=self.dtype, device=self.device))
        row, column, value = torch.cat(rows), torch.cat(columns), torch.cat(values)
        # Rows came in blocks, each in the order of the scores.
        order = torch.argsort(row, stable=True) if sort == "value" else torch.argsort(row * self.shape[-1] + column)
        return RadiusOutput(crow, column[order], value[order])

    def top_pairs(self, k: int, largest: bool = True, *, upper: bool = False, exclude_self: bool = False) -> PairSelection:
        """The k best pairs of the whole matrix, best first; equal scores in the order of rows and columns.

        Arguments:
            k: how many, up to the number of pairs.
            largest: the largest first; False for the smallest.
            upper: only pairs i < j, so that each pair of a symmetric matrix comes once.
            exclude_self: leave out the pairs i == j.

        Returns:
            The named tuple (values, rows, columns), all [k]; values carry gradients.

        Raises:
            ValueError: batch dimensions; k out of range.

        Notes:
            Two sweeps: the best pairs lie in the k rows whose best scores are best.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.tensor([[0.0], [3.0], [4.0]]), metric="manhattan").top_pairs(1, largest=False, upper=True)
            PairSelection(values=tensor([1.]), rows=tensor([1]), columns=tensor([2]))
        """
        n, m = self.shape[-2:]
        if len(self.shape) > 2:
            raise ValueError(f"top_pairs() of scores {list(self.shape)}; call it for each batch entry")
        S = self._any()
        if exclude_self and self._extra_masks(True):
            S = S.masked(_other_places())
        if upper:
            S = S.masked(_upper_places())
        n_pairs = int(self._pairs_of(S))
        if isinstance(k, bool) or not isinstance(k, int) or not 0 <= k <= n_pairs:
            raise ValueError(f"k={k!r}; expected an integer from 0 to {n_pairs}, the number of pairs")
        if k == 0:
            empty = torch.zeros(0, dtype=torch.int64, device=self.device)
            return PairSelection(torch.zeros(0, dtype=self.dtype, device=self.device), empty, empty)
        best = (S.detach().max(-1) if largest else S.detach().min(-1)).values
        candidates = _order(best, largest)[: min(k, n)].sort().values
        picked = S[candidates].topk(min(k, m), largest=largest)
        rows = candidates[:, None].expand_as(picked.indices)
        place = rows * m + picked.indices
        # Ties by place: candidates stand in the order of their places before a stable sort by score.
        by_place = place.flatten().argsort()
        order = by_place[_order(picked.values.detach().flatten()[by_place], largest)][:k]
        return PairSelection(picked.values.flatten()[order], rows.flatten()[order], picked.indices.flatten()[order])

    def quantile(self, q: float | Tensor, *, exclude_self: bool = False) -> Tensor:
        """The exact quantile of all kept pairs, with linear interpolation between neighbours, as `numpy.quantile`.

        Arguments:
            q: a number from 0 to 1, or a vector [Q] of them.
            exclude_self: leave out the pairs i == j.

        Returns:
            [*batch], or [*batch, Q]; NaN where a kept score is NaN. No gradient.

        Raises:
            ValueError: q out of range; no pair; an infinite score.

        Notes:
            The pairs are counted in 2048 bins between two scores, a few times over; nothing is stored or sorted.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.zeros(1, 1), torch.tensor([[1.0], [2.0], [4.0], [8.0]]), "manhattan").quantile(0.5)
            tensor(3.)
        """
        levels = torch.as_tensor(q, dtype=torch.float64)
        if levels.dim() > 1 or (levels.numel() and not bool(((levels >= 0) & (levels <= 1)).all())):
            raise ValueError(f"q is {q!r}; expected a number from 0 to 1 or a vector of them")
        S = self._any().detach()
        S = S.to(torch.float32) if self.dtype in (torch.float16, torch.bfloat16) else S
        if exclude_self and self._extra_masks(True):
            S = S.masked(_other_places())
        entries = [_quantiles(entry, levels.flatten().tolist()) for entry in S._batch_entries()]
        result = torch.tensor(entries, dtype=torch.float64).view(*self.shape[:-2], levels.numel())
        return (result if levels.dim() else result.squeeze(-1)).to(device=self.device, dtype=self.dtype)

    def median(self, *, exclude_self: bool = False) -> Tensor:
        """The exact median of all kept pairs, the mean of the two in the middle for an even number; see `quantile`.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.tensor([[0.0], [1.0], [5.0]]), metric="manhattan").median(exclude_self=True)
            tensor(4.)
        """
        return self.quantile(0.5, exclude_self=exclude_self)

    def group_reduce(
        self,
        labels: Tensor,  # [M] int64
        op: str = "sum",
        n_groups: int | None = None,
        *,
        dim: int = -1,
        exclude_self: bool = False,
    ) -> Tensor:
        """A reduction of each group of columns: ``op of s_ij over the j with label g``.

        Arguments:
            labels: the group of each column, integers [M] from 0 to n_groups - 1 (dim=-2: of each row, [N]).
            op: "sum", "mean", "min", "max", "logsumexp" or "count" (of kept pairs).
            n_groups: G; None for the largest label + 1.
            dim: -1 or -2.
            exclude_self: leave out the pairs i == j.

        Returns:
            [*batch, N, G] (dim=-2: [*batch, M, G]); of an empty group 0, NaN, +inf, -inf, -inf or 0. Differentiable but for "count".

        Raises:
            ValueError, TypeError, IndexError: another op; labels of another shape, dtype or range.

        Notes:
            Each pair is evaluated once; the features are gathered by group.

        Example:
            >>> import torch, torchpairwise as tp
            >>> S = tp.lazy(torch.ones(1, 1), torch.tensor([[1.0], [2.0], [4.0]]), "linear")
            >>> S.group_reduce(torch.tensor([0, 1, 0]), "max")
            tensor([[4., 2.]])
        """
        if op not in _GROUP_OPERATIONS:
            raise ValueError(f"op={op!r}; expected one of {', '.join(_GROUP_OPERATIONS)}")
        S = self._any() if one_axis(self.shape, dim) == -1 else self._any().mT
        n, m = S.shape[-2:]
        if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
            raise TypeError(f"labels is {describe(labels)}; expected integers [{m}]")
        if tuple(labels.shape) != (m,):
            raise ValueError(f"labels has shape {list(labels.shape)}; expected [{m}]")
        least, most = (int(labels.min()), int(labels.max())) if m else (0, -1)
        n_groups = most + 1 if n_groups is None else n_groups
        if least < 0 or most >= n_groups:
            raise IndexError(f"labels run from {least} to {most}; expected 0 to {n_groups - 1} for {n_groups} groups")
        if exclude_self and self._extra_masks(True):
            S = S.masked(_other_places())
        order = labels.argsort(stable=True)
        bounds = [0, *torch.bincount(labels, minlength=n_groups).cumsum(0).tolist()] if n_groups else [0]
        columns = S._part("columns", order)
        groups = [_reduced(columns._part("columns", slice(a, b)), op) for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
        if not groups:
            return torch.zeros((*S.shape[:-2], n, 0), dtype=self.dtype, device=self.device)
        return torch.stack(groups, -1)

    @staticmethod
    def _pairs_of(S: Any) -> float:
        return float(S._kept(None, False)) if S._masks else float(S.shape[-2] * S.shape[-1])


def _other_places() -> Any:
    from torchpairwise.masks import band

    return ~band(0, 0)


def _upper_places() -> Any:
    from torchpairwise.masks import band

    return band(lower=-1)


def _order(values: Tensor, largest: bool) -> Tensor:
    """Places in the order of the values, ties by place, NaN last."""
    key = torch.where(values.isnan(), math.inf, -values if largest else values)
    # A NaN comes after the infinite ones, too.
    first = values.isnan().to(torch.int8).argsort(stable=True)
    return first[key[first].argsort(stable=True)]


def _blocks_of_like_counts(counts: Tensor) -> list[tuple[Tensor, int]]:
    """Rows in blocks of similar counts, and the largest count of each; rows without a pair are in none."""
    order = counts.argsort(descending=True, stable=True)
    sorted_counts = counts[order].tolist()
    blocks = []
    begin = 0
    while begin < len(sorted_counts) and sorted_counts[begin] > 0:
        k = sorted_counts[begin]
        end = begin
        while end < len(sorted_counts) and (end - begin + 1) * k <= max(k, _HELD_CANDIDATES) and 2 * sorted_counts[end] >= k:
            end += 1
        blocks.append((order[begin:end].sort().values, k))
        begin = end
    return blocks


def _quantiles(S: Any, levels: list[float]) -> list[float]:
    """Quantiles of one matrix."""
    n_pairs = int(S._pairs_of(S))
    if n_pairs == 0:
        raise ValueError(f"there is no pair to take a quantile of: scores are {list(S.shape)}")
    low, high = S.min().item(), S.max().item()
    if math.isinf(low) or math.isinf(high):
        raise ValueError(f"scores run from {low} to {high}; quantiles need finite ones")
    if math.isnan(low) or int(S.ne(0).count()) != int((S.ne(0) * (S >= low)).count()):
        return [math.nan] * len(levels)
    found: dict[int, float] = {}
    out = []
    for level in levels:
        place = level * (n_pairs - 1)
        rank = min(math.floor(place), n_pairs - 1)
        ranks = (rank, min(rank + 1, n_pairs - 1))
        for r in ranks:
            if r not in found:
                found[r] = _order_statistic(S, r, low, high)
        out.append(found[ranks[0]] + (place - rank) * (found[ranks[1]] - found[ranks[0]]))
    return out


def _order_statistic(S: Any, rank: int, low: float, high: float) -> float:
    """The score with `rank` scores before it. It lies from low to high, which are scores themselves."""
    below = 0  # scores less than low
    limits = torch.finfo(S.dtype)
    while low < high:
        if (high - low) / _BINS > limits.tiny:
            counts, edges = S.histogram(_BINS, (low, high))
            reached = below + counts.cumsum(0)
            bin = int((reached <= rank).sum())
            below = int(reached[bin - 1]) if bin else below
            least, most = _rounded_up(edges[bin], S.dtype), _rounded_up(edges[bin + 1], S.dtype)
            last = bin + 1 == _BINS
        else:
            least, most, last = low, low / 2 + high / 2, False
            n_low = int(S.count(most, "<"))
            if most <= low or n_low <= rank:
                least, most, last = most if most > low else high, high, True
                below = int(S.count(least, "<"))
        # Numbers that are added to scores outside of the bin make them neither the smallest nor the largest in it.
        low = (S + (S < least) * (limits.max / 2)).min().item()
        high = high if last else (S - (S >= most) * (limits.max / 2)).max().item()
    return low


def _rounded_up(number: Tensor, dtype: torch.dtype) -> float:
    """The smallest number of the dtype that is not less."""
    rounded = number.to(dtype)
    return torch.where(rounded.double() < number, torch.nextafter(rounded, torch.full_like(rounded, math.inf)), rounded).item()


def _reduced(S: Any, op: str) -> Tensor:
    if S.shape[-1] == 0 and op in ("mean", "min", "max"):
        value = {"mean": math.nan, "min": math.inf, "max": -math.inf}[op]
        return torch.full(S.shape[:-1], value, dtype=S.dtype, device=S.device)
    if op == "count":
        return S._any().detach()._run("mean", -1, False)[1].to(torch.int64) if S.shape[-1] else torch.zeros(S.shape[:-1], dtype=torch.int64)
    result = getattr(S, op)(-1)
    return result.values if op in ("min", "max") else result
