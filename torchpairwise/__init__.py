"""Pairwise scores that are reduced in tiles and never stored, with gradients."""

from torchpairwise import _native as _native
from torchpairwise import attention, contrastive, masks, neighbors, optimize
from torchpairwise._native import build_info, cmake_prefix_path
from torchpairwise._registry import MetricInfo, metric_info, metrics
from torchpairwise.consume import Selection, SoftmaxOutput
from torchpairwise.explain import Explanation
from torchpairwise.expression import PairwiseExpression, lazy
from torchpairwise.masks import PairMask
from torchpairwise.pairwise import CustomComparison, make_pairwise

__version__ = build_info()["version"]

__all__ = [
    "CustomComparison",
    "Explanation",
    "MetricInfo",
    "PairMask",
    "PairwiseExpression",
    "Selection",
    "SoftmaxOutput",
    "attention",
    "build_info",
    "cmake_prefix_path",
    "contrastive",
    "lazy",
    "make_pairwise",
    "masks",
    "metric_info",
    "metrics",
    "neighbors",
    "optimize",
]
