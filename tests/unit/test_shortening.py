"""What CI leaves out is named, and played by others; without CI everything is played."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

CONFTEST = "from tests.support.shortening import leave_repeats as pytest_collection_modifyitems\n"
TESTS = """
import pytest
from tests.support.shortening import choose_first

def test_first(): assert choose_first([1, 2, 3], 1) == {first}

@pytest.mark.repeats("test_here.py::test_first")
def test_again(): pass
"""


@pytest.mark.parametrize(
    ("ci", "first", "told"),
    [("true", [1], "1 passed, 1 deselected"), ("", [1, 2, 3], "2 passed")],
)
def test_only_ci_is_shorter(
    root: Path, tmp_path: Path, ci: str, first: list[int], told: str
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_here.py").write_text(TESTS.replace("{first}", str(first)))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "markers=repeats"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(root), "CI": ci},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told in done.stdout, done.stdout + done.stderr


def named(root: Path) -> Iterator[tuple[str, str]]:
    """Each (file, test) that a mark `repeats` names."""
    for path in sorted((root / "tests").rglob("test_*.py")):
        if path == Path(__file__):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.repeats":
                for argument in node.args:
                    name, _, test = ast.literal_eval(argument).partition("::")
                    yield name, test


def test_what_plays_the_same_in_ci_exists(root: Path) -> None:
    found = list(named(root))
    assert found
    for name, test in found:
        text = (root / name).read_text("utf-8")
        assert (f"def {test}(" if test else "def test_") in text, (name, test)
