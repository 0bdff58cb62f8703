"""The examples of the README and of the documentation's pages run, and give what they print."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples(page: str) -> doctest.DocTest:
    """The prompts of a page as one test, so that later blocks see the names of earlier ones."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found: list[doctest.Example] = []
    for block in _FENCE.finditer(text):
        first_line = text.count("\n", 0, block.start(1))
        for example in doctest.DocTestParser().get_examples(block.group(1), page):
            example.lineno += first_line
            found.append(example)
    return doctest.DocTest(found, {}, page, str(ROOT / page), 0, text)


@pytest.mark.parametrize("page", PAGES)
def test_examples_of_page(page: str) -> None:
    test = examples(page)
    if not test.examples:
        pytest.skip(f"{page} has no examples")
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    results = runner.run(test, out=report.append)
    assert results.failed == 0, "".join(report)


def test_readme_and_start_page_have_examples() -> None:
    assert all(examples(page).examples for page in ("README.md", "docs/index.md", "docs/concepts.md", "docs/precision.md"))


def test_a_wrong_example_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "page.md").write_text("```python\n>>> 1 + 1\n3\n```\n", encoding="utf-8")
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    assert doctest.DocTestRunner().run(examples("page.md"), out=lambda _: None).failed == 1
