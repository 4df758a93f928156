"""The pauses of clients between two attempts."""

from __future__ import annotations

from ps2stream.client.failures import pause_before
from ps2stream.errors import ResourceExhausted, Unavailable


def test_who_is_away_is_tried_twice_a_second_and_who_is_full_less_often() -> None:
    away = [pause_before(Unavailable("away"), attempt, True) for attempt in range(12)]
    assert away == [0.05, 0.1, 0.2, 0.4] + 8 * [0.5]
    assert pause_before(Unavailable("away"), 3, False) is None
    full = ResourceExhausted("full", 1)
    assert [pause_before(full, attempt, False) for attempt in (0, 5, 20)] == [0.05, 1.6, 2.0]
    assert pause_before(ResourceExhausted("full", 3000), 20, False) == 3.0
