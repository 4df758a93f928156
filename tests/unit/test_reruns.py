"""A second try: of tests that depend on time, after a failure of time, and never unseen."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
from collections.abc import Callable
from email.message import Message
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from ps2stream.errors import FailedPrecondition, StoreFailed, Unavailable
from tests import naive
from tests.support.reruns import FOLDERS, Unforgiven, has_rerun, is_of_time

SLOW = """
import time
import pytest
from ps2stream.errors import Unavailable

tries = []

def is_second(name):
    tries.append(name)
    return tries.count(name) == 2

@pytest.fixture(scope="module")
def service():
    tries.append("start")
    yield
    tries.append("stop")

@pytest.fixture
def late():
    if not is_second("late"):
        raise TimeoutError("not up")

@pytest.fixture
def complaints():
    yield
    assert is_second("complaints"), "the page complained"

def test_setup(late, service): pass

def test_limit(service):
    deadline = time.monotonic() + (1 if is_second("limit") else -1)
    assert time.monotonic() < deadline, "limit"

def test_is_late_again(service):
    raise TimeoutError("still slow")

def test_answer(service):
    assert [1] == ([1] if is_second("answer") else [2])

def test_text(service):
    if not is_second("text"):
        raise TimeoutError("a match was lost")

def test_two_errors(service, complaints):
    if not is_second("two errors"):
        raise Unavailable("cut")

def test_end(service):
    if not is_second("end"):
        raise Unavailable("cut")
    assert "stop" not in tries
    assert tries.count("start") == 1
"""
FOLDER = "tests/service"
DETERMINISTIC = """
tries = []

def test_unit():
    tries.append(1)
    if len(tries) == 1:
        raise TimeoutError("slow")
"""


@pytest.mark.takes_turns
@pytest.mark.parametrize("processes", [(), ("-n", "2", "--dist", "loadfile")], ids=["one", "two"])
def test_what_is_tried_twice_is_told_and_counts_once(
    root: Path, tmp_path: Path, processes: tuple[str, ...]
) -> None:
    hooks = "pytest_collection_modifyitems, pytest_terminal_summary"
    (tmp_path / "conftest.py").write_text(f"from tests.conftest import {hooks}\n")
    for name, text in (("service/test_slow", SLOW), ("unit/test_it", DETERMINISTIC)):
        file = tmp_path / "tests" / f"{name}.py"
        file.parent.mkdir(parents=True)
        file.write_text(text)
    tests = f"{sys.executable} -m pytest -c /dev/null --rootdir . -p no:cacheprovider -q tests"
    done = subprocess.run(
        [sys.executable, str(root / "scripts/stages.py"), f"all: {tests} {' '.join(processes)}"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(root)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert lines[-1] == "3 passed, 5 failed, 0 skipped", done.stdout
    slow = f"{FOLDER}/test_slow.py"
    told = dict(line.split("): ", 1) for line in lines if line.startswith(f"{slow}::"))
    assert {name: " ".join(error.split()[1:3]) for name, error in told.items()} == {
        f"{slow}::test_setup (setup, then passed": "TimeoutError: not",
        f"{slow}::test_limit (call, then passed": "AssertionError: limit",
        f"{slow}::test_is_late_again (call, failed again": "TimeoutError: still",
        f"{slow}::test_end (call, then passed": "ps2stream.errors.Unavailable: cut",
    }
    summary = lines[lines.index("== all stages") :]
    again = {line.rpartition("::")[2] for line in summary if "TRIED TWICE" in line}
    assert again == {"test_setup", "test_limit", "test_is_late_again", "test_end"}
    failed = {line.rpartition("::")[2] for line in summary if "FAILED" in line}
    assert failed == {
        "test_is_late_again", "test_answer", "test_text", "test_two_errors", "test_unit"
    }  # fmt: skip


def break_limit(text: str) -> None:
    deadline = time.monotonic() - 1
    assert time.monotonic() < deadline, text


def miss_equality() -> None:
    deadline = [1]
    assert deadline == [2]


def miss_number() -> None:
    assert len("abc") == 4


def raise_error(error: BaseException) -> None:
    raise error


def catch(fail: Callable[[], None]) -> BaseException:
    with pytest.raises(BaseException) as found:
        fail()
    return found.value


class RefusedCall(Exception):
    """As gRPC's own, with a status."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self._status = SimpleNamespace(name=status)

    def code(self) -> object:
        return self._status


OF_TIME = (
    partial(break_limit, "it took long"),
    partial(raise_error, AssertionError("to be visible\nError: Timeout 5000ms exceeded.")),
    partial(raise_error, TimeoutError("no answer")),
    partial(raise_error, ConnectionResetError("cut")),
    partial(raise_error, subprocess.TimeoutExpired("mvn", 5)),
    partial(raise_error, Unavailable("no answer")),
    partial(raise_error, RefusedCall("DEADLINE_EXCEEDED")),
)
OF_ANSWERS = (
    partial(break_limit, "2 matches are missing"),
    miss_equality,
    miss_number,
    partial(raise_error, AssertionError("the program ended")),
    partial(raise_error, TimeoutError("no match came within 2 s")),
    partial(raise_error, TimeoutError("3 objects were lost")),
    partial(raise_error, KeyError("id")),
    partial(raise_error, FailedPrecondition("topic: unknown")),
    partial(raise_error, StoreFailed("a torn record")),
    partial(raise_error, RefusedCall("INTERNAL")),
    partial(raise_error, urllib.error.HTTPError("", 500, "", Message(), None)),
)


@pytest.mark.parametrize("fail", OF_TIME)
def test_a_failure_of_time_is_forgiven(fail: Callable[[], None]) -> None:
    error = catch(fail)
    assert is_of_time(error)
    assert not isinstance(error, Unforgiven)


@pytest.mark.parametrize("fail", OF_ANSWERS)
def test_a_failure_that_may_be_a_wrong_answer_is_not(fail: Callable[[], None]) -> None:
    error = catch(fail)
    assert not is_of_time(error)
    assert isinstance(error, Unforgiven)


def test_tests_of_answers_and_deterministic_ones_get_no_second_try(root: Path) -> None:
    assert [folder for folder in FOLDERS if not (root / folder).exists()] == []
    plain, oracle = ModuleType("plain"), ModuleType("oracle")
    vars(oracle)["naive"] = naive
    path = f"{FOLDER}/test_x.py"
    assert has_rerun(path, "test_a_closed_client_says_so[once]", plain)
    assert has_rerun("tests/docs/test_tutorial.py", "test_a_tour", plain)
    assert not has_rerun(path, "test_a_closed_client_says_so", oracle)
    for name in ("test_kills_lose_nothing", "test_it_comes_once", "test_all_is_acknowledged[a]"):
        assert not has_rerun(path, name, plain)
    for other in (
        "unit/service/test_x",
        "sim/test_x",
        "properties/test_x",
        "docs/test_x",
        "test_x",
    ):
        assert not has_rerun(f"tests/{other}.py", "test_a_tour", plain)


def test_every_test_that_asks_brute_force_is_known(root: Path) -> None:
    """By the name of the module that it imports: has_rerun looks for that one."""
    files = [f for folder in FOLDERS for f in sorted((root / folder).rglob("test_*.py"))]
    asking = [f for f in files if "naive" in f.read_text("utf-8")]
    assert asking
    for file in asking:
        assert "from tests import naive\n" in file.read_text("utf-8"), file
