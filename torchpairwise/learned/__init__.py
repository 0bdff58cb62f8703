"""Learned comparisons: encoders and heads, and retrieval with them."""

from torchpairwise.comparisons import make_pairwise
from torchpairwise.encoding import make_feature_pairwise
from torchpairwise.learned.estimators import NeighborhoodComponentsAnalysis
from torchpairwise.learned.heads import Bilinear, Mahalanobis, PairMLP
from torchpairwise.learned.search import ScoredPairs, max_sim, near_duplicates, semantic_search

__all__ = [
    "Bilinear",
    "Mahalanobis",
    "NeighborhoodComponentsAnalysis",
    "PairMLP",
    "ScoredPairs",
    "make_feature_pairwise",
    "make_pairwise",
    "max_sim",
    "near_duplicates",
    "semantic_search",
]
