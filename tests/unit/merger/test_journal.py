"""The match log as frames: what is read again, what must be synced, what a full log takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ps2stream.merger.journal import MatchJournal
from ps2stream.merger.records import CursorsRecord, PlacesRecord
from ps2stream.store.segments import SegmentLog
from tests.support.memory_log import MemoryLog


def places(session: int, rows: int = 1) -> PlacesRecord:
    return PlacesRecord(session, 0, np.arange(4 * rows))


def cursors() -> CursorsRecord:
    return CursorsRecord(*(np.array([n]) for n in (1, 2, 3)))


def test_records_come_back_as_they_were_written(tmp_path: Path) -> None:
    with SegmentLog.open(tmp_path) as log:
        journal = MatchJournal(log)
        at = [journal.append(places(session)) for session in range(3)]
        journal.sync()
        found = [journal.read(position or 0, PlacesRecord) for position in at]
        assert [record.session for record in found] == [0, 1, 2]
        assert found[2].row.tolist() == [0, 1, 2, 3]
        assert journal.end == log.end


def test_what_was_read_last_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(places(0).encode())
    monkeypatch.setattr("ps2stream.merger.journal.CACHE_BYTES", 2 * size)
    journal = MatchJournal(MemoryLog())
    at = [journal.append(places(session)) or 0 for session in range(3)]
    for i in (0, 1, 0, 1):
        assert journal.read(at[i], PlacesRecord).session == i
    assert journal.fetched == 2 * size
    journal.read(at[0], PlacesRecord)
    journal.read(at[2], PlacesRecord)  # takes the room of 1, which was read before 0
    assert journal.fetched == 3 * size
    journal.read(at[0], PlacesRecord)
    assert journal.fetched == 3 * size
    journal.read(at[1], PlacesRecord)
    assert journal.fetched == 4 * size


def test_a_record_that_is_larger_than_all_room_is_read_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ps2stream.merger.journal.CACHE_BYTES", 10)
    journal = MatchJournal(MemoryLog())
    position = journal.append(places(7, rows=100)) or 0
    assert len(journal.read(position, PlacesRecord).row) == 400


def test_only_what_must_last_asks_for_a_sync() -> None:
    log = MemoryLog()
    journal = MatchJournal(log)
    journal.append(cursors(), lasting=False)
    journal.sync()
    assert log.syncs == 0
    journal.append(cursors())
    journal.append(cursors(), lasting=False)
    assert journal.unsynced
    journal.sync()
    journal.sync()
    assert (log.syncs, log.synced) == (1, log.end)


def test_who_takes_over_a_sync_is_asked_once() -> None:
    journal = MatchJournal(MemoryLog())
    journal.append(cursors())
    assert [journal.hand_over(), journal.hand_over()] == [True, False]
    journal.append(cursors())
    assert journal.hand_over()


def test_a_full_log_takes_nothing_and_a_sync_is_to_show_whether_it_does_again() -> None:
    log = MemoryLog()
    journal = MatchJournal(log)
    log.full = True
    assert journal.append(cursors(), lasting=False) is None
    assert (log.end, journal.unsynced) == (0, True)
    log.full = False
    journal.sync()
    assert journal.append(cursors()) == 0


def test_a_record_of_another_kind_is_an_error() -> None:
    journal = MatchJournal(MemoryLog())
    position = journal.append(cursors()) or 0
    assert isinstance(journal.read(position, PlacesRecord, CursorsRecord), CursorsRecord)
    with pytest.raises(TypeError, match="found a CursorsRecord where a PlacesRecord is expected"):
        journal.read(position, PlacesRecord)


def test_a_log_is_durable_before_it_is_trimmed() -> None:
    log = MemoryLog()
    journal = MatchJournal(log)
    journal.append(cursors())
    kept = journal.append(cursors()) or 0
    journal.trim(kept)
    assert (log.first, log.synced, journal.unsynced) == (kept, log.end, False)
