"""Losses that pull matching rows together and push the other rows apart, streamed over all pairs."""

from torchpairwise.contrastive.functional import clip, info_nce, nt_xent
from torchpairwise.contrastive.modules import CLIP, InfoNCE, NTXent

__all__ = ["CLIP", "InfoNCE", "NTXent", "clip", "info_nce", "nt_xent"]
