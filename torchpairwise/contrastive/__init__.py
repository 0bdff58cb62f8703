"""Losses that pull matching rows together and push the other rows apart, streamed over all pairs."""

from torchpairwise.contrastive.functional import info_nce, nt_xent
from torchpairwise.contrastive.modules import InfoNCE, NTXent

__all__ = ["InfoNCE", "NTXent", "info_nce", "nt_xent"]
