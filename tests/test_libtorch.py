"""The LibTorch interface: tests/cpp is built with CMake against the package in use, and its values are compared with Python."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import torchpairwise as tp

SOURCE = Path(__file__).parent / "cpp"


def numbers(rows: int, columns: int, phase: float) -> torch.Tensor:
    """The numbers that the program makes."""
    i, d = torch.arange(rows, dtype=torch.float64)[:, None], torch.arange(columns, dtype=torch.float64)
    return (i * 1.3 + d * 0.7 + phase).sin().requires_grad_()


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """What the program prints; it exits with an error if one of its own checks fails."""
    if shutil.which("cmake") is None:
        pytest.skip("cmake was not found")
    if not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        pytest.skip("no C++ compiler was found")
    build = tmp_path_factory.mktemp("cpp")
    configure = ["cmake", "-S", SOURCE, "-B", build, "-DCMAKE_BUILD_TYPE=Release"]
    configure += [f"-DCMAKE_PREFIX_PATH={tp.cmake_prefix_path}", f"-Dtorchpairwise_TORCH_ROOT={Path(torch.__file__).parent}"]
    for command in (configure, ["cmake", "--build", build]):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    done = subprocess.run([build / "program"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {name: torch.tensor(values, dtype=torch.float64) for name, values in json.loads(done.stdout).items()}


def compare(printed: dict[str, torch.Tensor], name: str, value: torch.Tensor) -> None:
    torch.testing.assert_close(printed[name], value.detach().flatten().to(torch.float64), rtol=1e-6, atol=1e-6)


def compare_gradients(printed: dict[str, torch.Tensor], name: str, result: torch.Tensor, **inputs: torch.Tensor) -> None:
    compare(printed, name, result)
    gradients = torch.autograd.grad(result.square().sum(), list(inputs.values()))
    for key, gradient in zip(inputs, gradients, strict=True):
        compare(printed, f"{name}_gradient_{key}", gradient)


def test_mean(printed: dict[str, torch.Tensor]) -> None:
    x, y = numbers(7, 3, 0.1), numbers(5, 3, 0.6)
    compare_gradients(printed, "mean", tp.lazy(x, y, "sqeuclidean").mean(-1), x=x, y=y)


def test_logsumexp_with_learned_width_and_bias(printed: dict[str, torch.Tensor]) -> None:
    x, y, bias = numbers(7, 3, 0.1), numbers(5, 3, 0.6), numbers(1, 5, 2.0)
    gamma = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    result = tp.lazy(x, y, "rbf", gamma=gamma).add_columns(bias[0]).logsumexp(-2)
    compare_gradients(printed, "logsumexp", result, x=x, gamma=gamma, bias=bias)


def test_attention(printed: dict[str, torch.Tensor]) -> None:
    x, y, v = numbers(7, 3, 0.1), numbers(5, 3, 0.6), numbers(5, 2, 1.1)
    result = (tp.lazy(x, y, "linear") * 3**-0.5).softmax_matmul(v, mask=tp.masks.causal())
    compare_gradients(printed, "attention", result, x=x, y=y, v=v)


def test_nearest(printed: dict[str, torch.Tensor]) -> None:
    values, indices = tp.lazy(numbers(7, 3, 0.1), numbers(5, 3, 0.6), "cosine").topk(2, largest=False)
    compare(printed, "nearest", values)
    compare(printed, "nearest_indices", indices)
