"""Entropic optimal transport: `sinkhorn` and `sinkhorn_divergence`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from torchpairwise._checks import as_number, describe
from torchpairwise.optimize._gradients import Inputs, coupling_of, refuse_transforms, with_gradients
from torchpairwise.optimize._iterations import Outcome, Settings, solve
from torchpairwise.optimize._problem import Problem, bind_problem, read_marginals
from torchpairwise.optimize._scores import Scores
from torchpairwise.optimize._untraced import untraced
from torchpairwise.optimize.results import DivergenceResult, Potentials, SinkhornResult, raise_unless_converged

__all__ = ["sinkhorn", "sinkhorn_divergence"]

Callback = Callable[[int, float], object]
_DEFAULT_TOL = {torch.float32: 1e-4, torch.float64: 1e-7}


@untraced
def sinkhorn(
    C: Any,  # [*batch, N, M]
    a: Tensor | None = None,  # [*batch, N]
    b: Tensor | None = None,  # [*batch, M]
    *,
    epsilon: float | Tensor,
    marginal: Literal["kl", "tv", "partial"] | None = None,
    rho: float | tuple[float, float] | None = None,
    mass: float | None = None,
    tol: float | None = None,
    max_iter: int = 2000,
    x0: tuple[Tensor, Tensor] | None = None,
    scaling: float | None = 0.5,
    differentiable: bool | Literal["implicit"] = False,
    raise_on_failure: bool = False,
    callback: Callback | None = None,
) -> SinkhornResult:
    """Entropic optimal transport by Sinkhorn's algorithm in the log domain, streamed.

    ``cost = min_P <P, C> + epsilon KL(P | a b^T)`` over couplings with ``P 1 = a``, ``P^T 1 = b``,
    where ``KL(P | Q) = sum P log(P / Q) - P + Q``

    Arguments:
        C: costs, a lazy expression such as ``tp.lazy(X, Y, "sqeuclidean")`` or a tensor [*batch, N, M]. inf forbids a pair.
        a, b: weights >= 0 of rows [*batch, N] and columns [*batch, M]; None for 1/N and 1/M. Their sums have to be equal, unless
            `marginal` says otherwise. A point of weight 0 is absent (padding), and its gradients are 0.
        epsilon: weight of the entropy, > 0, in units of C: a number, or a 0-dim tensor that may require a gradient. See
            `tp.transport.blur_to_epsilon`.
        marginal: None for exact marginals; "kl" and "tv" replace each by a penalty, ``rho KL(P 1 | a)`` or ``rho |P 1 - a|_1``;
            "partial" transports `mass` with ``P 1 <= a``, ``P^T 1 <= b``.
        rho: price of a unit of mass, for "kl" and "tv": a number > 0, or one for rows and one for columns; inf keeps that side exact.
        mass: for "partial", at most the smaller sum of weights.
        tol: converged when `marginal_error` is at most this; None for 1e-4 in float32 and 1e-7 in float64.
        max_iter: iterations, each of two passes over the pairs.
        x0: potentials (f, g) to start from, such as those of an earlier result; epsilon scaling is then left out.
        scaling: without x0, epsilon starts at the largest cost and is multiplied by this (in (0, 1)) after one to six iterations each,
            until it is the one asked for; None starts with it.
        differentiable: `cost` always has gradients. True or "implicit" gives them to potentials and coupling as well, for None and "kl".
        raise_on_failure: raise instead of returning a result that did not converge.
        callback: called with the iteration and its error.

    Returns:
        A `SinkhornResult`. Check `converged` before using it.

    Raises:
        ValueError: weights that are negative, NaN, all 0, of unequal sums or of another size; costs NaN or -inf; an option out of range.
        TypeError: dtypes that differ.
        ConvergenceError: not converged, with `raise_on_failure=True`.

    Notes:
        Memory grows with N + M for a lazy C. Gradients of `cost` are those of the optimum at fixed potentials: the coupling for C, and the
        potentials for a and b (up to a constant, which mass-preserving directions do not see). Gradients through potentials solve a linear
        system by conjugate gradients in backward, and take potentials up to a constant. Both are first-order; second derivatives raise.
        Half precision is computed and returned in float32.

    Example:
        >>> import torch, torchpairwise as tp
        >>> X, Y = torch.tensor([[0.0], [1.0]]), torch.tensor([[1.1], [0.1]])
        >>> result = tp.optimize.sinkhorn(tp.lazy(X, Y, "sqeuclidean"), epsilon=0.01)
        >>> bool(result.converged), result.coupling.dense().round(decimals=2)
        (True, tensor([[0.0000, 0.5000],
                [0.5000, 0.0000]]))
        >>> result.transport_cost
        tensor(0.0100)
    """
    refuse_transforms(C, a, b, epsilon)
    marginals = read_marginals(marginal, rho, mass)
    implicit = _read_differentiable(differentiable, marginal)
    scores, a, b, problem = bind_problem(C, a, b, marginals)
    settings = _read_settings(scores, epsilon, tol, max_iter, scaling, callback)
    inputs = Inputs(scores, a, b, _operand(epsilon, scores))
    start = None if x0 is None else _read_start(x0, problem)
    with torch.no_grad():
        outcome = solve(problem, settings, start)
    result = _result(problem, outcome, inputs, settings.tol, implicit)
    if raise_on_failure:
        raise_unless_converged("sinkhorn", result.status, _worst(outcome.error), settings.tol, result.iterations)
    return result


@untraced
def sinkhorn_divergence(
    C_xy: Any,  # [*batch, N, M]
    C_xx: Any,  # [*batch, N, N]
    C_yy: Any,  # [*batch, M, M]
    a: Tensor | None = None,  # [*batch, N]
    b: Tensor | None = None,  # [*batch, M]
    *,
    epsilon: float | Tensor,
    marginal: Literal["kl", "tv"] | None = None,
    rho: float | None = None,
    tol: float | None = None,
    max_iter: int = 2000,
    scaling: float | None = 0.5,
    return_result: bool = False,
    raise_on_failure: bool = False,
    callback: Callback | None = None,
) -> Any:
    """The debiased cost of transport: 0 for equal point clouds, positive for others.

    ``S(a, b) = OT(a, b) - OT(a, a) / 2 - OT(b, b) / 2``, with `cost` of `sinkhorn` as OT; for unequal masses
    ``+ epsilon (sum a - sum b)^2 / 2``

    Arguments:
        C_xy: costs between the clouds, as C of `sinkhorn`.
        C_xx, C_yy: costs within each, symmetric.
        a, b, epsilon, marginal, rho, tol, max_iter, scaling, callback: as of `sinkhorn`; `rho` is one number.
        return_result: return the record `DivergenceResult` with the three problems.
        raise_on_failure: raise if one of the three problems did not converge.

    Returns:
        The divergence [*batch] with first-order gradients, or the record. A negative value means that a problem did not converge, or
        that the distance is below the rounding of the dtype.

    Raises:
        ValueError, TypeError, ConvergenceError: as of `sinkhorn`; costs of sizes that do not fit.

    Notes:
        Feydy et al. 2019, "Interpolating between optimal transport and MMD using Sinkhorn divergences"; Sejourne et al. 2019. Memory grows
        with N + M for lazy costs. The problems within a cloud take one pass an iteration.

    Example:
        >>> import torch, torchpairwise as tp
        >>> X = torch.tensor([[0.0], [1.0]], requires_grad=True)
        >>> Y = torch.tensor([[0.5], [1.5]])
        >>> S = tp.optimize.sinkhorn_divergence(tp.lazy(X, Y), tp.lazy(X, X), tp.lazy(Y, Y), epsilon=0.1)
        >>> S.detach()
        tensor(0.2500)
        >>> torch.autograd.grad(S, X)[0]
        tensor([[-0.5000],
                [-0.5000]])
    """
    if marginal not in (None, "kl", "tv"):
        raise ValueError(f"marginal={marginal!r}; a divergence takes None (exact), 'kl' or 'tv'")
    if isinstance(rho, (tuple, list)):
        raise ValueError(f"rho={rho!r}; a divergence takes one number, the same for rows and columns")
    refuse_transforms(C_xy, a, b, epsilon)
    marginals = read_marginals(marginal, rho, None)
    scores, a, b, problem = bind_problem(C_xy, a, b, marginals, "C_xy")
    settings = _read_settings(scores, epsilon, tol, max_iter, scaling, callback)
    results = []
    for name, cost, weights in (("C_xy", C_xy, None), ("C_xx", C_xx, a), ("C_yy", C_yy, b)):
        first, second = (a, b) if weights is None else (weights, weights)
        if weights is not None:
            _check_square(cost, name, weights.shape[-1])
            scores, _, _, problem = bind_problem(cost, weights, weights, marginals, name)
        inputs = Inputs(scores, first, second, _operand(epsilon, scores))
        with torch.no_grad():
            outcome = solve(problem, settings, None, symmetric=weights is not None)
        results.append((problem, outcome, inputs))
    values, records = [], []
    for problem, outcome, inputs in results:
        value, _, _ = with_gradients(problem, outcome, inputs, False)
        values.append(value)
        records.append(_result(problem, outcome, inputs, settings.tol, False, value))
    divergence = values[0] - 0.5 * (values[1] + values[2])
    if marginal is not None:
        divergence = divergence + 0.5 * epsilon * (a.double().sum(-1) - b.double().sum(-1)).square()
    record = DivergenceResult(divergence.to(scores.dtype), *records)
    if raise_on_failure:
        raise_unless_converged("sinkhorn_divergence", record.status, _worst(record.marginal_error), settings.tol, record.iterations)
    return record if return_result else record.divergence


def _result(problem: Problem, outcome: Outcome, inputs: Inputs, tol: float, implicit: bool, value: Tensor | None = None) -> SinkhornResult:
    f, g = outcome.f + outcome.shift, outcome.g
    if value is None:
        value, f, g = with_gradients(problem, outcome, inputs, implicit)
    tensors = inputs.tensors if implicit else [tensor.detach() for tensor in inputs.tensors]
    scores, a, b, epsilon = inputs.unpack(tensors)
    return SinkhornResult(
        Potentials(f, g),
        value.to(scores.dtype),
        coupling_of(problem, f, g, (scores, a, b, epsilon)),
        outcome.error,
        outcome.error <= tol,
        outcome.status,
        outcome.iterations,
        scores,
        (a, b),
        epsilon,
    )


def _operand(epsilon: float | Tensor, scores: Scores) -> float | Tensor:
    return epsilon.to(device=scores.device, dtype=scores.dtype) if isinstance(epsilon, Tensor) else float(epsilon)


def _read_settings(scores: Scores, epsilon: Any, tol: Any, max_iter: Any, scaling: Any, callback: Callback | None) -> Settings:
    if isinstance(epsilon, Tensor) and epsilon.numel() != 1:
        raise ValueError(f"epsilon is {describe(epsilon)}; expected a number > 0 or a 0-dim tensor")
    number = float(epsilon.detach()) if isinstance(epsilon, Tensor) else as_number(epsilon, "epsilon", "a number > 0 or a 0-dim tensor")
    if not 0 < number < float("inf"):
        raise ValueError(f"epsilon={number}; expected a finite number > 0, in units of the cost")
    tol = _DEFAULT_TOL[scores.dtype] if tol is None else as_number(tol, "tol")
    if not tol >= 0:
        raise ValueError(f"tol={tol}; expected a number >= 0")
    if isinstance(max_iter, bool) or not isinstance(max_iter, int) or max_iter < 0:
        raise ValueError(f"max_iter={max_iter!r}; expected an integer >= 0")
    if scaling is not None and not 0 < as_number(scaling, "scaling") < 1:
        raise ValueError(f"scaling={scaling}; expected a number between 0 and 1, or None")
    return Settings(number, tol, max_iter, scaling, callback)


def _read_differentiable(differentiable: Any, marginal: str | None) -> bool:
    if differentiable not in (False, True, "implicit"):
        raise ValueError(f"differentiable={differentiable!r}; expected False, True or 'implicit'")
    if differentiable and marginal not in (None, "kl"):
        raise ValueError(f"differentiable={differentiable!r} with marginal={marginal!r}; gradients through potentials need None or 'kl'")
    return bool(differentiable)


def _read_start(x0: Any, problem: Problem) -> tuple[Tensor, Tensor]:
    expected = problem.start()
    if not isinstance(x0, (tuple, list)) or len(x0) != 2 or not all(isinstance(part, Tensor) for part in x0):
        raise TypeError(f"x0 is {describe(x0)}; expected the two potentials (f, g), such as result.potentials")
    start = []
    for name, given, shape in zip("fg", x0, expected, strict=True):
        try:
            start.append(given.detach().to(shape).expand(shape.shape).clone())
        except RuntimeError:
            raise ValueError(f"x0: {name} has shape {list(given.shape)}; expected {list(shape.shape)}") from None
    return start[0], start[1]


def _check_square(cost: Any, name: str, size: int) -> None:
    if tuple(getattr(cost, "shape", (size, size))[-2:]) != (size, size):
        raise ValueError(f"{name} has shape {list(cost.shape)}; expected [..., {size}, {size}] to fit C_xy")


def _worst(error: Tensor) -> float:
    return float(error.max()) if error.numel() else 0.0
