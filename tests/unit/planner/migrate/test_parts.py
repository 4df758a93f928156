"""What differs, its loads, and what of it is selected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ps2stream.language.analyzer import Analyzer
from ps2stream.planner.adjust.algorithms import SELECTIONS
from ps2stream.planner.load import worker_loads
from ps2stream.planner.migrate.measure import PARTS
from ps2stream.planner.migrate.parts import (
    PAIRS,
    CellLoads,
    cell_loads,
    find_moves,
    list_pairs,
    select_cells,
)
from ps2stream.planner.partition import plan_holders
from ps2stream.protocol.frame import F64
from ps2stream.routing.costs import Costs
from ps2stream.routing.plan import RoutingPlan, Space, Text
from tests.support.migrating import ANALYSIS, GRID, sampled, some_queries

COSTS = Costs(c1=0.5, c2=3.0, c3=2.0, c4=1.0)


def loads_of(rows: list[tuple[int, int, float]]) -> CellLoads:
    cell, worker, load = zip(*sorted(rows), strict=True)
    return CellLoads(np.array(cell), np.array(worker), np.array(load))


def parts_of(rows: list[tuple[int, int, int, int]]) -> Any:
    cell, source, target, size = zip(*rows, strict=True)
    return pa.table([cell, source, target, [1] * len(rows), size], schema=PARTS)


def test_loads_by_cell_add_up_to_those_of_workers() -> None:
    stats = sampled(2, some_queries(2))
    rng = np.random.default_rng(2)
    leaves = (Space(0), Space(1), Text((0, 1, 2), {"flood": 2, "river": 0}))
    cells = rng.integers(0, 3, GRID.rows() * GRID.columns()).astype(np.uint32)
    plan = RoutingPlan(3, ANALYSIS, GRID, leaves, cells)
    found = cell_loads(stats, plan, COSTS)
    owner, _ = plan_holders(plan, stats, Analyzer(ANALYSIS))
    assert np.allclose(found.total(3), worker_loads(stats, owner, 3, COSTS))
    assert set(found.cell.tolist()) <= set(stats.cell.tolist())
    apart = found.less(found)
    assert np.allclose(apart.load, 0)


def test_a_cell_of_which_several_parts_move_is_of_no_pair() -> None:
    change = loads_of([(5, 0, -7.0), (5, 1, 8.0), (6, 0, -4.0), (6, 1, 1.0), (6, 2, 3.0)])
    moves = find_moves(parts_of([(6, 0, 1, 10), (5, 0, 1, 20), (6, 0, 2, 30)]), change)
    assert moves.cell.tolist() == [5, 6]
    assert moves.source.tolist() == [0, -1]
    assert moves.target.tolist() == [1, -1]
    assert moves.bytes.tolist() == [20, 40]
    assert moves.gains().tolist() == [8.0, 0.0]
    assert list_pairs(moves).to_pylist() == [
        {"pair": 1, "cell": 5, "forth": True, "load": 8.0, "bytes": 20}
    ]
    assert moves.take(np.array([6])).change.worker.tolist() == [0, 1, 2]


def pair(load: F64, size: Any, forth: Any) -> Any:
    n = len(load)
    return pa.table([[1] * n, range(n), forth, load, size], schema=PAIRS)


def chosen_of(table: Any, algorithm: str, slack: float) -> list[int]:
    parts = select_cells(algorithm, slack, 1, iter([table.combine_chunks()]))
    return [cell for part in parts for cell in part["cell"].to_pylist()]


@pytest.mark.parametrize("algorithm", SELECTIONS)
def test_a_selection_carries_the_load_that_the_pair_needs(algorithm: str) -> None:
    rng = np.random.default_rng(5)
    for _ in range(10):
        load, size = rng.uniform(1, 5, 60), rng.integers(1, 1000, 60)
        forth = rng.random(60) < 0.7
        needed = load[forth].sum() - load[~forth].sum()
        chosen = chosen_of(pair(load, size, forth), algorithm, 10.0)
        giving = forth if needed > 0 else ~forth
        assert giving[chosen].all()
        assert abs(needed) - 1e-6 <= load[chosen].sum() <= abs(needed) + 10
        assert size[chosen].sum() < size.sum()


def test_a_pair_without_a_set_follows_the_target() -> None:
    load, size = np.array([10.0, 7.0]), [5, 5]
    table = pair(load, size, [True, False])
    assert chosen_of(table, "gr+", 1.0) == [0, 1]
    assert chosen_of(table, "gr+", 3.5) == []
    assert chosen_of(pair(load, size, [True, True]), "all", 1.0) == [0, 1]
    assert chosen_of(pair(np.array([5.0, 5.0]), size, [True, False]), "gr+", 0.0) == []
