"""The names of dropped queries that kept pairs still need."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.merger.forgotten import MAX_RECORDS, ForgottenNames
from ps2stream.merger.journal import MatchJournal
from ps2stream.merger.records import DeadNamesRecord
from ps2stream.protocol.frame import column_to_strings, strings_to_column
from ps2stream.protocol.messages.sessions import StreamDetach
from ps2stream.protocol.messages.updates import LedgerBatch
from ps2stream.protocol.rows import UpdateKind, no_queries
from tests.support.memory_log import MemoryLog
from tests.support.merging import (
    attach,
    credit,
    fill,
    inserts,
    named,
    release,
    rig,
)


def test_names_outlive_the_chapters_that_they_were_written_in() -> None:
    r = rig(chapter_bytes=1_500)
    r.send(inserts(1, [1, 2]), attach(2))
    fill(r, 0, 1, 2)
    names = [f"dead{i}" for i in range(30)]
    for i, name in enumerate(names):  # each is matched once, then deleted, at LSN 4 + 2 i
        lsn, at = 3 + 2 * i, 1 + i
        r.send(named(lsn, [(UpdateKind.INSERT, lsn, 1, name)]))
        r.send(release(4 * at, 4, lsn, [(0, lsn, 1), (0, 2, 2)]))
        r.send(named(lsn + 1, [(UpdateKind.DELETE, lsn, 1, name)], watermark=lsn + 1))
        r.send(credit(2, 1, 99, 0, max(r.clients[2].pairs)))
        r.tick(10)
        if i == 14:
            r.send(attach(1), credit(1, 1, 9, 0, 0))
            r.send(credit(1, 1, 10, 0, 10), StreamDetach(1, 1))
    r.restart()
    assert r.log.first > 0
    nothing = np.frombuffer(no_queries().encode(), np.uint8)
    r.send(LedgerBatch(1, 70, -1, 1, 70, nothing), attach(1, epoch=2))
    got = {number: pair[0] for number, pair in r.clients[1].pairs.items() if number > 10}
    assert got == {number: names[number - 1] for number in range(11, 31)}
    assert r.machine.names == 0


def dead(session: int, *handles: int, last: int = 9) -> DeadNamesRecord:
    n = len(handles)
    ids = strings_to_column(f"q{handle}" for handle in handles)
    return DeadNamesRecord(np.full(n, session), np.array(handles), np.full(n, last), *ids)


def names_of(names: ForgottenNames, *handles: int) -> list[str]:
    return column_to_strings(*names.of(np.array(handles)))


def test_names_are_found_in_the_record_that_has_them() -> None:
    names = ForgottenNames(MatchJournal(MemoryLog()))
    assert names.add(dead(1, 2, 9, 40))
    assert names.add(dead(1, 5, 7))  # within the bounds of the one before
    assert names_of(names, 7, 2, 40, 5, 9) == ["q7", "q2", "q40", "q5", "q9"]
    for unknown in (1, 3, 41):
        with pytest.raises(KeyError, match=f"no name for query {unknown}"):
            names_of(names, 2, unknown)


def test_a_full_log_takes_no_names() -> None:
    log = MemoryLog()
    names = ForgottenNames(MatchJournal(log))
    log.full = True
    assert not names.add(dead(1, 2))
    with pytest.raises(KeyError):
        names_of(names, 2)


def test_names_go_with_the_beginning_of_the_log() -> None:
    log = MemoryLog()
    names = ForgottenNames(MatchJournal(log))
    names.add(dead(1, 2))
    end = log.end
    names.add(dead(1, 3))
    names.drop_before(end)
    assert names_of(names, 3) == ["q3"]
    with pytest.raises(KeyError):
        names_of(names, 2)


def test_many_records_become_one_without_what_no_session_needs() -> None:
    log = MemoryLog()
    names = ForgottenNames(MatchJournal(log))
    for handle in range(MAX_RECORDS):
        names.add(dead(handle % 2, handle, last=handle))
    names.join_many(lambda session: 10)
    assert len(log.records) == MAX_RECORDS, "these are not too many"
    names.add(dead(0, 900, last=900))
    before = log.end
    names.join_many(lambda session: 10 if session else MAX_RECORDS)
    names.drop_before(before)  # so that what is found is in the new record
    kept = [*range(11, MAX_RECORDS, 2), 900]
    assert names_of(names, *kept) == [f"q{handle}" for handle in kept]
    for gone in (0, 9, 12):
        with pytest.raises(KeyError):
            names_of(names, gone)


def test_a_full_log_keeps_many_records_as_they_are() -> None:
    log = MemoryLog()
    names = ForgottenNames(MatchJournal(log))
    for handle in range(MAX_RECORDS + 1):
        names.add(dead(1, handle))
    log.full = True
    names.join_many(lambda session: 0)
    assert names_of(names, 0, MAX_RECORDS) == ["q0", f"q{MAX_RECORDS}"]
