"""Runs the stages of `make test`, each whatever the outcome of those before, and adds them up.

python scripts/stages.py 'NAME (DESCRIPTION): COMMAND' ...

The description, which may be absent, is shown as the stage begins. A stage with a `+` before its
name runs beside the one before it, and its output is shown when both have ended.

Tests that pytest ran are counted by its JUnit report; one that was tried twice counts as its second
try ended, and is named; so are the files that took longest. A stage without a report counts as one
test, and so does a failure that no report has. The last line is `N passed, N failed, N skipped`;
the exit code is 1 if anything failed.
"""

from __future__ import annotations

import itertools
import shlex
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import IO, NamedTuple
from xml.etree import ElementTree as ET

LONG_S = 20
"""A file whose tests take so long is told of; with the seconds of all, a run that became slow
shows where."""
LONGEST = 12
"""The most files that are told of."""


class Stage(NamedTuple):
    """A stage to run. output: the file that takes its output; None: it is not held back."""

    name: str
    description: str
    command: list[str]
    output: IO[bytes] | None


class StageResult(NamedTuple):
    """The outcome of a stage; names: the tests that failed; again: those that were tried twice;
    long: the files that took longest, and their seconds."""

    name: str
    passed: int
    failed: int
    skipped: int
    names: tuple[str, ...]
    again: tuple[str, ...]
    seconds: float
    long: tuple[tuple[str, float], ...] = ()

    def counts(self) -> str:
        """Returns the numbers in the form of the closing line."""
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def say(line: str) -> None:
    """Writes a line at once, so that it precedes the output of the next stage."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def run_stage(stage: Stage, report: Path) -> StageResult:
    """Runs a stage to its end; its output goes where it was opened to."""
    begun = time.monotonic()
    counted = "pytest" in stage.command
    words = [*stage.command, f"--junitxml={report}"] if counted else stage.command
    code = subprocess.run(words, check=False, stdout=stage.output, stderr=stage.output).returncode
    seconds = time.monotonic() - begun
    if not counted:
        return StageResult(stage.name, int(code == 0), int(code != 0), 0, (), (), seconds)
    passed, names, skipped, again = read_report(report)
    failed = max(len(names), int(code != 0))  # a crash has no report, or one without a failure
    long = list_longest(report)
    return StageResult(stage.name, passed, failed, skipped, names, again, seconds, long)


def read_report(report: Path) -> tuple[int, tuple[str, ...], int, tuple[str, ...]]:
    """Returns (passed, names of tests that failed or could not be collected, skipped, names of
    those that were tried twice) of a JUnit report, which has both tries: the first as if it had
    passed."""
    if not report.is_file():
        return 0, (), 0, ()
    ends: dict[str, list[set[str]]] = {}
    for case in ET.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        ends.setdefault(name, []).append({part.tag for part in case})
    failed = [name for name, tags in ends.items() if set().union(*tags) & {"failure", "error"}]
    again = [
        name
        for name, tags in ends.items()
        if len(tags) > 1 and any(not one & {"failure", "error", "skipped"} for one in tags)
    ]
    left = [tags for name, tags in ends.items() if name not in failed]
    skipped = sum("skipped" in set().union(*tags) for tags in left)
    return len(left) - skipped, tuple(failed), skipped, tuple(again)


def list_longest(report: Path) -> tuple[tuple[str, float], ...]:
    """Returns the files of a JUnit report that took at least LONG_S, and their seconds, the longest
    first."""
    seconds: dict[str, float] = defaultdict(float)
    for case in ET.parse(report).iter("testcase") if report.is_file() else ():
        seconds[case.get("classname", "")] += float(case.get("time", 0))
    first = sorted(seconds.items(), key=lambda found: -found[1])[:LONGEST]
    return tuple((name, s) for name, s in first if s >= LONG_S)


def parse_stage(text: str, output: IO[bytes]) -> Stage:
    """Parses an argument; `output` is for a stage that runs beside another."""
    head, _, command = text.partition(": ")
    name, _, description = head.removeprefix("+").partition(" (")
    held = output if head.startswith("+") else None
    return Stage(name, description.removesuffix(")"), shlex.split(command), held)


def run_together(first: Stage, others: list[Stage], reports: Iterator[Path]) -> list[StageResult]:
    """Runs a stage and those beside it; shows the output of these once all have ended."""
    with ThreadPoolExecutor(max(1, len(others))) as pool:
        running = [pool.submit(run_stage, stage, next(reports)) for stage in others]
        found = [run_stage(first, next(reports)), *(task.result() for task in running)]
    for stage in others:
        say(f"== the output of {stage.name}")
        if stage.output is not None:
            stage.output.seek(0)
            say(stage.output.read().decode(errors="replace").rstrip())
    return found


def main(*arguments: str) -> int:
    """Runs all stages; returns the exit code."""
    found: list[StageResult] = []
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as files:
        stages = [
            parse_stage(text, files.enter_context((Path(folder) / f"{i}.txt").open("w+b")))
            for i, text in enumerate(arguments)
        ]
        reports = (Path(folder) / f"{i}.xml" for i in itertools.count())
        for at, stage in enumerate(stages):
            if stage.output is not None and at > 0:
                continue  # it ran with the one before
            rest = itertools.takewhile(lambda s: s.output is not None, stages[at + 1 :])
            together = [stage, *rest]
            for n, one in enumerate(together, at + 1):
                about = f" ({one.description})" if one.description else ""
                say(f"== {n} of {len(stages)}: {one.name}{about}{', beside it' * (n > at + 1)}")
            found += run_together(stage, together[1:], reports)
    say("== all stages")
    for result in found:
        say(f"{result.name}: {result.counts()} in {result.seconds:.0f} s")
        for name in result.names:
            say(f"    FAILED {name}")
        for name in result.again:
            say(f"    TRIED TWICE {name}")
        for name, seconds in result.long:
            say(f"    {seconds:4.0f} s {name}")
    total = StageResult(
        "all", sum(r.passed for r in found), sum(r.failed for r in found),
        sum(r.skipped for r in found), (), (), time.monotonic() - begun,
    )  # fmt: skip
    say(f"all: {total.seconds:.0f} s")
    say(total.counts())
    return int(total.failed > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
