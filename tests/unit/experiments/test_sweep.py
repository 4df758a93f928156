"""What a sweep varies, and what it compares."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ps2stream.benchmarks.workload import make
from ps2stream.experiments import f7, f10
from ps2stream.experiments.plans import HYBRID, KD, ExperimentSettings
from ps2stream.experiments.sweep import SweepCondition, compared, joined, sides, swept
from ps2stream.experiments.worlds import FULL, SYNTHETIC, StreamSize
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.routing.costs import Costs

SMALL = ExperimentSettings(StreamSize(400, 300, 300, 2), workers=(3,), repeats=0)


def test_a_row_says_under_which_condition_it_was_found() -> None:
    conditions = (SweepCondition(workers=(2, 4)), SweepCondition("every OR", joined(False)))
    rows = swept(SMALL, ("q1",), (HYBRID, KD), conditions)
    assert [(r["queries"], r["condition"], r["workers"], r["algorithm"]) for r in rows] == [
        ("Q1", condition, workers, name)
        for condition, workers in (("", 2), ("", 4), ("every OR", 3))
        for name in (HYBRID, KD)
    ]


def test_a_seed_changes_the_stream_and_costs_change_the_plan_alone() -> None:
    conditions = (
        SweepCondition(), SweepCondition("seed", seed=1),
        SweepCondition("objects are free", costs=Costs(c2=0.0)),
    )  # fmt: skip
    same, seed, costs = swept(SMALL, ("q1",), (HYBRID,), conditions)
    assert seed["each"] != same["each"]
    assert sum(seed["each"]["objects"]) != sum(same["each"]["objects"])
    assert costs["each"]["load"] != same["each"]["load"]
    assert costs["discarded"] == same["discarded"]
    assert sum(costs["each"]["candidates"]) == sum(same["each"]["candidates"])


def test_the_worst_is_held_against_the_best_of_each_condition() -> None:
    case = {"stream": "s", "queries": "Q1"}
    rows = [
        case | {"workers": workers, "algorithm": name, "mb": mb}
        for workers, figures in ((2, (6.0, 8.0, 2.0, 4.0)), (4, (1.0, 9.0, 2.0, 1.0)))
        for name, mb in zip("abcd", figures, strict=True)
    ]
    found = dict(compared(rows, ("a", "b"), ("c", "d"), {"MB": "mb"}))
    assert found == {"s Q1, 2 workers": {"MB": 1.5}, "s Q1, 4 workers": {"MB": 0.5}}


def test_the_changes_of_queries() -> None:
    load = make(SYNTHETIC, "q1", 50, 10, 80, 3, Analyzer(Analysis(salt=1)))
    assert 0 < load.interests.every.mean() < 1
    for every in (True, False):
        changed = joined(every)(load)
        assert (changed.interests.every == every).all()
        assert np.array_equal(changed.interests.word, load.interests.word)
    wide = sides(4.0)(load).interests.rect
    before = load.interests.rect
    assert (wide[:, 3] - wide[:, 1]) == pytest.approx(4 * (before[:, 3] - before[:, 1]))


def test_what_is_generated_may_be_more_than_what_is_given() -> None:
    size = StreamSize(10, 20, 30, 2, 4)
    assert size.of("a file") == size
    assert size.of(SYNTHETIC)[:4] == (10, 80, 120, 2)
    assert ExperimentSettings(FULL).sweeps
    assert not SMALL.sweeps


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
