"""Encoders in front of comparisons: each sample is encoded once, then compared as often as needed."""

from torchpairwise.encoding.feature_pairwise import FeaturePairwise, make_feature_pairwise
from torchpairwise.encoding.prepared import PreparedFeatures

__all__ = ["FeaturePairwise", "PreparedFeatures", "make_feature_pairwise"]
