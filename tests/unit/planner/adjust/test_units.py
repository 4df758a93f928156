"""Loads of parts over periods."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ps2stream.language.analyzer import Analyzer
from ps2stream.planner.adjust.adjustment import PartMove
from ps2stream.planner.adjust.units import COUNTS, PartLoads, carried, smoothed, units_of
from ps2stream.planner.load import worker_loads
from ps2stream.planner.partition import Partition, owners
from ps2stream.protocol.messages.loads import LoadReport
from ps2stream.routing.costs import Costs
from tests.support.adjustments import ANALYSIS, GRID, WORKERS, divided
from tests.support.measured import measured
from tests.support.statistics_of import words


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


def test_the_measured_twin_is_the_planners_cost_model() -> None:
    stats = words(GRID, np.random.default_rng(2), [1, 2, 60, 90], 300)
    plan = divided()
    loads = measured(stats, plan).loads(WORKERS, Costs())
    owner = owners(Partition(plan.leaves, plan.cells), stats, WORKERS, Analyzer(ANALYSIS))
    assert loads == pytest.approx(worker_loads(stats, owner, WORKERS, Costs()))


def report(worker: int, periods: int, rows: list[tuple[int, int, int]]) -> LoadReport:
    """Cells with their objects and queries; the other counts are multiples of the objects."""
    cell, objects, queries = (np.array(c, np.int64) for c in zip(*rows, strict=True))
    return LoadReport(worker, 1, periods, 1, 0, cell.astype(np.uint32), objects, 2 * objects,
                      3 * objects, 4 * objects, queries, 5 * queries)  # fmt: skip


def test_reports_of_several_periods_count_as_one() -> None:
    """What is stored is as of now; what was done is divided by the periods."""
    found = units_of([report(1, 2, [(7, 10, 3)]), report(0, 1, [(7, 4, 2), (2, 6, 1)])])
    columns = ("cell", "worker", *COUNTS, "bytes")
    told = [tuple(row) for row in zip(*(getattr(found, c).tolist() for c in columns), strict=True)]
    assert told == [
        (2, 0, 6.0, 1.0, 12.0, 18.0, 24.0, 5),
        (7, 0, 4.0, 2.0, 8.0, 12.0, 16.0, 10),
        (7, 1, 5.0, 3.0, 10.0, 15.0, 20.0, 15),
    ]


def test_definition_one_multiplies_over_all_cells_of_a_worker() -> None:
    found = units((1, 0, 2.0, 1), (2, 0, 3.0, 1), (9, 1, 1.0, 1))
    costs = Costs(c1=7.0, c2=1.0, c3=10.0, c4=100.0)
    # Objects 2 + 3, queries twice, inserts four times and deletes five times as many.
    assert found.definition1(3, costs).tolist() == [
        7 * 5 * 10 + 5 + 10 * 20 + 100 * 25, 7 * 1 * 2 + 1 + 10 * 4 + 100 * 5, 0.0,
    ]  # fmt: skip
    assert found.loads(3, costs)[0] == 7 * 3 * 5 + 5 + 10 * 20 + 100 * 25


def test_only_parts_of_the_base_level_can_move() -> None:
    found = units((1, 0, 1.0, 1), (1 << 28, 0, 2.0, 1), (3 << 28 | 1, 1, 3.0, 1))
    assert found.movable.tolist() == [True, False, False]
    assert rows(found.take(found.movable)) == [(1, 0, 1.0, 1)]
    assert len(found) == 3
