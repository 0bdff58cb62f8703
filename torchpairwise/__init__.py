"""Pairwise scores that are reduced in tiles and never stored, with gradients."""

from torchpairwise import _native as _native
from torchpairwise import attention, contrastive, learned, masks, neighbors, optimize, statistics, transport
from torchpairwise._native import build_info, cmake_prefix_path
from torchpairwise._registry import MetricInfo, metric_info, metrics
from torchpairwise.comparisons import CustomComparison, make_pairwise
from torchpairwise.configuration import config
from torchpairwise.consume import Selection, SoftmaxOutput
from torchpairwise.encoding import FeaturePairwise, PreparedFeatures, make_feature_pairwise
from torchpairwise.explain import Explanation
from torchpairwise.expression import PairwiseExpression, eye_like, lazy
from torchpairwise.masks import PairMask
from torchpairwise.statistics import energy_statistics, median_distance, mmd_statistics
from torchpairwise.sweep import sweep

__version__ = build_info()["version"]

__all__ = [
    "CustomComparison",
    "Explanation",
    "FeaturePairwise",
    "MetricInfo",
    "PairMask",
    "PairwiseExpression",
    "PreparedFeatures",
    "Selection",
    "SoftmaxOutput",
    "attention",
    "build_info",
    "cmake_prefix_path",
    "config",
    "contrastive",
    "energy_statistics",
    "eye_like",
    "lazy",
    "learned",
    "make_feature_pairwise",
    "make_pairwise",
    "masks",
    "median_distance",
    "metric_info",
    "metrics",
    "mmd_statistics",
    "neighbors",
    "optimize",
    "statistics",
    "sweep",
    "transport",
]
