"""The replication of hot units as a pure function: what is spread, how far, and what is left."""

from __future__ import annotations

import dataclasses
import math
import random

import numpy as np
import pytest

from ps2stream.language.analyzer import Analysis
from ps2stream.planner.adjust.replicate import (
    HotUnit,
    ReplicationRules,
    StreamShares,
    chk_degree,
    discount_shards,
    fill_up,
    has_many_queries,
    is_unbalanced,
    list_cool_units,
    replicate,
)
from ps2stream.routing.plan import RoutingPlan, Space, text_plan
from ps2stream.routing.replicas import MAX_REPLICATED, ReplicatedUnit
from ps2stream.space.grid import Grid

RULES = ReplicationRules()
ANALYSIS = Analysis(salt=1)
GRID = Grid(3, 2)


def quarters(workers: int = 4) -> RoutingPlan:
    """Eight cells to each of four workers."""
    cells = np.repeat(np.arange(4, dtype=np.uint32), 8)
    return RoutingPlan(workers, ANALYSIS, GRID, tuple(Space(w) for w in range(4)), cells)


def stream_of(
    units: list[HotUnit], sent: list[float], objects: int = 10_000, rate: float = 20_000.0
) -> StreamShares:
    return StreamShares(tuple(units), np.array(sent), objects, rate)


def cell(number: int, share: float) -> HotUnit:
    return HotUnit(number, None, share)


def test_a_place_that_has_most_of_the_stream_is_replicated_to_all() -> None:
    stream = stream_of([cell(17, 0.8), cell(3, 0.01)], [0.05, 0.05, 0.85, 0.05])
    plan = replicate(quarters(), stream, RULES)
    assert plan is not None
    (unit,) = plan.replicas
    assert (unit.cell, unit.term) == (17, None)
    assert unit.workers[0] == 2  # which has its queries already
    assert sorted(unit.workers) == [0, 1, 2, 3]
    assert (plan.version, plan.base_version) == (2, 1)
    assert plan.cells.tolist() == quarters().cells.tolist()
    again = replicate(plan, stream_of([cell(17, 0.8)], [0.25] * 4), RULES)
    assert again is None  # it is balanced now


def test_a_unit_gets_as_many_workers_as_it_needs() -> None:
    """The hottest place has all by CHK, one with an eighth of it two, or more if it needs more."""
    cells = np.repeat(np.arange(16, dtype=np.uint32), 2)
    leaves = tuple(Space(w) for w in range(16))
    plan = RoutingPlan(16, ANALYSIS, GRID, leaves, cells)
    sent = [0.055] * 16
    sent[5] = 0.175
    made = replicate(plan, stream_of([cell(10, 0.125)], sent), RULES)
    assert made is not None
    assert made.replicas[0].workers[0] == 5
    assert len(made.replicas[0].workers) == 16
    two = stream_of([cell(0, 0.5), cell(10, 0.06)], [0.5, *[0.03] * 4, 0.09, *[0.03] * 10])
    made = replicate(plan, two, RULES)
    assert made is not None
    degrees = {unit.cell: len(unit.workers) for unit in made.replicas}
    assert degrees[0] == 16
    assert 2 <= degrees[10] <= 5


def test_the_smaller_places_of_a_neighbourhood_migrate() -> None:
    """Eight cells of one worker with a tenth of the stream each: two stay with it."""
    units = [cell(n, 0.1) for n in range(16, 24)]
    stream = stream_of(units, [0.067, 0.067, 0.8, 0.066])
    plan = replicate(quarters(), stream, RULES)
    assert plan is not None
    assert not plan.replicas
    owner = [leaf.worker for leaf in plan.leaves if isinstance(leaf, Space)]
    held = np.bincount([owner[n] for n in plan.cells[16:24]], minlength=4)
    assert held.sum() == 8
    assert held.max() <= 3
    others = [owner[n] for n in np.r_[plan.cells[:16], plan.cells[24:]]]
    assert others == [0] * 8 + [1] * 8 + [3] * 8


def test_a_word_is_replicated_everywhere() -> None:
    plan = text_plan(ANALYSIS, GRID, 4, {"flood": 1})
    stream = stream_of([HotUnit(None, "flood", 0.6, 1)], [0.1, 0.7, 0.1, 0.1])
    made = replicate(plan, stream, RULES)
    assert made is not None
    (unit,) = made.replicas
    assert (unit.cell, unit.term, unit.workers[0], len(unit.workers)) == (None, "flood", 1, 4)


