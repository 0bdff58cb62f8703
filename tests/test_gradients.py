"""First and second derivatives of every consumer, on both paths, to every tensor operand."""

from __future__ import annotations

import pytest
import torch

import torchpairwise as tp

CONSUMERS = {
    "sum": lambda S, V: S.sum(-1),
    "sum columns": lambda S, V: S.sum(-2),
    "mean": lambda S, V: S.mean(),
    "logsumexp": lambda S, V: S.logsumexp(-1),
    "matmul": lambda S, V: S @ V,
    "softmax_matmul": lambda S, V: torch.cat([x.reshape(-1) for x in S.softmax_matmul(V, return_aux=True)]),
    "min": lambda S, V: S.min(-1).values,
    "max": lambda S, V: S.max(-2).values,
    "topk": lambda S, V: S.topk(3).values,
    "diagonal": lambda S, V: S.diagonal(),
    "dense": lambda S, V: S.dense(),
}


def operands(d: int) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = [(4, d), (5, d), (5, 2), (4,), (5,), ()]
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("backend", ["native", "tiles"])
@pytest.mark.parametrize("metric", [info.name for info in tp.metrics()])
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_gradients(consumer: str, metric: str, backend: str) -> None:
    def run(X, Y, V, r, c, a):  # type: ignore[no-untyped-def]
        S = tp.lazy(X, Y, metric, backend=backend).add_rows(r).weight_columns(c) * a
        return CONSUMERS[consumer](S.masked(tp.masks.band(3, 3)), V)

    assert torch.autograd.gradcheck(run, operands(3))


@pytest.mark.parametrize("d", [2, 20])
@pytest.mark.parametrize("consumer", ["sum", "mean", "logsumexp", "matmul", "softmax_matmul"])
@pytest.mark.parametrize("metric", ["linear", "rbf", "euclidean"])
def test_second_derivatives(consumer: str, metric: str, d: int) -> None:
    def run(X, Y, V, r, c, a):  # type: ignore[no-untyped-def]
        return CONSUMERS[consumer](tp.lazy(X, Y, metric).add_rows(r).weight_columns(c) * a, V)

    assert torch.autograd.gradgradcheck(run, operands(d))


@pytest.mark.parametrize("backend", ["native", "tiles"])
def test_expressions_of_two_sources(backend: str) -> None:
    def run(X, Y, V, r, c, a):  # type: ignore[no-untyped-def]
        kernel = tp.lazy(X, Y, "rbf", gamma=a.exp(), backend=backend)
        scores = tp.lazy(X, Y, "linear", backend=backend) - tp.lazy(X, Y, "manhattan", backend=backend).minimum(1.5)
        return (kernel * scores + kernel).logsumexp(-1), (scores / (kernel + 1.0)).tanh() @ V

    assert torch.autograd.gradcheck(run, operands(3))


def test_bc_028_hyperparameters_of_ard() -> None:
    X, Y, V = operands(3)[:3]
    for option in ("gamma", "lengthscale"):
        width = torch.rand(3, dtype=torch.float64) + 0.5
        width.requires_grad_()
        gamma = width if option == "gamma" else 0.5 / width**2
        dense = torch.exp(-((X[:, None] - Y) ** 2 * gamma).sum(-1))
        S = tp.lazy(X, Y, "rbf", **{option: width})
        for got, wanted in ((S @ V, dense @ V), (S.logsumexp(-1), dense.logsumexp(-1)), (S.topk(2).values, dense.topk(2).values)):
            torch.testing.assert_close(got, wanted)
            torch.testing.assert_close(
                torch.autograd.grad(got.sum(), width, retain_graph=True), torch.autograd.grad(wanted.sum(), width, retain_graph=True)
            )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("n", "m", "d"), [(300, 500, 3), (400, 300, 40)])
def test_large_gradients_in_float32(n: int, m: int, d: int, threads: int) -> None:
    torch.manual_seed(0)
    X, Y, V = torch.randn(n, d), torch.randn(m, d), torch.randn(m, 20)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for metric in ("linear", "rbf", "laplacian"):
            leaves = [t.clone().requires_grad_() for t in (X, Y, V)]
            exact = [t.double().requires_grad_() for t in (X, Y, V)]
            gradient = torch.randn(20, n).T  # transposed
            got = torch.autograd.grad(tp.lazy(*leaves[:2], metric).softmax_matmul(leaves[2]), leaves, gradient)
            dense = tp.lazy(*exact[:2], metric).dense().softmax(-1) @ exact[2]
            for a, b in zip(got, torch.autograd.grad(dense, exact, gradient.double()), strict=True):
                assert (a - b).abs().max() <= 1e-4 * b.abs().max()
            again = torch.autograd.grad(tp.lazy(*leaves[:2], metric).softmax_matmul(leaves[2]), leaves, gradient)
            assert all(torch.equal(a, b) for a, b in zip(got, again, strict=True))
    finally:
        torch.set_num_threads(before)


