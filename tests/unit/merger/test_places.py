"""The places of backlogs that a match log holds, found as they were written."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.merger import fanout
from ps2stream.merger.backlog import BacklogPlace
from ps2stream.merger.places import FoundPlaces
from ps2stream.merger.records import MissingRecord, PlacesRecord
from tests.support.merging import (
    attach,
    credit,
    inserts,
    release,
    rig,
)


def test_a_long_backlog_is_found_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ps2stream.merger.backlog.BLOCK", 4)
    r = rig()
    r.send(inserts(1, [1, 2]), attach(1, batches=2))
    for b in range(0, 800, 4):
        r.send(release(b, 4, 2, [(0, 1, 1), (1, 1, 1), (1, 2, 2)]))
    r.send(credit(1, 1, 2, 0, 3))
    r.tick(10)
    for epoch in range(2, 5):
        end = r.log.end
        r.restart()
        assert r.log.end == end  # nothing of it is written again
        assert r.machine.held_bytes < 10_000
        r.send(inserts(1, [1, 2]), attach(1, epoch=epoch))
        assert sorted(r.clients[1].pairs) == list(range(1, 401))
    r.send(attach(2))
    assert sorted(r.clients[2].pairs) == list(range(1, 201))


def missing(*rows: tuple[int, int, int]) -> MissingRecord:
    """Rows of session, first and last."""
    return MissingRecord(*np.array(rows, np.int64).T)


def block(session: int, level: int, *rows: BacklogPlace) -> PlacesRecord:
    return PlacesRecord(session, level, np.array(rows, np.int64).ravel())


def test_rows_at_or_below_a_sessions_floor_are_dropped() -> None:
    found = FoundPlaces()
    found.add_missing(100, missing((1, 1, 5), (2, 1, 3)))
    found.add_missing(200, missing((1, 6, 6), (2, 4, 9)))
    rows = found.drop(np.array([1, 2]), np.array([5, 3]))
    assert rows.tolist() == [[1, 200, 6, 6, 0], [2, 200, 4, 9, 0]]
    again = found.drop(np.array([1, 2]), np.array([6, 8]))
    assert again.tolist() == [[2, 200, 4, 9, 0]]


def test_rows_are_sorted_by_session_and_number_whatever_their_order() -> None:
    found = FoundPlaces()
    found.add_missing(300, missing((2, 7, 7), (3, 1, 1)))
    found.add_missing(100, missing((2, 1, 6)))
    rows = found.drop(np.array([2, 3]), np.zeros(2, np.int64))
    assert rows[:, :3].tolist() == [[2, 100, 1], [2, 300, 7], [3, 300, 1]]


def test_the_bytes_of_a_matched_record_are_those_of_each_sessions_pairs() -> None:
    columns = np.array([0, 1], np.uint32), np.array([1, 2]), np.array([1, 2])
    record = fanout.matched(release(0, 2, 1, [(0, 1, 1), (1, 2, 2)]), *columns, 7)
    record.first[:] = [4, 9]
    found = FoundPlaces()
    found.add_matched(50, record)
    rows = found.drop(np.array([1, 2]), np.zeros(2, np.int64))
    one, two = fanout.bytes_of(record)
    assert rows.tolist() == [[1, 50, 4, 4, one], [2, 50, 9, 9, two]]


def test_blocks_take_the_place_of_their_rows_level_by_level() -> None:
    rows = [BacklogPlace(10 * i, i + 1, i + 1, 5) for i in range(6)]
    found = FoundPlaces()
    found.add_block(1_000, block(1, 0, *rows[:2]))
    found.add_block(1_100, block(1, 0, *rows[2:4]))
    above = [BacklogPlace(1_000, 1, 2, 10), BacklogPlace(1_100, 3, 4, 10)]
    found.add_block(1_200, block(1, 1, *above))
    found.add_block(1_300, block(2, 0, *rows[4:6]))  # of another session
    folded = found.fold_blocks(1, np.array(rows))
    assert folded == [(2, BacklogPlace(1_200, 1, 4, 20)), (0, rows[4]), (0, rows[5])]


def test_a_block_of_which_a_row_is_gone_is_not_used() -> None:
    rows = [BacklogPlace(10 * i, i + 1, i + 1, 5) for i in range(3)]
    found = FoundPlaces()
    found.add_block(1_000, block(1, 0, *rows[:2]))
    assert found.fold_blocks(1, np.array(rows[1:])) == [(0, rows[1]), (0, rows[2])]
    found.drop(np.array([1]), np.array([1]))
    assert found.fold_blocks(1, np.array(rows)) == [(0, row) for row in rows]


def test_many_rows_ask_to_be_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ps2stream.merger.places.FOLD", 4)
    found = FoundPlaces()
    for position in range(5):
        assert not found.is_large
        found.add_missing(position, missing((1, position + 1, position + 1)))
    assert found.is_large
    assert len(found.drop(np.array([1]), np.array([0]))) == 5
    assert not found.is_large
