"""Workloads with a given number of matches an object."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from ps2stream.benchmarks.post_batches import BATCH
from ps2stream.benchmarks.predicates import PredicateKind, QueryPredicates
from ps2stream.benchmarks.tuning import matches_per_object, tune_workload, widen_workload
from ps2stream.benchmarks.workload import Workload, make
from ps2stream.language.analyzer import Analysis, Analyzer

ANALYZER = Analyzer(Analysis(salt=1))


@functools.cache
def make_load(name: str) -> Workload:
    return make(name, "q1", 8_000, 1_000, 4 * BATCH, 1, ANALYZER)


@pytest.mark.takes_turns
@pytest.mark.parametrize("name", ["synthetic", "yardstick"])
@pytest.mark.parametrize(("kind", "values", "share"), [("range", 500, 0.25), ("equal", 2, 0.25)])
def test_wider_regions_make_up_for_predicates(
    name: str, kind: PredicateKind, values: int, share: float
) -> None:
    load = make_load(name)
    objects = ANALYZER.analyse(load.posts.text_off, load.posts.text)
    predicates = QueryPredicates(kind, values, load, objects, ANALYZER, 1)
    assert predicates.estimate_share() == pytest.approx(share, abs=0.01)
    wide, side = widen_workload(load, predicates, ANALYZER, objects)
    assert 1.5 < side < 5
    few, many = (matches_per_object(each, ANALYZER, objects) for each in (load, wide))
    assert many * share == pytest.approx(few, rel=0.05)
    before, after = load.interests.rect, wide.interests.rect
    assert np.allclose(before[:, :2] + before[:, 2:], after[:, :2] + after[:, 2:])


def test_predicates_that_all_objects_satisfy_need_no_wider_regions() -> None:
    load = make_load("yardstick")
    objects = ANALYZER.analyse(load.posts.text_off, load.posts.text)
    predicates = QueryPredicates("equal", 1, load, objects, ANALYZER, 1)
    assert widen_workload(load, predicates, ANALYZER, objects) == (load, 1.0)


def test_a_workload_is_tuned_to_a_number_of_matches() -> None:
    load = make_load("synthetic")
    objects = ANALYZER.analyse(load.posts.text_off, load.posts.text)
    tuned, factors = tune_workload(load, 0.7, ANALYZER, objects)
    assert matches_per_object(tuned, ANALYZER, objects) == pytest.approx(0.7, rel=0.1)
    assert set(factors) == {"side_factor", "keyword_skew"}