def test_parameters_of_a_module_comparison() -> None:
    class Weighted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.rand(3, dtype=torch.float64))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return ((x - y).abs() * self.weight).sum(-1)

    module = Weighted()
    comparison = tp.make_pairwise(module)
    X, Y = operands(3)[:2]
    S = tp.lazy(X, Y, comparison, chunk_size=2)
    got = torch.autograd.grad(S.logsumexp(-1).sum(), (module.weight, X))
    wanted = torch.autograd.grad(comparison(X, Y).logsumexp(-1).sum(), (module.weight, X))
    torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("backend", ["native", "tiles"])
@pytest.mark.parametrize("d", [3, 40])
def test_gradients_of_close_pairs(d: int, backend: str) -> None:
    """Pairs that the expansion cannot resolve get the gradient of their difference: a unit vector for euclidean distances."""
    torch.manual_seed(0)
    X = torch.randn(30, d)
    Y = torch.cat([X[:20] + 1e-3 * torch.randn(20, d), torch.randn(15, d)])
    weights = torch.randn(30, 35)
    for metric in ("euclidean", "sqeuclidean"):
        leaves = [t.clone().requires_grad_() for t in (X, Y)]
        exact = [t.double().requires_grad_() for t in (X, Y)]
        distance = (exact[0][:, None] - exact[1]).square().sum(-1)
        distance = distance.sqrt() if metric == "euclidean" else distance
        # The diagonal alone: 20 close pairs, weighted each by its own number, and 10 far ones.
        got = torch.autograd.grad(
            tp.lazy(*leaves, metric, backend=backend).weight_rows(weights[:, 0]).masked(tp.masks.band(0, 0)).sum(), leaves
        )
        wanted = torch.autograd.grad((distance.diagonal() * weights[:, 0].double()).sum(), exact)
        for a, b in zip(got, wanted, strict=True):
            norm = b.norm(dim=-1)
            assert ((a - b).norm(dim=-1) <= 1e-4 * norm).all()


@pytest.mark.parametrize("dim", [-1, -2])
@pytest.mark.parametrize("consumer", ["sum", "mean", "matmul", "logsumexp", "softmax_matmul"])
def test_second_derivatives_in_blocks(consumer: str, dim: int) -> None:
    """A Hessian-vector product whose rows do not fit one block of recorded operations."""
    torch.manual_seed(0)
    n, m, d = (400, 2500, 3) if dim == -1 else (2500, 400, 3)
    X, Y, V = torch.randn(n, d), torch.randn(m, d), torch.randn(m if dim == -1 else n, 2)
    leaves = [t.double().requires_grad_() for t in (X, Y, V)]
    gamma = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    i, j = torch.arange(n)[:, None], torch.arange(m)
    keep = j <= i + m - n

    def loss(S: object) -> torch.Tensor:
        result = getattr(S, consumer)(*([leaves[2]] if "matmul" in consumer else []), dim=dim)
        return result[:, -300:].square().sum() if result.dim() == 2 else result[-300:].square().sum()

    def dense_loss() -> torch.Tensor:
        s = torch.exp(-gamma * (leaves[0][:, None] - leaves[1]).square().sum(-1)) + leaves[0] @ leaves[1].T
        s = torch.where(keep, s, -torch.inf if "log" in consumer or "soft" in consumer else 0.0)
        s, kept = (s, keep) if dim == -1 else (s.T, keep.T)
        result = {
            "sum": lambda: s.sum(-1),
            "mean": lambda: s.sum(-1) / kept.sum(-1),
            "matmul": lambda: s @ leaves[2],
            "logsumexp": lambda: s.logsumexp(-1),
            "softmax_matmul": lambda: s.softmax(-1) @ leaves[2],
        }[consumer]()
        return result[:, -300:].square().sum() if result.dim() == 2 else result[-300:].square().sum()

    def product(loss: torch.Tensor) -> tuple[torch.Tensor, ...]:
        wanted = [*leaves, gamma]
        first = torch.autograd.grad(loss, wanted, create_graph=True, allow_unused=True, materialize_grads=True)
        direction = [torch.linspace(-1, 1, x.numel(), dtype=x.dtype).view(x.shape) for x in first]
        total = sum((a * b).sum() for a, b in zip(first, direction, strict=True))
        return torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True)

    S = (tp.lazy(leaves[0], leaves[1], "rbf", gamma=gamma) + tp.lazy(leaves[0], leaves[1], "linear")).masked(tp.masks.causal())
    for a, b in zip(product(loss(S)), product(dense_loss()), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-7 * max(1.0, b.abs().max().item()))
