"""What CI leaves out is named, and played by others or on other days; without CI everything is
played."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.shortening import DAY_S, choose_turn

CONFTEST = """
from tests.support.shortening import describe as pytest_report_header
from tests.support.shortening import leave_out as pytest_collection_modifyitems
"""
TESTS = """
import pytest
from tests.support.shortening import choose_first

pytestmark = pytest.mark.takes_turns

@pytest.mark.every_turn
def test_first(): assert choose_first([1, 2, 3], 1) == {first}

@pytest.mark.every_turn
@pytest.mark.repeats("test_here.py::test_first")
def test_again(): pass

@pytest.mark.parametrize("n", range(4))
def test_long(n): pass

@pytest.mark.takes_turns(1)
def test_longer(): pass
"""
EVERY = {"test_first"}
LONG = {"test_longer", *(f"test_long[{n}]" for n in range(4))}


def played(
    root: Path, folder: Path, environment: dict[str, str], *more: str
) -> tuple[list[str], str]:
    """Returns the names of the tests that are played in this environment, and what pytest tells."""
    first = [1] if environment["CI"] == "true" else [1, 2, 3]
    (folder / "conftest.py").write_text(CONFTEST)
    for name in ("test_here.py", "test_there.py"):
        (folder / name).write_text(TESTS.replace("{first}", str(first)))
    marks = "markers=repeats\ntakes_turns\nevery_turn"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rp", "-p", "no:cacheprovider", "-o", marks, *more],
        cwd=folder, env=os.environ | {"PYTHONPATH": str(root)} | environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("PASSED ")]
    return sorted(line.partition(" ")[2] for line in lines), done.stdout + done.stderr


def test_turns_are_told_and_are_everything_together(root: Path, tmp_path: Path) -> None:
    every, long = set(EVERY), set[str]()
    for turn in range(3):
        found, told = played(root, tmp_path, {"CI": "true", "CI_TURN": str(turn)}, "test_here.py")
        assert f"CI: turn {turn} of 0 to 2" in told
        names = {name.partition("::")[2] for name in found}
        assert names >= every, told
        assert not names & long, told
        assert 1 <= len(names - every) <= 3
        assert ("test_longer" in names) == (turn == 1)
        long |= names - every
    assert long == LONG


def test_without_ci_everything_is_played(root: Path, tmp_path: Path) -> None:
    found, told = played(root, tmp_path, {"CI": "", "CI_TURN": "2"}, "test_here.py")
    assert {name.partition("::")[2] for name in found} == EVERY | LONG | {"test_again"}, told
    assert "CI:" not in told


def test_processes_play_together_what_each_file_alone_has(root: Path, tmp_path: Path) -> None:
    """Where processes find different tests, xdist plays none."""
    found, told = played(root, tmp_path, {"CI": "true", "CI_TURN": ""}, "-n2", "--dist=loadfile")
    turn = told.partition("CI: turn ")[2][0]
    alone, _ = played(root, tmp_path, {"CI": "true", "CI_TURN": turn}, "test_there.py")
    assert [name for name in found if name.startswith("test_there.py")] == alone
    assert {name.partition("::")[0] for name in found} == {"test_here.py", "test_there.py"}


def test_the_turn_is_that_of_the_day_unless_one_is_asked_for() -> None:
    days = [choose_turn({}, day * DAY_S + s) for day in range(20_000, 20_006) for s in (0, 86_399)]
    assert days == [2, 2, 0, 0, 1, 1] * 2
    assert choose_turn({"CI_TURN": ""}, 20_000 * DAY_S) == 2
    assert [choose_turn({"CI_TURN": f"{n}"}, 20_000 * DAY_S) for n in range(3)] == [0, 1, 2]
    for wrong in ("3", "-1", "monday", "01"):
        with pytest.raises(pytest.UsageError, match=f"CI_TURN is {wrong}; expected 0 to 2"):
            choose_turn({"CI_TURN": wrong}, 0)


def test_a_turn_that_never_comes_is_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "test_never.py").write_text(
        "import pytest\n\n@pytest.mark.takes_turns(3)\ndef test_it(): pass\n"
    )
    found, told = played(root, tmp_path, {"CI": "true", "CI_TURN": "0"}, "test_never.py")
    assert not found
    assert "test_never.py::test_it takes turn 3; there are 0 to 2" in told


def named(root: Path) -> Iterator[tuple[str, str]]:
    """Each (file, test) that a mark `repeats` names."""
    for path in sorted((root / "tests").rglob("test_*.py")):
        text = path.read_text("utf-8")
        if path == Path(__file__) or "pytest.mark.repeats" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
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
