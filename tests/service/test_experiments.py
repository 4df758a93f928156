"""`ps2stream experiment` end to end, on the synthetic stream: most on a tenth of the quick size."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.commands.experiment import NAMES
from ps2stream.experiments import f7, f12, f14, f15, hot, scale, worlds
from ps2stream.experiments.plans import ExperimentSettings
from ps2stream.experiments.scaling.measuring import MeasureSize
from ps2stream.experiments.worlds import StreamSize
from tests.support.shortening import IS_SHORT, choose_first


def run(*arguments: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(main, ["experiment", *arguments])
    return found.exit_code, found.stdout, found.stderr


SUBSCRIPTIONS = ("w0", "w1", "w2", "clusters", "updates", "memory")
"""Those of Le Subscribe, which have no stream and no workers."""
KEYED = ("pkg-imbalance", "fish-time")
"""Two of those on keyed streams, with the shared ones if there are any. tests/unit/experiments runs
all of them, and those of S3-TM, to the same end."""
RUN_THERE = ("pkg-", "fish-", "salb-", "shed-")
ELSEWHERE = {"f13", "f14", "f15", *SUBSCRIPTIONS}
"""f13 is f12 with more queries; f14 and f15 have real actors; the others are below."""
S3TM = ("salb-spread", "shed-accuracy")
HERE = [n for n in NAMES if n not in ELSEWHERE and (n in S3TM or not n.startswith(RUN_THERE))]
PLANS = ("f6", "f7", "f8", "f10", "f11")
"""Those that judge plans as f9 does, on other axes; f10 also has a test with shared posts."""
ALIKE = pytest.mark.repeats(
    "tests/service/test_experiments.py::test_an_experiment_prints_rows_and_verdicts_and_draws"
)

REPEATED = {
    **dict.fromkeys(PLANS, ALIKE),
    "scale": pytest.mark.repeats("tests/unit/experiments/scaling/test_rooms.py"),
    "salb-spread": pytest.mark.repeats("tests/unit/experiments/test_s3tm.py"),
    "fish-time": pytest.mark.repeats(
        "tests/service/test_experiments.py::"
        "test_an_experiment_on_keyed_streams_prints_rows_and_verdicts"
    ),
}


def marked(names: Sequence[str]) -> list[Any]:
    """These experiments, with what CI plays in their place."""
    return [pytest.param(n, marks=[REPEATED[n]] if n in REPEATED else []) for n in names]


QUICK = "f9"
"""The one that runs at the size of the command."""
SMALLER = StreamSize(1_000, 400, 500, 2) if IS_SHORT else StreamSize(3_000, 1_000, 1_500, 2)
ENOUGH = {"f12": StreamSize(8_000, 2_000, 4_000, 2)}
"""With fewer updates a load that it divides by is nothing."""
FEWER: dict[ModuleType, dict[str, Any]] = {
    f7: {"SEEDS": f7.SEEDS[:1]},
    f12: {"RUNS": 1 if IS_SHORT else 3, "TRIED": 4 if IS_SHORT else 12},
    hot: {"CALM_S": 2, "JUMPED_S": 5, "STATIONARY_S": 50, "QUERIES": 2_000, "QUERIES_THERE": 400},
    scale: {
        "WORLD": StreamSize(4_000, 4_000, 20_000, 1),
        "SMALL": MeasureSize((2, 4), (256, 1_024), 4, (1, 2, 4)),
        "EVENTS": 1_000,
    },
}
"""Of what an experiment repeats, so much that each path is taken."""


@pytest.mark.takes_turns
@pytest.mark.slow
@pytest.mark.parametrize("name", marked(HERE))
def test_an_experiment_prints_rows_and_verdicts_and_draws(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name != QUICK or IS_SHORT:
        monkeypatch.setattr(worlds, "QUICK", ENOUGH.get(name, SMALLER))
    for module, names in FEWER.items():
        for number, few in names.items():
            monkeypatch.setattr(module, number, few)
    workers = "4,8" if name in ("f11", "salb") else "4"
    code, out, err = run(
        name, "--posts", "none", "--workers", workers, "--out", str(tmp_path), "--json"
    )
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    assert found["rows"]
    assert found["verdicts"]
    assert not [note for note in found["notes"] if note.startswith("WRONG")]
    assert json.loads((tmp_path / f"{name}.json").read_text())["rows"] == found["rows"]
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.takes_turns(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", SUBSCRIPTIONS)
def test_an_experiment_on_subscriptions_prints_rows_and_verdicts(name: str, tmp_path: Path) -> None:
    code, out, err = run(name, "--subscriptions", "6000", "--out", str(tmp_path), "--json")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    assert found["settings"]["subscriptions"] == 6000
    assert found["rows"]
    assert found["verdicts"]
    assert not [note for note in found["notes"] if note.startswith("WRONG")]
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.takes_turns(0)
@pytest.mark.slow
@pytest.mark.parametrize("name", marked(KEYED))
def test_an_experiment_on_keyed_streams_prints_rows_and_verdicts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fewer = {"like WP": (5_000, 0.0932), "like TW": (9_000, 0.0267)}
    monkeypatch.setattr("ps2stream.experiments.keyed.streams.LIKE", fewer)
    more = ("--tuples", "10000", "--workers", "4,16", "--out", str(tmp_path), "--json")
    code, out, err = run(name, *more)
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    assert found["settings"]["tuples"] == 10_000
    assert found["rows"]
    assert found["verdicts"]
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    if name == KEYED[0]:  # they all open their streams in the same way
        code, out, err = run(name, *more, "--posts", "none")
        assert code == 0, err
        streams = {row.get("stream", "Zipf") for row in json.loads(out)["rows"]}
        assert not streams & {"tweet words", "tweet words, no stop words", "git paths", "flights"}


CALM = 1_000.0
"""Tuples a second that every machine takes: a share of what saturated it some seconds ago is too
much once it has other work, and then no worker reports its load within a period."""


@pytest.mark.takes_turns(1)
@pytest.mark.slow
def test_a_service_moves_by_each_algorithm_and_loses_nothing() -> None:
    settings = ExperimentSettings(
        size=StreamSize(2_000, 4_000, 4_000), workers=(2,), runtime="local"
    )
    algorithms = tuple(choose_first(("gr+", "ra"), 1))
    rows, rates = f14.measured(settings, algorithms, CALM)
    assert tuple(row["algorithm"] for row in rows) == algorithms
    assert rates
    for row in rows:
        assert row["balance"] > row["balance_after"] >= 1
        assert row["megabytes"] > 0
        assert row["deliveries"] > 0
        assert row["below_100ms"] + row["to_1s"] + row["above_1s"] == pytest.approx(1)
    for report in (f14.report(settings, rows, rates), f15.report(settings, rows, rates)):
        assert set(report.columns) <= set(rows[0])
        [unharmed] = [v for v in report.verdicts if v.claim == "no match is lost or duplicated"]
        assert unharmed.verdict == "met", unharmed.measured
        assert "WRONG" not in report.text()


@pytest.mark.takes_turns(0)
@pytest.mark.slow
def test_the_shared_posts_are_used_when_they_are_there(
    tweets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worlds, "QUICK", SMALLER)
    code, out, err = run("f10", "--posts", str(tweets), "--out", str(tmp_path), "--json")
    assert code == 0, err
    assert json.loads(out)["settings"]["streams"] == ["tweets", "synthetic"]


@pytest.mark.parametrize("workers", ["0", "8,x", "257", ","])
def test_bad_numbers_of_workers_are_refused(workers: str) -> None:
    code, _, err = run("f6", "--workers", workers)
    assert code == 2
    assert "--workers: expected whole numbers from 1 to 256" in err


def test_a_missing_file_of_posts_is_named() -> None:
    code, _, err = run("f6", "--posts", "nowhere.parquet")
    assert code == 2
    assert "nowhere.parquet" in err
