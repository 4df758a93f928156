"""How long a merger keeps what nobody takes: quotas, gaps, chapters, memory."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from ps2stream.merger.backlog import SessionBacklog
from ps2stream.merger.journal import MatchJournal
from ps2stream.merger.machine import MergerMachine
from ps2stream.merger.records import CheckpointRecord, CursorsRecord
from ps2stream.protocol.messages.objects import MatchBatch
from ps2stream.protocol.messages.sessions import StreamDetach
from ps2stream.protocol.messages.updates import LedgerBatch
from ps2stream.protocol.rows import UpdateKind, no_queries
from ps2stream.store.segments import SegmentLog
from tests.support.merging import (
    MANY,
    Rig,
    attach,
    credit,
    deliveries,
    inserts,
    named,
    one_batch,
    payload,
    rig,
)


def fill(r: Rig, start: int, batches: int, *sessions: int, pairs: int = 2) -> None:
    """Batches from this one on, each with so many pairs for the sessions; query s is of
    session s."""
    for b in range(4 * start, 4 * (start + batches), 4):
        r.send(*one_batch(b, [(i, s, s) for s in sessions for i in range(pairs)], 2))


def test_a_backlog_beyond_the_quota_ends_in_a_gap() -> None:
    r = rig(session_quota_bytes=2_000)
    r.send(inserts(1, [1, 2]))
    fill(r, 0, 2, 2, pairs=1)
    fill(r, 2, 50, 1)
    assert r.machine.backlog_bytes <= 2_200
    r.restart()
    r.send(inserts(1, [1, 2]), attach(1), attach(2))
    slow, other = r.clients[1], r.clients[2]
    [(first, last, count)] = slow.gaps
    assert (first, count) == (1, last)
    assert slow.batches[0].HasField("gap")
    assert max(slow.pairs) == 100
    assert slow.gapless()
    assert len(slow.pairs) > 10
    assert other.gapless()
    assert not other.gaps
    assert len(other.pairs) == 2


def test_gaps_that_meet_are_one() -> None:
    r = rig(session_quota_bytes=1_000)
    r.send(inserts(1, [1, 2]), attach(1, batches=1))
    fill(r, 0, 20, 1)
    r.send(credit(1, 1, 1, 0, 2))
    [(first, last, _)] = r.clients[1].gaps
    assert first == 3
    fill(r, 20, 20, 1)
    r.send(attach(1, epoch=2, batches=1))
    assert r.clients[1].gaps[1][0] == 3
    assert r.clients[1].gaps[1][1] > last
    fill(r, 40, 20, 1)
    r.send(credit(1, 2, MANY, 0, 0))  # what was told is not told again in this stream
    assert r.clients[1].gaps[2][0] == r.clients[1].gaps[1][1] + 1
    assert r.clients[1].gapless()
    assert max(r.clients[1].pairs) == 120


def test_an_entry_larger_than_the_quota_is_announced_too() -> None:
    r = rig(session_quota_bytes=10)
    r.send(inserts(1, [1, 2]))
    fill(r, 0, 1, 1)
    r.send(attach(1))
    assert r.clients[1].gaps == [(1, 2, 2)]
    fill(r, 1, 1, 1)  # sent at once
    assert r.clients[1].gapless()
    assert sorted(r.clients[1].pairs) == [3, 4]


def test_sent_but_no_longer_held_is_a_gap_only_after_a_reconnect() -> None:
    r = rig(session_quota_bytes=2_000)
    r.send(inserts(1, [1, 2]), attach(1))
    fill(r, 0, 50, 1, pairs=1)
    client = r.clients[1]
    assert len(client.pairs) == 50
    assert not client.gaps
    assert r.machine.backlog_bytes <= 2_200
    r.send(credit(1, 1, 0, 0, 10), StreamDetach(1, 1))
    before = len(client.batches)
    r.send(attach(1, epoch=2))
    [(first, last, count)] = client.gaps
    assert (first, count) == (11, last - 10)
    assert {b.session_seq for b in client.batches[before + 1 :]} == set(range(last + 1, 51))


def test_what_was_lost_and_acknowledged_is_no_gap() -> None:
    r = rig(session_quota_bytes=2_000)
    r.send(inserts(1, [1, 2]), attach(1))
    fill(r, 0, 50, 1, pairs=1)
    r.send(credit(1, 1, 0, 0, 50), attach(1, epoch=2))
    fill(r, 50, 1, 1, pairs=1)
    assert not r.clients[1].gaps
    assert sorted(r.clients[1].pairs) == list(range(1, 52))


@pytest.mark.parametrize(
    "limits", [{"retention_bytes": 12_000}, {"retention_ms": 20_000}], ids=["bytes", "age"]
)
def test_the_oldest_chapter_goes_and_who_needs_it_has_a_gap(limits: dict[str, int]) -> None:
    r = rig(chapter_bytes=3_000, **limits)
    r.send(inserts(1, [1, 2, 3]), attach(2))
    fill(r, 0, 1, 3)
    for at in range(1, 200):
        fill(r, at, 1, 1, 2)
        r.send(credit(2, 1, at, 0, max(r.clients[2].pairs)))
        r.tick(10, ms=100)
    assert r.log.bytes < 24_000
    r.restart()
    r.send(inserts(1, [1, 2, 3]), attach(1, epoch=2), attach(2, epoch=2), attach(3, epoch=2))
    slow, quick, idle = (r.clients[s] for s in (1, 2, 3))
    [(first, _, _)] = slow.gaps
    assert first == 1
    assert len(slow.pairs) > 20
    assert max(slow.pairs) == 2 * 199
    assert slow.gapless()
    assert not quick.gaps
    assert idle.gaps == [(1, 2, 2)]
    assert not idle.pairs


def test_what_is_acknowledged_is_forgotten_but_not_what_was_done() -> None:
    r = rig(chapter_bytes=2_000)
    r.send(inserts(1, [1, 2]), attach(1))
    for at in range(100):
        fill(r, at, 1, 1)
        r.send(credit(1, r.clients[1].epoch, at, 0, max(r.clients[1].pairs)))
        r.tick(10)
        if at % 5 == 4:  # what went is acknowledged for good
            r.restart()
            r.send(inserts(1, [1, 2]), attach(1, epoch=at))
    assert r.log.bytes < 6_000
    kinds = [data[6] == CheckpointRecord.KIND for data in r.log.records.values()]
    assert kinds[0]  # all before a checkpoint went
    r.restart()
    r.done.clear()
    r.send(inserts(1, [1, 2]), attach(1, epoch=100))
    for at in range(0, 100, 9):
        r.send(payload(4 * at, 4, 2, attempt=1))
    assert r.done == [(0, 4 * at) for at in range(0, 100, 9)]
    fill(r, 100, 1, 1)
    assert sorted(r.clients[1].pairs) == list(range(1, 203))
    assert r.clients[1].repeats == 0


def test_what_one_acknowledgement_lets_go_is_acknowledged_for_good() -> None:
    r = rig(chapter_bytes=1_000)
    r.send(inserts(1, [1, 2]), attach(1))
    for at in range(30):
        fill(r, at, 1, 1)
        r.tick(10)
    r.send(credit(1, 1, 30, 0, 59))
    r.tick(10)
    assert r.log.bytes < 2_000
    r.restart()
    r.send(inserts(1, [1, 2]), attach(1, epoch=2))
    assert r.clients[1].repeats == 1


def test_a_gap_is_not_told_before_it_is_written() -> None:
    r = rig(session_quota_bytes=1_000)
    r.send(inserts(1, [1, 2]), attach(1, batches=0))
    r.log.refused = {CursorsRecord.KIND}
    fill(r, 0, 20, 1)
    r.send(credit(1, 1, 9, MANY, 0))
    assert not r.clients[1].batches
    r.restart()  # nothing of it is known
    assert r.machine.backlog_bytes > 1_000
    r.log.refused = {CursorsRecord.KIND}
    fill(r, 20, 1, 1)
    r.send(inserts(1, [1, 2]), attach(1, epoch=2))
    assert not r.clients[1].batches
    r.log.refused.clear()
    r.tick()
    assert r.clients[1].gaps
    assert r.clients[1].gapless()
    assert max(r.clients[1].pairs) == 42


def test_names_outlive_the_chapters_that_they_were_written_in() -> None:
    r = rig(chapter_bytes=1_500)
    r.send(inserts(1, [1, 2]), attach(2))
    fill(r, 0, 1, 2)
    names = [f"dead{i}" for i in range(30)]
    for i, name in enumerate(names):  # each is matched once, then deleted, at LSN 4 + 2 i
        lsn, at = 3 + 2 * i, 1 + i
        r.send(named(lsn, [(UpdateKind.INSERT, lsn, 1, name)]))
        r.send(*one_batch(4 * at, [(0, lsn, 1), (0, 2, 2)], lsn))
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


def test_a_thousand_stalled_sessions_take_little_memory(tmp_path: Path) -> None:
    """64 KiB each is promised (contract.md 6): sent some, out of credits, much behind."""
    sessions, pairs, batches = 1_000, 2, 120
    row = np.repeat(np.arange(pairs, dtype=np.uint32), sessions)
    handle = np.tile(np.arange(1, sessions + 1), pairs)
    with SegmentLog.open(tmp_path) as log:
        machine = MergerMachine(0, 1, 1, log)

        def publish(batch: int) -> None:
            answer = MatchBatch(0, 0, 4 * batch, 0, row, handle, handle - 1)
            machine.on_many([payload(4 * batch, 4, sessions, text="x" * 500), answer])
            machine.sync()
            machine.tick(100 * batch)

        machine.on(inserts(1, range(sessions)))
        machine.on_many([attach(s, batches=3) for s in range(sessions)])
        publish(0)
        gc.collect()
        tracemalloc.start()
        try:
            for batch in range(1, batches):
                publish(batch)
            gc.collect()
            grown, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert machine.backlog_bytes > sessions * batches * 1_000
        assert grown < 16_000 * sessions
        assert grown < 1.3 * machine.held_bytes + 1_000_000  # which counts honestly
        out = machine.on_many([credit(7, 1, 3, MANY, 0), credit(8, 1, 1 << 20, MANY, 0)])
        assert sum(d.session == 8 for d in deliveries(out)) == batches - 3


def test_a_backlog_of_a_day_takes_no_more_memory_than_one_of_minutes(tmp_path: Path) -> None:
    with SegmentLog.open(tmp_path) as log:
        backlog = SessionBacklog(1, MatchJournal(log))
        for i in range(200_000):
            backlog.append(i, i + 1, i + 1, 10)
        assert backlog.held_bytes < 40_000
        backlog.drop(100_000)
        place = backlog.oldest
        assert place is not None
        assert (place.position, backlog.size) == (100_000, 1_000_000)
        assert backlog.held_bytes < 50_000


def test_names_of_a_stream_without_credits_are_told_again() -> None:
    r = rig()
    many = range(1, 2_001)
    r.send(inserts(1, [1] * 2_000), attach(1, batches=1))
    r.send(*one_batch(0, [(0, h, 1) for h in many], 2_000))
    r.send(*one_batch(4, [(0, h, 1) for h in many], 2_000))
    before = r.machine.held_bytes
    r.tick(10)
    assert r.machine.held_bytes < before - 16_000
    r.clients[1].names.clear()
    r.send(credit(1, 1, 1, MANY, 0))
    assert len(r.clients[1].pairs) == 4_000
    assert r.clients[1].gapless()
