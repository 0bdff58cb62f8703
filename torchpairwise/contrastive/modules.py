"""The contrastive losses as modules: they hold the options, and a temperature where it is learned."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from torchpairwise.contrastive.functional import Reduction, clip, info_nce, nt_xent


class Temperature(nn.Module):
    """A temperature > 0: a fixed number, or the exponential of a learned parameter `log_value`."""

    def __init__(self, value: float, learnable: bool) -> None:
        super().__init__()
        if not value > 0:
            raise ValueError(f"temperature is {value}; expected a number > 0, such as 0.1 (logits are divided by it)")
        self.value = value
        self.log_value = nn.Parameter(torch.tensor(math.log(value))) if learnable else None

    def forward(self) -> float | Tensor:
        """The number, or a 0-dim tensor with gradients."""
        return self.value if self.log_value is None else self.log_value.exp()

    def extra_repr(self) -> str:
        """Its value at the start."""
        return f"{self.value}, learnable={self.log_value is not None}"


class InfoNCE(nn.Module):
    """`info_nce` as a module.

    Arguments:
        temperature: a number > 0; with `learnable_temperature=True` the start of a learned one, kept positive by an
            exponential.
        negative_mode, normalize, reduction: as in `info_nce`.
        learnable_temperature: False by default.

    Example:
        >>> import torch
        >>> from torchpairwise.contrastive import InfoNCE
        >>> loss = InfoNCE(temperature=0.2)
        >>> loss(torch.eye(3), torch.eye(3))
        tensor(0.0134)
    """

    def __init__(
        self,
        *,
        temperature: float = 0.1,
        negative_mode: Literal["unpaired", "paired"] = "unpaired",
        normalize: bool = True,
        reduction: Reduction = "mean",
        learnable_temperature: bool = False,
    ) -> None:
        super().__init__()
        self.temperature = Temperature(temperature, learnable_temperature)
        self.negative_mode = negative_mode
        self.normalize = normalize
        self.reduction = reduction

    def forward(self, query: Tensor, positive: Tensor, negatives: Tensor | None = None) -> Tensor:
        """The loss of [*batch, N, D] queries and positives, and negatives as in `info_nce`."""
        return info_nce(
            query,
            positive,
            negatives,
            temperature=self.temperature(),
            negative_mode=self.negative_mode,
            normalize=self.normalize,
            reduction=self.reduction,
        )

    def extra_repr(self) -> str:
        """The options."""
        return f"negative_mode={self.negative_mode!r}, normalize={self.normalize}, reduction={self.reduction!r}"


class NTXent(nn.Module):
    """`nt_xent` as a module.

    Arguments:
        temperature: a number > 0; with `learnable_temperature=True` the start of a learned one, kept positive by an
            exponential.
        normalize, reduction: as in `nt_xent`.
        learnable_temperature: False by default.

    Example:
        >>> import torch
        >>> from torchpairwise.contrastive import NTXent
        >>> loss = NTXent(temperature=0.2)
        >>> loss(torch.eye(3), torch.eye(3))
        tensor(0.0266)
    """

    def __init__(
        self,
        *,
        temperature: float = 0.07,
        normalize: bool = True,
        reduction: Reduction = "mean",
        learnable_temperature: bool = False,
    ) -> None:
        super().__init__()
        self.temperature = Temperature(temperature, learnable_temperature)
        self.normalize = normalize
        self.reduction = reduction

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """The loss of two views [*batch, N, D]."""
        return nt_xent(first, second, temperature=self.temperature(), normalize=self.normalize, reduction=self.reduction)

    def extra_repr(self) -> str:
        """The options."""
        return f"normalize={self.normalize}, reduction={self.reduction!r}"


class CLIP(nn.Module):
    """`clip` as a module.

    Arguments:
        temperature: a number > 0; the start of a learned one by default, kept positive by an exponential.
        normalize, reduction: as in `clip`.
        learnable_temperature: True by default, as in the paper.

    Example:
        >>> import torch
        >>> from torchpairwise.contrastive import CLIP
        >>> loss = CLIP(temperature=0.5, learnable_temperature=False)
        >>> loss(torch.eye(2), torch.eye(2))
        tensor(0.1269)
    """

    def __init__(
        self,
        *,
        temperature: float = 0.07,
        normalize: bool = True,
        reduction: Reduction = "mean",
        learnable_temperature: bool = True,
    ) -> None:
        super().__init__()
        self.temperature = Temperature(temperature, learnable_temperature)
        self.normalize = normalize
        self.reduction = reduction

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """The loss of matching rows [*batch, N, D]."""
        return clip(first, second, temperature=self.temperature(), normalize=self.normalize, reduction=self.reduction)

    def extra_repr(self) -> str:
        """The options."""
        return f"normalize={self.normalize}, reduction={self.reduction!r}"
