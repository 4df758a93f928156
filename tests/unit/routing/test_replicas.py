"""Replicated units in plans: their document, what is refused, and what a worker gains by them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from ps2stream.errors import PlanError
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.routing.plan import RoutingPlan, Space, text_plan
from ps2stream.routing.plan_follower import changed_box
from ps2stream.routing.replicas import MAX_REPLICATED, ReplicatedUnit, describe_unit
from ps2stream.space.grid import Grid

ANALYSIS = Analysis(salt=3)
GRID = Grid(4, 3)
CELL = 2 * 16 + 5
COARSE = 1 << 28 | 1 * 4 + 3
"""The cell of level 1 in its second row and last column: four by four of the base level."""


def plan(*replicas: ReplicatedUnit, version: int = 1) -> RoutingPlan:
    cells = np.zeros(128, np.uint32)
    return RoutingPlan(3, ANALYSIS, GRID, (Space(0),), cells, version=version, replicas=replicas)


def test_a_plan_document_has_its_replicated_units() -> None:
    units = (
        ReplicatedUnit(CELL, None, (0, 2)),
        ReplicatedUnit(None, "flood", (2, 1)),
        ReplicatedUnit(COARSE, "flood", (0, 1, 2), sharded=True),
    )
    made = plan(*units)
    body = json.loads(json.dumps(made.to_dict()))
    assert body["replicas"] == [
        {"cell": CELL, "workers": [0, 2]},
        {"term": "flood", "workers": [2, 1]},
        {"cell": COARSE, "term": "flood", "workers": [0, 1, 2], "sharded": True},
    ]
    assert RoutingPlan.from_dict(body, ANALYSIS).replicas == units
    assert made.route != plan().route
    assert made.route != plan(*units[:2], dataclasses.replace(units[2], sharded=False)).route
    assert "replicas" not in plan().to_dict()  # its number is that of older versions
    assert [describe_unit(unit) for unit in units] == [
        "all terms in cell 37",
        "'flood' everywhere",
        "'flood' in cell 7 of level 1",
    ]


@pytest.mark.parametrize(
    ("unit", "why"),
    [
        ({"workers": [0, 1]}, "names neither a cell nor a term"),
        ({"cell": 128, "workers": [0, 1]}, "cell 128 is replicated, but the grid has no such cell"),
        ({"cell": 1 << 28 | 8, "workers": [0, 1]}, "no such cell"),
        ({"cell": 3 << 28, "workers": [0, 1]}, "no such cell"),
        ({"cell": -1, "workers": [0, 1]}, "no such cell"),
        ({"cell": "1", "workers": [0, 1]}, "'1' must be a whole number"),
        ({"cell": 1, "term": 2, "workers": [0, 1]}, "must be a text, got 2"),
        ({"cell": 1, "workers": [1]}, "at least two workers, each named once, got [1]"),
        ({"cell": 1, "workers": [1, 1]}, "each named once"),
        ({"cell": 1, "workers": [1, 3]}, "worker 3, but there are 3 workers"),
        ({"cell": 1, "workers": [1, True]}, "True must be a whole number"),
        ({"cell": 1, "wrokers": [1, 0]}, "unknown field 'wrokers'"),
        ({"cell": 1}, "'workers' is missing"),
        ({"cell": 1, "workers": [1, 0], "sharded": 1}, "sharded must be true or false, got 1"),
        ("flood", "'flood' is not a replicated unit"),
        ({"cell": 5, "workers": [0, 1]}, "cell 5 is replicated twice"),
    ],
)
def test_other_units_are_refused(unit: Any, why: str) -> None:
    body = plan().to_dict() | {"replicas": [{"cell": 5, "workers": [0, 1]}, unit]}
    with pytest.raises(PlanError) as error:
        RoutingPlan.from_dict(body, ANALYSIS)
    assert why in str(error.value)


def test_a_plan_replicates_no_more_units_than_the_limit() -> None:
    units = [ReplicatedUnit(None, f"w{i}", (0, 1)) for i in range(MAX_REPLICATED + 1)]
    assert len(plan(*units[1:]).replicas) == MAX_REPLICATED
    with pytest.raises(PlanError, match="4097 units are replicated, the limit is 4096"):
        plan(*units)


def test_units_are_compiled_with_the_salt_of_the_service() -> None:
    made = text_plan(ANALYSIS, GRID, 3, {"river": 0})
    made = dataclasses.replace(made, replicas=(ReplicatedUnit(None, "flood", (2, 1)),))
    analyzer = Analyzer(ANALYSIS)
    h1 = made.compile(analyzer)
    flood = analyzer.hash_terms(["flood"])
    everywhere = np.array([0, 77, COARSE], np.uint32)
    holder, place = h1.holders(everywhere, np.repeat(flood, 3)), np.arange(3, dtype=np.uint64)
    held = [h1.held_by(w, holder, np.repeat(flood, 3), place).tolist() for w in range(3)]
    assert held == [[False] * 3, [True] * 3, [True] * 3]


def test_a_worker_fetches_what_it_gains_by_replicas() -> None:
    """A box around the cells of the units that it comes to own, and, as others end, of those that
    may fall to it."""
    cell, coarse = ReplicatedUnit(CELL, None, (0, 1)), ReplicatedUnit(COARSE, "flood", (0, 2))
    word = ReplicatedUnit(None, "flood", (0, 1))
    before, after = plan(), plan(cell, coarse, version=2)
    assert changed_box(before, after, 0) is not None  # it may; the leaf says that it owned it
    west, south = -180 + 5 * 22.5, -90 + 2 * 22.5
    near = pytest.approx([west, south, west + 22.5, south + 22.5], abs=1e-8)
    assert changed_box(before, after, 1) == near
    world = [-180.0, -90.0, 180.0, 90.0]  # the last row and column end at a pole and at 180
    assert changed_box(before, after, 2) == pytest.approx([-180.0, 0.0, 180.0, 90.0], abs=1e-8)
    assert changed_box(before, plan(word, version=2), 1).tolist() == world  # type: ignore[union-attr]
    assert changed_box(before, plan(word, version=2), 2) is None
    assert changed_box(after, plan(coarse, version=2), 2) == near
    grown = ReplicatedUnit(CELL, None, (0, 1, 2))
    assert changed_box(plan(cell), plan(grown, version=2), 1) is None
    assert changed_box(plan(cell), plan(grown, version=2), 2) is not None
    assert changed_box(plan(cell), plan(cell, version=2), 1) is None


def test_a_worker_fetches_what_it_gains_of_sharded_units() -> None:
    """Those that join a group take from the others, who gain nothing; all gain what one leaves."""
    replicated, sharded = (ReplicatedUnit(CELL, None, (0, 1), kind) for kind in (False, True))
    grown = ReplicatedUnit(CELL, None, (2, 1, 0), sharded=True)

    def gains(before: RoutingPlan, after: RoutingPlan) -> list[int]:
        changed = dataclasses.replace(after, version=2)
        return [w for w in range(3) if changed_box(before, changed, w) is not None]

    assert gains(plan(replicated), plan(sharded)) == []
    assert gains(plan(sharded), plan(replicated)) == [0, 1]
    assert gains(plan(sharded), plan(grown)) == [2]
    assert gains(plan(grown), plan(sharded)) == [0, 1]
    assert gains(plan(sharded), plan(sharded)) == []
    assert gains(plan(sharded), plan()) == [0, 1, 2]  # of which the leaf has one
    assert gains(plan(), plan(sharded)) == [0, 1]