def test_what_is_hot_at_a_worker_with_little_to_do_stays() -> None:
    units = [cell(0, 0.3), cell(8, 0.28)]
    assert replicate(quarters(), stream_of(units, [0.3, 0.28, 0.24, 0.2]), RULES) is None
    # Worker 3 has too much of what is too small to be listed: nothing can be done.
    assert replicate(quarters(), stream_of(units, [0.1, 0.1, 0.1, 0.7]), RULES) is None


def test_a_word_of_replicated_places_is_theirs() -> None:
    """A group owns it there, so that it is not the word that is hot."""
    plan = dataclasses.replace(quarters(), replicas=(ReplicatedUnit(17, None, (2, 0, 1, 3)),))
    stream = stream_of([HotUnit(None, "flood", 0.5, 1024)], [0.7, 0.1, 0.1, 0.1])
    assert replicate(plan, stream, RULES) is None


def test_no_more_units_are_replicated_than_a_plan_may_have() -> None:
    full = tuple(ReplicatedUnit(None, f"w{i}", (0, 1)) for i in range(MAX_REPLICATED))
    plan = dataclasses.replace(quarters(), replicas=full)
    stream = stream_of([cell(17, 0.8)], [0.05, 0.05, 0.85, 0.05])
    assert replicate(plan, stream, RULES) is None


def test_a_group_that_is_still_overloaded_grows() -> None:
    plan = dataclasses.replace(quarters(), replicas=(ReplicatedUnit(17, None, (2, 0)),))
    stream = stream_of([cell(17, 0.8)], [0.45, 0.05, 0.45, 0.05])
    made = replicate(plan, stream, RULES)
    assert made is not None
    assert sorted(made.replicas[0].workers) == [0, 1, 2, 3]
    assert made.replicas[0].workers[:2] == (2, 0)


def test_units_that_are_cool_lose_their_replicas() -> None:
    units = (ReplicatedUnit(17, None, (2, 0)), ReplicatedUnit(None, "flood", (0, 1)))
    plan = dataclasses.replace(quarters(), replicas=units)
    balanced = [0.25] * 4
    warm = stream_of([cell(17, 0.07), HotUnit(None, "flood", 0.02, 1024)], balanced)
    assert list_cool_units(plan, warm, RULES) == set()
    cold = stream_of([cell(17, 0.05)], balanced)
    assert list_cool_units(plan, cold, RULES) == {(17, None), (None, "flood")}
    made = replicate(plan, cold, RULES, {(17, None)})
    assert made is not None
    assert made.replicas == units[1:]
    assert replicate(plan, cold, RULES) is None


def test_few_objects_prove_nothing() -> None:
    sent = [0.22, 0.22, 0.36, 0.20]
    assert is_unbalanced(stream_of([], sent, objects=10_000), RULES)
    assert not is_unbalanced(stream_of([], sent, objects=100), RULES)
    assert not is_unbalanced(stream_of([], sent, rate=RULES.least_rate - 1), RULES)
    assert not is_unbalanced(stream_of([], [0.0] * 4), RULES)
    assert stream_of([], [0.0] * 4).find_weight(0.5) == 0


@pytest.mark.parametrize(
    ("share", "top", "workers", "degree"),
    [
        (0.06, 0.2, 16, 8),
        (0.2, 0.2, 16, 16),
        (0.01, 0.2, 16, 2),
        (0.2, 0.2, 1, 1),
        (0.3, 0.2, 4, 4),
    ],
)
def test_degrees_are_those_of_chk(share: float, top: float, workers: int, degree: int) -> None:
    """The worked example of algorithms.md 5.2, and the ends."""
    assert chk_degree(share, top, workers) == degree


def test_waiting_times_fill_up_what_is_lowest() -> None:
    assert fill_up(np.array([5.0, 1.0, 2.0]), 3.0).tolist() == [5.0, 3.0, 3.0]
    assert fill_up(np.array([5.0, 1.0, 2.0]), 0.5).tolist() == [5.0, 1.5, 2.0]
    assert fill_up(np.array([1.0, 1.0]), 4.0).tolist() == [3.0, 3.0]
    assert fill_up(np.array([7.0]), 1.0).tolist() == [8.0]


