"""Estimates of what a query would match and cost, by objects that were lately accepted."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ps2stream.dispatcher.estimates import estimate_query
from ps2stream.dispatcher.explanations import expand_query
from ps2stream.dispatcher.gateway import QueryEstimate
from ps2stream.dispatcher.reservoir import ObjectReservoir, ObjectSample
from ps2stream.dispatcher.router import RouterMachine
from ps2stream.protocol.rows import QueryRows
from ps2stream.routing.costs import Costs
from ps2stream.routing.h1 import HashedReplica
from ps2stream.workers.gi2 import GI2
from tests.support.routers import EAST, GRID, WEST, insert, machine
from tests.support.routing import Box, Row, object_rows, query_rows

COSTS = Costs(c1=1.0, c2=10.0, c3=0.0, c4=0.0)
EVERYWHERE = (-180.0, -90.0, 180.0, 90.0)


def query(term: int, box: Box) -> QueryRows:
    return query_rows([Row((term,), (0,), (box,), lsn=9, handle=9)])


def sample() -> ObjectSample:
    """Four objects, at 1000 ms: two in the west and two in the east, of the terms 7 and 8."""
    reservoir = ObjectReservoir(100)
    reservoir.add(
        object_rows([-20.0, -20.0, 20.0, 20.0], [0.0] * 4, [(7,), (8,), (7,), (7, 8)]), 1_000
    )
    return reservoir.sample()


def estimated(router: RouterMachine, of: QueryRows, now_ms: int = 3_000) -> QueryEstimate:
    return estimate_query(expand_query(router, of), GI2, COSTS, sample(), now_ms)


def test_matches_and_work_are_counted_by_second_and_worker() -> None:
    found = estimated(machine(), query(7, EAST))
    assert sorted(found.matched.tolist()) == [2, 3]
    assert (found.sampled, found.window_s) == (4, 2.0)
    assert found.effective == pytest.approx(4.0)
    assert (found.objects_per_second, found.matches_per_second) == (2.0, 1.0)
    assert found.postings.tolist() == [0, 1, 0]
    assert found.checks.tolist() == found.copies.tolist() == [0.0, 1.0, 0.0]
    assert found.load.tolist() == [0.0, 11.0, 0.0]
    assert len(found.cells) == 1


def test_an_object_near_a_query_is_work_though_it_does_not_match() -> None:
    inside = (19.0, 0.5, 20.0, 1.0)  # in the cell of the east, beside its objects
    found = estimated(machine(), query(7, inside))
    assert found.matched.tolist() == []
    assert (found.matches_per_second, found.checks[1]) == (0.0, 1.0)


def test_what_others_have_inserted_changes_no_estimate() -> None:
    router = machine()
    alone = estimated(router, query(7, EAST))
    for lsn, box in enumerate((WEST, EAST, EAST), 1):
        router.on(insert(lsn, box=box))
    before = router.gridt.counts()
    beside = estimated(router, query(7, EAST))
    assert [str(value) for value in alone] == [str(value) for value in beside]
    assert router.gridt.counts() == before


def test_a_query_of_two_workers_is_work_for_both() -> None:
    found = estimated(machine(), query(8, (-20.0, 0.0, 20.0, 0.0)))
    assert sorted(found.matched.tolist()) == [1, 3]
    assert found.copies.tolist() == [0.5, 0.5, 0.0]
    assert found.postings.sum() == len(found.cells)
    assert GRID.cells(sample().lon, sample().lat, 0)[0] in found.cells


def test_a_sample_of_a_moment_counts_as_one_of_a_second() -> None:
    assert estimated(machine(), query(7, EAST), now_ms=1_001).window_s == 1.0


def test_an_object_that_meets_two_postings_is_checked_twice_and_sent_once() -> None:
    both = query_rows([Row((7, 8), (0, 1), (EAST,), lsn=9, handle=9)])
    found = estimated(machine(), both)
    assert found.matched.tolist() == [3]
    assert found.postings.tolist() == [0, 2, 0]
    assert (found.checks[1], found.copies[1]) == (1.5, 1.0)


def test_a_replicated_unit_is_held_by_each_worker_and_divides_its_objects() -> None:
    hot = HashedReplica(int(GRID.cells(np.array([20.0]), np.array([0.0]), 0)[0]), None, (0, 1))
    router, alone = machine(replicas=[hot]), machine()
    of = query(7, EAST)
    found, before = estimated(router, of), estimated(alone, of)
    assert (found.tags, found.postings.tolist()) == (before.tags, [1, 1, 0])
    assert found.checks.tolist() == found.copies.tolist() == [0.5, 0.5, 0.0]
    assert found.load.sum() == before.load.sum()
    assert found.matched.tolist() == before.matched.tolist()


def test_an_object_that_goes_to_a_worker_of_the_group_anyhow_is_not_sent_twice() -> None:
    """Objects with 7 alone are divided; the one with 7 and 8 goes to worker 1 for both."""
    hot = HashedReplica(None, np.uint64(7), (1, 2))
    both = query_rows([Row((7, 8), (0, 1), (EAST,), lsn=9, handle=9)])
    found = estimated(machine(replicas=[hot]), both)
    assert (found.tags, found.postings.tolist()) == (2, [0, 2, 1])
    assert found.copies.tolist() == [0.0, 0.75, 0.25]
    assert found.checks.tolist() == [0.0, 1.25, 0.25]


def draw_world(rng: random.Random) -> tuple[RouterMachine, list[HashedReplica], QueryRows]:
    """Groups of terms, and a query of some terms in a box over both halves of the world."""
    replicas = [
        HashedReplica(None, np.uint64(term), tuple(rng.sample(range(3), rng.randint(2, 3))))
        for term in rng.sample(range(7, 11), rng.randint(0, 3))
    ]
    terms = tuple(sorted(rng.sample(range(7, 11), rng.randint(1, 3))))
    box = (-25.0 + rng.choice([0, 30]), 0.0, 25.0, 0.0)
    row = Row(terms, tuple(range(len(terms))), (box,), lsn=9, handle=9)
    return machine(replicas=replicas), replicas, query_rows([row])


@pytest.mark.parametrize("seed", range(20))
def test_work_is_divided_as_by_going_through_the_objects_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    router, replicas, of = draw_world(rng)
    things = [
        (rng.choice([-20.0, -8.0, 8.0, 20.0]), tuple(rng.sample(range(7, 12), 3)))
        for _ in range(30)
    ]
    reservoir = ObjectReservoir(100)
    lons, terms = [lon for lon, _ in things], [found for _, found in things]
    reservoir.add(object_rows(lons, [0.0] * 30, terms), 1_000)
    expanded = expand_query(router, of)
    found = estimate_query(expanded, GI2, COSTS, reservoir.sample(), 2_000)
    groups = {int(r.term): r.workers for r in replicas if r.term is not None}
    posted = set(zip(expanded.tags.cell.tolist(), expanded.tags.term.tolist(), strict=True))
    checks, copies = np.zeros(3), np.zeros(3)
    for lon, held in things:
        cell = int(GRID.cells(np.array([lon]), np.array([0.0]), 0)[0])
        met = [groups.get(t, (int(lon > 0),)) for t in held if (cell, t) in posted]
        alone = {workers[0] for workers in met if len(workers) == 1}
        for workers in met:
            goes = alone & {*workers} or {*workers}
            for worker in goes:
                checks[worker] += 1 / len(goes)
        for worker in alone:
            copies[worker] += 1
        for workers in {*met}:
            if not alone & {*workers}:
                copies[[*workers]] += 1 / len(workers)
    assert found.checks.tolist() == pytest.approx(checks.tolist())
    assert found.copies.tolist() == pytest.approx(copies.tolist())
