"""The growth of the planner's memory, and the files it is measured with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ps2stream.benchmarks.plan_memory import (
    GOAL_BYTES,
    HEAP_BYTES,
    SampleBounds,
    SampleSize,
    extrapolate,
    measure_arrays,
    read_peak,
    write_sample,
)
from ps2stream.planner.job import PlanJob, sample_of

UNIT, SIGNATURE, QUERY = 150, 280, 20


def measured(queries: int, units: int, signatures: int, extra: int = 0) -> dict[str, Any]:
    """A row whose peak follows a formula, so that the goal's point can be computed directly."""
    python = (160 << 20) + UNIT * units + SIGNATURE * signatures + QUERY * queries + extra
    return {
        "queries": queries, "units": units, "signatures": signatures, "jvm": 700 << 20,
        "heap": 300 << 20, "python_counted": python, "python_planned": python + 7,
    }  # fmt: skip


def rows(extra: int = 0) -> list[dict[str, Any]]:
    return [
        measured(200_000, 850_000, 240_000, extra),
        measured(200_000, 110_000, 240_000),
        measured(200_000, 110_000, 30_000),
        measured(50_000, 110_000, 30_000),
    ]


def test_growth_is_carried_on_to_the_limits() -> None:
    found = extrapolate(rows(), SampleBounds(2_000_000, 1_000_000))
    peak = measured(10_000_000, 2_500_000, 1_000_000)["python_planned"]
    assert found["python_planned"] == pytest.approx(peak, abs=2)
    assert found["python_planned_bytes"] == pytest.approx(
        {"unit": UNIT, "signature": SIGNATURE, "query": QUERY}
    )
    assert found["total"] == found["python_planned"] + (700 << 20)
    assert found["jvm_most"] == (400 << 20) + HEAP_BYTES
    assert found["fits"] == (peak + (400 << 20) + HEAP_BYTES <= GOAL_BYTES)
    assert found["fits"]
    assert not extrapolate(rows(), SampleBounds(20_000_000, 1_000_000))["fits"]


def test_the_larger_of_two_lines_counts_and_what_falls_does_not() -> None:
    """A peak of planning that does not grow must not hide the growth of counting."""
    found = rows()
    for row in found:
        row["python_planned"] = 1 << 20
    carried = extrapolate(found, SampleBounds())
    assert carried["python_planned"] == 1 << 20
    assert carried["total"] == carried["python_counted"] + (700 << 20)
    fallen = rows(extra=-(1 << 30))
    assert extrapolate(fallen, SampleBounds())["python_counted_bytes"]["unit"] == 0


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
