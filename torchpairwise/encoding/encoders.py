"""Calls of encoders: samples in, trees of features out, in pieces and with recomputation where asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from torchpairwise.comparisons.collections import Collection
from torchpairwise.comparisons.trees import Structure, flatten, unflatten

__all__ = ["encode", "snapshot"]

Encoder = Callable[[Any], Any]


def encode(encoder: Encoder, samples: Collection, chunk_size: int | None, recompute: bool) -> Collection:
    """Features [*lead, *feature] of samples [*lead, *sample].

    Arguments:
        encoder: takes [count, *sample] and returns a tree of [count, *feature].
        samples: at least one.
        chunk_size: samples in a call, None for all.
        recompute: keep no activations; each call is evaluated again in backward.

    Raises:
        TypeError, ValueError: the encoder returned something else, or other structures or feature shapes in different calls.
    """
    count = math.prod(samples.lead)
    flat = [leaf.reshape(count, *leaf.shape[leaf.dim() - n :]) for leaf, n in zip(samples.leaves, samples.sample_ndims, strict=True)]
    pieces: list[list[Tensor]] = []
    structure: Structure | None = None
    # Without chunks no size becomes a constant of torch.compile.
    for begin in (0,) if chunk_size is None else range(0, count, chunk_size):
        part = flat if chunk_size is None else [leaf[begin : begin + chunk_size] for leaf in flat]
        output = _call(encoder, unflatten(part, samples.structure), recompute)
        leaves, found = flatten(output, "the encoder's output")
        _check_output(leaves, count if chunk_size is None else min(chunk_size, count - begin))
        structure = structure or found
        if found != structure:
            raise ValueError(
                f"the encoder returned {structure} for one chunk and {found} for another; it must return the same structure for all samples"
            )
        pieces.append(leaves)
    assert structure is not None  # there is at least one sample
    joined = [_joined(parts) for parts in zip(*pieces, strict=True)]
    return Collection(
        tuple(leaf.reshape(*samples.lead, *leaf.shape[1:]) for leaf in joined), structure, tuple(leaf.dim() - 1 for leaf in joined)
    )


def _check_output(leaves: list[Tensor], count: int) -> None:
    for leaf in leaves:
        if leaf.dim() == 0 or leaf.shape[0] != count:
            raise ValueError(
                f"the encoder returned a tensor {list(leaf.shape)} for {count} samples; every tensor that it returns needs the samples as "
                f"its first axis, [{count}, *feature]"
            )


def _joined(parts: tuple[Tensor, ...]) -> Tensor:
    if len(parts) == 1:
        return parts[0]
    for part in parts:
        if part.shape[1:] != parts[0].shape[1:] or part.dtype != parts[0].dtype:
            raise ValueError(
                f"the encoder returned features {list(parts[0].shape[1:])} of {parts[0].dtype} for one chunk and {list(part.shape[1:])} of "
                f"{part.dtype} for another; pad samples to one size before, or leave encode_chunk_size out"
            )
    return torch.cat(parts)


def _call(encoder: Encoder, samples: Any, recompute: bool) -> Any:
    if not recompute or not torch.is_grad_enabled():
        return encoder(samples)
    buffers = list(encoder.buffers()) if isinstance(encoder, nn.Module) else []
    return checkpoint(encoder, samples, use_reentrant=False, context_fn=lambda: (nullcontext(), _unchanged(buffers)))


@contextmanager
def _unchanged(buffers: list[Tensor]) -> Iterator[None]:
    """Buffers keep their values: what batch normalisation counts in forward is not counted again in recomputation."""
    before = [buffer.detach().clone() for buffer in buffers]
    try:
        yield
    finally:
        for buffer, value in zip(buffers, before, strict=True):
            buffer.data.copy_(value)  # .data: graphs that saved the buffer may go on using it


def snapshot(features: Collection, sources: list[Any]) -> Collection:
    """Features that do not change when a source (the samples, or a module with its state) is changed in place: those that share memory
    with one are copied."""
    if torch.compiler.is_compiling():  # which does not know memory
        return features.map(lambda leaf, _: leaf.clone())
    storages = set()
    for source in sources:
        tensors = (
            [*source.parameters(), *source.buffers()] if isinstance(source, nn.Module) else source.leaves if source is not None else ()
        )
        storages |= {_storage(tensor) for tensor in tensors}
    return features.map(lambda leaf, _: leaf.clone() if _storage(leaf) in storages else leaf)


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
