"""`make test`: every stage says what it does, the last line adds them up, long files come first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.distribution import ALONE, LONGEST, SCATTERED, SHARED, rank_of, scope_of

TESTS = {
    "test_mixed.py": "import pytest\n"
    "def test_fine(): pass\n"
    "def test_wrong(): assert False\n"
    "def test_elsewhere(): pytest.skip('not here')\n"
    "@pytest.fixture\n"
    "def broken(): raise OSError\n"
    "def test_error(broken): pass\n",
    "test_crash.py": "import os\ndef test_end(): os._exit(3)\n",
    "test_good.py": "def test_one(): pass\ndef test_two(): pass\n",
}


def run(root: Path, folder: Path, *stages: str) -> tuple[int, list[str]]:
    for name, text in TESTS.items():
        (folder / name).write_text(text)
    done = subprocess.run(
        [sys.executable, str(root / "scripts" / "stages.py"), *stages],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout.splitlines()


def stage_of(name: str) -> str:
    return f"{name}: {sys.executable} -m pytest -c /dev/null --rootdir . -p no:cacheprovider {name}"


def test_a_failed_stage_hides_neither_the_next_nor_itself(root: Path, tmp_path: Path) -> None:
    code, lines = run(
        root, tmp_path,
        "checks: false", stage_of("test_mixed.py"), stage_of("test_crash.py"),
        stage_of("test_good.py"), stage_of("test_absent.py"),
    )  # fmt: skip
    assert code == 1
    assert lines[-1] == "3 passed, 5 failed, 1 skipped"
    closing = [line for line in lines if line.startswith("===") and " in " in line]
    assert "1 failed, 1 passed, 1 skipped, 1 error" in closing[0], "pytest's own closing line"
    summary = lines[lines.index("== all stages") :]
    assert [line.split(" in ")[0] for line in summary if not line.startswith((" ", "all: "))] == [
        "== all stages",
        "checks: 0 passed, 1 failed, 0 skipped",
        "test_mixed.py: 1 passed, 2 failed, 1 skipped",
        "test_crash.py: 0 passed, 1 failed, 0 skipped",
        "test_good.py: 2 passed, 0 failed, 0 skipped",
        "test_absent.py: 0 passed, 1 failed, 0 skipped",
        lines[-1],
    ]
    assert [line.split("::")[1] for line in summary if "FAILED" in line] == [
        "test_wrong",
        "test_error",
    ]


def test_all_is_well_where_every_stage_is(root: Path, tmp_path: Path) -> None:
    code, lines = run(root, tmp_path, "checks: true", stage_of("test_good.py"))
    assert (code, lines[-1]) == (0, "3 passed, 0 failed, 0 skipped")


def test_each_stage_says_what_it_does_as_it_begins(root: Path, tmp_path: Path) -> None:
    _, lines = run(root, tmp_path, "checks (types, about 3 s): echo one", "plain: echo two")
    assert lines[:4] == ["== 1 of 2: checks (types, about 3 s)", "one", "== 2 of 2: plain", "two"]


def test_what_runs_beside_a_stage_is_shown_after_it_and_counts(root: Path, tmp_path: Path) -> None:
    wait = "until test -e begun; do sleep 0.01; done; echo first"
    code, lines = run(
        root, tmp_path,
        f"long: sh -c '{wait}'", "+beside: sh -c 'touch begun; echo second; false'", "last: echo 3",
    )  # fmt: skip
    assert lines[:7] == [
        "== 1 of 3: long",
        "== 2 of 3: beside, beside it",
        "first",
        "== the output of beside",
        "second",
        "== 3 of 3: last",
        "3",
    ]
    assert (code, lines[-1]) == (1, "2 passed, 1 failed, 0 skipped")


def test_files_that_take_long_are_told_of(root: Path, tmp_path: Path) -> None:
    cases = "".join(
        f'<testcase classname="{name}" name="{i}" time="{seconds}"/>'
        for i, (name, seconds) in enumerate((("a", 9.5), ("b", 30.0), ("c", 19.0), ("a", 12.0)))
    )
    (tmp_path / "report.xml").write_text(f"<testsuites>{cases}</testsuites>")
    copy = """sh -c 'cp report.xml "${1#--junitxml=}"' pytest"""
    code, lines = run(root, tmp_path, f"slow: {copy}")
    assert lines[-5:-2] == [lines[-5], "      30 s b", "      22 s a"]
    assert (code, lines[-1]) == (0, "4 passed, 0 failed, 0 skipped")


def stages_of(root: Path, *arguments: str) -> str:
    """What `make test` with these arguments has run as stages."""
    given = {"ALSO", "ARGS", "JOBS", "ROOM"}  # to a make that runs this test
    own = {
        name: value
        for name, value in os.environ.items()
        if name not in given and not name.startswith(("MAKE", "MFLAGS"))
    }
    done = subprocess.run(
        ["make", "--dry-run", "test", *arguments],
        cwd=root, env=own, capture_output=True, text=True, check=True,
    )  # fmt: skip
    (command,) = (part for part in done.stdout.split("\n.venv") if "stages.py" in part)
    return command


def test_make_test_runs_checks_and_all_tests_as_stages(root: Path) -> None:
    command = stages_of(root, "ALSO=make fuzz")
    assert command.count("-m pytest") == 2
    assert "scripts/check.sh" in command
    assert "+also: make fuzz" in command


def test_make_test_of_a_room_runs_its_unit_tests_alone(root: Path) -> None:
    command = stages_of(root, "ROOM=merger")
    assert command.count("-m pytest") == 1
    assert "tests/unit/merger" in command
    assert "check.sh" not in command
    assert "tests/unit/test_config.py" in stages_of(root, "ROOM=root")


def test_long_files_come_first_and_those_of_spark_together(root: Path) -> None:
    assert not [name for name in (*LONGEST, *ALONE, *SCATTERED) if not (root / name).exists()]
    for folder in SHARED:
        files = [path.relative_to(root).as_posix() for path in (root / folder).glob("test_*.py")]
        alone = {path for path in ALONE if path.startswith(f"{folder}/")}
        assert {scope_of(path) for path in files} == {folder, *alone}
    assert rank_of("tests/sim/test_faults.py") < rank_of("tests/sim/test_disk.py")
    assert rank_of("tests/sim/test_disk.py") < rank_of("tests/unit/test_stages.py") == len(LONGEST)
    assert scope_of("tests/unit/test_stages.py", "one") == "tests/unit/test_stages.py"
    assert len({scope_of(SCATTERED[0], test) for test in ("one", "two")}) == 2
