"""The order of the layers, and the limits of the house style that a program can see."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CSRC, PACKAGE = ROOT / "csrc", ROOT / "torchpairwise"

# What a folder of csrc may include besides itself.
MAY_INCLUDE = {
    "core": set(),
    "source": {"core"},
    "expr": {"core", "source"},
    "metric": {"core", "source", "expr"},
    "consumer": {"core", "source", "expr", "metric"},
    "plan": {"core", "source", "expr", "metric", "consumer"},
    "cpu": {"core", "source", "expr", "metric", "consumer", "plan"},
    "cuda": {"core", "source", "expr", "metric", "consumer", "plan"},
    # ops/call.h, the description of a call, is shared by the tensor path and the operators.
    "aten": {"core", "source", "expr", "metric", "consumer", "plan", "ops/call.h"},
    "ops": {"core", "source", "expr", "metric", "consumer", "plan", "cpu", "cuda", "aten"},
    "api": {"core", "source", "expr", "metric", "consumer", "plan", "cpu", "cuda", "aten", "ops"},
}
TORCH_FREE = ("core", "source", "expr", "metric", "consumer", "plan", "cpu", "cuda")

# From below to above; a module imports only from lines before its own, or its own.
PYTHON = [
    {"_native"},
    {"_registry", "_precision"},
    {"_checks", "_axes", "_steps", "_gather", "configuration", "masks", "explain", "comparisons"},
    {"_description", "_lowering", "_calls"},
    {"consume", "elementwise"},
    {"nodes", "reductions"},
    {"selections"},
    {"algebra"},
    {"expression"},
    {"sweep", "encoding"},
    {"linalg", "optimize", "statistics", "_estimators"},
    {"attention", "contrastive", "kernels", "transport", "neighbors", "stein", "learned"},
    {"demo", "__main__"},
]
# Imports inside functions that break the order on purpose: a mask counts itself as an expression.
INSIDE = {("masks", "expression"), ("reductions", "masks"), ("selections", "masks")}


def sources() -> list[Path]:
    return sorted(path for ending in ("*.h", "*.cpp", "*.inc", "*.cu") for path in CSRC.rglob(ending))


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(CSRC)))
def test_includes_point_to_the_left(path: Path) -> None:
    folder = path.relative_to(CSRC).parts[0]
    text = path.read_text()
    for name in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE):
        target = name.split("/")[0]
        if name == "build_info.inc":  # written by the build
            continue
        if target == "torchpairwise":  # the headers that are installed
            target = "api"
        assert target == folder or target in MAY_INCLUDE[folder] or name in MAY_INCLUDE[folder], f"{path.name} includes {name}"
    if folder in TORCH_FREE:
        assert not re.search(r"#include <(torch|ATen|c10)/", text), f"{path.name} must not know torch"
    if path.suffix == ".h" and folder != "core":
        assert text.count("#define ") == 0, "macros belong in core/macros.h"


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(CSRC)))
def test_headers_of_kernels_are_short(path: Path) -> None:
    # The backward pass is one algorithm on one page of equations.
    limit = {"replay.h": 520, "nodes.h": 460, "expression.h": 400, "validate.cpp": 360}.get(path.name, 345)
    assert len(path.read_text().splitlines()) <= limit


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py"))


def level_of(name: str) -> int:
    return next((n for n, names in enumerate(PYTHON) if name in names), -1)


def imported(tree: ast.Module) -> list[tuple[str, bool]]:
    """Modules of the package that are imported, and whether that happens inside a function or for type checkers only."""
    inner = {id(node) for f in ast.walk(tree) if isinstance(f, (ast.FunctionDef, ast.If)) for node in ast.walk(f)}
    out = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "torchpairwise":
            parts = node.module.split(".")
            names = [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
            out += [(name, id(node) in inner) for name in names]
    return out


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_to_the_left(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if own == "__init__":
        return
    assert level_of(own) >= 0, f"{own} has no place in the order of modules"
    for name, inside in imported(ast.parse(path.read_text())):
        if level_of(name) < 0 or name == own or inside:
            assert not inside or (own, name) in INSIDE or level_of(name) >= 0
            continue
        allowed = level_of(name) <= level_of(own)
        assert allowed, f"{own} imports {name}, which stands above it"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_python_stays_in_small_pieces(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            length = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
            assert length <= 60, f"{node.name} has {length} lines"
    if path.name == "__init__.py":
        kinds = (ast.Import, ast.ImportFrom, ast.Assign, ast.Expr)
        assert all(isinstance(node, kinds) for node in tree.body), "__init__ files only export"
        assert "import *" not in text


@pytest.mark.parametrize(
    "folder", [path for path in sorted(CSRC.iterdir()) if path.is_dir() and any(path.iterdir())], ids=lambda path: path.name
)
def test_every_folder_has_a_readme(folder: Path) -> None:
    assert 5 <= len((folder / "README.md").read_text().splitlines()) <= 60


def test_the_public_surface_is_exported_once() -> None:
    import torchpairwise as tp

    assert sorted(tp.__all__) == list(tp.__all__)
    assert all(hasattr(tp, name) for name in tp.__all__)
