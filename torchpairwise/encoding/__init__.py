"""Encoders in front of comparisons: each sample is encoded once, then compared as often as needed."""

from torchpairwise.encoding.feature_pairwise import FeaturePairwise, make_feature_pairwise
from torchpairwise.encoding.heads import higher_is_better
from torchpairwise.encoding.prepared import PreparedFeatures

__all__ = ["FeaturePairwise", "PreparedFeatures", "higher_is_better", "make_feature_pairwise"]
