"""Exact nearest neighbours: a function, and scikit-learn estimators on it."""

from torchpairwise.neighbors.estimators import KNeighborsClassifier, KNeighborsRegressor, NearestNeighbors
from torchpairwise.neighbors.functional import knn

__all__ = ["KNeighborsClassifier", "KNeighborsRegressor", "NearestNeighbors", "knn"]
