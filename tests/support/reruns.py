"""Which failure of which test may be tried a second time.

A test that drives programs which are not ours, or that sets a limit of time on a busy machine, may
fail though nothing is wrong. It gets one more try, and only where the failure was one of time: a
limit that passed, a line that was cut, a browser that did not draw. An answer that is wrong is a
bug even if it is rare, and so is a program of ours that ends by itself.
"""

from __future__ import annotations

import re
import traceback
from types import ModuleType

import pytest

from ps2stream.errors import StoreFailed, Unavailable
from tests import naive

FOLDERS = (
    "tests/connectors",
    "tests/docs/test_browser.py",
    "tests/docs/test_tutorial.py",
    "tests/examples",
    "tests/hosts",
    "tests/map",
    "tests/packaging",
    "tests/postgres",
    "tests/ray",
    "tests/service",
    "tests/spark",
    "tests/transcripts",
)
"""Folders and files of tests that may get a second try; never one of what is deterministic."""
EXACT = re.compile(
    r"(?<![a-z])(acknowledged|brute|counts|damage|exact|gap|keeps?|kept|los(e|es|t)|more|nothing|"
    r"once|oracles?|right|true|twice|wrong)(?![a-z])"
)
"""Words in the name of a test that is about answers: for it, what did not come in time is lost."""
WRONG = re.compile(
    r"\b(corrupt|damaged?|differs?|doubled?|duplicates?|false|gap|los(t|es|ing)|miss(ing|ed)|"
    r"no match|twice|wrong)\b"
)
COMPARISON = re.compile(r"At index \d|Counter\(|Differing items|Extra items|contains? .* more item")
"""What pytest says of two lists, sets or mappings that are not equal."""
LIMIT = re.compile(r"\bmonotonic\(\)|\bperf_counter\(\)|\bdeadline\b|\b(elapsed|seconds|took)\b")
"""What a statement holds that judges a time."""
PATIENCE = re.compile(r"[Tt]imeout \d+ ?ms")
"""What Playwright says when something did not show in time."""
LATE = {
    "ClientConnectionError",
    "ConnectionError",
    "Empty",
    "OperationalError",
    "Py4JNetworkError",
    "TimeoutError",
    "TimeoutExpired",
    "URLError",
}
"""Errors, by the names of their classes, of programs that are late or cannot be reached."""


class _Judgement(type):
    def __instancecheck__(cls, error: object) -> bool:
        return isinstance(error, BaseException) and not is_of_time(error)


class Unforgiven(Exception, metaclass=_Judgement):
    """Every error but those of time, for pytest-rerunfailures, which asks what class an error has:
    of setup, of the test, of teardown, and of their causes. One of them settles it."""


def is_of_time(error: BaseException) -> bool:
    """Returns whether an error may only mean that something took long. When in doubt: no."""
    text = str(error)
    if WRONG.search(text) or COMPARISON.search(text):
        return False
    if isinstance(error, AssertionError):
        failed = traceback.extract_tb(error.__traceback__)[-1:]
        statement = (failed[0].line or "") if failed else ""
        return bool(LIMIT.search(statement) or PATIENCE.search(text))
    if isinstance(error, Unavailable):
        return not isinstance(error, StoreFailed)
    status = getattr(error, "code", None)  # of gRPC
    if callable(status):
        return getattr(status(), "name", "") in ("DEADLINE_EXCEEDED", "UNAVAILABLE")
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & LATE) and "HTTPError" not in names


def has_rerun(path: str, name: str, module: ModuleType | None) -> bool:
    """Returns whether a test in the file `path`, below the root, may be tried a second time: none
    that is about answers, by its name or because its module compares with brute force."""
    if not any(path == folder or path.startswith(f"{folder}/") for folder in FOLDERS):
        return False
    if EXACT.search(name.partition("[")[0]):
        return False
    return naive not in vars(module).values() if module else False


def mark_reruns(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Gives tests their second try; without the plugin, or with a debugger that is to see the first
    failure, there is none."""
    if not config.pluginmanager.hasplugin("rerunfailures") or config.option.usepdb:
        return
    once_more = pytest.mark.flaky(reruns=1, reruns_delay=1, rerun_except=[Unforgiven])
    for item in items:
        path = item.path.relative_to(config.rootpath).as_posix()
        if has_rerun(path, item.name, getattr(item, "module", None)):
            item.add_marker(once_more)


def list_reruns(reporter: pytest.TerminalReporter) -> list[str]:
    """Returns a line for each test that was tried again: its name and how its first try ended."""
    reports = reporter.getreports("failed") + reporter.getreports("error")
    failed = {report.nodeid for report in reports}
    lines = []
    for report in reporter.getreports("rerun"):
        crash = getattr(report.longrepr, "reprcrash", None)
        told = str(crash.message if crash else report.longrepr).strip().splitlines() or [""]
        told = [line for line in told if not line.lstrip().startswith("+")] or told
        where = f"{crash.path}:{crash.lineno}: " if crash else ""
        end = "failed again" if report.nodeid in failed else "then passed"
        ends = " / ".join(dict.fromkeys((told[0].strip(), told[-1].strip())))
        lines.append(f"{report.nodeid} ({report.when}, {end}): {where}{ends:.400}")
    return lines
