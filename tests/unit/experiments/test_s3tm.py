"""The experiments of S3-TM: short runs, and verdicts on rows made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ps2stream.experiments import salb_drift, salb_scale, salb_spread, salb_subscriptions
from ps2stream.experiments.plans import ExperimentSettings
from ps2stream.experiments.report import ClaimVerdict
from ps2stream.experiments.suite import EXPERIMENTS, run
from ps2stream.experiments.worlds import StreamSize

NAMES = [name for name in EXPERIMENTS if name.startswith(("salb-", "shed-"))]
SMALL = ExperimentSettings(size=StreamSize(2_000, 1_500, 2_500, 2), workers=(4, 8))


@pytest.fixture(autouse=True)
def fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(salb_subscriptions, "QUICK", (100, 2_000))


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
    assert run(name, SMALL).rows == report.rows


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
                    "spread": s} for rule, s in (("LASP", 1.4), ("least frequent", 1.2))
        ]  # fmt: skip
    found = salb_spread.list_verdicts(rows)
    assert verdict_of(found, "spread of gFCL above gC, ") == "holds"
    assert verdict_of(found, "spread of hash above SALB") == "holds"
    assert verdict_of(found, "64 nodes: spread at most 2") == "met"
    assert verdict_of(found, "rises, 8 nodes more than 64") == "holds"
    assert verdict_of(found, "64 nodes, by posting words") == "holds"


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
