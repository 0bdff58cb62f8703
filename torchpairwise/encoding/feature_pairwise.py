"""Encode each sample once, compare many times: `tp.make_feature_pairwise`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from torchpairwise._checks import describe
from torchpairwise.comparisons.bindable import Preparer
from torchpairwise.comparisons.collections import Collection, checked_sample_ndim, collect
from torchpairwise.comparisons.custom import CustomComparison, check_sides, checked_mode
from torchpairwise.encoding.encoders import encode, snapshot
from torchpairwise.encoding.heads import as_head, checked_head, streamed_head
from torchpairwise.encoding.prepared import PreparedFeatures

__all__ = ["FeaturePairwise", "make_feature_pairwise"]

_TOWERS = ("query", "reference")


class FeaturePairwise(nn.Module, Preparer):
    """A comparison f(x, y) = g(e(x), e(y)) with an encoder e and a head g; made by `make_feature_pairwise`.

    A call encodes anew and compares; `prepare` keeps the features for several consumers of `tp.lazy`; `encode` returns them. It is a
    module: encoder and head are part of it, for optimizers, `state_dict`, `to`, `train` and `eval`, none of which a call ever changes.

    Example:
        >>> import torch, torchpairwise as tp
        >>> comparison = tp.make_feature_pairwise(torch.nn.Linear(3, 2), "sqeuclidean")
        >>> comparison(torch.zeros(4, 3), torch.ones(5, 3)).shape
        torch.Size([4, 5])
    """

    def __init__(
        self,
        towers: tuple[Callable[..., Any], ...],
        head: Any,
        sample_ndim: Any,
        mode: str | None,
        encode_chunk_size: int | None,
        chunk_size: int | None,
        checkpoint: bool,
    ) -> None:
        super().__init__()
        self.n_towers = len(towers)
        if self.n_towers == 1:
            (self.encoder,) = towers
        else:
            self.query_encoder, self.reference_encoder = towers
        self.head = head
        self.sample_ndim = sample_ndim
        self.mode = mode
        self.encode_chunk_size = encode_chunk_size
        self.chunk_size = chunk_size
        self.checkpoint = checkpoint

    def extra_repr(self) -> str:
        shown = ("sample_ndim", "mode", "encode_chunk_size", "chunk_size", "checkpoint")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)

    def forward(self, X: Any, Y: Any = None, *, mode: str | None = None) -> Any:
        """Encodes the samples and compares them; scores are stored.

        Arguments:
            X: samples [*batch, N, *sample], a tensor or a tree of tensors; with mode="single" [*batch, *sample].
            Y: samples [*batch, M, *sample]. None or X itself compares X with itself, encoded once (by both encoders, if there are two).
            mode: "all_pairs" [*batch, N, M]; "paired" [*batch, N]; "condensed" [*batch, N (N - 1) / 2]; "single" [*batch]. None takes the
                mode of the construction, then that of the head.

        Raises:
            TypeError: samples that are no tensors, or an encoder that returns something else than a tree of tensors.
            ValueError: an empty collection, shapes that do not fit, an unknown mode or one that head or encoders do not have.
        """
        return self._features(X, Y, mode, keep=False)()

    def prepare(self, X: Any, Y: Any = None, *, mode: str | None = None) -> PreparedFeatures:
        """Encodes once and keeps the features, for `tp.lazy` or for calls; arguments and errors as of a call.

        Example:
            >>> import torch, torchpairwise as tp
            >>> prepared = tp.make_feature_pairwise(torch.nn.Identity(), "linear").prepare(torch.eye(2))
            >>> S = tp.lazy(prepared)
            >>> S.sum(-1), S.max(-1).indices
            (tensor([1., 1.]), tensor([0, 1]))
        """
        return self._features(X, Y, mode, keep=True)

    def encode(self, X: Any, *, tower: str | None = None) -> Any:
        """The features [*batch, N, *feature] of samples [*batch, N, *sample].

        Arguments:
            X: the samples.
            tower: "query" or "reference" where there are two encoders, None where there is one.

        Returns:
            What the encoder returns for all of them, a tensor or a tree of tensors.

        Raises:
            ValueError: an empty collection, a wrong tower.

        Example:
            >>> import torch, torchpairwise as tp
            >>> tp.make_feature_pairwise(torch.nn.Identity(), "linear").encode(torch.ones(2, 3)).shape
            torch.Size([2, 3])
        """
        if self.n_towers == 1 and tower is not None:
            raise ValueError(f"tower={tower!r}; there is one encoder, expected tower=None")
        if self.n_towers == 2 and tower not in _TOWERS:
            raise ValueError(f"tower={tower!r}; there are two encoders, expected 'query' or 'reference'")
        samples = self._samples(X, "X", 1)
        return self._encoded(samples, self._tower(tower)).tree

    def _features(self, X: Any, Y: Any, mode: str | None, keep: bool) -> PreparedFeatures:
        """Checks everything that can be checked, then runs the encoders."""
        head, chosen = as_head(self.head), self._mode(mode)
        least = 0 if chosen == "single" else 1
        if chosen is not None:
            check_modes(checked_mode(chosen), head, self.n_towers)
        rows = self._samples(X, "X", least)
        columns = None if Y is None or Y is X else self._samples(Y, "Y", least)
        if chosen is not None:
            check_sides(rows, columns, chosen)
        query, reference = (self._tower(tower) for tower in _TOWERS)
        x = self._encoded(rows, query)
        if columns is None and self.n_towers == 1:
            y = None
        else:
            y = self._encoded(rows if columns is None else columns, reference)
        if keep:
            sources = [rows, columns, *{id(e): e for e in (query, reference) if isinstance(e, nn.Module)}.values()]
            x, y = snapshot(x, sources), None if y is None else snapshot(y, sources)
        return PreparedFeatures(x, y, self.head, chosen, self.chunk_size)

    def prepare_lazy(self, X: Any, Y: Any) -> PreparedFeatures:
        """As `prepare`, but raises before it encodes where `tp.lazy` could not bind the features."""
        streamed_head(self.head, self._mode(None))
        return self.prepare(X, Y)

    def _mode(self, mode: str | None) -> str | None:
        return next((m for m in (mode, self.mode, as_head(self.head).own_mode) if m is not None), None)

    def _tower(self, tower: str | None) -> Callable[..., Any]:
        if self.n_towers == 1:
            return self.encoder
        return self.query_encoder if tower == "query" else self.reference_encoder

    def _samples(self, samples: Any, name: str, least: int) -> Collection:
        collection = collect(samples, self.sample_ndim, name, least)
        if 0 in collection.lead:
            raise ValueError(
                f"{name} has shape {collection.describe()}, without any sample; the encoder's features are not known without one. "
                f"Compare empty collections as features, with tp.lazy"
            )
        return collection

    def _encoded(self, samples: Collection, encoder: Callable[..., Any]) -> Collection:
        return encode(encoder, samples, self.encode_chunk_size, self.checkpoint)


def check_modes(mode: str, head: Any, n_towers: int) -> None:
    """Raises ValueError where a mode cannot be had of these encoders and this head."""
    if mode == "condensed" and n_towers == 2:
        raise ValueError("mode='condensed' needs f(x, y) = f(y, x), and two encoders make it asymmetric; use mode='all_pairs'")
    head.check_mode(mode)


def make_feature_pairwise(
    encoder: Callable[..., Any] | tuple[Callable[..., Any], Callable[..., Any]],
    metric: str | None = None,
    *,
    head: Any = None,
    sample_ndim: Any = 1,
    mode: str | None = None,
    encode_chunk_size: int | None = None,
    chunk_size: int | None = None,
    checkpoint: bool = False,
    **options: Any,
) -> FeaturePairwise:
    """Makes the comparison ``f(x, y) = g(e(x), e(y))``: an encoder runs once for each sample, a head compares features.

    Arguments:
        encoder: e, takes [count, *sample] and returns a tensor [count, *feature], or a tuple, list or dict of such tensors. Two of them
            (query encoder, reference encoder) encode X and Y, the first and the second argument.
        metric: g, the name of a metric; it compares features [count, D].
        head: g in place of a metric: a comparison of `tp.make_pairwise`, which is streamed and may take trees of features; or any callable
            ``head(rows, columns)`` of two collections of features, which is called once and not streamed. Such a callable gets `mode=`
            if a call or the construction names one, or if it has an attribute `mode`.
        sample_ndim: dimensions of a sample, 1 for vectors, 3 for images [C, H, W]; a tree of numbers where samples are trees.
        mode: the mode of calls without one: "all_pairs", "paired", "condensed" or "single"; None takes the head's own, which is all pairs
            for a metric.
        encode_chunk_size: samples in one call of an encoder, None for all. Batch normalisation in training, and whatever else looks at
            the whole batch, depends on it.
        chunk_size: limit for the rows and columns of a tile in all pairs, as in `tp.lazy`, which may name another.
        checkpoint: keep no activations of encoders, evaluate each call again in backward. Values, gradients, dropout and running
            statistics are those of the plain run.
        options: of the metric, such as gamma; tensors may require gradients, and parameters become parameters of the comparison.

    Returns:
        A `FeaturePairwise`: ``comparison(X, Y)``, ``comparison.prepare(X, Y)``, ``comparison.encode(X)``, ``tp.lazy(X, Y, comparison)``.

    Raises:
        TypeError: not exactly one head, a callable in place of a metric's name, options with `head=`, an encoder that cannot be called.
        ValueError: an unknown metric, mode or size.

    Notes:
        Features are attached to the encoder's graph; a streamed head adds up gradients of features, which flow on through the encoder.
        Features of all samples are stored, [N + M, F], and activations of the encoder unless `checkpoint=True`. The encoder runs under the
        caller's autocast and grad state and the model's train or eval state.

    Example:
        >>> import torch, torchpairwise as tp
        >>> encoder = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 16))
        >>> comparison = tp.make_feature_pairwise(encoder, "sqeuclidean", sample_ndim=3)
        >>> images, references = torch.randn(3, 3, 8, 8), torch.randn(5, 3, 8, 8)
        >>> comparison(images, references).shape, comparison(images[0], references[0], mode="single").shape
        (torch.Size([3, 5]), torch.Size([]))
        >>> tp.lazy(images, references, comparison).topk(2, largest=False).indices.shape
        torch.Size([3, 2])
    """
    towers = tuple(encoder) if isinstance(encoder, (tuple, list)) else (encoder,)
    if len(towers) not in (1, 2) or (len(towers) == 1 and isinstance(encoder, (tuple, list))):
        raise ValueError(f"encoder has {len(towers)} parts; expected one encoder, or a pair (query encoder, reference encoder)")
    for tower in towers:
        if not callable(tower):
            raise TypeError(f"encoder is {describe(tower)}; expected a callable or a pair of callables")
    chosen = checked_head(metric, head, options)
    if mode is not None:
        check_modes(checked_mode(mode), as_head(chosen), len(towers))
    for name, size in (("encode_chunk_size", encode_chunk_size), ("chunk_size", chunk_size)):
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise ValueError(f"{name}={size!r}; expected a positive integer or None")
    if chunk_size is not None and metric is None and not isinstance(chosen, CustomComparison):
        raise ValueError(f"chunk_size={chunk_size} was given with a head of whole collections, which has no tiles; leave it out")
    return FeaturePairwise(towers, chosen, checked_sample_ndim(sample_ndim), mode, encode_chunk_size, chunk_size, checkpoint)
