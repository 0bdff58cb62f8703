"""Attention by any score, kernel regression, and their modules and estimators, streamed over all pairs."""

from torchpairwise.attention.estimators import NadarayaWatson
from torchpairwise.attention.functional import attention, kernel_attention
from torchpairwise.attention.modules import KernelAttention

__all__ = ["KernelAttention", "NadarayaWatson", "attention", "kernel_attention"]
