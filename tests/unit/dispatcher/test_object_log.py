"""The object log: offsets, what is sent again after a restart, and what may go."""

from __future__ import annotations

import pytest

from ps2stream.dispatcher.object_log import LEAP, ObjectLog
from ps2stream.protocol.frame import column_to_strings
from ps2stream.protocol.log_records import QuarantineRecord, SplitRecord
from ps2stream.protocol.rows import ObjectRows
from tests.support.desk import Desk, rows
from tests.support.memory_log import MemoryLog


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_no_offset_is_used_twice_though_nothing_was_logged(desk: Desk) -> None:
    used = desk.edge.publish(rows(3), durable=False).result(0).offset + 3
    for _ in range(3):
        log = ObjectLog(desk.log)  # as after a crash
        assert log.offset >= used
        log.reserve(log.offset + 7)
        used = log.offset + 7


def logged(*sizes: int) -> tuple[MemoryLog, ObjectLog]:
    """A log of batches of so many objects, of LSN 5."""
    memory = MemoryLog()
    log, batch = ObjectLog(memory), 0
    for size in sizes:
        log.append(batch, 5, rows(size))
        batch += size
    return memory, log


def recovered(log: MemoryLog) -> list[tuple[int, list[str]]]:
    """The offset and the ids of each batch that is sent again after a restart."""
    found = []
    for record in ObjectLog(log).recover():
        assert record.lsn == 5
        objects = ObjectRows.decode(record.rows.data)
        found.append((record.batch, column_to_strings(objects.id_off, objects.id)))
    return found


def test_batches_that_may_not_be_complete_come_back_in_order() -> None:
    memory, log = logged(3, 2, 1)
    assert [batch for batch, _ in recovered(memory)] == [0, 3, 5]
    assert log.progress(3)
    assert recovered(memory) == [(3, ["0", "1"]), (5, ["0"])]
    assert not log.progress(3)
    assert not log.progress(1)
    assert log.progress(6)
    assert recovered(memory) == []


def test_a_batch_comes_back_in_the_halves_that_were_sent_last() -> None:
    memory, log = logged(4, 2)
    log.note(SplitRecord(2))
    log.note(SplitRecord(1))
    assert recovered(memory) == [(0, ["0"]), (1, ["1"]), (2, ["2", "3"]), (4, ["0", "1"])]
    log.progress(2)
    assert recovered(memory) == [(2, ["2", "3"]), (4, ["0", "1"])]


def test_an_object_that_kills_does_not_come_back() -> None:
    memory, log = logged(3)
    log.note(QuarantineRecord(1))
    assert recovered(memory) == [(0, ["0"]), (2, ["2"])]


def test_a_crash_takes_what_was_not_synced_but_no_note() -> None:
    memory, log = logged(3)
    assert recovered(memory.crashed()) == []
    log.note(SplitRecord(1))
    log.append(3, 5, rows(1))
    assert [batch for batch, _ in recovered(memory.crashed())] == [0, 1]


def test_offsets_are_reserved_durably_and_many_at_a_time() -> None:
    memory, log = logged()
    log.reserve(7)
    log.reserve(LEAP)
    assert memory.syncs == 1
    log.reserve(LEAP + 8)
    assert memory.syncs == 2
    assert ObjectLog(memory.crashed()).offset >= LEAP + 8


def test_offsets_that_are_skipped_are_not_used_again() -> None:
    memory, log = logged()
    log.skip_offsets(900)
    assert (log.offset, ObjectLog(memory.crashed()).offset) == (900, 900)
    log.skip_offsets(20)
    assert (log.offset, ObjectLog(memory.crashed()).offset) == (900, 900)


def test_the_log_is_trimmed_once_it_is_durable_that_batches_are_complete() -> None:
    memory, log = logged(3, 2, 1)
    first = memory.first
    end = memory.end
    log.progress(3)
    assert log.find_spare(end) is None  # the note is behind it
    assert memory.first == first
    spare = log.find_spare(memory.end)
    assert spare is not None
    assert spare > first
    assert log.find_spare(memory.end) is None, "it is said once"
    memory.trim(spare)
    assert [batch for batch, _ in recovered(memory)] == [3, 5]
    log.progress(6)
    spare = log.find_spare(memory.sync())
    assert spare is not None
    memory.trim(spare)
    assert len(memory.records) == 1, "the note alone"
    assert recovered(memory) == []
