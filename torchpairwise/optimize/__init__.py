"""Optimisation with lazy matrices: entropic transport, and quadratic problems in a box."""

from torchpairwise.optimize.box_qp import box_qp
from torchpairwise.optimize.results import BoxQPResult, ConvergenceError, DivergenceResult, Potentials, SinkhornResult, Status
from torchpairwise.optimize.sinkhorn import sinkhorn, sinkhorn_divergence

__all__ = [
    "BoxQPResult",
    "ConvergenceError",
    "DivergenceResult",
    "Potentials",
    "SinkhornResult",
    "Status",
    "box_qp",
    "sinkhorn",
    "sinkhorn_divergence",
]
