"""The experiments of S3-TM: short runs, and verdicts on rows made by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from ps2stream.experiments import (
    salb_drift,
    salb_scale,
    salb_spread,
    salb_subscriptions,
    shed_accuracy,
    shed_adapt,
)
from ps2stream.experiments.plans import ExperimentSettings
from ps2stream.experiments.report import ClaimVerdict
from ps2stream.experiments.suite import EXPERIMENTS, run
from ps2stream.experiments.worlds import StreamSize

NAMES = [name for name in EXPERIMENTS if name.startswith(("salb-", "shed-"))]
SMALL = ExperimentSettings(size=StreamSize(2_000, 1_500, 2_500, 2), workers=(4, 8))


@pytest.fixture(autouse=True)
def fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(salb_subscriptions, "QUICK", (100, 2_000))
    monkeypatch.setattr(shed_accuracy, "ENOUGH", 10)


@pytest.mark.takes_turns
@pytest.mark.parametrize("name", NAMES)
def test_a_short_run_has_rows_verdicts_and_a_picture(name: str, tmp_path: Path) -> None:
    report = run(name, SMALL)
    assert report.name == name
    assert report.rows
    assert report.verdicts
    assert all(set(report.columns) <= set(row) for row in report.rows)
    assert not [note for note in report.notes if note.startswith("WRONG")]
    _, picture = report.save(tmp_path)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.takes_turns
@pytest.mark.parametrize("name", ["salb-spread", "shed-accuracy"])
def test_runs_with_one_seed_are_the_same(name: str) -> None:
    few = dataclasses.replace(SMALL, workers=(4,))
    assert run(name, few).rows == run(name, few).rows


def verdict_of(verdicts: list[ClaimVerdict], claim: str) -> str:
    (found,) = [v.verdict for v in verdicts if claim in v.claim]
    return found


def scale_row(algorithm: str, nodes: int, versions: bool, value: float) -> dict[str, Any]:
    return {"stream": "x", "subscriptions": "topic", "nodes": nodes, "algorithm": algorithm,
            "versions": versions, "spread": 2.0, "imbalance": 8.0 / value, "per_copy": value,
            "throughput": value, "matches": 1}  # fmt: skip


def test_scaling_is_judged_with_and_without_versions() -> None:
    values = {(2, False): 1.0, (64, False): 32.0, (128, False): 40.0, (256, False): 41.0}
    rows = []
    for (nodes, _), value in values.items():
        for name in ("hash", "gC", "gFC", "gFCL", "gNFCL", "SALB"):
            factor = {"SALB": 1.0, "gC": 0.01, "gFC": 0.05}.get(name, 0.4)
            rows.append(scale_row(name, nodes, False, factor * value))
            if name in salb_scale.BALANCED:
                rows.append(scale_row(name, nodes, True, factor * value * (1 + nodes / 256)))
    found = salb_scale.list_verdicts(rows)
    assert verdict_of(found, "without versions, 256 nodes over 128") == "met"
    assert verdict_of(found, "256 nodes: SALB with versions above without") == "holds"
    assert verdict_of(found, "256 nodes: SALB over hash") == "holds"
    assert "0.98 of the paper's ratio" in next(v.measured for v in found
                                           if "256 nodes: SALB over hash" in v.claim)  # fmt: skip
    assert verdict_of(found, "SALB over gC and gFC") == "holds"
    more = {"per_copy": 80.0, "throughput": 80.0}
    slow = [row | more if (row["nodes"], row["versions"]) == (256, False) else row for row in rows]
    assert verdict_of(salb_scale.list_verdicts(slow), "256 nodes over 128") == "missed"


def test_spreads_are_judged_by_their_order_and_bound() -> None:
    spreads = {"gC": 1.0, "gFC": 1.1, "gFCL": 1.5, "gNFCL": 1.6, "SALB": 1.7, "hash": 1.9}
    rows: list[dict[str, Any]] = []
    for n, factor in ((2, 0.6), (8, 1.0), (64, 1.05)):
        case = {"stream": "x", "subscriptions": "topic", "nodes": n}
        rows += [
            case | {"routed_by": "subscribed words", "algorithm": name, "spread": factor * s}
            for name, s in spreads.items()
        ]
        rows += [
            case | {"routed_by": "posting words", "algorithm": "SALB", "placement": rule,
                    "spread": s, "modelled": 1.0 / s}
            for rule, s in (("LASP", 1.4), ("least frequent", 1.2), ("least cost", 1.25))
        ]  # fmt: skip
    found = salb_spread.list_verdicts(rows)
    assert verdict_of(found, "spread of gFCL above gC, ") == "holds"
    assert verdict_of(found, "spread of hash above SALB") == "holds"
    assert verdict_of(found, "64 nodes: spread at most 2") == "met"
    assert verdict_of(found, "rises, 8 nodes more than 64") == "holds"
    assert verdict_of(found, "64 nodes, by posting words: spread of LASP") == "holds"
    assert verdict_of(found, "64 nodes, by posting words: least cost above") == "reversed"


def test_the_fall_after_the_first_period_is_judged() -> None:
    case = {"stream": "x", "order": "time", "kind": "topic", "nodes": 4, "learnt_on": "all words"}
    rows = [
        case | {"period": period, "algorithm": name, "per_copy": value, "throughput": value}
        for name in salb_drift.MAPPED
        for period, value in (
            ("0, learnt", 2.0), ("0, held out", 1.0), *((f"{i}", 1.0) for i in range(1, 10))
        )
    ]  # fmt: skip
    found = salb_drift.list_verdicts(rows)
    assert verdict_of(found, "where it learnt above that of later periods") == "holds"
    assert verdict_of(found, "last three periods over the first three") == "equal"
    assert verdict_of(found, "later, SALB above hash") == "equal"


def accuracy_rows(rank: str, *points: tuple[float, float]) -> list[dict[str, Any]]:
    return [{"stream": "x", "subscriptions": "tweet", "nodes": 8, "rank": rank, "level": level,
             "shed": shed, "accuracy": accuracy, "matches": 5000}
            for level, (shed, accuracy) in enumerate(points)]  # fmt: skip


def test_accuracy_is_judged_where_a_quarter_is_shed() -> None:
    good = accuracy_rows("subscription", (0.0, 1.0), (0.2, 0.96), (0.3, 0.92), (0.8, 0.3))
    poor = accuracy_rows("consensus", (0.0, 1.0), (0.2, 0.9), (0.3, 0.84), (0.8, 0.1))
    assert shed_accuracy.find_accuracy(good, "subscription", 0.25) == pytest.approx(0.94)
    found = shed_accuracy.list_verdicts(good + poor)
    assert verdict_of(found, "shed by subscription at least 0.9") == "met"
    assert verdict_of(found, "shed by consensus at least 0.9") == "missed"
    assert verdict_of(found, "consensus loses more than subscription") == "holds"
    assert verdict_of(found, "at no level is less found") == "missed"
    few = [row | {"matches": 3} for row in good + poor]
    assert [v.verdict for v in shed_accuracy.list_verdicts(few)] == ["missed"]


def adapt_rows(buffer: int, rule: str, fall: int, jump: bool) -> list[dict[str, Any]]:
    """A level that rises to 7 within 7 seconds and falls to 0 within `fall`."""
    levels = [0] * 510 + list(range(1, 8)) + [7] * 483
    levels += [max(7 - 7 * (i + 1) // fall, 0) for i in range(1000)]
    segments = ["stable"] * 2000
    segments[600:602] = ["ideal", "overload"] if jump else ["ideal", "stable"]
    return [{"stream": "x", "nodes": 4, "capacity": shed_adapt.USUAL, "buffer": buffer,
             "rule": rule, "level": level, "segment": segment, "dropped": 0}
            for level, segment in zip(levels, segments, strict=True)]  # fmt: skip


def test_the_course_of_the_level_is_judged() -> None:
    rows = adapt_rows(shed_adapt.LARGE, "derived", 70, False)
    rows += adapt_rows(shed_adapt.SMALL, "derived", 14, True)
    found = shed_adapt.list_verdicts(rows)
    large, small = (f"buffer {n:,}" for n in (shed_adapt.LARGE, shed_adapt.SMALL))
    assert verdict_of(found, f"{large}, derived: level with 32,000/s") == "holds"
    assert "7, within 7 s, from 10 s on" in [v.measured for v in found]
    assert verdict_of(found, f"{large}, derived: with 2,000/s the level falls more") == "holds"
    assert verdict_of(found, f"{large}, derived: never from ideal") == "met"
    assert verdict_of(found, f"{small}, derived: never from ideal") == "missed"
    assert verdict_of(found, "takes longer to fall to 0") == "holds"
