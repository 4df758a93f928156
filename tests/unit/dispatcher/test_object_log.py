"""The object log: offsets, what is sent again after a restart, and what may go."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ps2stream.dispatcher import object_log
from ps2stream.dispatcher.gateway import AcceptedBatch, PublicationIdentity
from ps2stream.dispatcher.object_log import LEAP, ObjectLog, analyse_again
from ps2stream.errors import Unavailable
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.protocol.frame import I64, U8, column_to_strings, strings_to_column
from ps2stream.protocol.log_records import ProducerRecord, QuarantineRecord, SplitRecord
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


def test_a_batch_comes_back_with_the_terms_that_the_log_does_not_have() -> None:
    analyzer = Analyzer(Analysis(salt=3))
    texts = strings_to_column(["pizza in rome", "", "Pizza"])
    whole = dataclasses.replace(
        rows(3), text_off=texts[0], text=texts[1], **terms_of(analyzer, *texts)
    )
    memory = MemoryLog()
    log = ObjectLog(memory)
    log.append(0, 5, whole)
    log.note(SplitRecord(1))
    found = ObjectLog(memory).recover()
    assert [len(ObjectRows.decode(r.rows.data).term) for r in found] == [0, 0]
    again = [analyse_again(record, analyzer) for record in found]
    assert [(r.batch, r.lsn) for r in again] == [(0, 5), (1, 5)]
    joined = ObjectRows.concat([ObjectRows.decode(r.rows.data) for r in again])
    assert joined.encode() == whole.encode()


def terms_of(analyzer: Analyzer, off: I64, text: U8) -> dict[str, Any]:
    """The columns of the terms of texts."""
    return dict(zip(("term_off", "term"), analyzer.analyse(off, text), strict=True))


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


def identified(log: ObjectLog, batch: int, *names: str) -> None:
    """A batch with a publication of one row of each of these producers, whose seqs are `batch`."""
    parts = [(PublicationIdentity(name, batch + 1, bytes(16)), 1) for name in names]
    log.append_identified(batch, 5, rows(len(names)), parts, 0.0)


def remembered(log: MemoryLog) -> list[tuple[str, list[int]]]:
    """The seqs of each producer after a restart."""
    found = ObjectLog(log, 3).windows.make_records()
    return sorted(
        (record.producer.tobytes().decode(), sorted(record.entries.reshape(-1, 6)[:, 0].tolist()))
        for record in found
    )


def test_batches_with_identities_come_back_like_others_and_are_remembered() -> None:
    memory, log = logged(2)
    identified(log, 2, "a", "b")
    log.append(4, 5, rows(1))
    assert recovered(memory) == [(0, ["0", "1"]), (2, ["0", "1"]), (4, ["0"])]
    assert remembered(memory) == [("a", [3]), ("b", [3])]
    answer = ObjectLog(memory, 3).windows.find(PublicationIdentity("b", 3, bytes(16)))
    assert answer == AcceptedBatch(3, 3, 5)
    assert remembered(memory.crashed()) == []


def test_trimming_forgets_no_publication(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_log, "WINDOWS_BYTES", 3_000)
    memory, log = logged()
    identified(log, 0, "rare")
    for batch in range(1, 200):
        identified(log, batch, "a")
        log.progress(batch + 1)
        if (spare := log.find_spare(memory.sync())) is not None:
            memory.trim(spare)
        assert remembered(memory) == [("a", list(range(2, batch + 2))), ("rare", [1])]
    assert memory.first > 0, "something was trimmed"
    assert memory.bytes < 70_000, "the windows are written now and then, not with each note"


def test_trimming_does_not_forget_that_a_dispatcher_has_joined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(object_log, "WINDOWS_BYTES", 3_000)
    memory, log = logged()
    identified(log, 0, "before it left")
    log.forget_windows(7)
    for batch in range(1, 100):
        identified(log, batch, "a")
        log.progress(batch + 1)
        if (spare := log.find_spare(memory.sync())) is not None:
            memory.trim(spare)
        assert ObjectLog(memory).joined_at == 7
        assert remembered(memory) == [("a", list(range(2, batch + 2)))]
    again = ObjectLog(memory)
    again.forget_windows(9)  # it has left, and joins again
    assert (ObjectLog(memory).joined_at, remembered(memory)) == (9, [])


def test_windows_that_find_no_room_keep_what_they_come_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(object_log, "WINDOWS_BYTES", 0)
    memory, log = logged()
    identified(log, 0, "a", "b")
    memory.refused = {ProducerRecord.KIND}
    for _ in range(2):
        with pytest.raises(Unavailable):
            log.progress(2)
        assert log.find_spare(memory.sync()) is None
    memory.refused.clear()
    assert log.progress(2)
    assert log.find_spare(memory.synced) is None, "the windows are not yet durable"
    spare = log.find_spare(memory.sync())
    assert spare is not None
    memory.trim(spare)
    assert remembered(memory) == [("a", [1]), ("b", [1])]
    assert recovered(memory) == []
