"""Losses between point clouds: Sinkhorn divergence, kernel losses, Chamfer and Hausdorff distances."""

from torchpairwise.transport.barycenter import BarycenterResult, free_support_barycenter
from torchpairwise.transport.functional import (
    barycentric_projection,
    blur_to_epsilon,
    chamfer_distance,
    gradient_flow_step,
    hausdorff_distance,
    samples_loss,
)
from torchpairwise.transport.modules import ChamferLoss, HausdorffLoss, SamplesLoss

__all__ = [
    "BarycenterResult",
    "ChamferLoss",
    "HausdorffLoss",
    "SamplesLoss",
    "barycentric_projection",
    "blur_to_epsilon",
    "chamfer_distance",
    "free_support_barycenter",
    "gradient_flow_step",
    "hausdorff_distance",
    "samples_loss",
]
