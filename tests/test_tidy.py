"""The house is in order: names, docstrings and sizes, with the bounds that they must keep.

Where a stranger's sentence in a review says otherwise, the test is changed and not the name.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import gc
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PRIVATE_ONE_WORD = 0.20
CLASS_ONE_WORD = 0.30
FRAGMENTS = 0.02
LINES = 400
LONGER = {
    "dispatcher/router.py",
    "ps2stream/config.py",
}
"""Modules of more lines than that. This list only becomes shorter."""
FRAGMENT = re.compile(
    r"(Of|Those|These|They|Them|It|Its|As|Where|Whether|What|Who|Whom|Whose|How|So|Such|None of"
    r"|From|In|With|By|Each|Some|One|His|Their|For|To|At|On|Once|When|While|Until|Beside)\b"
)
"""What no docstring begins with: pronouns, prepositions, fragments."""
BANNED = {
    "asked", "bury", "courier", "door", "guilty", "heard", "hire", "letters", "manning", "mourn",
    "said", "stands", "told", "young",
}  # fmt: skip
"""Words of speech, staffing and burial: docs/glossary.md has others for what is meant."""


class Definition(NamedTuple):
    """A function or class of the package: where it is, its name and docstring."""

    module: str
    kind: str
    name: str
    doc: str | None


def modules(root: Path) -> list[Path]:
    """All Python files but tests and generated code."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=root, check=True, capture_output=True, text=True
    ).stdout.split()
    skipped = ("tests/", "ps2stream/v1/")
    return [root / name for name in listed if not name.startswith(skipped)]


@pytest.fixture(scope="module")
def definitions(root: Path) -> list[Definition]:
    """All functions and classes but those of the language (`__init__`)."""
    return [each for path in modules(root) for each in definitions_of(path, root)]


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Parse without a garbage collection amid it, whose finalizers may run any Python.

    One that parses too makes CPython before 3.11.8 raise "AST constructor recursion depth
    mismatch" (its issue 106905).
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def definitions_of(path: Path, root: Path) -> Iterator[Definition]:
    with without_collection():
        tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            kind = "class"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            kind = "private" if node.name.startswith("_") else "public"
        else:
            continue
        if not node.name.startswith("__"):
            doc = ast.get_docstring(node)
            yield Definition(str(path.relative_to(root)), kind, node.name, doc)


def words(name: str) -> list[str]:
    """The words of a name, in lower case: `_read_row` and `ReadRow` have two."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)]


def share(found: list[Definition], all_of: list[Definition]) -> float:
    return len(found) / len(all_of)


def test_private_functions_are_named_with_a_verb_and_an_object(
    definitions: list[Definition],
) -> None:
    private = [each for each in definitions if each.kind == "private"]
    short = [each for each in private if len(each.name.strip("_").split("_")) == 1]
    assert share(short, private) <= PRIVATE_ONE_WORD


def test_classes_say_what_of(definitions: list[Definition]) -> None:
    classes = [each for each in definitions if each.kind == "class"]
    short = [each for each in classes if len(re.findall("[A-Z][a-z0-9]*", each.name)) <= 1]
    assert share(short, classes) <= CLASS_ONE_WORD


def test_no_class_has_the_name_of_another(definitions: list[Definition]) -> None:
    names = collections.Counter(each.name for each in definitions if each.kind == "class")
    assert not [name for name, count in names.items() if count > 1]


def test_docstrings_are_sentences(definitions: list[Definition]) -> None:
    documented = [each for each in definitions if each.doc]
    fragments = [each for each in documented if FRAGMENT.match((each.doc or "").strip())]
    assert share(fragments, documented) <= FRAGMENTS


def test_names_keep_to_the_glossary(definitions: list[Definition]) -> None:
    assert not [each[:3] for each in definitions if BANNED & {*words(each.name)}]


def test_modules_are_short(root: Path) -> None:
    long = {
        str(path.relative_to(root))
        for path in modules(root)
        if path.read_text("utf-8").count("\n") > LINES
    }
    assert long == LONGER
