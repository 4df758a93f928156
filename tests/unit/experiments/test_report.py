"""Reports: verdicts on orderings and goals, and the files."""

from __future__ import annotations

import json
from pathlib import Path

from ps2stream.experiments.report import (
    IDLE,
    ExperimentReport,
    ReportChart,
    at_least,
    at_most,
    ordering,
    unless_idle,
)


def test_an_ordering_holds_when_every_measure_says_so() -> None:
    assert ordering("a over b", {"modelled": 1.2, "kernel": 1.04}).verdict == "holds"
    assert ordering("a over b", {"modelled": 1.01, "kernel": 0.98}).verdict == "equal"
    assert ordering("a over b", {"modelled": 0.9, "kernel": 0.5}).verdict == "reversed"
    assert ordering("a over b", {"modelled": 1.2, "kernel": 0.9}).verdict == "mixed"
    assert ordering("a over b", {"modelled": 1.2, "kernel": 1.0}).verdict == "mixed"


def test_a_lost_number_is_called_lost_and_a_known_one_compared() -> None:
    assert ordering("a over b", {"modelled": 1.5}).paper == "lost"
    found = ordering("a over b", {"modelled": 1.5, "kernel": 1.2}, "30 / 20", 1.5)
    assert found.paper == "30 / 20 = 1.50x"
    assert found.measured.endswith("0.80 of the paper's ratio")


def test_goals_are_met_partly_or_missed() -> None:
    assert at_least("x", {"a": 1.3, "b": 1.4}, 1.3).verdict == "met"
    assert at_least("x", {"a": 1.3, "b": 1.2}, 1.3).verdict == "partly"
    assert at_most("x", {"a": 1.4}, 1.3, "our goal").verdict == "missed"


def test_what_did_not_happen_can_neither_hold_nor_fail() -> None:
    for ratio in (1.0, 2.0):
        verdict = at_least("x", {"a": ratio}, 1.2)
        assert unless_idle(verdict, 3) == verdict
        assert unless_idle(verdict, 0) == verdict._replace(verdict=IDLE)


def test_a_report_is_written_as_json_and_png(tmp_path: Path) -> None:
    chart = ReportChart("bars", "ms", {"one": {"model": {"a": 1.0, "b": 2.0}}})
    verdicts = [ordering("a over b", {"model": 2.0})]
    rows = [
        {"name": "a", "value": 12345.6, "balance": float("inf")},
        {"name": "b", "value": 0.5, "balance": 1.0},
    ]
    report = ExperimentReport("x", "of tests", {"seed": 1}, ["a note"], ("name", "value"), rows,
        verdicts,
                    chart)  # fmt: skip
    data, picture = report.save(tmp_path / "new")
    read = json.loads(data.read_text())
    assert read["verdicts"][0]["verdict"] == "holds"
    assert read["rows"] == [rows[0] | {"balance": None}, rows[1]]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert report.text().splitlines()[2:5] == ["name   value", "   a  12,346", "   b     0.5"]
