"""The sessions of a merger: room on the links, quotas, and what the log records of them."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.merger.machine import MergerMachine
from ps2stream.merger.records import CursorsRecord
from ps2stream.merger.subscribers import IDLE_NAMES
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.messages.sessions import DeliveryArrivals, StreamDetach
from ps2stream.store.segments import SegmentLog
from tests.support.merging import (
    MANY,
    Client,
    attach,
    credit,
    deliveries,
    fill,
    inserts,
    release,
    rig,
)


def test_streams_at_a_dispatcher_that_died_are_gone() -> None:
    r = rig(dispatchers=2)
    r.send(inserts(1, [1, 2]), attach(1), attach(2, dispatcher=1))
    assert r.machine.joined(Address("worker", 1)) == []
    assert r.machine.joined(Address("dispatcher", 1)) == []
    r.send(release(0, 4, 2, [(0, 1, 1), (0, 2, 2)]))
    assert len(r.clients[1].pairs) == 1
    assert not r.clients[2].pairs
    r.send(attach(2, epoch=2))
    assert len(r.clients[2].pairs) == 1


def test_no_more_is_on_its_way_to_a_dispatcher_than_the_link_holds() -> None:
    r = rig(link_bytes=600)
    r.send(inserts(1, [1, 2]), attach(1, fields=1), attach(2, fields=1))

    def sent() -> int:
        return sum(client.size for client in r.clients.values())

    for b in range(0, 80, 4):
        text = "x" * 100
        r.send(release(b, 4, 2, [(0, 1, 1), (1, 2, 2)], text=text))
    one = max(len(b.SerializeToString()) for c in r.clients.values() for b in c.batches) + 9
    assert 600 <= sent() < 600 + one
    assert not r.machine.busy
    r.send(DeliveryArrivals(0, sent()), DeliveryArrivals(0, 100))  # an old one says nothing
    assert 1200 <= sent() < 1200 + 2 * one
    r.tick(9)
    before = sent()
    r.tick(1)  # what was not told of is thought to be lost
    assert before < sent() < before + 600 + one
    r.machine.joined(Address("dispatcher", 0))
    r.send(attach(1, epoch=2, fields=1), attach(2, epoch=2, fields=1))
    for _ in range(40):
        r.send(DeliveryArrivals(0, sent()))
    for client in r.clients.values():
        assert client.gapless()
        assert len(client.pairs) == 20


def test_who_waits_for_the_link_is_not_forgotten_when_credits_come() -> None:
    r = rig(link_bytes=1)
    r.send(inserts(1, [1]), attach(1, batches=1))
    for b in range(0, 20, 4):
        r.send(release(b, 4, 1, [(0, 1, 1)]))
    assert len(r.clients[1].pairs) == 1
    r.send(credit(1, 1, 2, 0, 0))  # no room yet
    assert len(r.clients[1].pairs) == 1
    for _ in range(5):
        r.send(DeliveryArrivals(0, r.clients[1].size))
    assert len(r.clients[1].pairs) == 3


def test_a_backlog_beyond_the_quota_ends_in_a_gap() -> None:
    r = rig(session_quota_bytes=2_000)
    r.send(inserts(1, [1, 2]))
    fill(r, 0, 2, 2, pairs=1)
    fill(r, 2, 50, 1)
    assert r.machine.counters["backlog_bytes"] <= 2_200
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
    assert r.machine.counters["backlog_bytes"] <= 2_200
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


def test_a_gap_is_not_told_before_it_is_written() -> None:
    r = rig(session_quota_bytes=1_000)
    r.send(inserts(1, [1, 2]), attach(1, batches=0))
    r.log.refused = {CursorsRecord.KIND}
    fill(r, 0, 20, 1)
    r.send(credit(1, 1, 9, MANY, 0))
    assert not r.clients[1].batches
    r.restart()  # nothing of it is known
    assert r.machine.counters["backlog_bytes"] > 1_000
    r.log.refused = {CursorsRecord.KIND}
    fill(r, 20, 1, 1)
    r.send(inserts(1, [1, 2]), attach(1, epoch=2))
    assert not r.clients[1].batches
    r.log.refused.clear()
    r.tick()
    assert r.clients[1].gaps
    assert r.clients[1].gapless()
    assert max(r.clients[1].pairs) == 42


@pytest.mark.takes_turns
def test_a_thousand_stalled_sessions_take_little_memory(tmp_path: Path) -> None:
    """64 KiB each is promised (contract.md 6): sent some, out of credits, much behind."""
    sessions, pairs, batches = 1_000, 2, 120
    found = [(row, s + 1, s) for row in range(pairs) for s in range(sessions)]
    with SegmentLog.open(tmp_path) as log:
        machine = MergerMachine(0, 1, 1, log)

        def publish(batch: int) -> None:
            machine.on(release(4 * batch, 4, sessions, found, text="x" * 500))
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
        assert machine.counters["backlog_bytes"] > sessions * batches * 1_000
        assert grown < 16_000 * sessions
        assert grown < 1.3 * machine.held_bytes + 1_000_000  # which counts honestly
        out = machine.on_many([credit(7, 1, 3, MANY, 0), credit(8, 1, 1 << 20, MANY, 0)])
        assert sum(d.session == 8 for d in deliveries(out)) == batches - 3


def test_names_of_a_stream_without_credits_are_told_again() -> None:
    r = rig()
    many = range(1, 40_001, 64)  # so that no two are of one block
    assert 16 * len(many) > IDLE_NAMES
    r.send(inserts(1, [1] * 40_000), attach(1, batches=1))
    r.send(release(0, 4, 40_000, [(0, h, 1) for h in many]))
    r.send(release(4, 4, 40_000, [(0, h, 1) for h in many]))
    before = r.machine.held_bytes
    r.tick(10)
    assert r.machine.held_bytes < before - 16_000
    r.clients[1].names.clear()
    r.send(credit(1, 1, 1, MANY, 0))
    assert len(r.clients[1].pairs) == 2 * len(many)
    assert r.clients[1].gapless()


@pytest.mark.takes_turns
@settings(deadline=None, max_examples=100)
@given(st.data())
def test_slow_clients_miss_nothing_silently(data: st.DataObject) -> None:
    """Reconnects, small credits, small quotas: every number is a pair or in a gap."""
    r = rig(session_quota_bytes=data.draw(st.sampled_from([1, 500, 2_000, MANY])))
    r.send(inserts(1, [1, 1]))
    client = r.clients.setdefault(1, Client())
    epoch = total = acked = granted = 0
    for b in range(0, 4 * data.draw(st.integers(1, 25)), 4):
        match data.draw(st.sampled_from(["attach", "detach", "credit", "ack", "match", "match"])):
            case "attach":
                epoch += 1
                granted = 0
                r.send(attach(1, epoch, batches=data.draw(st.integers(0, 3))))
            case "detach":
                r.send(StreamDetach(1, epoch))
            case "credit":
                granted += 1
                r.send(credit(1, epoch, granted, 0, 0))
            case "ack":
                acked = max(acked, data.draw(st.integers(0, max(client.pairs, default=0))))
                r.send(credit(1, epoch, 0, 0, acked))
            case "match":
                pairs = [(i % 4, 1 + i % 2, 1) for i in range(data.draw(st.integers(1, 4)))]
                total += len(pairs)
                r.send(release(b, 4, 2, pairs))
    r.send(attach(1, epoch=epoch + 1))
    assert client.gapless()
    assert client.lost | client.pairs.keys() == set(range(1, total + 1))
    assert len(set(client.pairs.values())) == len(client.pairs)
