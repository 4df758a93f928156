"""What a run found: a line as each check ends, and a table of all at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple


class CheckResult(NamedTuple):
    """One check: its name, whether it passed, the seconds it took, and what it found."""

    name: str
    passed: bool
    seconds: float
    detail: str


class RunningCheck:
    """A check from its start to its end."""

    def __init__(self, report: Report, name: str) -> None:
        self._report, self._name = report, name
        self._begin = time.monotonic()
        self._found: list[str] = []

    def __enter__(self) -> list[str]:
        return self._found

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        if error is not None:
            self._found.append(f"{type(error).__name__}: {error}")
        seconds = time.monotonic() - self._begin
        detail = "; ".join(self._found)
        self._report.add(CheckResult(self._name, kind is None, seconds, detail))
        return isinstance(error, Exception)


class Report:
    """Collects results, and passes lines to `tell` as they come."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._begin = time.monotonic()
        self.results: list[CheckResult] = []

    def tell(self, line: str) -> None:
        """Passes on a line of progress, with the minutes since the start."""
        seconds = time.monotonic() - self._begin
        self._tell(f"{int(seconds // 60):3d}:{int(seconds % 60):02d}  {line}")

    def check(self, name: str) -> RunningCheck:
        """Returns the context of one check: what it adds to the list is the detail of its result. A
        check that raises has failed, and the next one runs."""
        self.tell(f"{name} ...")
        return RunningCheck(self, name)

    def add(self, result: CheckResult) -> None:
        """Adds a result, and tells it."""
        self.results.append(result)
        verdict = "passed" if result.passed else "FAILED"
        self.tell(f"{result.name}: {verdict} in {result.seconds:.0f} s. {result.detail}")

    def table(self) -> str:
        """Returns the results as a table of Markdown, and the count."""
        lines = ["| check | result | s | found |", "|---|---|---|---|"]
        for result in self.results:
            verdict = "passed" if result.passed else "FAILED"
            detail = " ".join(result.detail.split())[:300].replace("|", "\\|")
            lines.append(f"| {result.name} | {verdict} | {result.seconds:.0f} | {detail} |")
        failed = sum(not result.passed for result in self.results)
        lines += ["", f"{len(self.results) - failed} passed, {failed} failed"]
        return "\n".join(lines)

    def has_passed(self) -> bool:
        """Whether there were checks, and all of them passed."""
        return bool(self.results) and all(result.passed for result in self.results)
