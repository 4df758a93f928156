"""Python before 3.11.4, such as that of Debian 12, reads possessive quantifiers of `re` wrongly: no
word of a query was found there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOMS = (
    "benchmarks", "controller", "dispatcher", "experiments", "merger", "planner", "sequencer",
    "workers",
)  # fmt: skip
POSSESSIVE = re.compile(r"(?<!\\)[*+?}]\+|\(\?>")
CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
IMPORT = re.compile(r"^\s*import .*\bre\b", re.MULTILINE)
FIELD = re.compile(r"(?<!\{)\{\w[^{}]*\}(?!\})")


@pytest.mark.takes_turns
def test_no_pattern_of_re_is_possessive(root: Path) -> None:
    found = [
        f"{path.relative_to(root)}:{line}: {pattern}"
        for folder in ("ps2stream", *ROOMS)
        for path in sorted((root / folder).rglob("*.py"))
        for line, pattern in list_patterns(path)
        if POSSESSIVE.search(pattern)
    ]
    assert not found


def test_a_possessive_pattern_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        'import re\nPART = r"a*+"\nWHOLE = re.compile(rf"{PART}+[*+]b{{2}}")\nC = "c++"\n'
    )
    assert [p for _, p in list_patterns(path) if POSSESSIVE.search(p)] == ['r"a*+"']


def list_patterns(path: Path) -> Iterator[tuple[int, str]]:
    """Yields line and text of the constants of a module that are patterns: its module imports `re`
    and they are raw, as patterns are."""
    source = path.read_text("utf-8")
    if not IMPORT.search(source):
        return
    tree = ast.parse(source)
    names = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    if "re" not in names:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr):
            text = ast.get_source_segment(source, node) or ""
            if re.match(r"(?i)r|fr", text):
                yield node.lineno, CLASS.sub("C", FIELD.sub("F", text) if "f" in text[:2] else text)
