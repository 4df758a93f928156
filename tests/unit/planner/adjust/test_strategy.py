"""The decisions about whole plans: when to plan anew, and when the old one goes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ps2stream.planner.adjust.strategy import CoexistenceLimit, repartition
from ps2stream.protocol.messages.plan import PlanChangeReply
from ps2stream.routing.plan_changes import PlanState
from tests.support.adjustments import blocks

DAY_MS = 24 * 3600 * 1000


@pytest.mark.parametrize(
    ("now", "planned", "unmet", "reason"),
    [
        ([10, 10], [9, 9], False, "load"),
        ([10, 10], [9.1, 9], False, None),
        ([10, 30], [20, 20], False, None),
        ([10, 30], [20, 20], True, "balance"),
        ([0, 30], [15, 15], True, "balance"),
        ([10, 30], [8, 32], True, None),
        ([10, 12], [11, 11], True, None),
        ([0, 0], [0, 0], True, None),
    ],
)
def test_when_to_plan_anew(
    now: list[float], planned: list[float], unmet: bool, reason: str | None
) -> None:
    assert repartition(np.array(now, float), np.array(planned, float), 1.3, unmet) == reason


@pytest.mark.parametrize(
    ("old", "live", "age", "goes"),
    [(51, 1000, 0, False), (50, 1000, 0, True), (900, 1000, 7 * DAY_MS, True),
     (900, 1000, 7 * DAY_MS - 1, False), (0, 0, 0, True)],
)  # fmt: skip
def test_when_the_old_strategy_goes(old: int, live: int, age: int, goes: bool) -> None:
    assert CoexistenceLimit().due(old, live, age) == goes


@pytest.mark.parametrize(("fall", "reason"), [(0.19, "load"), (0.21, None)])
def test_the_share_by_which_the_load_must_fall_is_given(fall: float, reason: str | None) -> None:
    now, planned = np.array([10.0, 10.0]), np.array([8.0, 8.0])
    assert repartition(now, planned, 1.3, False, fall) == reason


@pytest.mark.parametrize(
    ("state", "old", "apart_for", "goes"),
    [
        (PlanState(blocks()), 0, 0, False),
        (PlanState(blocks(), apart=5), 1000, None, False),
        (PlanState(blocks(), apart=5), 1000, 7 * DAY_MS, True),
        (PlanState(blocks(), apart=5), 50, None, True),
        (PlanState(blocks(), apart=5, begun=9), 0, 7 * DAY_MS, False),  # the rest migrates already
    ],
)
def test_the_old_plan_goes_only_while_two_coexist(
    state: PlanState, old: int, apart_for: int | None, goes: bool
) -> None:
    told = {} if apart_for is None else {"apart_for": apart_for}
    none = np.zeros(0, np.uint8)
    raw = np.frombuffer(json.dumps(told).encode(), np.uint8)
    reply = PlanChangeReply(1, 2, 0, 1000, old, none, none, raw)
    assert CoexistenceLimit().due_by(state, reply) == goes
