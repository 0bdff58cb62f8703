"""Optimisation with lazy matrices: entropic transport, and quadratic problems in a box."""

from torchpairwise.optimize.results import ConvergenceError, DivergenceResult, Potentials, SinkhornResult, Status
from torchpairwise.optimize.sinkhorn import sinkhorn, sinkhorn_divergence

__all__ = ["ConvergenceError", "DivergenceResult", "Potentials", "SinkhornResult", "Status", "sinkhorn", "sinkhorn_divergence"]
