"""The growth of the planner's memory, and the files it is measured with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ps2stream.benchmarks.plan_memory import (
    GOAL_BYTES,
    SampleSize,
    extrapolate,
    measure_arrays,
    read_peak,
    write_sample,
)
from ps2stream.planner.job import PlanJob, sample_of


def measured(queries: int, units: int, python: int, jvm: int, rest: int = 0) -> dict[str, Any]:
    return {
        "queries": queries, "units": units, "jvm": jvm, "rest": rest,
        "python_counted": python, "python_planned": python + 7,
    }  # fmt: skip


@pytest.mark.parametrize(("slope", "fits"), [(100, True), (400, False)])
def test_growth_is_carried_on_from_the_last_two_sizes(slope: int, fits: bool) -> None:
    """On a straight line, on which the goal's point can be computed directly."""
    sizes = [1_000, 100_000, 200_000]
    rows = [measured(n, 3 * n, 5_000 + slope * n, 2 << 30) for n in sizes[1:]]
    found = extrapolate([measured(1_000, 9, 1 << 40, 1), *rows])
    assert found["units"] == 30_000_000
    assert found["python_planned"] == 5_007 + slope * 10_000_000
    assert found["total"] == found["python_planned"] + found["jvm"]
    assert found["fits"] == fits == (found["total"] <= GOAL_BYTES)


def test_above_the_limit_the_units_that_may_come_are_added() -> None:
    """100 bytes per unit below it; above it 2 bytes per query, and room for 1,100,000 units."""
    below = [measured(n, 5 * n, 1_000 + 500 * n, 7) for n in (10_000, 20_000)]
    above = [measured(n, 150_000, 90_000_000 + 2 * n, 7, rest=n) for n in (300_000, 500_000)]
    found = extrapolate([*below, *above], 1_000_000)
    assert found["units"] == 1_250_000
    assert found["python_counted"] == 90_000_000 + 2 * 10_000_000 + 100 * 1_100_000
    alone = extrapolate(above, 1_000_000)
    of_all = above[1]["python_counted"] / 150_000
    assert alone["python_counted"] == 110_000_000 + int(of_all * 1_100_000)


def test_a_peak_of_planning_that_falls_does_not_hide_the_growth_of_counting() -> None:
    rows = [measured(10_000, 5, 280 << 20, 1), measured(20_000, 9, 290 << 20, 1)]
    found = extrapolate([rows[0] | {"python_planned": 320 << 20}, rows[1]])
    assert found["total"] > 9 << 30
    assert not found["fits"]


def test_sizes_are_read() -> None:
    assert SampleSize.parse("20:3") == (20, 3)
    for wrong in ("20", "20:x", "0:3", "1:2:3"):
        with pytest.raises(ValueError):
            SampleSize.parse(wrong)


def test_the_peak_stays_when_memory_is_given_back() -> None:
    held = np.ones(1 << 24)
    size = held.nbytes
    del held
    assert read_peak(os.getpid()) > size


def test_the_files_are_a_sample_of_that_size(tmp_path: Path) -> None:
    write_sample(tmp_path, SampleSize(300, 40), "q1", 1)
    objects, queries = (
        [str(path) for path in (tmp_path / kind).iterdir()] for kind in ("objects", "queries")
    )
    sample = sample_of(PlanJob(objects, queries, engine="numpy"))
    assert (sample.objects, sample.live, sample.inserts) == (300, 40, 0)
    assert sample.stats.units >= 10
    arrays = measure_arrays(sample.stats)
    assert arrays["q"] == 8 * sample.stats.units
    assert arrays["term"] == 4 * sample.stats.units
    assert arrays["terms"] > sum(map(len, sample.stats.terms))
