"""Attention modules: they hold projections and widths, and make one functional call."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torchpairwise.attention.functional import attention


class _Weighting(NamedTuple):
    """weight = exp(scale * score) of query and key divided by l^power; attention gives a distance its minus sign."""

    comparison: str
    scale: float
    power: int
    # The lengthscale at the start is head_dim ** exponent: weights of untrained heads then spread over many keys.
    exponent: float
    formula: str


_WEIGHTINGS = {
    "rbf": _Weighting("sqeuclidean", 0.5, 1, 0.5, "exp(-|q - k|^2 / (2 l^2))"),
    "laplacian": _Weighting("manhattan", 0.5, 2, 0.5, "exp(-sum_d |q_d - k_d| / (2 l^2))"),
    "linear": _Weighting("linear", 1.0, 1, 0.25, "exp(q . k / l^2)"),
}


class KernelAttention(nn.Module):
    """Multi-head attention whose weights are a kernel of projected query and key, with one learned lengthscale a head.

    head_h = sum_j k(q_i, k_j; l_h) v_j / sum_j k(q_i, k_j; l_h),  output = W_o [head_1 ... head_H] + b_o

    Arguments:
        embed_dim: features of query and output; a multiple of num_heads.
        num_heads: 1 by default.
        metric: "rbf" exp(-|q - k|^2 / (2 l^2)), "laplacian" exp(-sum_d |q_d - k_d| / (2 l^2)), or "linear"
            exp(q . k / l^2), which is softmax attention with temperature l^2.
        lengthscale: l > 0 at the start; None means sqrt(head_dim), and for "linear" head_dim^(1/4), the usual
            factor 1 / sqrt(head_dim).
        learn_lengthscale: True makes l a parameter, kept positive by an exponential.
        bias: whether projections add one.
        key_dim, value_dim: features of key and value, embed_dim by default.

    Shapes:
        query [*batch, N, embed_dim], key [*batch, M, key_dim], value [*batch, M, value_dim] -> [*batch, N, embed_dim].
        Key defaults to query and value to key.

    Notes:
        Memory grows with N + M; see `attention`.

    Example:
        >>> import torch
        >>> from torchpairwise.attention import KernelAttention
        >>> layer = KernelAttention(16, num_heads=4)
        >>> layer(torch.randn(2, 10, 16)).shape
        torch.Size([2, 10, 16])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int = 1,
        *,
        metric: str = "rbf",
        lengthscale: float | None = None,
        learn_lengthscale: bool = True,
        bias: bool = True,
        key_dim: int | None = None,
        value_dim: int | None = None,
    ) -> None:
        super().__init__()
        if metric not in _WEIGHTINGS:
            raise ValueError(f"metric is {metric!r}; expected one of {sorted(_WEIGHTINGS)}")
        if num_heads < 1 or embed_dim % num_heads:
            raise ValueError(f"embed_dim is {embed_dim} and num_heads {num_heads}; expected a multiple of the number of heads")
        head_dim = embed_dim // num_heads
        start = head_dim ** _WEIGHTINGS[metric].exponent if lengthscale is None else lengthscale
        if not start > 0:
            raise ValueError(f"lengthscale is {lengthscale}; expected a number > 0, or None for the default")
        self.embed_dim, self.num_heads, self.metric = embed_dim, num_heads, metric
        self.log_lengthscale = nn.Parameter(torch.full((num_heads,), math.log(start)), requires_grad=learn_lengthscale)
        self.query_projection = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.key_projection = nn.Linear(key_dim or embed_dim, embed_dim, bias=bias)
        self.value_projection = nn.Linear(value_dim or embed_dim, embed_dim, bias=bias)
        self.output_projection = nn.Linear(embed_dim, embed_dim, bias=bias)

    def forward(
        self,
        query: Tensor,  # [*batch, N, embed_dim]
        key: Tensor | None = None,  # [*batch, M, key_dim]
        value: Tensor | None = None,  # [*batch, M, value_dim]
        *,
        mask: Any = None,
        key_mask: Tensor | None = None,  # [*batch, M]
    ) -> Tensor:
        """Attends; `mask` is a pair mask of `tp.masks` and `key_mask` a boolean vector of keys, True = keep in both."""
        key = query if key is None else key
        value = key if value is None else value
        weighting = _WEIGHTINGS[self.metric]
        shrink = torch.exp(-weighting.power * self.log_lengthscale)[:, None, None]
        heads = attention(
            self._split(self.query_projection(query)) * shrink,
            self._split(self.key_projection(key)) * shrink,
            self._split(self.value_projection(value)),
            metric=weighting.comparison,
            scale=weighting.scale,
            mask=mask,
            key_mask=None if key_mask is None else key_mask.unsqueeze(-2),
        )
        return self.output_projection(heads.transpose(-3, -2).flatten(-2))

    def _split(self, x: Tensor) -> Tensor:
        """[*batch, N, embed_dim] as [*batch, heads, N, head_dim]."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(-3, -2)

    def extra_repr(self) -> str:
        """The options, and the kernel's formula."""
        formula = _WEIGHTINGS[self.metric].formula
        return f"{self.embed_dim}, num_heads={self.num_heads}, metric={self.metric!r}  # {formula}"
