"""Every message once: what was given, what was expected, what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import torchpairwise as tp

X, Y, V = torch.randn(3, 2), torch.randn(4, 2), torch.randn(4, 5)
S = tp.lazy(X, Y)
META = torch.zeros(3, device="meta")
LEARNABLE = torch.ones(2, requires_grad=True)


def groups(rows: torch.Tensor, columns: torch.Tensor) -> tp.PairwiseExpression:
    return S.masked(tp.masks.same_group(rows, columns))


def labels(*shape: int, device: str = "cpu") -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int64, device=device)


def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * y).sum(-1)


custom = tp.make_pairwise(product)
MESSAGES: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    # lazy: features
    (TypeError, r"X is list; expected a torch.Tensor \[..., N, D\]", lambda: tp.lazy([[1.0]])),
    (TypeError, r"Y is ndarray; expected a torch.Tensor \[..., M, D\]", lambda: tp.lazy(X, np.ones((2, 2)))),
    (TypeError, r"X has dtype torch.complex64; complex", lambda: tp.lazy(X.to(torch.complex64))),
    (ValueError, r"X has shape \[3\]; expected \[..., rows, features\]", lambda: tp.lazy(torch.zeros(3))),
    (ValueError, r"X is on cpu, but Y is on meta; move", lambda: tp.lazy(X, Y.to("meta"))),
    (TypeError, r"X has dtype torch.float32, but Y has torch.float64; convert", lambda: tp.lazy(X, Y.double())),
    (TypeError, r"X has dtype torch.int64, but Y has torch.float64", lambda: tp.lazy(labels(3, 2), Y.double())),
    (ValueError, r"X has 2 features and Y has 3; both need the same D", lambda: tp.lazy(X, torch.zeros(4, 3))),
    (ValueError, r"Y has batch dimensions \[3\], which do not broadcast with \[2\]", lambda: tp.lazy(X.expand(2, 3, 2), Y.expand(3, 4, 2))),
    # lazy: metric and options
    (ValueError, r"metric='euclidian' is unknown. Did you mean 'euclidean'.* lists all: linear, ", lambda: tp.lazy(X, Y, "euclidian")),
    (ValueError, r"metric='zzz' is unknown. tp.metrics\(\) lists all", lambda: tp.lazy(X, Y, "zzz")),
    (TypeError, r"metric is function; .*wrap a function with tp.make_pairwise", lambda: tp.lazy(X, Y, product)),
    (TypeError, r"metric is int 3; expected a name", lambda: tp.lazy(X, Y, 3)),
    (TypeError, r"metric 'rbf' has no option 'gama'; it takes gamma, lengthscale", lambda: tp.lazy(X, Y, "rbf", gama=1.0)),
    (TypeError, r"metric 'linear' has no option 'gamma'; it takes no options", lambda: tp.lazy(X, Y, "linear", gamma=1.0)),
    (TypeError, r"has no option 'lengthscale'; it takes gamma, coef0, degree", lambda: tp.lazy(X, Y, "polynomial", lengthscale=1.0)),
    (TypeError, r"option 'gamma' was given with a comparison", lambda: tp.lazy(X, Y, custom, gamma=1.0)),
    (ValueError, r"gamma and lengthscale were both given.*give one", lambda: tp.lazy(X, Y, "rbf", gamma=1.0, lengthscale=1.0)),
    (ValueError, r"lengthscale is 0; expected a number > 0", lambda: tp.lazy(X, Y, "rbf", lengthscale=0)),
    (TypeError, r"gamma is str '1'; expected a number or a 0-dim tensor", lambda: tp.lazy(X, Y, "rbf", gamma="1")),
    (TypeError, r"gamma is ndarray; expected a number", lambda: tp.lazy(X, Y, "rbf", gamma=np.ones(2))),
    (
        ValueError,
        r"gamma has shape \[3\]; expected a number, a 0-dim tensor or a vector \[2\]",
        lambda: tp.lazy(X, Y, "rbf", gamma=torch.ones(3)),
    ),
    (ValueError, r"gamma has shape \[2\]; expected a number, a 0-dim tensor$", lambda: tp.lazy(X, Y, "sigmoid", gamma=torch.ones(2))),
    (TypeError, r"gamma has dtype torch.float64, but X has torch.float32", lambda: tp.lazy(X, Y, "rbf", gamma=torch.ones(2).double())),
    (ValueError, r"gamma is on meta, but X is on cpu", lambda: tp.lazy(X, Y, "rbf", gamma=torch.ones(2, device="meta"))),
    (TypeError, r"degree is a tensor; expected a number", lambda: tp.lazy(X, Y, "polynomial", degree=torch.tensor(2.0))),
    # lazy: choices
    (ValueError, r"backend='gpu'; expected 'auto', 'native' or 'tiles'", lambda: tp.lazy(X, Y, backend="gpu")),
    (ValueError, r"backend='keops' is not available", lambda: tp.lazy(X, Y, backend="keops")),
    (ValueError, r"precision='low'; expected None or 'fast'", lambda: tp.lazy(X, Y, precision="low")),
    (ValueError, r"chunk_size=0; expected a positive integer", lambda: tp.lazy(X, Y, chunk_size=0)),
    (ValueError, r"chunk_size=2.0; expected a positive integer", lambda: tp.lazy(X, Y, chunk_size=2.0)),  # type: ignore[arg-type]
    (ValueError, r"native.* was asked for.*\n.*function", lambda: tp.lazy(X, Y, custom, backend="native").sum(-1)),
    # Operators
    (TypeError, r"S \* other is str '3'; expected a number", lambda: S * "3"),
    (TypeError, r"S \+ other is complex 1j", lambda: S + 1j),
    (TypeError, r"S \+ other is str 'a'", lambda: S - "a"),
    (TypeError, r"S / other is str 'a'; expected a number, a tensor or an expression", lambda: S / "a"),
    (TypeError, r"S \+ other is ndarray", lambda: np.ones((3, 4)) + S),
    (TypeError, r"S \* other has dtype torch.complex64; complex", lambda: S * torch.tensor(1j)),
    (ValueError, r"S \* other has shape \[3\].*Use add_rows, add_columns, weight_rows", lambda: S * torch.ones(3)),
    (ValueError, r"S \* other is on meta, but X is on cpu", lambda: S * torch.ones((), device="meta")),
    (
        ValueError,
        r"other has shape \[3, 4\]; expected \[..., 3, 1\] or \[..., 1, 4\].*add_rows.*lazy expression",
        lambda: S + torch.zeros(3, 4),
    ),
    (ValueError, r"other has shape \[3, 4\].*weight_rows and weight_columns", lambda: S * torch.zeros(3, 4)),
    (TypeError, r"pow\(exponent\) is a tensor \[\] of torch.float32; expected a number", lambda: S ** torch.tensor(2.0)),
    (ValueError, r"clamp\(\) got neither min nor max", lambda: S.clamp()),
    (TypeError, r"clamp\(min\) is a tensor", lambda: S.clamp(torch.tensor(1.0))),  # type: ignore[arg-type]
    (TypeError, r"minimum\(value\) is str", lambda: S.minimum("1")),  # type: ignore[arg-type]
    (ValueError, r"scores \[3, 4\] and \[3, 3\] differ in rows or columns", lambda: S + tp.lazy(X)),
    (TypeError, r"torch.float32 and of torch.float64 cannot be joined; convert", lambda: S * tp.lazy(X.double(), Y.double())),
    (ValueError, r"on cpu and on meta cannot be joined; move", lambda: S + tp.lazy(X.to("meta"), Y.to("meta"))),
    (ValueError, r"bound with different choices \(native and tiles\)", lambda: tp.lazy(X, backend="native") + tp.lazy(X, backend="tiles")),
    (ValueError, r"the other expression has batch dimensions \[2\]", lambda: tp.lazy(X.expand(3, 3, 2)) + tp.lazy(X.expand(2, 3, 2))),
    (ValueError, r"comparison product and a transposed one cannot be joined", lambda: tp.lazy(Y, X).T + tp.lazy(X, Y, custom)),
    (TypeError, r"U @ S.*S.matmul\(u, dim=-2\)", lambda: torch.ones(3) @ S),
    # Vectors and masks
    (TypeError, r"add_rows\(vector\) is list; expected a tensor \[..., 3\]", lambda: S.add_rows([1.0, 2.0, 3.0])),  # type: ignore[arg-type]
    (ValueError, r"add_rows\(vector\) has shape \[4\]; expected a tensor \[..., 3\]", lambda: S.add_rows(torch.zeros(4))),
    (ValueError, r"weight_columns\(vector\) has shape \[\]; expected a tensor \[..., 4\]", lambda: S.weight_columns(torch.tensor(1.0))),
    (TypeError, r"add_columns\(vector\) has dtype torch.float64, but X has torch.float32", lambda: S.add_columns(torch.zeros(4).double())),
    (ValueError, r"add_rows\(vector\) is on meta, but X is on cpu", lambda: S.add_rows(META)),
    (TypeError, r"add_rows\(vector\) has dtype torch.complex64; complex", lambda: S.add_rows(torch.zeros(3).to(torch.complex64))),
    (ValueError, r"add_rows\(vector\) has batch dimensions \[5\]", lambda: tp.lazy(X.expand(2, 3, 2)).add_rows(torch.zeros(5, 3))),
    (
        ValueError,
        r"mask_rows\(keep\) is a tensor \[3\] of torch.float32; expected a boolean tensor \[..., 3\]",
        lambda: S.mask_rows(torch.zeros(3)),
    ),
    (ValueError, r"mask_columns\(keep\) is a tensor \[3\] of torch.bool; .* \[..., 4\]", lambda: S.mask_columns(torch.zeros(3).bool())),
    (ValueError, r"mask_rows\(keep\) is on meta", lambda: S.mask_rows(META.bool())),
    (TypeError, r"mask is a tensor \[3, 4\] .*pair mask of tp.masks.*mask_rows", lambda: S.masked(torch.ones(3, 4))),  # type: ignore[arg-type]
    (ValueError, r"same_group\(rows\) has shape \[4\]; expected labels \[..., 3\]", lambda: groups(labels(4), labels(4))),
    (ValueError, r"same_group\(columns\) has shape \[3\]; expected labels \[..., 4\]", lambda: groups(labels(3), labels(3))),
    (ValueError, r"same_group\(rows\) is on meta, but X is on cpu", lambda: groups(labels(3, device="meta"), labels(4, device="meta"))),
    (ValueError, r"same_group: rows are on cpu, but columns on meta", lambda: tp.masks.same_group(labels(3), labels(4, device="meta"))),
    (
        ValueError,
        r"same_group\(columns=...\) has no dimension; expected labels \[..., M\]",
        lambda: tp.masks.same_group(labels(3), labels()),
    ),
    (
        TypeError,
        r"same_group\(rows=...\) is a tensor \[3\] of torch.float32; expected a tensor of integer",
        lambda: tp.masks.same_group(torch.zeros(3)),
    ),
    (ValueError, r"align='left'; expected 'lower_right' or 'upper_left'", lambda: tp.masks.causal("left")),
    (ValueError, r"band\(\) got neither lower nor upper", lambda: tp.masks.band()),
    (TypeError, r"band\(lower=...\) is float 1.5; expected an integer", lambda: tp.masks.band(1.5)),  # type: ignore[arg-type]
    (TypeError, r"mask & other: other is a tensor .*S.mask_rows", lambda: tp.masks.causal() & torch.ones(3).bool()),  # type: ignore[operator]
    (TypeError, r"mask \| other: other is int 1", lambda: tp.masks.causal() | 1),  # type: ignore[operator]
    (TypeError, r"combine masks with &, \| and ~", lambda: tp.masks.causal() and tp.masks.band(1)),
    # Consumers
    (ValueError, r"dim=2; expected -1 \(over columns\) or -2 \(over rows\) of scores \[3, 4\]", lambda: S.sum(2)),
    (ValueError, r"dim=0; expected", lambda: tp.lazy(X.expand(2, 3, 2)).sum(0)),
    (ValueError, r"dim=\(-1, -1\); expected -1, -2 or both of them once", lambda: S.sum((-1, -1))),
    (ValueError, r"dim='rows'; expected -1, -2 or both", lambda: S.sum("rows")),
    (ValueError, r"dim=None; expected", lambda: S.topk(1, dim=None)),  # type: ignore[arg-type]
    (ValueError, r"exclude_self=True needs N == M; the scores are \[3, 4\]", lambda: S.sum(-1, exclude_self=True)),
    (TypeError, r"values is list; expected a tensor \[..., 4, C\] or a vector \[4\]", lambda: S @ [1.0]),  # type: ignore[operator]
    (ValueError, r"values has shape \[3, 2\]; expected a tensor \[..., 4, C\] or a vector \[4\]", lambda: S @ torch.ones(3, 2)),
    (ValueError, r"values has shape \[4, 5\]; expected a tensor \[..., 3, C\]", lambda: S.softmax_matmul(V, dim=-2)),
    (TypeError, r"values has dtype torch.float64, but X has torch.float32", lambda: S @ V.double()),
    (TypeError, r"values has dtype torch.complex64; complex", lambda: S @ V.to(torch.complex64)),
    (ValueError, r"values is on meta, but X is on cpu", lambda: S @ V.to("meta")),
    (ValueError, r"values has batch dimensions \[3\]", lambda: tp.lazy(X.expand(2, 3, 2), Y) @ torch.ones(3, 4, 1)),
    (ValueError, r"k=5 is out of range for M=4; expected 0 <= k <= 4", lambda: S.topk(5)),
    (ValueError, r"k=4 is out of range for N=3; expected 0 <= k <= 3", lambda: S.topk(4, -2)),
    (
        ValueError,
        r"k=3 is out of range for M=3 less one for exclude_self; expected 0 <= k <= 2",
        lambda: tp.lazy(X).topk(3, exclude_self=True),
    ),
    (ValueError, r"k=-1 is out of range", lambda: S.topk(-1)),
    (TypeError, r"k is float 1.0; expected an integer", lambda: S.topk(1.0)),  # type: ignore[arg-type]
    (TypeError, r"fill_value is str", lambda: S.dense("0")),  # type: ignore[arg-type]
    (ValueError, r"consumer='sums' is unknown. Did you mean 'sum'.*softmax_matmul", lambda: S.explain("sums")),
    (TypeError, r"dtype is torch.int64; expected a floating dtype", lambda: S.to(torch.int64)),
    # What an expression is not
    (TypeError, r"no truth value; reduce it first", lambda: bool(S)),
    (TypeError, r"use S.shape", lambda: len(S)),
    (TypeError, r"cannot be iterated over; consume it", lambda: list(S)),
    (TypeError, r"is no number; reduce it first", lambda: float(S)),
    (TypeError, r"not converted to an array; call S.dense\(\)", lambda: np.asarray(S)),
    (TypeError, r"torch.exp does not take a lazy score matrix; .*S.softmax_matmul\(V\)", lambda: torch.exp(S)),  # type: ignore[call-overload]
    (TypeError, r"torch.add does not take", lambda: torch.add(S, 1, alpha=2)),  # type: ignore[call-overload]
    # Comparisons
    (TypeError, r"function is int 3; expected a callable f\(x, y\)", lambda: tp.make_pairwise(3)),  # type: ignore[arg-type]
    (ValueError, r"mode='pairs'; expected 'all_pairs', 'paired', 'condensed' or 'single'", lambda: tp.make_pairwise(product, mode="pairs")),
    (ValueError, r"mode='pairs'; expected", lambda: custom(X, mode="pairs")),
    (ValueError, r"pairwise='map'; expected 'broadcast' or 'vmap'", lambda: tp.make_pairwise(product, pairwise="map")),
    (ValueError, r"keops=True: this version has no KeOps backend", lambda: tp.make_pairwise(product, keops=True)),
    (ValueError, r"mode='condensed' needs symmetric=True and zero_diagonal=True", lambda: tp.make_pairwise(product, mode="condensed")),
    (ValueError, r"mode='condensed' needs one collection", lambda: custom(X, mode="condensed")),
    (ValueError, r"mode='paired' compares row i with row i; X has 3 rows and Y has 4", lambda: custom(X, Y, mode="paired")),
    (ValueError, r"Y has batch dimensions \[3\]", lambda: custom(torch.ones(2, 2), torch.ones(3, 2), mode="single")),
    (ValueError, r"Y has shape \[2\]; expected at least 2 dimensions for a collection", lambda: custom(X, torch.ones(2))),
    (TypeError, r"X\[0\] is float 1.0; expected a tensor", lambda: custom([1.0])),
    (
        ValueError,
        r"returned \[3, 4, 2\] for x \[3, 1, 2\] and y \[1, 4, 2\]; .*broadcast over rows",
        lambda: tp.lazy(X, Y, tp.make_pairwise(torch.sub)).sum(-1),
    ),
    (ValueError, r"returned float for x", lambda: tp.lazy(X, Y, tp.make_pairwise(lambda x, y: 1.0)).sum(-1)),  # type: ignore[arg-type, return-value]
    (ValueError, r"it must return a 0-dim tensor", lambda: tp.make_pairwise(torch.sub, pairwise="vmap")(X, Y)),
    (
        ValueError,
        r"uses LEARNABLE, a tensor that requires a gradient.*nn.Module",
        lambda: tp.make_pairwise(lambda x, y: ((x - y) * LEARNABLE).sum(-1)),
    ),
]


@pytest.mark.parametrize(("error", "words", "call"), MESSAGES, ids=[words[:50] for _, words, _ in MESSAGES])
def test_message(error: type[Exception], words: str, call: Callable[[], Any]) -> None:
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("name", ["mean", "min", "max", "argmin", "argmax"])
def test_empty_axes_are_named(name: str) -> None:
    no_columns, no_rows = tp.lazy(X, Y[:0]), tp.lazy(X[:0], Y)
    for S, dim, words in (
        (no_columns, -1, r"M \(dim=-1\) is 0"),
        (no_columns, None, "M"),
        (no_rows, -2, r"N \(dim=-2\) is 0"),
        (no_rows, None, "N"),
    ):
        with pytest.raises(ValueError, match=f"over an empty axis: {words}"):
            getattr(S, name)(dim)
    assert getattr(no_rows, name)(-1) is not None


def test_empty_axes_of_topk() -> None:
    with pytest.raises(ValueError, match="k=1 is out of range for M=0"):
        tp.lazy(X, Y[:0]).topk(1)
    assert tp.lazy(X, Y[:0]).topk(0).indices.shape == (3, 0)


def test_random_functions_are_refused_with_vmap() -> None:
    noisy = tp.make_pairwise(lambda x, y: (x * y).sum() + torch.rand(()), pairwise="vmap")
    with pytest.raises(RuntimeError, match="random"):
        tp.lazy(X, Y, noisy).sum(-1)
    dropout = tp.make_pairwise(nn.Sequential(nn.Identity()), pairwise="vmap")
    with pytest.raises(TypeError):
        dropout(X, Y)