@pytest.mark.parametrize("seed", range(30))
def test_any_stream_gives_a_plan_that_can_follow(seed: int) -> None:
    """The plan is valid, moves no cell of which replicas exist, and is predicted to be better."""
    rng = random.Random(seed)
    plan = quarters(rng.choice([4, 5]))
    shares = sorted((rng.random() ** 4 * 0.5 for _ in range(12)), reverse=True)
    units = [
        cell(rng.randrange(32), s) if rng.random() < 0.8 else HotUnit(None, f"w{i}", s, i % 4)
        for i, s in enumerate(shares)
    ]
    for _ in range(4):
        sent = [rng.random() ** 3 for _ in range(plan.workers)]
        cool = {(u.cell, u.term) for u in plan.replicas if rng.random() < 0.3}
        made = replicate(plan, stream_of(units, sent), RULES, cool)
        if made is None:
            continue
        assert made.base_version == plan.version
        assert RoutingPlan.from_dict(made.to_dict(), ANALYSIS).replicas == made.replicas
        before = {(u.cell, u.term): u.workers for u in plan.replicas}
        for unit in made.replicas:
            key = unit.cell, unit.term
            old = () if key in cool else before.get(key, ())
            assert unit.workers[: len(old)] == old
        gone = before.keys() - {(u.cell, u.term) for u in made.replicas}
        assert gone <= cool
        plan = made


def test_units_are_sharded_where_their_queries_are_the_burden() -> None:
    """By hand: 2,000 of 20,000 objects a second at 0.6 us, and half of the updates at 0.4 us."""
    few, many = (dataclasses.replace(stream_of([], [1.0]), updates=n) for n in (5_900.0, 6_100.0))
    unit = HotUnit(17, None, 0.1, postings=0.5)
    rules = dataclasses.replace(RULES, memory=10.0)
    assert not has_many_queries(unit, few, 4, rules)
    assert has_many_queries(unit, many, 4, rules)
    some, most = (HotUnit(17, None, 0.8, postings=p) for p in (0.24, 0.26))
    assert [has_many_queries(u, few, 4, RULES) for u in (some, most)] == [False, True]
    assert not has_many_queries(HotUnit(17, None, 0.8), many, 4, RULES)  # not known


def test_a_sharded_unit_has_no_more_than_an_equal_part_at_each_worker_and_stays_sharded() -> None:
    stream = stream_of([HotUnit(17, None, 0.3, postings=0.7)], [0.15, 0.15, 0.55, 0.15])
    plan = replicate(quarters(), stream, RULES)
    assert plan is not None
    (unit,) = plan.replicas
    assert unit.sharded
    assert len(unit.workers) >= 3
    fewer = dataclasses.replace(plan, replicas=(dataclasses.replace(unit, workers=(2, 0)),))
    grown = stream_of([HotUnit(17, None, 0.3)], [0.45, 0.1, 0.45, 0.1])
    again = replicate(fewer, grown, RULES)
    assert again is not None
    assert again.replicas[0].sharded
    assert len(again.replicas[0].workers) > 2


def test_a_copy_of_a_sharded_object_counts_as_a_part() -> None:
    stream = stream_of([cell(17, 0.6)], [0.7, 0.1, 0.7, 0.6])
    units = (ReplicatedUnit(17, None, (0, 2, 3), sharded=True), ReplicatedUnit(3, None, (0, 1)))
    plan = dataclasses.replace(quarters(), replicas=units)
    found = discount_shards(plan, stream)
    assert found.sent == pytest.approx([0.3, 0.1, 0.3, 0.2])
    assert discount_shards(quarters(), stream).sent.tolist() == stream.sent.tolist()


def test_batches_are_noise_only_where_they_scatter_more_than_objects() -> None:
    """Of 1,280 objects as in five batches, whose scatter is known to a third at best."""
    stream = stream_of([cell(0, 0.5)], [0.2, 0.1, 0.1, 0.1], objects=1_280)
    chance = math.sqrt(4 / (1_280 * 0.5))
    assert stream.noise == pytest.approx(chance)
    for scatter, noise in ((1.9 * chance, chance), (2.1 * chance, 2.1 * chance), (0.0, chance)):
        std = np.array([scatter / 8, 9.0, 9.0, 9.0])  # that of the most loaded worker counts
        assert dataclasses.replace(stream, scatter=std).noise == pytest.approx(noise)
