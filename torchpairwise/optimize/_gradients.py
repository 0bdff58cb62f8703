"""Gradients of transport problems: of the value at fixed potentials (envelope), and through the potentials (implicit function theorem).

Both evaluate the pairs once more in backward; nothing of the iterations is kept. They are first-order: a second derivative raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torchpairwise.optimize._iterations import Outcome
from torchpairwise.optimize._problem import Problem, log_weights, masked
from torchpairwise.optimize._scores import Scores, tensors_of, with_tensors

__all__ = ["Inputs", "coupling_of", "refuse_transforms", "value_of", "with_gradients"]

# Conjugate gradients of the implicit system: relative residual, and steps.
_ADJOINT_TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
_ADJOINT_STEPS = 500

Outputs = tuple[Tensor, ...]


class Replayed(torch.autograd.Function):
    """Outputs that are known already; backward evaluates `formula` of the inputs again and differentiates it."""

    @staticmethod
    def forward(ctx: Any, outputs: Outputs, formula: Any, cotangents: Any, *inputs: Tensor) -> Outputs:
        ctx.formula, ctx.cotangents = formula, cotangents
        ctx.save_for_backward(*inputs)
        return tuple(output.clone() for output in outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        needed = ctx.needs_input_grad[3:]
        inputs = [tensor.detach().requires_grad_(need) for tensor, need in zip(ctx.saved_tensors, needed, strict=True)]
        with torch.enable_grad():
            outputs = ctx.formula(inputs)
        wanted = [tensor for tensor, need in zip(inputs, needed, strict=True) if need]
        cotangents = ctx.cotangents([gradient.detach() for gradient in gradients])
        found = torch.autograd.grad(outputs, wanted, cotangents, allow_unused=True)
        if torch.is_grad_enabled():
            found = tuple(None if gradient is None else FirstOrder.apply(gradient, *gradients, *ctx.saved_tensors) for gradient in found)
        remaining = iter(found)
        return None, None, None, *[next(remaining) if need else None for need in needed]


class FirstOrder(torch.autograd.Function):
    """A gradient whose own derivative is refused."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, *inputs: Tensor) -> Tensor:
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        raise NotImplementedError("second derivatives of transport problems; sinkhorn and sinkhorn_divergence have first-order gradients")


class Inputs:
    """What has gradients: the tensors of the cost, the weights, and epsilon where it is a tensor."""

    def __init__(self, scores: Scores, a: Tensor, b: Tensor, epsilon: float | Tensor) -> None:
        self.scores, self.epsilon = scores, epsilon
        self._of_scores = tensors_of(scores)
        self.tensors = [*self._of_scores, a, b, *([epsilon] if isinstance(epsilon, Tensor) else [])]

    @property
    def require_grad(self) -> bool:
        """Whether a gradient can be asked for."""
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in self.tensors)

    def unpack(self, tensors: Sequence[Tensor]) -> tuple[Scores, Tensor, Tensor, Any]:
        """Cost, weights and epsilon of other tensors."""
        count = len(self._of_scores)
        epsilon = tensors[count + 2] if isinstance(self.epsilon, Tensor) else self.epsilon
        return with_tensors(self.scores, self._of_scores, list(tensors[:count])), tensors[count], tensors[count + 1], epsilon


def refuse_transforms(scores: Any, *others: Any) -> None:
    """Refuses forward-mode derivatives and torch.func, which would see the solution as a constant.

    Raises:
        NotImplementedError: under one of them.
    """
    tensors = [*(tensors_of(scores) if isinstance(scores, Scores) else [scores]), *others]
    dual = any(isinstance(part, Tensor) and torch.autograd.forward_ad.unpack_dual(part).tangent is not None for part in tensors)
    if dual or torch._C._functorch.get_interpreter_stack():
        raise NotImplementedError(
            "forward-mode derivatives and torch.func transforms (vmap, grad, jvp) of sinkhorn; use torch.autograd.grad and batch dimensions"
        )


def value_of(problem: Problem, outcome: Outcome, inputs: Sequence[Any]) -> Tensor:
    """The dual value at fixed potentials, in float64 [*batch].

    <a, gain(f)> + <b, gain(g)> + shift mass - epsilon sum_ij a_i b_j (exp((f_i + g_j + shift - C_ij) / epsilon) - 1)
    """
    scores, a, b, epsilon = inputs
    exponents = masked(scores * (-1 / epsilon), problem.keep_a, problem.keep_b)
    exponents = exponents.add_columns(outcome.g / epsilon + log_weights(b)).add_rows((outcome.f + outcome.shift) / epsilon)
    a, b = (torch.where(weights > 0, weights, 0.0).double() for weights in (a, b))
    mass = (a * exponents.logsumexp(-1).double().exp()).sum(-1)
    value = -epsilon * (mass - a.sum(-1) * b.sum(-1))
    for index, (weights, potential) in enumerate(((a, outcome.f), (b, outcome.g))):
        value = value + (weights * problem.marginals.gain(potential.double(), index)).sum(-1)
    if problem.marginals.mass is not None:
        value = value + outcome.shift.squeeze(-1) * problem.marginals.mass
    return value


def coupling_of(problem: Problem, f: Tensor, g: Tensor, inputs: Sequence[Any]) -> Scores:
    """``a_i b_j exp((f_i + g_j - C_ij) / epsilon)``."""
    scores, a, b, epsilon = inputs
    exponents = masked(scores * (-1 / epsilon), problem.keep_a, problem.keep_b)
    return exponents.add_rows(f / epsilon + log_weights(a)).add_columns(g / epsilon + log_weights(b)).exp()


