"""scripts/stages.py: every stage of `make test` runs, and the closing line adds them up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
    assert [line.split(" in ")[0] for line in summary if not line.startswith(" ")] == [
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
    assert "also: make fuzz" in command


def test_make_test_of_a_room_runs_its_unit_tests_alone(root: Path) -> None:
    command = stages_of(root, "ROOM=merger")
    assert command.count("-m pytest") == 1
    assert "tests/unit/merger" in command
    assert "check.sh" not in command
    assert "tests/unit/test_config.py" in stages_of(root, "ROOM=root")
