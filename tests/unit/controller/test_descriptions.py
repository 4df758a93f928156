"""Loads and adjustments as the JSON of the admin calls, against small ones worked out by hand."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from ps2stream.controller import descriptions
from ps2stream.controller.descriptions import (
    describe_adjustment,
    describe_cell,
    describe_loads,
    describe_replicas,
)
from ps2stream.planner.adjust.adjustment import LoadAdjustment, PartMove
from ps2stream.planner.adjust.decide import Rules
from ps2stream.planner.adjust.units import PartLoads
from ps2stream.routing.costs import Costs
from ps2stream.routing.plan_changes import PlanState
from ps2stream.routing.replicas import ReplicatedUnit
from ps2stream.space.grid import Grid
from tests.support.controller_world import halves, swapped

COARSE = 1 << 28 | 3
PartRow = tuple[int, int, float, float, float, float, float, int]
RULES = Rules(Costs(c1=1.0, c2=10.0, c3=100.0, c4=1000.0), sigma=1.5)
# Cell, worker, objects, queries, checks, inserts, deletes, bytes; the load in microseconds.
ROWS: list[PartRow] = [
    (0, 0, 2.0, 3.0, 5.0, 1.0, 0.0, 70),  # 125
    (1, 0, 0.0, 4.0, 0.0, 0.0, 0.0, 8),  # 0
    (17, 1, 1.0, 1.0, 0.0, 0.0, 1.0, 9),  # 1010
    (18, 1, 3.0, 2.0, 40.0, 0.0, 0.0, 20),  # 70
    (COARSE, 1, 50.0, 6.0, 0.0, 0.0, 0.0, 1),  # 500, of no leaf
]


def part_loads(rows: list[PartRow]) -> PartLoads:
    cell, worker, objects, queries, checks, inserts, deletes, held = zip(*rows, strict=True)
    return PartLoads.of(
        np.array(cell, np.uint32), np.array(worker, np.int32), np.array(objects),
        np.array(queries), np.array(checks), np.array(inserts), np.array(deletes), np.array(held),
    )  # fmt: skip


def told(state: PlanState, rows: list[PartRow] | None = None) -> dict[str, Any]:
    units = None if rows is None else part_loads(rows)
    found = describe_loads(state, units, RULES, 2e6)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    return found


def test_without_a_period_only_the_plans_are_described() -> None:
    assert told(PlanState(halves())) == {
        "plan_version": 1, "following_version": 0, "coexisting": False, "period_s": 2.0,
        "sigma": 1.5,
    }  # fmt: skip


@pytest.mark.parametrize(("begun", "coexisting"), [(0, True), (9, False)])
def test_two_plans_coexist_until_a_migration_begins(begun: int, coexisting: bool) -> None:
    state = dataclasses.replace(PlanState(halves()), following=swapped(), apart=5, begun=begun)
    found = told(state)
    assert (found["following_version"], found["coexisting"]) == (2, coexisting)


def test_each_worker_has_its_sums_and_its_share_of_the_period() -> None:
    found = told(PlanState(halves()), ROWS)
    first, second = found["workers"]
    assert first == {
        "worker": 0, "load_us": 125.0, "busy": 125 / 2e6,
        "definition1_us": 2.0 * 7 + 10 * 2 + 100, "objects": 2.0, "postings": 7.0,
        "checks": 5.0, "inserts": 1.0, "deletes": 0.0, "bytes": 78,
    }  # fmt: skip
    assert (second["load_us"], second["bytes"]) == (1580.0, 30)
    assert second["definition1_us"] == 54.0 * 9 + 10 * 54 + 1000
    assert found["balance"] == pytest.approx(1580 / 125)
    assert found["balance_definition1"] == pytest.approx(2026 / 134)


def test_a_balance_that_is_infinite_is_left_out() -> None:
    found = told(PlanState(halves()), ROWS[:1])
    assert not {"balance", "balance_definition1"} & set(found)
    assert found["workers"][1]["load_us"] == 0.0


def test_the_hottest_parts_come_first_with_their_places() -> None:
    """Without parts that have no load, and those of coarser levels, which have no leaf."""
    found = told(PlanState(halves()), ROWS)
    assert [(p["cell"], p["worker"], p["load_us"]) for p in found["hottest"]] == [
        (17, 1, 1010.0), (0, 0, 125.0), (18, 1, 70.0),
    ]  # fmt: skip
    assert found["hottest"][1] == {
        "worker": 0, "load_us": 125.0, "objects": 2.0, "postings": 3.0, "bytes": 70,
        "cell": 0, "west": -180.0, "south": -90.0, "east": -135.0, "north": -45.0,
    }  # fmt: skip
    assert found["leaves"] == [{"leaf": 1, "load_us": 1080.0}, {"leaf": 0, "load_us": 125.0}]


def test_no_more_than_the_hottest_ten_are_listed() -> None:
    rows: list[PartRow] = [
        (cell, cell // 16, 0.0, 1.0, 100.0 + cell, 0.0, 0.0, 1) for cell in range(32)
    ]
    found = told(PlanState(halves()), rows)
    assert [part["cell"] for part in found["hottest"]] == [
        *range(31, 31 - descriptions.HOTTEST, -1)
    ]


def test_an_adjustment_is_described_with_places_and_balances() -> None:
    moves = (
        PartMove(9, 0, 1, 70, 12.5, ("storm", "flood"), "split"),
        PartMove(2, 0, 1, 30, 2.5),
    )
    found = describe_adjustment(LoadAdjustment(4, moves, (40.0, 10.0), (25.0, 25.0)), Grid(3, 2))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["migrations"][0] == {
        "source": 0, "target": 1, "kind": "split", "bytes": 70, "load_us": 12.5,
        "terms": ["storm", "flood"],
        "cell": 9, "west": -135.0, "south": -45.0, "east": -90.0, "north": 0.0,
    }  # fmt: skip
    assert (found["migrations"][1]["kind"], found["migrations"][1]["terms"]) == ("migrate", [])
    assert (found["bytes"], found["before_us"], found["after_us"]) == (100, [40, 10], [25, 25])
    assert (found["balance_before"], found["balance_after"]) == (4.0, 1.0)


def test_an_adjustment_that_leaves_a_worker_idle_has_no_balance() -> None:
    found = describe_adjustment(LoadAdjustment(1, (), (5.0, 0.0), (5.0, 0.0)), Grid(3, 2))
    assert not {"balance_before", "balance_after"} & set(found)


def test_the_cells_of_a_grid_cover_the_world() -> None:
    grid = Grid(3, 2)
    boxes = [describe_cell(grid, cell) for cell in range(32)]
    area = sum((b["east"] - b["west"]) * (b["north"] - b["south"]) for b in boxes)
    assert area == 360.0 * 180.0
    for box in boxes:
        lon = np.array([(box["west"] + box["east"]) / 2])
        lat = np.array([(box["south"] + box["north"]) / 2])
        assert grid.cells(lon, lat, 0).tolist() == [box["cell"]]


def test_replicated_units_are_described_with_places_and_shares() -> None:
    units = (
        ReplicatedUnit(9, None, (1, 0), sharded=True),
        ReplicatedUnit(None, "flood", (0, 1)),
        ReplicatedUnit(1 << 28 | 1, "", (0, 1)),
    )
    plan = dataclasses.replace(halves(), replicas=units)
    found = describe_replicas(plan, {(9, None): 0.25, (None, "flood"): 0.5, (3, None): 1.0})
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found == [
        {"term": "flood", "workers": [0, 1], "sharded": False, "share": 0.5},
        {
            "level": 0, "cell": 9, "west": -135.0, "south": -45.0, "east": -90.0, "north": 0.0,
            "workers": [1, 0], "sharded": True, "share": 0.25,
        },
        {
            "level": 1, "cell": 1, "west": 0.0, "south": -90.0, "east": 180.0, "north": 90.0,
            "term": "", "workers": [0, 1], "sharded": False,
        },
    ]  # fmt: skip
    assert describe_replicas(halves(), {(9, None): 0.25}) == []