def with_gradients(problem: Problem, outcome: Outcome, inputs: Inputs, implicit: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The value in float64 with envelope gradients, and both potentials, which have gradients if `implicit`."""
    with torch.no_grad():
        value = value_of(problem, outcome, inputs.unpack([tensor.detach() for tensor in inputs.tensors]))
    f, g = outcome.f + outcome.shift, outcome.g
    if not inputs.require_grad:
        return value, f, g

    def value_again(tensors: Sequence[Tensor]) -> Outputs:
        return (value_of(problem, outcome, inputs.unpack(tensors)),)

    (value,) = Replayed.apply((value,), value_again, tuple, *inputs.tensors)
    if implicit:
        f, g = _implicit(problem, outcome, inputs)
    return value, f, g


def _implicit(problem: Problem, outcome: Outcome, inputs: Inputs) -> tuple[Tensor, Tensor]:
    """The potentials as the fixed point of one update of each, T_f(g) and T_g(f)."""
    f, g = outcome.f, outcome.g

    def updates(tensors: Sequence[Tensor]) -> Outputs:
        scores, a, b, epsilon = inputs.unpack(tensors)
        exponents = masked(scores * (-1 / epsilon), problem.keep_a, problem.keep_b)
        passes = (
            exponents.add_columns(g / epsilon + log_weights(b)).logsumexp(-1),
            exponents.add_rows(f / epsilon + log_weights(a)).logsumexp(-2),
        )
        return tuple(
            -epsilon * _damping(problem, index, epsilon) * torch.where(log_mass.isfinite(), log_mass, 0.0)
            for index, log_mass in enumerate(passes)
        )

    fixed = inputs.unpack([tensor.detach() for tensor in inputs.tensors])
    coupling = coupling_of(problem, f, g, fixed)
    factors = [float(_damping(problem, index, fixed[3])) for index in (0, 1)]
    adjoint = _Adjoint(coupling, factors)
    return Replayed.apply((f, g), updates, adjoint, *inputs.tensors)


def _damping(problem: Problem, index: int, epsilon: Any) -> Any:
    rho = problem.marginals.rho[index]
    return 1.0 if problem.marginals.exact(index) else rho / (rho + epsilon)


class _Adjoint:
    """Cotangents of one update from those of the fixed point.

    With P the coupling, r and c its marginals, the updates have the derivatives -k_f P / r and -k_g P^T / c. The cotangents (u, v) of the
    updates solve u = f' - k_g P (v / c), v = g' - k_f P^T (u / r); with u = sqrt(r) y this is the positive definite system

        (I - k_f k_g K K^T) y = (f' - k_g P (g' / c)) / sqrt(r),  K = diag(r)^(-1/2) P diag(c)^(-1/2)

    For exact marginals it has the null vector sqrt(r), since potentials are determined up to a constant, and the component of the
    right-hand side along it is left out.
    """

    def __init__(self, coupling: Scores, factors: list[float]) -> None:
        self.coupling, self.factors = coupling, factors

    def __call__(self, gradients: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        grad_f, grad_g = gradients
        factor_f, factor_g = self.factors
        self.r, self.c = (_inverse(self.coupling.sum(axis)) for axis in (-1, -2))
        root = self.r.sqrt()
        null = None
        if factor_f == factor_g == 1.0:
            null = torch.where(root > 0, 1 / torch.where(root > 0, root, 1.0), 0.0)
            null = null / null.norm(dim=-1, keepdim=True)

        def operator(y: Tensor) -> Tensor:
            return y - factor_f * factor_g * root * self._times(self.c * self._times(root * y, -2), -1)

        right = root * (grad_f - factor_g * self._times(self.c * grad_g, -1))
        u = _conjugate_gradients(operator, right, null) / torch.where(root > 0, root, 1.0)
        u = torch.where(root > 0, u, 0.0)
        return u, torch.where(self.c > 0, grad_g - factor_f * self._times(self.r * u, -2), 0.0)

    def _times(self, vector: Tensor, dim: int) -> Tensor:
        return self.coupling.matmul(vector.unsqueeze(-1), dim=dim).squeeze(-1)


def _inverse(masses: Tensor) -> Tensor:
    return torch.where(masses > 0, 1 / torch.where(masses > 0, masses, 1.0), 0.0)


def _conjugate_gradients(operator: Callable[[Tensor], Tensor], right: Tensor, null: Tensor | None) -> Tensor:
    """Solves a positive (semi)definite system for each vector of a batch [*batch, N]."""

    def project(vector: Tensor) -> Tensor:
        return vector if null is None else vector - (vector * null).sum(-1, keepdim=True) * null

    residual = project(right)
    solution, direction = torch.zeros_like(right), residual
    square = residual.square().sum(-1, keepdim=True)
    goal = square * _ADJOINT_TOLERANCE[right.dtype] ** 2
    for _ in range(_ADJOINT_STEPS):
        if bool((square <= goal).all()):
            break
        image = project(operator(direction))
        curvature = (direction * image).sum(-1, keepdim=True)
        step = torch.where((square > goal) & (curvature > 0), square / curvature, 0.0)
        solution = solution + step * direction
        residual = residual - step * image
        previous, square = square, residual.square().sum(-1, keepdim=True)
        direction = residual + torch.where(previous > 0, square / previous, 0.0) * direction
    return solution
