"""A merger's sessions: streams, credits, acknowledgements, cursors."""

from __future__ import annotations

import pytest

from ps2stream.merger import fanout
from ps2stream.merger.under_way import DeliveryAllowance
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.messages.sessions import DeliveryArrivals, StreamAttached, StreamDetach
from tests.support.merging import (
    MANY,
    attach,
    credit,
    deliveries,
    inserts,
    matches,
    one_batch,
    payload,
    rig,
)


def test_a_name_is_sent_once_a_stream() -> None:
    r = rig()
    r.send(inserts(1, [1, 1]), attach(1))
    r.send(*one_batch(0, [(0, 1, 1)], 2), *one_batch(4, [(0, 1, 1), (0, 2, 1)], 2))
    assert [list(b.new_handles) for b in r.clients[1].batches] == [[1], [2]]
    r.send(credit(1, 1, 0, 0, 3), attach(1, epoch=2), *one_batch(8, [(0, 2, 1)], 2))
    assert list(r.clients[1].batches[-1].new_handles) == [2]
    assert r.clients[1].closed == [1]
    assert r.clients[1].repeats == 0


def test_credits_are_totals_in_batches_and_bytes() -> None:
    r = rig()
    r.send(inserts(1, [1]), attach(1, batches=2))
    for b in range(0, 20, 4):
        r.send(*one_batch(b, [(0, 1, 1)], 1))
    client = r.clients[1]
    assert sorted(client.pairs) == [1, 2]
    for _ in range(2):  # a repeat grants nothing
        r.send(credit(1, 1, 1, 0, 0))
        assert sorted(client.pairs) == [1, 2, 3]
    r.send(credit(1, 9, 5, 5, 0))  # of another stream
    assert sorted(client.pairs) == [1, 2, 3]
    r.send(attach(1, epoch=2, batches=100, size=1))  # one batch may overdraw
    assert client.batches[-1].session_seq == 1
    r.send(credit(1, 2, 0, 1, 1))
    assert client.batches[-1].session_seq == 1
    r.send(credit(1, 2, 0, MANY, 1))
    assert sorted(client.pairs) == [1, 2, 3, 4, 5]
    assert client.gapless()
    assert not client.gaps


def test_what_was_not_acknowledged_comes_again_with_its_numbers() -> None:
    r = rig()
    r.send(inserts(1, [1]), attach(1))
    for b in range(0, 20, 4):
        r.send(*one_batch(b, [(0, 1, 1), (1, 1, 1)], 1))
    client = r.clients[1]
    r.send(credit(1, 1, 1, 1, 5), StreamDetach(1, 1), *one_batch(20, [(3, 1, 1)], 1))
    assert len(client.pairs) == 10
    r.send(attach(1, epoch=2))
    assert client.repeats == 5  # from the middle of a batch
    assert len(client.pairs) == 11
    assert client.gapless()
    r.send(credit(1, 2, 9, 9, 11))
    assert r.machine.backlog_bytes == 0


def test_every_attach_is_answered_and_opens_one_stream() -> None:
    r = rig()
    r.send(inserts(1, [1]), attach(1), *one_batch(0, [(0, 1, 1), (1, 1, 1)], 1))
    r.send(credit(1, 1, 1, 0, 1))
    out = r.send(attach(1))
    assert [frame for _, frame in out if not isinstance(frame, StreamAttached)] == []
    got = [(a.session, a.epoch, a.last, a.acked, a.refused) for a in r.clients[1].attached]
    assert got == [(1, 1, 0, 0, 0), (1, 1, 2, 1, 0)]


def test_a_stale_attach_is_closed_and_a_detach_may_overtake() -> None:
    r = rig()
    r.send(attach(1, epoch=5))
    r.send(attach(1, epoch=4))
    assert r.clients[1].closed == [4]
    assert deliveries(r.send(attach(1, epoch=5))) == []
    r.send(StreamDetach(1, 4), inserts(1, [1]), *one_batch(0, [(0, 1, 1)], 1))
    assert len(r.clients[1].pairs) == 1
    r.send(StreamDetach(1, 7), attach(1, epoch=7), *one_batch(4, [(0, 1, 1)], 1))
    assert r.clients[1].closed == [4, 7]
    assert len(r.clients[1].pairs) == 1


def test_an_attach_resumes_behind_its_cursor() -> None:
    r = rig()
    r.send(inserts(1, [1]))
    for b in range(0, 20, 4):
        r.send(*one_batch(b, [(0, 1, 1), (1, 1, 1)], 1))
    r.send(attach(1, ack=3))
    client = r.clients[1]
    assert sorted(client.pairs) == list(range(4, 11))
    assert client.attached[-1].acked == 3
    r.send(attach(1, epoch=2, ack=2))  # what is acknowledged stays so
    assert client.attached[-1].acked == 3
    assert client.repeats == 7
    assert len(client.pairs) == 7


