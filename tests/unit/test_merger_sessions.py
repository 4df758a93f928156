"""A merger's sessions: streams, credits, what is held for whom, and gaps."""

from __future__ import annotations

import pytest

from ps2stream.merger import fanout
from ps2stream.messages import Credit, Detach
from ps2stream.rows import Kind
from tests.unit.merging import (
    MANY,
    attach,
    inserts,
    matches,
    named,
    one_batch,
    payload,
    rig,
)


def test_a_name_is_sent_once_a_stream() -> None:
    r = rig()
    r.send(inserts(1, [1, 1]), attach(1))
    r.send(*one_batch(0, [(0, 1, 1)], 2), *one_batch(4, [(0, 1, 1), (0, 2, 1)], 2))
    assert [list(b.new_handles) for b in r.clients[1].batches] == [[1], [2]]
    r.send(Credit(1, 1, 0, 0, 3), attach(1, epoch=2), *one_batch(8, [(0, 2, 1)], 2))
    assert list(r.clients[1].batches[-1].new_handles) == [2]
    assert r.clients[1].closed == [1]
    assert r.clients[1].repeats == 0


def test_credits_in_batches_and_bytes() -> None:
    r = rig()
    r.send(inserts(1, [1]), attach(1, batches=2))
    for b in range(0, 20, 4):
        r.send(*one_batch(b, [(0, 1, 1)], 1))
    client = r.clients[1]
    assert sorted(client.pairs) == [1, 2]
    r.send(Credit(1, 1, 1, 0, 0))
    assert sorted(client.pairs) == [1, 2, 3]
    r.send(Credit(1, 9, 5, 5, 0))  # of another stream
    assert sorted(client.pairs) == [1, 2, 3]
    r.send(attach(1, epoch=2, batches=100, size=1))  # one batch may overdraw
    assert client.batches[-1].session_seq == 1
    r.send(Credit(1, 2, 0, 1, 1))
    assert client.batches[-1].session_seq == 1
    r.send(Credit(1, 2, 0, MANY, 1))
    assert sorted(client.pairs) == [1, 2, 3, 4, 5]
    assert client.gapless()
    assert not client.gaps


def test_what_was_not_acknowledged_comes_again_with_its_numbers() -> None:
    r = rig()
    r.send(inserts(1, [1]), attach(1))
    for b in range(0, 20, 4):
        r.send(*one_batch(b, [(0, 1, 1), (1, 1, 1)], 1))
    client = r.clients[1]
    r.send(Credit(1, 1, 1, 1, 4), Detach(1, 1), *one_batch(20, [(3, 1, 1)], 1))
    assert len(client.pairs) == 10
    r.send(attach(1, epoch=2))
    assert client.repeats == 6
    assert len(client.pairs) == 11
    assert client.gapless()
    r.send(Credit(1, 2, 9, 9, 11))
    assert r.machine.held_bytes == 0


def test_a_stale_attach_is_closed_and_a_detach_may_overtake() -> None:
    r = rig()
    r.send(attach(1, epoch=5))
    r.send(attach(1, epoch=4))
    assert r.clients[1].closed == [4]
    assert r.send(attach(1, epoch=5)) == []
    r.send(Detach(1, 4), inserts(1, [1]), *one_batch(0, [(0, 1, 1)], 1))
    assert len(r.clients[1].pairs) == 1
    r.send(Detach(1, 7), attach(1, epoch=7), *one_batch(4, [(0, 1, 1)], 1))
    assert r.clients[1].closed == [4, 7]
    assert len(r.clients[1].pairs) == 1


def test_a_backlog_beyond_the_quota_ends_in_a_gap() -> None:
    r = rig(session_quota_bytes=20_000)
    r.send(inserts(1, [1, 2]))
    for b in range(0, 200, 4):
        r.send(*one_batch(b, [(0, 1, 1), (1, 1, 1), (2, 2, 2)][: 3 if b < 8 else 2], 2))
    assert r.machine.held_bytes <= 40_000
    r.send(attach(1), attach(2))
    slow, other = r.clients[1], r.clients[2]
    [(first, last, count)] = slow.gaps
    assert (first, count) == (1, last)
    assert slow.batches[0].HasField("gap")
    assert max(slow.pairs) == 100
    assert slow.gapless()
    assert len(slow.pairs) > 4
    assert other.gapless()
    assert not other.gaps
    assert len(other.pairs) == 2


