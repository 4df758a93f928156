"""Loads of parts over periods, and the decisions about whole strategies."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ps2stream.planner.adjust.adjustment import PartMove
from ps2stream.planner.adjust.strategy import CoexistenceLimit, repartition
from ps2stream.planner.adjust.units import COUNTS, PartLoads, carried, smoothed
from ps2stream.routing.costs import Costs

DAY_MS = 24 * 3600 * 1000


def units(*rows: tuple[int, int, float, int]) -> PartLoads:
    """cell, worker, a number that all counts are multiples of, bytes."""
    cell, worker, number, held = zip(*rows, strict=True)
    counts = [np.array(number) * k for k in range(1, 6)]
    objects, queries, checks, inserts, deletes = counts
    return PartLoads.of(
        np.array(cell, np.uint32), np.array(worker, np.int32),
        objects, queries, checks, inserts, deletes, np.array(held, np.int64),
    )  # fmt: skip


def rows(found: PartLoads) -> list[tuple[int, int, float, int]]:
    for k, name in enumerate(COUNTS, 1):
        assert getattr(found, name) == pytest.approx(found.objects * k)
    columns = (found.cell, found.worker, found.objects, found.bytes)
    return list(zip(*(c.tolist() for c in columns), strict=True))


def test_units_are_by_cell_and_worker_and_each_once() -> None:
    found = units((9, 1, 2.0, 5), (2, 3, 1.0, 7), (9, 1, 4.0, 6), (9, 0, 1.0, 1))
    assert rows(found) == [(2, 3, 1.0, 7), (9, 0, 1.0, 1), (9, 1, 6.0, 11)]
    costs = Costs(c1=1000.0, c2=1.0, c3=10.0, c4=100.0)
    assert found.load(costs)[0] == 3 * 1000 + 1 + 4 * 10 + 5 * 100
    loads = found.loads(4, costs).tolist()
    assert loads == [3541.0, 6 * 3541.0, 0.0, 3541.0]


@pytest.mark.parametrize("name", [*COUNTS, "bytes"])
def test_counts_below_zero_are_refused(name: str) -> None:
    columns = dataclasses.asdict(units((1, 1, 1.0, 1)))
    for value in ([-1], [1, 2]):
        with pytest.raises(ValueError, match=name):
            PartLoads.of(**{**columns, name: np.array(value)})


def test_counts_are_smoothed_and_what_is_missing_decays() -> None:
    first = units((1, 0, 8.0, 100), (2, 0, 4.0, 50))
    assert smoothed(None, first) is first
    second = smoothed(first, units((1, 0, 4.0, 90), (3, 1, 2.0, 10)))
    assert rows(second) == [(1, 0, 6.0, 90), (2, 0, 2.0, 0), (3, 1, 1.0, 10)]
    quarter = smoothed(first, units((1, 0, 4.0, 90)), alpha=0.25)
    assert rows(quarter) == [(1, 0, 7.0, 90), (2, 0, 3.0, 0)]
    for _ in range(20):
        second = smoothed(second, units((1, 0, 4.0, 90)))
    ((*part, objects, held),) = rows(second)
    assert (part, round(objects, 3), held) == ([1, 0], 4.0, 90)
    with pytest.raises(ValueError, match="alpha must be above 0"):
        smoothed(first, first, alpha=0)


def test_what_is_known_of_a_part_goes_with_it() -> None:
    before = units((1, 0, 8.0, 100), (2, 0, 4.0, 50), (2, 1, 1.0, 10), (3, 0, 1.0, 4))
    moves = [
        PartMove(2, 0, 1, 50, 0.0, kind="merge"),
        PartMove(1, 0, 3, 25, 6.0, ("storm",), "split"),  # a quarter of its load 8 * 3
        PartMove(77, 0, 1, 9, 0.0),
    ]
    costs = Costs(c1=1.0, c2=0.0, c3=0.0, c4=0.0)
    assert rows(carried(before, moves, costs)) == [
        (1, 0, 6.0, 75), (1, 3, 2.0, 25), (2, 1, 5.0, 60), (3, 0, 1.0, 4),
    ]  # fmt: skip


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
