"""What an object log holds of validity: matches count only with the record that ends them, and
objects are written again so that the log may be trimmed."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.dispatcher import valid_log
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.protocol.log_records import QuarantineRecord, RetroRecord
from tests.support.ends import ANALYZER
from tests.support.memory_log import MemoryLog
from tests.support.valid_objects import objects

NONE = np.zeros(0, np.int64)


def part(number: int, batch: int) -> RetroRecord:
    none = np.zeros(0, np.uint8), NONE, np.zeros(0, np.uint32)
    return RetroRecord(number, batch, 5, *none, NONE, NONE, np.array([1]))


def found(memory: MemoryLog) -> list[int]:
    """The batches of matches that a restart releases."""
    return [record.batch for record in ObjectLog(memory).recover_found()]


def test_matches_count_only_with_the_record_behind_the_last_part() -> None:
    memory = MemoryLog()
    log = ObjectLog(memory)
    log.append_found(part(0, 10))
    log.append_found(part(1, 11))
    assert found(memory) == []
    log.append_found(part(0, 20))  # of the next incarnation, which begins anew
    log.validity.note(4, 0)  # a note of how far it has come
    assert found(memory) == []
    log.append_found(part(1, 21))
    log.validity.note(9, 0, parts=2)
    assert found(memory) == [20, 21]
    assert ObjectLog(memory).validity.done == 9
    log.progress(21)
    assert found(memory) == [21]


def test_an_attempt_that_found_nothing_more_leaves_the_former_out() -> None:
    memory = MemoryLog()
    log = ObjectLog(memory)
    log.append_found(part(0, 10))
    log.validity.note(9, 3)
    log.append_found(part(0, 30))
    log.validity.note(12, 3, parts=1)
    assert found(memory) == [30]
    assert ObjectLog(memory).validity.horizon == 3


def kept(memory: MemoryLog, limit: int = 1 << 20) -> dict[int, int]:
    """The end of each object after a restart, by offset."""
    window = ObjectLog(memory).recover_objects(limit, ANALYZER)
    columns = [(chunk.offset.tolist(), chunk.rows.until.tolist()) for chunk in window.chunks]
    assert all(len(chunk.rows.term_off) for chunk in window.chunks)
    return {at: end for offset, ends in columns for at, end in zip(offset, ends, strict=True)}


def test_objects_are_written_again_and_the_log_stays_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(valid_log, "REWRITE_BYTES", 2_000)
    monkeypatch.setattr(valid_log, "PIECE_BYTES", 200)
    memory = MemoryLog()
    log = ObjectLog(memory)
    window = log.recover_objects(1 << 20, ANALYZER)
    expected: dict[int, int] = {}
    most, offset = 0, 0
    for lsn in range(1, 400):
        lasting = lsn % 40 == 0
        rows = objects([("a", "flood", 10_000 + lsn if lasting else 0), ("b", "flood river", 0)])
        log.append(offset, lsn, rows)
        window.add(rows, np.arange(offset, offset + 2), np.full(2, lsn))
        if lasting:
            expected[offset] = 10_000 + lsn
        offset += 2
        log.progress(offset)
        if (spare := log.find_spare(memory.sync())) is not None:
            memory.trim(spare)
        most = max(most, memory.end - memory.first)
        if lsn % 50 == 0:
            assert kept(memory) == expected
    assert kept(memory) == expected
    assert most < 20_000  # of 150,000 that were written
    assert memory.end > 5 * most


def test_quarantined_objects_and_those_of_before_the_horizon_do_not_come_back() -> None:
    memory = MemoryLog()
    log = ObjectLog(memory)
    log.append(0, 1, objects([("a", "x", 100), ("b", "x", 200), ("c", "x", 0), ("d", "x", 300)]))
    assert kept(memory) == {0: 100, 1: 200, 3: 300}
    log.note(QuarantineRecord(3))
    log.validity.note(0, 100)
    assert kept(memory) == {1: 200}
    assert kept(memory, limit=0) == {}
