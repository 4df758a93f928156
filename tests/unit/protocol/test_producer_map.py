"""How many dispatchers there are, as records and as notes of a ledger."""

from __future__ import annotations

import pytest

from ps2stream.protocol.producer_map import ProducerMap
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
    grown = first.grown(3, 8)
    assert grown == ProducerMap(8, 3, 2, 2)
    assert grown.is_moving
    assert grown.finished() == ProducerMap(8, 3, 3, 2)
    assert grown.finished().grown(5, 11) == ProducerMap(11, 5, 3, 2)
    assert grown.summary == "3 2"


@pytest.mark.parametrize(("dispatcher", "sources"), [(0, {1}), (1, {0}), (2, {0, 1})])
def test_windows_may_come_from_all_others_of_before(dispatcher: int, sources: set[int]) -> None:
    grown = ProducerMap.first(2).grown(3, 8)
    assert grown.sources_of(dispatcher) == sources
    assert grown.finished().sources_of(dispatcher) == set()
