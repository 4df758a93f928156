"""Runs the stages of `make test`, each whatever the outcome of those before, and adds them up.

python scripts/stages.py 'NAME: COMMAND' ...

Tests that pytest ran are counted by its JUnit report. A stage without one counts as one test, and
so does a failure that no report has. The last line is `N passed, N failed, N skipped`; the exit
code is 1 if anything failed.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET


class StageResult(NamedTuple):
    """The outcome of a stage; `names`: the tests that failed."""

    name: str
    passed: int
    failed: int
    skipped: int
    names: tuple[str, ...]
    seconds: float

    def counts(self) -> str:
        """Returns the numbers in the form of the closing line."""
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def say(line: str) -> None:
    """Writes a line at once, so that it precedes the output of the next stage."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def run_stage(name: str, command: list[str], report: Path) -> StageResult:
    """Runs a stage to its end; its output is not held back."""
    say(f"== {name}")
    begun = time.monotonic()
    counted = "pytest" in command
    words = [*command, f"--junitxml={report}"] if counted else command
    code = subprocess.run(words, check=False).returncode
    seconds = time.monotonic() - begun
    if not counted:
        return StageResult(name, int(code == 0), int(code != 0), 0, (), seconds)
    passed, names, skipped = read_report(report)
    failed = max(len(names), int(code != 0))  # a crash has no report, or one without a failure
    return StageResult(name, passed, failed, skipped, names, seconds)


def read_report(report: Path) -> tuple[int, tuple[str, ...], int]:
    """Returns (passed, names of tests that failed or could not be collected, skipped) of a JUnit
    report."""
    if not report.is_file():
        return 0, (), 0
    passed, skipped = 0, 0
    names = []
    for case in ET.parse(report).iter("testcase"):
        found = {part.tag for part in case}
        if found & {"failure", "error"}:
            names.append(f"{case.get('classname')}::{case.get('name')}")
        elif "skipped" in found:
            skipped += 1
        else:
            passed += 1
    return passed, tuple(dict.fromkeys(names)), skipped


def main(*stages: str) -> int:
    """Runs all stages; returns the exit code."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for at, stage in enumerate(stages):
            name, _, command = stage.partition(": ")
            found.append(run_stage(name, shlex.split(command), Path(folder) / f"{at}.xml"))
    say("== all stages")
    for result in found:
        say(f"{result.name}: {result.counts()} in {result.seconds:.0f} s")
        for name in result.names:
            say(f"    FAILED {name}")
    total = StageResult(
        "", sum(r.passed for r in found), sum(r.failed for r in found),
        sum(r.skipped for r in found), (), 0.0,
    )  # fmt: skip
    say(total.counts())
    return int(total.failed > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
