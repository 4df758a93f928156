"""The plan that waits for the next start: what is kept, refused, and taken away."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ps2stream.errors import Unavailable
from ps2stream.protocol.frame import U8
from ps2stream.routing.plan import RoutingPlan, Space
from ps2stream.routing.plan_changes import PlanState, step_record
from ps2stream.routing.plan_states import PlanStep
from ps2stream.sequencer.pending_plan import PendingPlan, find_pending
from ps2stream.space.grid import Grid
from ps2stream.store.memory import MemoryStore
from tests.sim.hostile import ANALYSIS


def plan(version: int, grid: Grid, base: int = 1) -> RoutingPlan:
    cells = np.zeros(grid.size, np.uint32)
    return RoutingPlan(1, ANALYSIS, grid, (Space(0),), cells, version=version, base_version=base)


PRESENT = RoutingPlan(1, ANALYSIS, Grid(2, 2), (Space(0),), np.zeros(16, np.uint32))
NEW = plan(2, Grid(3, 3))


def encoded(body: RoutingPlan) -> U8:
    return np.frombuffer(json.dumps(body.to_dict()).encode(), np.uint8)


def test_the_last_plan_is_kept_until_it_is_withdrawn() -> None:
    store = MemoryStore()
    pending = PendingPlan(store)
    assert pending.version == 0
    for grid in (Grid(3, 3), Grid(4, 1)):
        assert not pending.request(encoded(plan(5, grid)), PlanState(PRESENT))
        kept = RoutingPlan.from_dict(json.loads(store.pending_plan()), ANALYSIS)
        assert (kept.grid, pending.version, PendingPlan(store).version) == (grid, 5, 5)
    pending.withdraw()
    assert (store.pending_plan(), pending.version, PendingPlan(store).version) == ("", 0, 0)
    pending.withdraw()  # of nothing


@pytest.mark.parametrize(
    ("data", "strategy", "why"),
    [
        (np.frombuffer(b"{", np.uint8), PlanState(PRESENT), "not JSON"),
        (np.frombuffer(b"{}", np.uint8), PlanState(PRESENT), "is missing"),
        (encoded(plan(4, Grid(3, 3), base=3)), PlanState(PRESENT), "derived from version 3"),
        (encoded(plan(4, Grid(3, 3), base=3)), PlanState(PRESENT), "plan --from-service"),
        (encoded(plan(2, Grid(2, 2))), PlanState(PRESENT), "is that of the service"),
        (encoded(NEW), PlanState(PRESENT, plan(2, Grid(2, 2)), begun=4), "is under way"),
    ],
)
def test_what_is_refused_leaves_the_earlier_plan(data: U8, strategy: PlanState, why: str) -> None:
    store = MemoryStore()
    pending = PendingPlan(store)
    pending.request(encoded(NEW), PlanState(PRESENT))
    before = store.pending_plan()
    assert why in pending.request(data, strategy)
    assert store.pending_plan() == before


def test_a_full_store_changes_nothing() -> None:
    store = MemoryStore()
    pending = PendingPlan(store)
    store.refusing = "full"
    with pytest.raises(Unavailable):
        pending.request(encoded(NEW), PlanState(PRESENT))
    assert pending.version == 0


def test_only_the_record_of_a_start_takes_the_plan_away() -> None:
    assert find_pending(PlanState(PRESENT).record()) == ""
    assert find_pending(PlanState(PRESENT).begin(NEW)) is None
    assert find_pending(step_record(PlanStep.FINISH)) is None
