"""What a sweep varies, and what it compares."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.benchmarks.workload import make
from ps2stream.experiments.plans import HYBRID, KD, ExperimentSettings
from ps2stream.experiments.sweep import SweepCondition, compared, joined, sides, swept
from ps2stream.experiments.worlds import FULL, SYNTHETIC, StreamSize
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.routing.costs import Costs
from tests.support.small_experiments import SMALL


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