def test_a_cursor_from_elsewhere_is_refused() -> None:
    r = rig()
    r.send(inserts(1, [1]), attach(1), *one_batch(0, [(0, 1, 1)], 1))
    for _ in range(2):
        [send] = r.send(attach(1, epoch=2, ack=2))
        assert isinstance(send.frame, StreamAttached)
        assert (send.frame.refused, send.frame.last) == (1, 1)
    r.send(*one_batch(4, [(0, 1, 1)], 1))  # the older stream goes on
    assert sorted(r.clients[1].pairs) == [1, 2]
    r.send(attach(1, epoch=2, ack=2))
    assert r.clients[1].attached[-1].refused == 0


def test_streams_at_a_dispatcher_that_died_are_gone() -> None:
    r = rig(dispatchers=2)
    r.send(inserts(1, [1, 2]), attach(1), attach(2, dispatcher=1))
    assert r.machine.joined(Address("worker", 1)) == []
    assert r.machine.joined(Address("dispatcher", 1)) == []
    r.send(*one_batch(0, [(0, 1, 1), (0, 2, 2)], 2))
    assert len(r.clients[1].pairs) == 1
    assert not r.clients[2].pairs
    r.send(attach(2, epoch=2))
    assert len(r.clients[2].pairs) == 1


def test_a_large_delivery_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "MAX_BYTES", 2_000)
    r = rig()
    r.send(inserts(1, [1] * 3), attach(1, fields=7, batches=4))
    pairs = [(row, h, 1) for row in range(30) for h in (1, 2, 3)]
    r.send(payload(0, 30, 3, text="x" * 500), matches(0, pairs))
    client = r.clients[1]
    assert len(client.batches) == 4
    r.send(credit(1, 1, 99, 0, 0))  # the rest is read back
    assert 10 <= len(client.batches) <= 12
    assert client.gapless()
    assert len(set(client.pairs.values())) == 90
    assert client.size / len(client.batches) < 4_000


def test_an_acknowledgement_of_what_is_not_numbered_yet_lets_nothing_go() -> None:
    r = rig()
    r.send(inserts(1, [1]), attach(1), *one_batch(0, [(0, 1, 1)], 1), credit(1, 1, 0, 0, 99))
    r.send(StreamDetach(1, 1), *one_batch(4, [(0, 1, 1)], 1), credit(1, 1, 0, 0, 0))
    r.send(attach(1, epoch=2))
    assert sorted(r.clients[1].pairs) == [1, 2]
    assert r.clients[1].gapless()


def test_an_acknowledgement_of_what_was_not_sent_lets_nothing_go() -> None:
    r = rig()
    r.send(inserts(1, [1]), attach(1, batches=1))
    for b in (0, 4, 8):
        r.send(*one_batch(b, [(0, 1, 1)], 1))
    r.send(credit(1, 1, 0, 0, 3))
    r.send(credit(1, 1, 9, 0, 3))
    assert sorted(r.clients[1].pairs) == [1, 2, 3]
    assert r.clients[1].gapless()


def test_no_more_is_on_its_way_to_a_dispatcher_than_the_link_holds() -> None:
    r = rig(link_bytes=600)
    r.send(inserts(1, [1, 2]), attach(1, fields=1), attach(2, fields=1))

    def sent() -> int:
        return sum(client.size for client in r.clients.values())

    for b in range(0, 80, 4):
        text = "x" * 100
        r.send(payload(b, 4, 2, text=text), matches(b, [(0, 1, 1), (1, 2, 2)]))
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
        r.send(*one_batch(b, [(0, 1, 1)], 1))
    assert len(r.clients[1].pairs) == 1
    r.send(credit(1, 1, 2, 0, 0))  # no room yet
    assert len(r.clients[1].pairs) == 1
    for _ in range(5):
        r.send(DeliveryArrivals(0, r.clients[1].size))
    assert len(r.clients[1].pairs) == 3


def test_what_is_on_its_way_to_another_incarnation_is_counted_anew() -> None:
    under_way = DeliveryAllowance(10)
    under_way.sent(0, 10)
    under_way.arrived(0, 10)
    under_way.left(0)
    under_way.sent(0, 10)
    assert not under_way.room(0)
    under_way.arrived(0, 10)  # of all that this one has got
    assert under_way.room(0)
