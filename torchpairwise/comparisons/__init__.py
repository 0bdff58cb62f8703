"""Comparisons written in Python, of vectors, arrays and trees of tensors."""

from torchpairwise.comparisons.custom import CustomComparison, make_pairwise

__all__ = ["CustomComparison", "make_pairwise"]
