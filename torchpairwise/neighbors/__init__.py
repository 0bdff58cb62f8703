"""Exact nearest neighbours: a function, and scikit-learn estimators on it; and landmarks of a collection."""

from torchpairwise.neighbors.estimators import KNeighborsClassifier, KNeighborsRegressor, NearestNeighbors
from torchpairwise.neighbors.functional import knn
from torchpairwise.neighbors.landmarks import farthest_point_sampling, kmeans_plusplus

__all__ = ["KNeighborsClassifier", "KNeighborsRegressor", "NearestNeighbors", "farthest_point_sampling", "kmeans_plusplus", "knn"]
