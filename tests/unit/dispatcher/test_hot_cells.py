"""A dispatcher's report on a few cells: the newest objects there, and the units that they meet."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ps2stream.dispatcher import hot_cells
from ps2stream.dispatcher.reservoir import ObjectReservoir
from ps2stream.dispatcher.router import RouterMachine
from ps2stream.protocol.messages.loads import SampleReport, SampleRequest
from ps2stream.protocol.opaque import split_opaque
from tests.support.attributes import opaque_column
from tests.support.routers import EAST, GRID, insert, machine
from tests.support.routing import object_rows

WEST_CELL, EAST_CELL = GRID.cells(np.array([-20.0, 20.0]), np.zeros(2), 0).tolist()


def router() -> RouterMachine:
    """Two queries of term 7 and one of term 8 in the west, one of term 7 in the east."""
    found = machine()
    for lsn, term in enumerate((7, 7, 8), 1):
        found.on(insert(lsn, term=term))
    found.on(insert(4, box=EAST))
    return found


def told(reservoir: ObjectReservoir, *cells: int) -> SampleReport:
    ask = SampleRequest(3, 9, np.array(cells, np.uint32))
    on = router()
    return hot_cells.report(ask, 2, 5, reservoir, on.gridt, on.literals)


def units(report: SampleReport) -> list[tuple[int, int, int]]:
    columns = report.cell.tolist(), report.term.tolist(), report.queries.tolist()
    return sorted(zip(*columns, strict=True))


def test_only_what_is_in_the_requested_cells_is_told() -> None:
    reservoir = ObjectReservoir(100)
    reservoir.add(object_rows([-20.0, 20.0, -20.0], [0.0] * 3, [(7, 9), (7,), (7,)]), 40)
    west = told(reservoir, WEST_CELL)
    assert (west.dispatcher, west.epoch, west.number, west.route) == (2, 3, 9, 5)
    assert west.lon.tolist() == [-20.0, -20.0]
    assert units(west) == [(WEST_CELL, 7, 2)], "each once, and none without a query"
    both = told(reservoir, WEST_CELL, EAST_CELL)
    assert len(both.lon) == 3
    assert units(both) == sorted([(WEST_CELL, 7, 2), (EAST_CELL, 7, 1)])


def test_of_many_objects_the_newest_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot_cells, "OBJECTS", 3)
    reservoir = ObjectReservoir(100)
    for ms in range(1, 11):
        reservoir.add(object_rows([-20.0], [0.0], [(7,)]), ms)
    report = told(reservoir, WEST_CELL)
    assert report.accepted.tolist() == [8, 9, 10]
    assert report.since == 8


def test_texts_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    reservoir = ObjectReservoir(100)
    for ms in range(1, 11):
        reservoir.add(object_rows([-20.0], [0.0], [(7,)]), ms)  # a text of one byte
    monkeypatch.setattr(hot_cells, "TEXT_BYTES", 4)
    assert told(reservoir, WEST_CELL).accepted.tolist() == [7, 8, 9, 10]
    monkeypatch.setattr(hot_cells, "TEXT_BYTES", 0)
    nothing = told(reservoir, WEST_CELL)
    assert (len(nothing.lon), nothing.since, units(nothing)) == (0, 10, [])


def test_attributes_are_told_without_payloads_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    reservoir = ObjectReservoir(100)
    off, data = opaque_column([{"kind": "quake"}], b"\x0a\x03 \xff ")
    size = len(split_opaque(off, data, 1).attributes)
    for ms in range(1, 6):
        rows = object_rows([-20.0], [0.0], [(7,)])
        if ms > 1:
            rows = dataclasses.replace(rows, opaque_off=off, opaque=data)
        reservoir.add(rows, ms)
    report = told(reservoir, WEST_CELL)
    assert np.diff(report.attributes_off).tolist() == [0, size, size, size, size]
    monkeypatch.setattr(hot_cells, "TEXT_BYTES", 2 * (1 + len(data)))
    assert told(reservoir, WEST_CELL).accepted.tolist() == [4, 5]


def test_a_dispatcher_that_has_just_begun_has_nothing_to_tell() -> None:
    report = told(ObjectReservoir(100), WEST_CELL)
    assert (len(report.lon), len(report.cell), report.since) == (0, 0, 0)
