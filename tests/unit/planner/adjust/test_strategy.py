"""The decisions about whole plans: when to plan anew, and when the old one goes."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.planner.adjust.strategy import CoexistenceLimit, repartition

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
