"""What workers measure of a stream, and what a plan is judged by."""

from __future__ import annotations

import pytest

from ps2stream.experiments.evaluate import evaluate
from ps2stream.experiments.loads import measured
from ps2stream.experiments.plans import JUDGED_AT, ExperimentSettings, planned
from ps2stream.experiments.worlds import SYNTHETIC, StreamSize, make_world, westward
from ps2stream.protocol.frame import F64


def test_workers_measure_what_a_plan_is_judged_by() -> None:
    world = make_world("w", SYNTHETIC, "q3", StreamSize(2_000, 2_000, 4_000, 2), 1, westward)
    plan = planned(world, "hybrid", 4, ExperimentSettings())
    judged = evaluate(plan, world.analyzer, world.period, JUDGED_AT, 0)
    units = measured(plan, world.analyzer, world.period)

    def of(values: F64) -> list[float]:
        return [float(values[units.worker == w].sum()) for w in range(4)]

    assert of(units.inserts) == judged.inserts.tolist()
    assert of(units.deletes) == judged.deletes.tolist()
    assert of(units.checks) == pytest.approx(judged.candidates, rel=0.02)
    assert of(units.objects) == judged.objects.tolist()
    assert units.bytes.sum() > 0
