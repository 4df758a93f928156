"""What CI leaves out, for the sake of time: tests, and parts of them, that repeat what others play,
and on each day two thirds of those that take long.

`@pytest.mark.repeats("tests/...", ...)` names the tests, files or tests of a file, that play the
same path in CI. `@pytest.mark.takes_turns`, on a test or all of a file, has CI play it every third
day: what has it in a file is dealt to three turns, the cases of a parametrized test one by one.
`takes_turns(0)`, 1 or 2, says which turn: for what is too long to be dealt, and for tests that
share what is slow to make. `@pytest.mark.every_turn` excepts a test of a file.

CI_TURN, 0 to 2, is the turn; unless it is set, that of the day. Without CI=true all is played;
where CI is set, `CI= pytest FILE` does that.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar
from zlib import crc32

import pytest

T = TypeVar("T")
IS_SHORT = os.environ.get("CI", "").lower() == "true"
"""Whether this is CI."""
TURNS = 3
DAY_S = 86_400


def choose_first(values: Sequence[T], count: int) -> Sequence[T]:
    """Returns the first so many of these in CI, else all."""
    return values[:count] if IS_SHORT else values


def choose_turn(environment: Mapping[str, str], now: float) -> int:
    """Returns the turn that is asked for, else that of the day; now: seconds since the epoch."""
    asked = environment.get("CI_TURN") or str(int(now // DAY_S) % TURNS)
    if asked not in map(str, range(TURNS)):
        raise pytest.UsageError(f"CI_TURN is {asked}; expected 0 to {TURNS - 1}")
    return int(asked)


def keep_turn() -> int:
    """Returns the turn, which every process that this one starts has too, also beyond midnight."""
    turn = choose_turn(os.environ, time.time())
    os.environ["CI_TURN"] = str(turn)
    return turn


def deal(items: Sequence[pytest.Item]) -> list[int | None]:
    """Returns for each test its turn, or None if it is played on each day. How a file is dealt
    depends on no other file, so that a run of one file plays what a run of all plays of it."""
    dealt: Counter[str] = Counter()
    turns: list[int | None] = []
    for item in items:
        mark = item.get_closest_marker("takes_turns")
        if mark is None or item.get_closest_marker("every_turn"):
            turns.append(None)
        elif mark.args:
            [turn] = mark.args
            if turn not in range(TURNS):
                raise pytest.UsageError(
                    f"{item.nodeid} takes turn {turn}; there are 0 to {TURNS - 1}"
                )
            turns.append(turn)
        else:
            path = item.nodeid.partition("::")[0]
            turns.append((crc32(path.encode()) + dealt[path]) % TURNS)
            dealt[path] += 1
    return turns


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Takes from `items` what CI leaves out, if this is CI: tests that repeat others, and those of
    other turns."""
    if not IS_SHORT:
        return
    turn = keep_turn()
    found = [item for item in items if not item.get_closest_marker("repeats")]
    chosen = [item for item, its in zip(found, deal(found), strict=True) if its in (None, turn)]
    kept = set(chosen)
    if left := [item for item in items if item not in kept]:
        config.hook.pytest_deselected(items=left)
        items[:] = chosen


def describe() -> list[str]:
    """Returns what is to be told of what CI leaves out, in lines."""
    if not IS_SHORT:
        return []
    turn = f"CI: turn {keep_turn()} of 0 to {TURNS - 1} of the tests that take long"
    return [
        "CI: tests that repeat others are left out (docs/reliability.md)",
        f"{turn}; CI_TURN chooses, without CI all are played",
    ]
