"""A partition as a plan, and what the cost model predicts for it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ps2stream.errors import PlanError
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner.algorithms import ALGORITHMS
from ps2stream.planner.load import Kind
from ps2stream.planner.partition import (
    Partition,
    PartitionOptions,
    idle,
    owners,
    plan_holders,
    predicted,
    to_plan,
)
from ps2stream.routing.costs import Costs
from ps2stream.routing.plan import Space, Text
from ps2stream.space.grid import Grid
from tests.support.statistics_of import hostile, tables

ANALYZER = Analyzer(Analysis(salt=3))
CASES = hostile(1)
LITERAL = PartitionOptions(load="definition1")


def test_the_bound_is_of_the_load_by_cells() -> None:
    """Definition 1's product has none: against this one it would seem fifty times too slow."""
    stats = CASES["many cells"]
    partition = ALGORITHMS["kdtree"](stats, 4, PartitionOptions())
    one, other = (
        predicted(partition, stats, 4, o, ANALYZER) for o in (PartitionOptions(), LITERAL)
    )
    assert one["loads"] != other["loads"]
    assert one["slowest_over_bound"] == other["slowest_over_bound"]
    assert 1.0 <= one["slowest_over_bound"] < 2.0


# Cell 0: four objects with both words; cell 1: six with a, cell 3: only queries.
STATS = tables(
    Grid(1, 1),
    {0: 4.0, 1: 6.0},
    [(0, "a", 4.0, 3.0, 1.0, 2.0), (0, "b", 4.0, 5.0, 0.0, 0.0), (1, "a", 6.0, 2.0, 0.0, 0.0),
     (3, "b", 0.0, 7.0, 0.0, 0.0)],
    [(0, ["a", "b"])] * 4 + [(1, ["a"])] * 6,
)  # fmt: skip
PARTITION = Partition(
    (Text((0, 1), {"a": 0, "b": 1}), Space(1)), np.array([0, 1, 1, 0], np.uint32), None, ("why",)
)


def test_units_belong_to_the_leaf_of_their_cell() -> None:
    assert owners(PARTITION, STATS, 2, ANALYZER).tolist() == [0, 1, 1, 1]
    plan = to_plan(PARTITION, STATS, 2, ANALYZER.analysis, {"a": 9})
    assert plan_holders(plan, STATS, ANALYZER)[0].tolist() == [0, 1, 1, 1]
    assert (plan.workers, plan.grid, dict(plan.frequencies)) == (2, Grid(1, 1), {"a": 9})


@pytest.mark.parametrize(
    ("load", "loads"),
    [
        # a of cell 0; b of cell 0 and all of cell 1; b of cell 3 meets no object.
        ("cells", [0.5 * 4 * 3 + 10 * 4 + 2 * 1 + 1 * 2, 0.5 * (4 * 5 + 6 * 2) + 10 * (4 + 6)]),
        ("definition1", [0.5 * 4 * 3 + 10 * 4 + 2 + 2, 0.5 * 10 * (5 + 2 + 7) + 10 * (4 + 6)]),
    ],
)
def test_what_is_predicted_is_worked_out_by_hand(load: Kind, loads: list[float]) -> None:
    options = PartitionOptions(costs=Costs(c1=0.5, c2=10.0, c3=2.0, c4=1.0), load=load)
    found = predicted(PARTITION, STATS, 2, options, ANALYZER)
    json.dumps(found)
    assert found["loads"] == loads
    assert found["balance"] == max(loads) / min(loads)
    by_cells = 0.5 * (4 * 5 + 6 * 2) + 100  # of the slowest; the bound copies no object
    bound = (0.5 * (4 * 3 + 4 * 5 + 6 * 2) + 10 * 10 + 4) / 2
    assert found["slowest_over_bound"] == pytest.approx(by_cells / bound)
    assert (found["leaves"], found["text_leaves"], found["warnings"]) == (2, 1, ["why"])
    assert (found["load"], found["costs"]["c2"]) == (load, 10.0)


def test_idle_workers_are_counted() -> None:
    assert idle([0, 2, 2], 4) == ("2 of 4 workers have no load",)
    assert idle([1, 0, 1], 2) == ()


def test_theta_is_sixteen_leaves_a_worker_unless_it_is_given() -> None:
    assert PartitionOptions().leaves(5) == 80
    assert PartitionOptions(theta=7).leaves(5) == 7


def test_a_partition_that_names_no_such_worker_is_no_plan() -> None:
    with pytest.raises(PlanError, match="worker"):
        to_plan(PARTITION, STATS, 1, ANALYZER.analysis, {})
