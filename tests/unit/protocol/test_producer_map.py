"""How many dispatchers there are, as records and as notes of a ledger."""

from __future__ import annotations

import pytest

from ps2stream.protocol.producer_map import ProducerMap, count_marked
from ps2stream.protocol.session_map import SessionMap, SessionMaps


def test_a_map_is_what_its_record_says() -> None:
    tables = SessionMaps(SessionMap.first(3))
    assert SessionMaps.of_record(tables.record()).producers is None
    for producers in (ProducerMap(7, 4, 2, 1), ProducerMap(9, 4, 4, 1)):
        found = SessionMaps.of_record(tables._replace(producers=producers).record())
        assert found.producers == producers
        assert (found.now.lsn, found.before) == (0, None)
        assert found.is_changing is producers.is_moving


def test_a_record_of_before_there_were_such_maps_is_read() -> None:
    """It lacks the last column."""
    record = bytearray(SessionMaps(SessionMap.first(1)).record().tobytes())
    fields, head, field = record[8], 16, 16
    shorter = record[: head + field * (fields - 1)] + record[head + field * fields :]
    shorter[8] = fields - 1
    found = SessionMaps.of_record(memoryview(bytes(shorter)))  # type: ignore[arg-type]
    assert found.producers is None
    assert found.now.mergers == 1


def test_only_the_new_number_is_left_at_the_end() -> None:
    first = ProducerMap.first(2)
    assert not first.is_moving
    grown = first.changed(3, 8)
    assert grown == ProducerMap(8, 3, 2, 2)
    assert grown.is_moving
    assert grown.finished() == ProducerMap(8, 3, 3, 2)
    assert grown.finished().changed(5, 11) == ProducerMap(11, 5, 3, 2)
    assert grown.summary == "3 2"


@pytest.mark.parametrize(("dispatcher", "sources"), [(0, {1}), (1, {0}), (2, {0, 1})])
def test_windows_may_come_from_all_others_of_before(dispatcher: int, sources: set[int]) -> None:
    grown = ProducerMap.first(2).changed(3, 8)
    assert grown.sources_of(dispatcher) == sources
    assert grown.finished().sources_of(dispatcher) == set()


def test_those_that_leave_count_until_they_have_left() -> None:
    shrunk = ProducerMap.first(4).changed(2, 8)
    assert shrunk.is_shrinking
    assert (shrunk.dispatchers, shrunk.counted, shrunk.summary) == (2, 4, "4 4")
    assert [shrunk.leaves(i) for i in range(5)] == [False, False, True, True, False]
    assert not any(shrunk.joins(i) for i in range(5))
    assert shrunk.sources_of(0) == {1, 2, 3}
    assert shrunk.sources_of(2) == set(), "it gains nothing"
    finished = shrunk.finished(left_out=70)
    assert (finished.counted, finished.summary, finished.left_out) == (2, "2 4", 70)
    assert not any(finished.leaves(i) for i in range(5))
    grown = finished.changed(3, 11)
    assert [grown.joins(i) for i in range(4)] == [False, False, True, False]
    assert grown.finished(left_out=50).left_out == 70


def test_marks_rise_from_record_to_record() -> None:
    shrunk = ProducerMap.first(4).changed(2, 8)
    grown = shrunk.finished().changed(3, 11)
    maps = [shrunk, shrunk.finished(), grown, grown.finished()]
    marks = [each.mark for each in maps]
    assert marks == sorted(set(marks))
    assert [count_marked(mark) for mark in marks] == [4, 2, 3, 3]
    assert count_marked(0) == 0


def test_a_map_of_before_dispatchers_could_leave_is_read() -> None:
    assert ProducerMap.of_column(ProducerMap(7, 4, 2, 1).column[:4]) == ProducerMap(7, 4, 2, 1)
