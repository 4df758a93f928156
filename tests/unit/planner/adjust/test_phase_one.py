"""Splits and merges of one part: that the predicted loads are those of the plan with the move."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ps2stream.planner.adjust.adjustment import LoadAdjustment
from ps2stream.planner.adjust.apply import apply
from ps2stream.planner.adjust.phase_one import GAIN, PhaseOne, PhaseOneChange
from ps2stream.planner.statistics import Statistics
from ps2stream.protocol.frame import F64
from ps2stream.routing.costs import Costs
from ps2stream.routing.plan import RoutingPlan
from ps2stream.routing.replicas import ReplicatedUnit
from ps2stream.space.grid import Grid
from tests.support.adjustments import GRID, WORKERS, blocks, divided, hot
from tests.support.measured import measured
from tests.support.statistics_of import Unit, tables

NAMES = [f"w{i}" for i in range(8)]


class PhaseOneWorld:
    """A plan with what its workers measure of a sample."""

    def __init__(self, plan: RoutingPlan, stats: Statistics, costs: Costs) -> None:
        self.plan, self.stats, self.costs = plan, stats, costs
        self.units = measured(stats, plan)
        self.loads = self.units.loads(WORKERS, costs)
        self.phase_one = PhaseOne(self.units, plan, stats, costs)

    def part(self, cell: int, worker: int) -> int:
        [unit] = np.flatnonzero((self.units.cell == cell) & (self.units.worker == worker))
        return int(unit)

    def loads_after(self, change: PhaseOneChange) -> F64:
        """What the workers measure once the plan has the move."""
        none = (0.0,) * WORKERS
        adjustment = LoadAdjustment(self.plan.version, (change.move,), none, none)
        return measured(self.stats, apply(self.plan, adjustment)).loads(WORKERS, self.costs)


def test_a_split_moves_some_terms_and_its_loads_come_true() -> None:
    world = PhaseOneWorld(blocks(), hot(shared=False, queries=100.0), Costs())
    change = world.phase_one.split(world.part(5, 0), 3, world.loads)
    assert change is not None
    move = change.move
    assert (move.kind, move.cell, move.source, move.target) == ("split", 5, 0, 3)
    assert move.terms is not None
    assert set(move.terms) < set(NAMES)
    after = world.loads_after(change)
    assert after[0] == pytest.approx(change.source)
    assert after[3] == pytest.approx(change.target)
    assert after[3] == pytest.approx(world.loads[3] + move.load)
    gap = world.loads[0] - world.loads[3]
    assert max(change.source, change.target) < world.loads[0] - GAIN * gap


def test_terms_that_are_replicated_are_in_no_part() -> None:
    stats, costs = hot(shared=False, queries=100.0), Costs()
    world = PhaseOneWorld(blocks(), stats, costs)
    change = world.phase_one.split(world.part(5, 0), 3, world.loads)
    assert change is not None
    assert change.move.terms is not None
    some, others = change.move.terms, [name for name in NAMES if name not in change.move.terms]
    for replicated in (some, others, NAMES):
        units = tuple(ReplicatedUnit(None, name, (0, 1)) for name in replicated)
        plan = dataclasses.replace(blocks(), replicas=units)
        phase_one = PhaseOne(world.units, plan, stats, costs)
        found = phase_one.split(world.part(5, 0), 3, world.loads)
        terms = set() if found is None else {*(found.move.terms or ())}
        assert not terms & {*replicated}
        assert bool(terms) == (replicated is not NAMES)
        if found is not None:
            none = (0.0,) * WORKERS
            apply(plan, LoadAdjustment(plan.version, (found.move,), none, none))


def test_the_half_with_fewer_bytes_moves() -> None:
    world = PhaseOneWorld(blocks(), hot(shared=False, queries=100.0), Costs())
    unit = world.part(5, 0)
    change = world.phase_one.split(unit, 3, world.loads)
    assert change is not None
    held = world.units.bytes[unit]
    assert 0 < change.move.bytes <= held / 2
    queries = {n: 100.0 * (i + 1) for i, n in enumerate(NAMES)}
    share = sum(queries[term] for term in change.move.terms or ()) / sum(queries.values())
    assert change.move.bytes == pytest.approx(held * share, abs=1)


def test_a_split_that_sends_every_object_to_both_does_not_pay() -> None:
    copies_cost = Costs(c1=0.0001, c2=1.0)
    for shared, pays in ((True, False), (False, True)):
        world = PhaseOneWorld(blocks(), hot(shared, queries=1.0), copies_cost)
        change = world.phase_one.split(world.part(5, 0), 3, world.loads)
        assert (change is not None) == pays


@pytest.mark.parametrize(("light", "pays"), [(5.0, False), (25.0, True)])
def test_a_split_must_gain_a_tenth_of_the_gap(light: float, pays: bool) -> None:
    """Of two words, one alone gains too little, and the other would exchange the two workers."""
    units: list[Unit] = [(5, "a", 20.0, light, 0.0, 0.0), (5, "b", 20.0, 100 - light, 0.0, 0.0)]
    stats = tables(GRID, {5: 40.0}, units, [(5, [w]) for w in "ab" for _ in range(20)])
    world = PhaseOneWorld(blocks(), stats, Costs(c1=1.0, c2=0.0))
    change = world.phase_one.split(world.part(5, 0), 3, world.loads)
    assert (change is not None) == pays


def test_nothing_is_split_towards_a_worker_with_as_much_load() -> None:
    world = PhaseOneWorld(blocks(), hot(shared=False, queries=100.0), Costs())
    even = np.full(WORKERS, world.loads[0])
    assert world.phase_one.split(world.part(5, 0), 3, even) is None


def test_cells_without_a_sample_are_left_alone() -> None:
    stats = hot(shared=False, queries=100.0)
    world = PhaseOneWorld(blocks(), stats, Costs())
    names = ["w0", "w1"]
    other = tables(GRID, {7: 2.0}, [(7, n, 1.0, 9.0, 0.0, 0.0) for n in names],
                   [(7, [n]) for n in names])  # fmt: skip
    phase_one = PhaseOne(world.units, world.plan, other, Costs())
    assert phase_one.split(world.part(5, 0), 3, world.loads) is None


def test_parts_are_merged_where_their_copies_cost_more_than_their_products() -> None:
    """Objects with all words are sent twice while two workers have words of the cell."""
    costs = Costs(c1=0.001, c2=1.0)
    for alike in (True, False):
        rows = [(5, NAMES if alike else [n]) for n in NAMES for _ in range(50)]
        units: list[Unit] = [(5, n, 400.0 if alike else 50.0, 1.0, 0.0, 0.0) for n in NAMES]
        units.append((6, "w0", 900.0, 1.0, 0.0, 0.0))
        stats = tables(GRID, {5: 400.0, 6: 900.0}, units, rows + [(6, ["w0"])] * 9)
        world = PhaseOneWorld(divided(), stats, costs)
        change = world.phase_one.merge(world.part(5, 0), world.part(5, 1), world.loads)
        if not alike:
            assert change is None
            continue
        assert change is not None
        assert (change.move.kind, change.move.terms) == ("merge", None)
        after = world.loads_after(change)
        assert (change.source, change.target) == pytest.approx((after[0], after[1]))
        assert after.sum() == pytest.approx(world.loads.sum() - 400 * costs.c2)


def test_a_sample_on_another_grid_is_refused() -> None:
    plan, stats = blocks(), hot(shared=False, queries=1.0)
    other = tables(Grid(5, 3, 16), {5: 1.0}, [(5, "w0", 1.0, 1.0, 0.0, 0.0)], [(5, ["w0"])])
    with pytest.raises(ValueError, match="the sample is on the grid"):
        PhaseOne(measured(stats, plan), plan, other, Costs())
