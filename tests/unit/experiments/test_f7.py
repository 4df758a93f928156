"""The verdicts on throughput, and the costs that are fitted for them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ps2stream.experiments import f7
from ps2stream.experiments.plans import HYBRID
from ps2stream.experiments.sweep import SweepCondition, swept
from tests.support.small_experiments import SMALL


@pytest.mark.takes_turns
def test_other_draws_and_costs_are_held_against_the_goals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f7, "SEEDS", f7.SEEDS[:1])
    names = (HYBRID, "metric", "kdtree", "grid", "rtree")
    rows = swept(SMALL, ("q1", "q2", "q3"), names, (SweepCondition(),))
    for row in rows:
        row["each"]["seconds"] = [load / 1e6 for load in row["each"]["load"]]
        row["kernel_throughput"] = row["throughput"]
    more, verdicts = f7.sweeps(SMALL, rows)
    assert len(more) == 3 * 5 + 2 * 3 * 2
    assert sum("over kdtree at least 1.2x" in v.claim for v in verdicts) == 1
    assert sum("over kdtree at least 1.3x" in v.claim for v in verdicts) == 2
    assert sum("over grid and rtree at least 0.97x" in v.claim for v in verdicts) == 3
    assert sum("above it by the defaults" in v.claim for v in verdicts) == 12


def test_costs_are_fitted_to_the_times_of_all_workers() -> None:
    rng = np.random.default_rng(2)
    names = ("candidates", "objects", "inserts", "deletes")
    rows = []
    for _ in range(3):
        work = {name: rng.integers(0, 1000, 4) for name in names}
        seconds = (0.5 * work["candidates"] + 2 * work["objects"] + work["inserts"]) / 1e6
        each = {name: column.tolist() for name, column in work.items()}
        rows.append({"each": each | {"seconds": seconds.tolist()}})
    assert dataclasses.astuple(f7.fitted(rows)) == pytest.approx((0.5, 2.0, 1.0, 0.0), abs=1e-6)
