"""The verdicts on memory."""

from __future__ import annotations

from ps2stream.experiments import f10
from ps2stream.experiments.plans import HYBRID, KD
from ps2stream.experiments.sweep import SweepCondition, swept
from tests.support.small_experiments import SMALL


def test_verdicts_are_on_every_condition_of_a_sweep() -> None:
    rows = swept(SMALL, ("q1",), (HYBRID, "metric", KD), (SweepCondition(workers=(2, 4)),))
    for row in rows:
        row |= {"worker_mb": 2.0 if row["algorithm"] == HYBRID else 3.0, "largest_mb": 1.0}
    found = f10.verdicts(rows)
    assert [v.claim for v in found] == [
        f"synthetic Q1, {workers} workers: {other} above hybrid"
        for other in ("metric", KD)
        for workers in (2, 4)
    ]
    assert {v.measured for v in found} == {"mean 1.50x, largest 1.00x"}