def test_an_entry_larger_than_the_quota_is_announced_too() -> None:
    r = rig(session_quota_bytes=1_000)
    r.send(inserts(1, [1]), *one_batch(0, [(0, 1, 1)], 1), attach(1))
    assert r.clients[1].gaps == [(1, 1, 1)]
    r.send(*one_batch(4, [(0, 1, 1)], 1))
    assert r.clients[1].gapless()
    assert sorted(r.clients[1].pairs) == [2]


def test_sent_but_no_longer_held_is_a_gap_only_after_a_reconnect() -> None:
    r = rig(session_quota_bytes=20_000)
    r.send(inserts(1, [1]), attach(1))
    for b in range(0, 200, 4):
        r.send(*one_batch(b, [(0, 1, 1)], 1))
    client = r.clients[1]
    assert len(client.pairs) == 50
    assert not client.gaps
    assert r.machine.held_bytes <= 20_000
    r.send(Credit(1, 1, 0, 0, 10), Detach(1, 1))
    before = len(client.batches)
    r.send(attach(1, epoch=2))
    [(first, last, count)] = client.gaps
    assert (first, count) == (11, last - 10)
    again = {b.session_seq for b in client.batches[before + 1 :]}
    assert again == set(range(last + 1, 51))


def test_the_total_is_bounded_and_the_largest_pay() -> None:
    r = rig(total_bytes=200_000)
    r.send(inserts(1, list(range(1, 11))))
    r.send(*one_batch(0, [(0, h, h) for h in range(1, 11)], 10))
    for b in range(4, 800, 4):
        r.send(*one_batch(b, [(0, 1, 1)], 10))
        assert r.machine.held_bytes <= 200_000
    r.send(*(attach(s) for s in range(1, 11)))
    assert all(r.clients[s].gapless() for s in range(1, 11))
    assert [s for s in range(1, 11) if r.clients[s].gaps] == [1]
    assert max(r.clients[1].pairs) == 200


def test_a_large_delivery_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "MAX_BYTES", 2_000)
    r = rig()
    r.send(inserts(1, [1] * 3), attach(1, fields=7))
    pairs = [(row, h, 1) for row in range(30) for h in (1, 2, 3)]
    r.send(payload(0, 30, 3, text="x" * 500), matches(0, pairs))
    client = r.clients[1]
    assert 10 <= len(client.batches) <= 12
    assert client.gapless()
    assert len(set(client.pairs.values())) == 90
    assert client.size / len(client.batches) < 4_000


def test_an_acknowledgement_of_what_is_not_numbered_yet_lets_nothing_go() -> None:
    r = rig()
    r.send(inserts(1, [1]), attach(1), *one_batch(0, [(0, 1, 1)], 1), Credit(1, 1, 0, 0, 99))
    r.send(Detach(1, 1), *one_batch(4, [(0, 1, 1)], 1), Credit(1, 1, 0, 0, 0))
    r.send(attach(1, epoch=2))
    assert sorted(r.clients[1].pairs) == [1, 2]
    assert r.clients[1].gapless()


def test_an_acknowledgement_of_what_was_not_sent_lets_nothing_go() -> None:
    r = rig()
    r.send(inserts(1, [1]), attach(1, batches=1))
    for b in (0, 4, 8):
        r.send(*one_batch(b, [(0, 1, 1)], 1))
    r.send(Credit(1, 1, 0, 0, 3))
    r.send(Credit(1, 1, 9, 0, 3))
    assert sorted(r.clients[1].pairs) == [1, 2, 3]
    assert r.clients[1].gapless()


def test_what_lapsed_and_was_acknowledged_is_no_gap() -> None:
    r = rig(session_quota_bytes=20_000)
    r.send(inserts(1, [1]), attach(1))
    for b in range(0, 200, 4):
        r.send(*one_batch(b, [(0, 1, 1)], 1))
    r.send(Credit(1, 1, 0, 0, 50), attach(1, epoch=2), *one_batch(200, [(0, 1, 1)], 1))
    assert not r.clients[1].gaps
    assert sorted(r.clients[1].pairs) == list(range(1, 52))


def test_names_that_join_the_backlog_count_towards_the_quota() -> None:
    quota = 40_000
    r = rig(session_quota_bytes=quota)
    many = range(1, 101)
    r.send(named(1, [(Kind.INSERT, h, 1, f"{h:0128}") for h in many]), attach(1))
    for b in range(0, 40, 4):
        r.send(*one_batch(b, [(0, h, 1) for h in many], 100))
    assert not r.clients[1].gaps
    r.send(Detach(1, 1))
    assert r.machine.held_bytes <= quota
    r.send(attach(1, epoch=2))
    assert r.clients[1].gaps
    assert max(r.clients[1].pairs) == 1_000
