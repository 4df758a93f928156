"""A merger that starts again on its match log."""

from __future__ import annotations

import dataclasses

import numpy as np

from ps2stream.dispatcher.gathering import ReleaseHead, gather_matches
from ps2stream.merger.journal import MatchJournal
from ps2stream.merger.records import MatchedRecord
from ps2stream.merger.recovery import recover
from ps2stream.protocol.frame import column_to_strings, decode, strings_to_column
from ps2stream.protocol.messages.objects import WatermarkNotice
from ps2stream.protocol.messages.updates import LedgerBatch, NamesKept
from ps2stream.protocol.rows import UpdateKind, no_queries
from ps2stream.protocol.session_map import SessionMap
from tests.support.memory_log import MemoryLog
from tests.support.merging import (
    attach,
    credit,
    inserts,
    named,
    release,
    rig,
    three_batches,
)
from tests.support.routers import answer
from tests.support.routing import object_rows


def test_numbers_go_on_and_what_was_not_acknowledged_comes_again() -> None:
    r = three_batches()
    r.send(credit(1, 1, 1, 0, 3))
    r.tick(10)
    r.restart()
    r.send(attach(1, epoch=2))
    client = r.clients[1]
    assert (client.attached[-1].last, client.attached[-1].acked) == (6, 3)
    assert client.repeats == 0  # names are not known yet
    r.send(inserts(1, [1, 2]))
    assert client.repeats == 3
    r.send(release(12, 4, 2, [(0, 1, 1)]), attach(2))
    assert sorted(client.pairs) == list(range(1, 8))
    assert sorted(r.clients[2].pairs) == [1, 2, 3]


def test_what_was_acknowledged_just_before_an_orderly_end_does_not_come_again() -> None:
    r = three_batches()
    r.send(credit(1, 1, 1, 0, 6))
    r.machine.end()
    r.machine.sync()
    r.restart()
    r.send(attach(1, epoch=2), inserts(1, [1, 2]))
    assert (r.clients[1].attached[-1].acked, r.clients[1].repeats) == (6, 0)


def test_what_was_not_synced_is_done_again() -> None:
    r = three_batches()
    r.machine.on_many([release(12, 4, 2, [(3, 1, 1)])])  # nothing of this leaves
    for torn in (0, 1):
        r.restart(torn)
        r.send(inserts(1, [1, 2]), attach(1, epoch=2 + torn))
        r.kept.clear()
        r.send(release(12, 4, 2, [(2, 1, 1), (3, 1, 1)]))
        assert r.kept == [(0, 12)]
    assert sorted(r.clients[1].pairs) == list(range(1, 9))
    assert [r.clients[1].pairs[n][3] for n in (7, 8)] == [14, 15]


def test_what_is_opaque_is_in_the_log_and_still_there_after_a_restart() -> None:
    """Of each object that has a new pair, and only of these."""
    rows = object_rows([0.0] * 4, [0.0] * 4, [(7,)] * 4)
    opaque = ["zero", "", "two", "three"]
    off, data = strings_to_column(opaque)
    rows = dataclasses.replace(rows, opaque_off=off, opaque=data)
    head = ReleaseHead(0, 0, 4, 0, 0, 1, 1, 0, 0, 0)
    [(_, part)] = gather_matches(
        rows, [answer(0, 0, (2, 1, 1), mergers=1)], [1], head, SessionMap.first(1)
    )
    found = answer(1, 0, (0, 1, 1), (2, 1, 1), (3, 1, 1), mergers=1)
    [(_, rest)] = gather_matches(rows, [found], [1], head._replace(release=2), SessionMap.first(1))
    r = rig()
    r.send(inserts(1, [1]), *(decode(each.encode()) for each in (part, rest)))
    r.send(release(4, 1, 1, [(0, 1, 1)]))  # which has none
    for _ in range(2):
        records = [decode(record) for _, record in r.log.scan()]
        kept = [
            column_to_strings(each.opaque_off, each.opaque) if len(each.opaque_off) else None
            for each in records
            if isinstance(each, MatchedRecord)
        ]
        assert kept == [["two"], ["zero", "three"], None]
        r.restart()
    r.send(inserts(1, [1]), attach(1))
    assert [pair[1] for pair in r.clients[1].pairs.values()] == ["o2", "o0", "o3", "o4"]


def test_done_batches_stay_done_whole_or_in_parts() -> None:
    r = three_batches()
    r.restart()
    r.send(inserts(1, [1, 2]), attach(1, epoch=2))
    r.kept.clear()
    for start, size in ((0, 2), (6, 2), (0, 12)):
        r.send(release(start, size, 2, [(0, 1, 1), (1, 1, 1)]))
    assert r.kept == [(0, 0), (0, 6), (0, 0)]
    # Whole, after a half of it: what is new counts.
    r.send(release(12, 2, 2, [(0, 1, 1)]))
    r.send(release(12, 4, 2, [(0, 1, 1), (3, 1, 1)]))
    assert [r.clients[1].pairs[n][3] for n in (7, 8)] == [12, 15]
    assert sorted(r.clients[1].pairs) == list(range(1, 9))


def test_a_cursor_counts_across_a_restart() -> None:
    r = three_batches()
    r.restart()
    r.send(attach(1, epoch=2, ack=5), attach(2, epoch=2, ack=4), inserts(1, [1, 2]))
    assert r.clients[1].repeats == 1
    assert [(a.refused, a.last) for a in r.clients[2].attached] == [(1, 3)]


def test_names_that_the_ledger_has_forgotten_are_kept_with_their_pairs() -> None:
    r = three_batches()
    r.send(
        named(3, [(UpdateKind.DELETE, 1, 1, "q1"), (UpdateKind.DELETE, 2, 2, "q2")]),
        WatermarkNotice(0, 4),
    )
    r.send(attach(2))
    r.send(credit(2, 1, 9, 0, 3))
    r.tick(10)
    assert r.machine.names == 0
    kept = [f for f in r.others if isinstance(f, NamesKept)]
    assert [f.lsn for f in kept] == [4]
    r.restart()
    r.send(LedgerBatch(1, 9, -1, 1, 9, np.frombuffer(no_queries().encode(), np.uint8)))
    r.send(attach(1, epoch=2), attach(2, epoch=2))
    assert r.clients[1].repeats == 6
    assert r.clients[2].repeats == 0


def test_a_full_disk_holds_batches_back_and_goes_on_delivering() -> None:
    r = three_batches()
    r.log.full = True
    r.kept.clear()
    r.send(attach(2), release(12, 4, 2, [(0, 1, 1)]), release(8, 4, 2, [(0, 1, 1)]))
    assert r.kept == [(0, 8)]  # which it had before
    assert len(r.clients[2].pairs) == 3
    r.send(credit(1, 1, 6, 0, 6))
    r.tick(10)
    assert r.kept == [(0, 8)]
    r.log.full = False
    r.tick(10)
    assert r.kept == [(0, 8), (0, 12)]
    assert sorted(r.clients[1].pairs) == list(range(1, 8))


def test_an_empty_log_has_no_sessions_and_begins_a_chapter() -> None:
    log = MemoryLog()
    found = recover(log, MatchJournal(log))
    assert (found.sessions, dict(found.windows), found.lsn) == ({}, {}, 0)
    assert [chapter.position for chapter in found.chapters] == [0]
