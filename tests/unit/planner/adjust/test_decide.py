"""Local adjustment: who gives what to whom, and that the prediction is what comes."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from ps2stream.planner.adjust.adjustment import LoadAdjustment
from ps2stream.planner.adjust.algorithms import SELECTIONS
from ps2stream.planner.adjust.apply import apply
from ps2stream.planner.adjust.decide import Rules, decide, divisible
from ps2stream.planner.adjust.units import PartLoads, carried
from ps2stream.protocol.frame import F64
from ps2stream.routing.costs import Costs, balance
from ps2stream.routing.leaves import Moved
from ps2stream.routing.plan import built_in_plan, text_plan
from ps2stream.routing.replicas import ReplicatedUnit
from tests.support.adjustments import (
    ANALYSIS,
    CELLS,
    COSTS,
    GRID,
    WORKERS,
    blocks,
    divided,
    hot,
    parts,
)
from tests.support.measured import measured
from tests.support.statistics_of import Unit, hostile, tables, words


def skewed(seed: int) -> PartLoads:
    rng = np.random.default_rng(seed)
    load = rng.pareto(1.2, CELLS) * np.repeat([9.0, 1, 2, 3], CELLS // WORKERS)
    worker = np.arange(CELLS) // (CELLS // WORKERS)
    size = (load * rng.lognormal(3, 1, CELLS)).astype(int) + 1
    return parts(list(range(CELLS)), worker.tolist(), load.tolist(), size.tolist())


@pytest.mark.parametrize("algorithm", sorted(SELECTIONS))
@pytest.mark.parametrize("seed", range(8))
def test_half_the_gap_goes_from_the_most_to_the_least_loaded(algorithm: str, seed: int) -> None:
    units, plan = skewed(seed), blocks()
    rules = Rules(COSTS, algorithm=algorithm, seed=seed)
    loads = units.loads(WORKERS, COSTS)
    found = decide(units, plan, rules)
    assert found.before == tuple(loads)
    assert found == decide(units, plan, rules)
    assert LoadAdjustment.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    if not found.moves:
        assert found.after == found.before
        return
    (tau,) = found.taus
    source, target = int(np.argmax(loads)), int(np.argmin(loads))
    assert tau == (loads[source] - loads[target]) / 2
    assert {(m.source, m.target, m.kind) for m in found.moves} == {(source, target, "migrate")}
    lighter = units.load(COSTS)[(units.worker == source) & (units.load(COSTS) < tau)].sum()
    assert min(tau, 0.9 * lighter) * 0.999 <= sum(m.load for m in found.moves) <= 2 * tau * 1.001
    assert max(found.after[source], found.after[target]) <= loads[source] * (1 + 1e-9)
    history = carried(units, found.moves, COSTS)
    assert history.loads(WORKERS, COSTS) == pytest.approx(np.array(found.after))
    assert history.bytes.sum() == units.bytes.sum()
    new = apply(plan, found)
    assert {m.cell for m in found.moves} == set(np.flatnonzero(new.cells != plan.cells).tolist())


def test_a_balanced_service_is_left_alone() -> None:
    units = parts([0, 40, 70, 100], [0, 1, 2, 3], [10.0, 11, 12, 12.9], [1] * 4)
    assert decide(units, blocks(), Rules(COSTS, sigma=1.3)).moves == ()
    assert decide(units, blocks(), Rules(COSTS, sigma=1.2, pairs=9)).moves == ()
    nothing = parts([], [], [], [])
    assert decide(nothing, blocks(), Rules(COSTS)).moves == ()


def test_one_hot_unit_is_told_and_not_moved() -> None:
    units = parts([0, 1, 40, 70, 100], [0, 0, 1, 2, 3], [90.0, 1, 10, 10, 10], [1] * 5)
    found = decide(units, blocks(), Rules(COSTS))
    assert (found.moves, found.balance_before, found.balance_after) == ((), 9.1, 9.1)


@pytest.mark.parametrize("algorithm", sorted(SELECTIONS))
@pytest.mark.parametrize("hot", [80.0, 40.0])  # too heavy to move, and not
def test_the_parts_beside_a_heavy_one_migrate(algorithm: str, hot: float) -> None:
    """Together they are less than half the gap: with the heavy one the target would be slow."""
    loads = [hot, 9.0, 8, 9, 0.5, 10, 10]
    units = parts([0, 1, 2, 3, 40, 70, 100], [0, 0, 0, 0, 1, 2, 3], loads, [1] * 7)
    found = decide(units, blocks(), Rules(COSTS, algorithm=algorithm))
    assert [m.cell for m in found.moves] == [1, 2, 3]
    assert found.after == pytest.approx((hot, 26.5, 10, 10))
    # Without the many that have hardly any load, and most bytes.
    some = range(4, 30)
    loads = [hot, 9.0, 8, 9, *[0.01] * 26, 0.5, 10, 10]
    size = [1] * 4 + [99] * 26 + [1] * 3
    units = parts([0, 1, 2, 3, *some, 40, 70, 100], [0] * 30 + [1, 2, 3], loads, size)
    found = decide(units, blocks(), Rules(COSTS, algorithm=algorithm))
    assert {1, 2, 3} <= {m.cell for m in found.moves}
    assert len(found.moves) == 3 or algorithm in ("si", "ra")


def test_what_no_plan_moves_stays() -> None:
    """Coarser levels, and parts that an earlier plan gave to their worker."""
    coarse = 1 << 28
    units = parts([coarse, 1, 2, 100, 101], [0, 0, 0, 0, 3], [5.0, 4, 4, 30, 1], [9, 9, 9, 1, 1])
    found = decide(units, blocks(), Rules(COSTS, sigma=1.1))
    assert [m.cell for m in found.moves] == [1, 2]  # all that may
    units = parts([coarse, 1, 2, 100, 101], [0, 0, 0, 0, 3], [5.0, 20, 4, 5, 1], [1, 9, 9, 1, 1])
    found = decide(units, blocks(), Rules(COSTS, sigma=1.1))
    assert [m.cell for m in found.moves] == [1]


def test_the_parts_of_a_replicated_cell_count_as_load_and_stay() -> None:
    """At its owner by the leaves as at the other workers of its group."""
    loads, held = [10.0, 11, 10, 4, 12, 1], [1, 50, 1, 1, 1, 1]
    units = parts([5, 6, 5, 40, 70, 100], [0, 0, 1, 1, 2, 3], loads, held)
    alone = decide(units, blocks(), Rules(COSTS))
    assert [move.cell for move in alone.moves] == [5]  # the fewest bytes
    for cell, term, frozen in ((5, None, True), (5, "flood", False), (None, "flood", False)):
        unit = ReplicatedUnit(cell, term, (0, 1))
        plan = dataclasses.replace(blocks(), replicas=(unit,))
        found = decide(units, plan, Rules(COSTS))
        assert found.before == alone.before
        assert [move.cell for move in found.moves] == [6 if frozen else 5]
        assert apply(plan, found).replicas == (unit,)


def test_a_replicated_cell_is_neither_split_nor_sampled() -> None:
    stats, plan, costs = hot(shared=False, queries=100.0), blocks(), Costs()
    units = measured(stats, plan)
    assert divisible(units, plan, Rules(costs)).tolist() == [5]
    plan = dataclasses.replace(plan, replicas=(ReplicatedUnit(5, None, (0, 2)),))
    assert divisible(units, plan, Rules(costs)).tolist() == []
    assert decide(units, plan, Rules(costs), stats).moves == ()


def test_several_pairs_at_once() -> None:
    cells = [0, 1, 2, 3, 32, 33, 34, 35, 64, 96]
    units = parts(cells, [0] * 4 + [1] * 4 + [2, 3], [10.0] * 8 + [1.0, 1.0], [5] * 10)
    one = decide(units, blocks(), Rules(COSTS))
    two = decide(units, blocks(), Rules(COSTS, pairs=4))
    assert {(m.source, m.target) for m in one.moves} == {(0, 2)}
    assert {(m.source, m.target) for m in two.moves} == {(0, 2), (1, 3)}
    assert two.balance_after < 1.3 < one.balance_after
    assert two.moves[: len(one.moves)] == one.moves


def test_no_part_moves_twice() -> None:
    """One gives to several, as often as it is the most loaded."""
    units = parts([*range(8), 40], [0] * 8 + [1], [10.0] * 8 + [5.0], [5] * 9)
    found = decide(units, blocks(), Rules(COSTS, pairs=9))
    assert len({m.source for m in found.moves}) < len({m.target for m in found.moves})
    assert len({m.cell for m in found.moves}) == len(found.moves)
    history = carried(units, found.moves, COSTS)
    assert history.loads(WORKERS, COSTS) == pytest.approx(np.array(found.after))


@pytest.mark.parametrize(("load", "moves"), [(44.0, 2), (46.0, 0)])
def test_two_parts_that_would_only_exchange_two_workers_stay(load: float, moves: int) -> None:
    """Half the gap is reached by both alone, which with the second load are 0.9 of it."""
    coarse = 1 << 28
    loads = [20.0, load, load, 10.0, 50.0, 50.0]
    units = parts([coarse, 1, 2, 40, 70, 100], [0, 0, 0, 1, 2, 3], loads, [1] * 6)
    assert len(decide(units, blocks(), Rules(COSTS)).moves) == moves


def test_loads_of_a_foreign_worker_are_refused() -> None:
    with pytest.raises(ValueError, match="worker 4, but the plan has 4"):
        decide(parts([0], [4], [1.0], [1]), blocks(), Rules(COSTS))


def test_a_cell_that_is_too_hot_to_move_is_split() -> None:
    stats, plan, costs = hot(shared=False, queries=100.0), blocks(), Costs()
    units = measured(stats, plan)
    assert decide(units, plan, Rules(costs)).moves == ()
    found = decide(units, plan, Rules(costs), stats)
    (move,) = found.moves
    assert (move.kind, move.cell, move.source) == ("split", 5, 0)
    assert move.bytes <= units.bytes[units.cell == 5][0] / 2
    new = apply(plan, found)
    after = measured(stats, new)
    assert after.loads(WORKERS, costs) == pytest.approx(np.array(found.after))
    assert balance(after.loads(WORKERS, costs)[[0, move.target]]) < 1.5
    assert isinstance(new.leaves[int(new.cells[5])], Moved)


def test_a_part_may_be_split_again() -> None:
    """Until every worker has its share of the one hot cell."""
    stats, plan, costs = hot(shared=False, queries=1000.0), blocks(), Costs()
    for _ in range(6):
        found = decide(measured(stats, plan), plan, Rules(costs, sigma=1.6), stats)
        plan = apply(plan, found)
        loads = measured(stats, plan).loads(WORKERS, costs)
        assert loads == pytest.approx(np.array(found.after))
    assert balance(loads) <= 1.6


def test_objects_that_need_all_words_prevent_a_split() -> None:
    """Two parts would be sent every object: nothing is saved."""
    plan, rules = blocks(), Rules(Costs(c2=0.1), load="definition1")
    for shared, kinds in ((True, []), (False, ["split"])):
        stats = hot(shared, queries=1.0)
        found = decide(measured(stats, plan), plan, rules, stats)
        assert [m.kind for m in found.moves if m.cell == 5] == kinds


def test_what_would_only_exchange_two_workers_stays() -> None:
    units = parts([0, 1, 40, 70, 100], [0, 0, 1, 2, 3], [95.0, 9, 10, 50, 50], [1] * 5)
    assert decide(units, blocks(), Rules(COSTS)).moves == ()


def test_parts_that_share_their_objects_are_merged() -> None:
    """Where the copies cost more than the products, and only there."""
    plan = divided()
    loads: list[Unit] = [(6, "w0", 900.0, 1.0, 0.0, 0.0), (70, "w0", 900.0, 1.0, 0.0, 0.0),
                         (100, "w0", 900.0, 1.0, 0.0, 0.0)]  # fmt: skip
    names = [f"w{i}" for i in range(8)]
    for alike in (True, False):
        rows = [(5, names if alike else [n]) for n in names for _ in range(50)]
        units: list[Unit] = [(5, n, 400.0 if alike else 50.0, 1.0, 0.0, 0.0) for n in names]
        rows += [(c, ["w0"]) for c in (6, 70, 100) for _ in range(9)]
        objects = {5: 400.0, 6: 900.0, 70: 900.0, 100: 900.0}
        stats = tables(GRID, objects, units + loads, rows)
        costs = Costs(c1=0.001, c2=1.0)
        found = decide(measured(stats, plan), plan, Rules(costs, hottest=2), stats)
        merged = [m for m in found.moves if m.cell == 5 and m.load < 400]
        assert [(m.kind, m.source, m.target) for m in merged] == [("merge", 0, 1)]
        after = measured(stats, apply(plan, found)).loads(WORKERS, costs)
        assert after == pytest.approx(np.array(found.after))
        # The other half of the gap is beyond all parts that may move, so the lighter one goes.
        saved = sum(found.before) - after.sum()
        assert saved > 300 if alike else saved == pytest.approx(0)


def test_a_sample_is_wanted_of_cells_that_may_be_split_or_joined() -> None:
    plan = divided()
    cells, workers = [5, 0, 5, 33, 70, 100], [0, 0, 1, 1, 2, 3]

    def wanted(*loads: float, pairs: int = 1) -> list[int]:
        units = parts(cells, workers, list(loads), [1] * 6)
        return list(map(int, divisible(units, plan, Rules(COSTS, pairs=pairs))))

    assert wanted(10, 0, 10, 0, 10, 10) == []
    assert wanted(20, 20, 1, 2, 20, 20) == [5]  # the target has some of it, too
    assert wanted(1, 0, 0, 90, 40, 8) == [33]
    assert wanted(1, 0, 0, 90, 40, 8, pairs=2) == [33, 70]
    units = parts([5, 6, 5, 70, 100], [0, 0, 1, 2, 3], [40.0, 40, 1, 50, 50], [1, 9, 1, 1, 1])
    [move] = decide(units, plan, Rules(COSTS)).moves
    assert (move.cell, move.target, move.kind) == (5, 1, "merge")  # without a sample, too


@pytest.mark.parametrize("name", sorted(hostile(1)))
@pytest.mark.parametrize("kind", ["cells", "definition1"])
def test_hostile_samples_do_no_harm(name: str, kind: str) -> None:
    stats = hostile(1)[name]
    for plan in (
        built_in_plan(ANALYSIS, stats.grid, 3),
        text_plan(ANALYSIS, stats.grid, 3, {"storm": 1, "w1": 2}),
    ):
        for _ in range(4):
            units = measured(stats, plan)
            rules = Rules(Costs(), load="cells" if kind == "cells" else "definition1", pairs=3)
            found = decide(units, plan, rules, stats)
            assert max(found.after) <= max(found.before) * (1 + 1e-9)
            plan = apply(plan, found)
            new: F64 = measured(stats, plan).loads(3, Costs())
            assert new.max() <= max(found.after) * 1.25 + 1e-9


def test_a_stream_that_moves_is_balanced_again() -> None:
    """Within three adjustments, of several pairs each, whatever cells become hot."""
    rng = np.random.default_rng(11)
    for _ in range(4):
        cells = rng.choice(CELLS, 60, replace=False).tolist()
        stats = words(GRID, rng, cells, 3000)
        plan = built_in_plan(ANALYSIS, GRID, 8)
        assert balance(measured(stats, plan).loads(8, Costs())) > 1.5
        for _ in range(3):
            found = decide(measured(stats, plan), plan, Rules(pairs=4), stats)
            plan = apply(plan, found)
        loads = measured(stats, plan).loads(8, Costs())
        assert balance(loads) <= 1.3
