"""What a run says of its checks."""

from __future__ import annotations

import pytest

from tests.kubernetes.report import Report


def test_a_check_that_fails_is_in_the_table_and_the_next_one_runs() -> None:
    lines: list[str] = []
    report = Report(lines.append)
    assert not report.has_passed()
    with report.check("first") as found:
        found.append("3 pods")
    assert report.has_passed()
    with report.check("second") as found:
        found.append("a | b")
        raise TimeoutError("a pod is ready: not within 5 s")
    with report.check("third"):
        pass
    assert not report.has_passed()
    table = report.table()
    assert "| first | passed | 0 | 3 pods |" in table
    assert "| second | FAILED | 0 | a \\| b; TimeoutError: a pod is ready" in table
    assert table.endswith("2 passed, 1 failed")
    assert lines[0].endswith("first ...")
    assert "first: passed in 0 s. 3 pods" in lines[1]


def test_what_is_no_finding_ends_the_run() -> None:
    report = Report(lambda _: None)
    with pytest.raises(KeyboardInterrupt), report.check("interrupted"):
        raise KeyboardInterrupt
    assert not report.has_passed()
