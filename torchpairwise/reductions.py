"""Reductions made of the native consumers: moments, norms, counts and cross entropy."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchpairwise._axes import Dim, one_axis, reduced_axis
from torchpairwise._checks import as_number, describe, matching
from torchpairwise.consume import Consumers

__all__ = ["HistogramOutput", "Reductions", "safe_sqrt"]

# Counts of a row are sums of ones, which float32 holds exactly up to here.
_EXACT_COUNT = 2**24
# Entries of the counts of rows that are held before they are added up.
_HELD_COUNTS = 2**22
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


class HistogramOutput(NamedTuple):
    """`counts` (int64) of the bins and their `edges` [bins + 1]."""

    counts: Tensor
    edges: Tensor


class Reductions(Consumers):
    """Reductions of `PairwiseExpression` that take one or a few sweeps of the native consumers.

    `dim`, `keepdim` and `exclude_self` are as of `sum`. Memory is that of inputs and outputs; gradients stream as those of the consumers.
    """

    __slots__ = ()

    def var(self, dim: Dim = None, keepdim: bool = False, *, correction: float = 1, exclude_self: bool = False) -> Tensor:
        """The variance of the kept pairs: ``sum_j (s_ij - mean_i)^2 / (#kept_i - correction)``.

        Arguments:
            dim, keepdim, exclude_self: as of `sum`.
            correction: 1 for the unbiased estimate, 0 for the variance of the pairs themselves, as in torch.

        Returns:
            [*batch, N], [*batch, M] or [*batch]; NaN where the kept pairs are not more than `correction`.

        Notes:
            Two sweeps: deviations from the mean are squared, so that nothing cancels.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.zeros(1, 1), torch.tensor([[1.0], [2.0], [3.0]]), "manhattan").var(-1)
            tensor([1.])
        """
        axis = reduced_axis(self.shape, dim)
        mean = self.mean(dim, True, exclude_self=exclude_self)
        deviation = self._plus(-mean)
        squares = deviation.square().sum(dim, exclude_self=exclude_self)
        left = self._kept(axis, exclude_self) - as_number(correction, "correction")
        return self._shaped(torch.where(left > 0, squares, math.nan) / torch.where(left > 0, left, 1.0), axis, keepdim)

    def std(self, dim: Dim = None, keepdim: bool = False, *, correction: float = 1, exclude_self: bool = False) -> Tensor:
        """The standard deviation, the square root of `var`, with gradient 0 where it is 0.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.zeros(1, 1), torch.tensor([[1.0], [5.0]]), "manhattan").std(-1, correction=0)
            tensor([2.])
        """
        return safe_sqrt(self.var(dim, keepdim, correction=correction, exclude_self=exclude_self))

    def norm(self, p: float = 2, dim: Dim = None, keepdim: bool = False, *, exclude_self: bool = False) -> Tensor:
        """The p-norm of rows, columns or all scores: ``(sum_j |s_ij|^p)^(1/p)``, with gradient 0 where it is 0.

        Arguments:
            p: a positive number or infinity (the largest absolute score).

        Raises:
            ValueError: p is not positive.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.zeros(1, 1), torch.tensor([[3.0], [4.0]]), "manhattan").norm(dim=-1)
            tensor([5.])
        """
        p = as_number(p, "norm(p)")
        if not p > 0:
            raise ValueError(f"norm(p={p}); expected a positive number or infinity")
        axis = reduced_axis(self.shape, dim)
        if p == math.inf:
            largest = self._any().abs().max(dim, keepdim, exclude_self=exclude_self)
            return (largest if axis is None else largest.values).clamp(min=0)
        if p == 2:
            return safe_sqrt(self._any().square().sum(dim, keepdim, exclude_self=exclude_self))
        total = self._any().abs().pow(p).sum(dim, keepdim, exclude_self=exclude_self)
        positive = total > 0
        return torch.where(positive, torch.where(positive, total, 1.0).pow(1 / p), total * 0)

    def count(
        self,
        threshold: float | Tensor | None = None,
        comparison: str = "<=",
        dim: Dim = None,
        keepdim: bool = False,
        *,
        exclude_self: bool = False,
    ) -> Tensor:
        """How many kept pairs fulfil a condition: ``#{j : s_ij <= threshold}``.

        Arguments:
            threshold: a number, a 0-dim tensor, or a tensor [*batch, N, 1] or [*batch, 1, M]; None counts the scores that are not 0, so
                that a condition may also be written ``(S > 0.5).count()``.
            comparison: "<", "<=", ">", ">=", "==" or "!=".
            dim, keepdim, exclude_self: as of `sum`.

        Returns:
            int64 [*batch, N], [*batch, M] or [*batch].

        Raises:
            ValueError: another comparison.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.zeros(1, 1), torch.tensor([[1.0], [2.0], [3.0]]), "manhattan").count(2.0, dim=-1)
            tensor([2])
        """
        if comparison not in _COMPARISONS:
            raise ValueError(f"comparison={comparison!r}; expected one of {', '.join(_COMPARISONS)}")
        S = self._any().detach()
        S = S.to(torch.float32) if self.dtype in (torch.float16, torch.bfloat16) else S
        if isinstance(threshold, Tensor) and threshold.dtype == self.dtype:
            threshold = threshold.detach().to(S.dtype)
        holds = S.ne(0) if threshold is None else _compared(S, threshold, comparison)
        axis = reduced_axis(self.shape, dim)
        along = -1 if axis is None else axis
        size = self.shape[along]
        if size <= _EXACT_COUNT:
            counts = holds.sum(along, exclude_self=exclude_self).to(torch.int64)
        else:
            kept = holds.masked(_others()) if exclude_self else holds
            ranges = [slice(a, a + _EXACT_COUNT) for a in _starts(size, _EXACT_COUNT)]
            parts = [kept[..., :, places] if along == -1 else kept[..., places, :] for places in ranges]
            counts = torch.stack([part.sum(along).to(torch.int64) for part in parts]).sum(0)
        return self._shaped(counts.sum(-1) if axis is None else counts, axis, keepdim)

    def histogram(
        self, bins: int = 10, range: tuple[float, float] | None = None, dim: Dim = None, *, exclude_self: bool = False
    ) -> HistogramOutput:
        """Counts of the kept scores in bins of equal width, as `numpy.histogram`.

        Arguments:
            bins: how many.
            range: the lowest and the highest edge; None for the smallest and largest score. Scores outside, and NaN, are not counted.
            dim: -1 or -2 for one histogram a row or column, None or both for one of all pairs.
            exclude_self: leave out the pairs i == j.

        Returns:
            The named tuple (counts, edges): int64 [*batch, N, bins], [*batch, M, bins] or [*batch, bins], and float64 edges [bins + 1].

        Raises:
            ValueError: no bins; a range that is not finite and increasing; no pair to take the range from.

        Example:
            >>> import torch, torchpairwise as tp
            >>> D = tp.lazy(torch.zeros(1, 1), torch.tensor([[0.0], [1.0], [3.0], [4.0]]), "manhattan")
            >>> D.histogram(bins=2).counts
            tensor([2, 2])
        """
        if isinstance(bins, bool) or not isinstance(bins, int) or bins < 1:
            raise ValueError(f"bins is {describe(bins)}; expected a positive integer")
        low, high = self._limits(exclude_self) if range is None else (as_number(x, "range") for x in range)
        if not low < high or not math.isfinite(high - low):
            raise ValueError(f"range is ({low}, {high}); expected finite limits low < high")
        axis = reduced_axis(self.shape, dim)
        edges = torch.linspace(low, high, bins + 1, dtype=torch.float64, device=self.device)
        with torch.no_grad():
            if axis is not None:
                return HistogramOutput(self._run("histogram", axis, exclude_self, k=bins, low=low, high=high)[0], edges)
            kept = self._any().masked(_others()) if exclude_self and self._extra_masks(True) else self._any()
            counts = torch.zeros((*self.shape[:-2], bins), dtype=torch.int64, device=self.device)
            rows = max(1, _HELD_COUNTS // (bins * max(1, counts.numel() // bins)))
            for a in _starts(self.shape[-2], rows):
                counts += kept[..., a : a + rows, :]._run("histogram", -1, False, k=bins, low=low, high=high)[0].sum(-2)
        return HistogramOutput(counts, edges)

    def entropy(self, dim: int = -1, keepdim: bool = False, *, exclude_self: bool = False) -> Tensor:
        """The entropy of the softmax of each row: ``-sum_j p_ij log p_ij`` with ``p_ij = exp(s_ij - logsumexp_i)``, in nats.

        Arguments:
            dim: -1 (softmax over columns) or -2 (over rows).

        Returns:
            [*batch, N] or [*batch, M], from 0 to log of the number of kept pairs; 0 where nothing is kept.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.lazy(torch.zeros(1, 1), torch.zeros(4, 1), "linear").entropy().exp()
            tensor([4.])
        """
        axis = one_axis(self.shape, dim)
        lse = self.logsumexp(axis, True, exclude_self=exclude_self)
        finite = lse.isfinite()
        # exp(-1e4) is 0 in every dtype, and 0 times it is 0, which 0 times -inf is not.
        log_p = self._plus(torch.where(finite, -lse, 0.0)).clamp(min=-1e4)
        result = -(log_p.exp() * log_p).sum(axis, True, exclude_self=exclude_self)
        result = torch.where(finite, result, torch.where(lse == -math.inf, 0.0, math.nan))
        return self._cast(result if keepdim else result.squeeze(axis))

    def cross_entropy(
        self,
        targets: Tensor,  # [*batch, N] int64
        *,
        weight: Tensor | None = None,  # [M]
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        reduction: str = "mean",
        dim: int = -1,
        exclude_self: bool = False,
    ) -> Tensor:
        """Cross entropy of the scores as logits of M classes: ``logsumexp_i - s_i,target_i``, as `torch.nn.functional.cross_entropy`.

        With label smoothing e the target takes 1 - e of the probability and e is shared by all kept classes alike;
        ``z_loss * logsumexp_i^2`` is added. A softcap is the nodes ``cap * (S / cap).tanh()`` before.

        Arguments:
            targets: the class of each row, int64 [*batch, N]; with dim=-2 the row of each column, [*batch, M].
            weight: a factor for each class [M].
            ignore_index: rows with this target have loss and gradient 0, and do not count in the mean.
            label_smoothing: from 0 to 1.
            z_loss: factor of the squared logsumexp, >= 0.
            reduction: "mean" (by the weights of the targets), "sum" or "none".
            dim, exclude_self: as of `logsumexp`.

        Returns:
            A scalar [*batch] for "mean" and "sum" over the rows of an entry, [*batch, N] for "none". NaN for the mean of nothing, as torch.

        Raises:
            ValueError, TypeError, IndexError: targets of another shape, dtype or outside of the classes; an unknown reduction.

        Notes:
            Two sweeps at most; the targets' scores are N pairs of their own.

        Example:
            >>> import torch, torchpairwise as tp
            >>> S = tp.lazy(torch.zeros(2, 1), torch.zeros(4, 1), "linear")
            >>> S.cross_entropy(torch.tensor([0, 3])).exp()
            tensor(4.)
        """
        axis = one_axis(self.shape, dim)
        S = self._any() if axis == -1 else self._any().mT
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"reduction={reduction!r}; expected 'mean', 'sum' or 'none'")
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"label_smoothing={label_smoothing}; expected a number from 0 to 1")
        kept, safe = S._classes(targets, ignore_index)
        lse = S.logsumexp(-1, exclude_self=exclude_self)
        factor = torch.ones_like(lse) if weight is None else matching(weight, "weight", self._features, self._dtype)[safe]
        loss = (1 - label_smoothing) * (lse - S._targets(safe)) * factor
        if label_smoothing:
            loss = loss + label_smoothing * S._smoothed(lse, weight, exclude_self)
        if z_loss:
            loss = loss + z_loss * lse.square()
        loss = torch.where(kept, loss, 0.0)
        if reduction == "none":
            return self._cast(loss)
        total = loss.sum(-1)
        return self._cast(total if reduction == "sum" else total / torch.where(kept, factor, 0.0).sum(-1))

    # Helpers

    def _any(self) -> Any:
        """This expression, with the methods of its other parts."""
        return self

    def _plus(self, vector: Tensor) -> Any:
        """Adds [*batch, N, 1], [*batch, 1, M] or [*batch, 1, 1]."""
        S = self._any()
        if vector.shape[-1] != 1:
            return S.add_columns(vector.squeeze(-2))
        return S.add_rows(vector.squeeze(-1).expand(*vector.shape[:-2], self.shape[-2]))

    def _kept(self, axis: int | None, exclude_self: bool) -> Tensor:
        """The number of kept pairs of each row, column or batch entry."""
        counts = self._any().detach()._run("mean", axis, exclude_self)[1]
        return counts.double().sum(-1).to(counts.dtype) if axis is None else counts

    def _limits(self, exclude_self: bool) -> tuple[float, float]:
        S = self._any().detach()
        if 0 in self.shape:
            raise ValueError(f"histogram of scores {list(self.shape)} needs a range: there is no score to take it from")
        low, high = S.min(exclude_self=exclude_self).min().item(), S.max(exclude_self=exclude_self).max().item()
        return (low - 0.5, high + 0.5) if low == high else (low, high)

    def _classes(self, targets: Any, ignore_index: int) -> tuple[Tensor, Tensor]:
        """Which rows have a target, and the targets with 0 where there is none."""
        n, m = self.shape[-2:]
        if not isinstance(targets, Tensor) or targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool:
            raise TypeError(f"targets is {describe(targets)}; expected integer classes [..., {n}]")
        if targets.dim() == 0 or targets.shape[-1] != n:
            raise ValueError(f"targets has shape {list(targets.shape)}; expected [..., {n}], one class for each row")
        targets = targets.to(torch.int64)
        kept = targets != ignore_index
        safe = torch.where(kept, targets, 0)
        if not torch.compiler.is_compiling() and safe.numel() and (safe.min() < 0 or safe.max() >= m):
            raise IndexError(
                f"targets run from {int(safe.min())} to {int(safe.max())}; expected classes from 0 to {m - 1} or {ignore_index}"
            )
        return kept, safe

    def _targets(self, targets: Tensor) -> Tensor:
        """The scores of the pairs (i, targets_i)."""
        return self._any()._part("columns", targets).diagonal()

    def _smoothed(self, lse: Tensor, weight: Tensor | None, exclude_self: bool) -> Tensor:
        """The cross entropy with all kept classes alike: mean_j w_j (lse - s_ij)."""
        S = self._any()
        if weight is None:
            return lse - S.mean(-1, exclude_self=exclude_self)
        ones = matching(weight, "weight", self._features, self._dtype).unsqueeze(-1)
        counts = self._kept(-1, exclude_self)
        total = (S * 0.0 + 1.0).matmul(ones, exclude_self=exclude_self).squeeze(-1)
        return (lse * total - S.matmul(ones.to(self.dtype), exclude_self=exclude_self).squeeze(-1)) / counts


def _others() -> Any:
    """The mask that leaves out i == j, by place."""
    from torchpairwise.masks import band

    return ~band(0, 0)


def _starts(size: int, step: int) -> list[int]:
    return list(range(0, size, step))


def _compared(S: Any, threshold: Any, comparison: str) -> Any:
    if comparison in ("==", "!="):
        return S.eq(threshold) if comparison == "==" else S.ne(threshold)
    if comparison in ("<", "<="):
        return S < threshold if comparison == "<" else S <= threshold
    return S > threshold if comparison == ">" else S >= threshold


def safe_sqrt(x: Tensor) -> Tensor:
    """The square root with gradient 0 at 0."""
    zero = x == 0
    return torch.where(zero, x * 0, torch.where(zero, 1.0, x).sqrt())
