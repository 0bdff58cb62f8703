"""Docstrings are plain text with shapes and formulas; this makes them safe for reStructuredText."""

from __future__ import annotations

import re

_LITERAL = re.compile(r"(``.*?``|`[^`]*`)")
# A star or a bar begins markup, and so does an underscore that ends a word (but not in the name of an entry, which napoleon escapes).
_MARKUP = re.compile(r"[*|]|(?<=\w)_(?![\w:])")
# Added to estimators by scikit-learn, with references to its own documentation.
_FOREIGN = re.compile(r"set_\w+_request|get_metadata_routing")


def escape(line: str) -> str:
    """Escape what would be read as markup outside of literals; pieces at odd places are literals."""
    pieces = _LITERAL.split(line)
    pieces[::2] = [_MARKUP.sub(lambda found: "\\" + found.group(), piece) for piece in pieces[::2]]
    return "".join(pieces)


def process(_app: object, what: str, _name: str, _object: object, _options: object, lines: list[str]) -> None:
    """Escape the prose of a docstring and leave its examples alone."""
    if what == "property" and lines:
        lines[0] = lines[0].replace(": ", " - ", 1)  # napoleon would read what stands before a colon as a type
    in_example = False
    for number, line in enumerate(lines):
        in_example = line.lstrip().startswith(">>>") or (in_example and bool(line.strip()))
        if not in_example:
            lines[number] = escape(line)


def skip(_app: object, _what: str, name: str, _object: object, _skip: bool, _options: object) -> bool | None:
    """Leave out the members that scikit-learn adds to every estimator."""
    return True if _FOREIGN.fullmatch(name) else None
