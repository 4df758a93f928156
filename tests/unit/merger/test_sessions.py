"""A merger's sessions: streams, credits, acknowledgements, cursors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.merger.sessions import KnownHandles
from ps2stream.protocol.messages.sessions import StreamAttached, StreamDetach
from tests.support.merging import (
    MANY,
    attach,
    credit,
    deliveries,
    inserts,
    release,
    rig,
)


def test_a_name_is_sent_once_a_stream() -> None:
    r = rig()
    r.send(inserts(1, [1, 1]), attach(1))
    r.send(release(0, 4, 2, [(0, 1, 1)]), release(4, 4, 2, [(0, 1, 1), (0, 2, 1)]))
    assert [list(b.new_handles) for b in r.clients[1].batches] == [[1], [2]]
    r.send(credit(1, 1, 0, 0, 3), attach(1, epoch=2), release(8, 4, 2, [(0, 2, 1)]))
    assert list(r.clients[1].batches[-1].new_handles) == [2]
    assert r.clients[1].closed == [1]
    assert r.clients[1].repeats == 0


def test_credits_are_totals_in_batches_and_bytes() -> None:
    r = rig()
    r.send(inserts(1, [1]), attach(1, batches=2))
    for b in range(0, 20, 4):
        r.send(release(b, 4, 1, [(0, 1, 1)]))
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
        r.send(release(b, 4, 1, [(0, 1, 1), (1, 1, 1)]))
    client = r.clients[1]
    r.send(credit(1, 1, 1, 1, 5), StreamDetach(1, 1), release(20, 4, 1, [(3, 1, 1)]))
    assert len(client.pairs) == 10
    r.send(attach(1, epoch=2))
    assert client.repeats == 5  # from the middle of a batch
    assert len(client.pairs) == 11
    assert client.gapless()
    r.send(credit(1, 2, 9, 9, 11))
    assert r.machine.counters["backlog_bytes"] == 0


def test_every_attach_is_answered_and_opens_one_stream() -> None:
    r = rig()
    r.send(inserts(1, [1]), attach(1), release(0, 4, 1, [(0, 1, 1), (1, 1, 1)]))
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
    r.send(StreamDetach(1, 4), inserts(1, [1]), release(0, 4, 1, [(0, 1, 1)]))
    assert len(r.clients[1].pairs) == 1
    r.send(StreamDetach(1, 7), attach(1, epoch=7), release(4, 4, 1, [(0, 1, 1)]))
    assert r.clients[1].closed == [4, 7]
    assert len(r.clients[1].pairs) == 1


def test_an_attach_resumes_behind_its_cursor() -> None:
    r = rig()
    r.send(inserts(1, [1]))
    for b in range(0, 20, 4):
        r.send(release(b, 4, 1, [(0, 1, 1), (1, 1, 1)]))
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
    r.send(inserts(1, [1]), attach(1), release(0, 4, 1, [(0, 1, 1)]))
    for _ in range(2):
        [send] = r.send(attach(1, epoch=2, ack=2))
        assert isinstance(send.frame, StreamAttached)
        assert (send.frame.refused, send.frame.last) == (1, 1)
    r.send(release(4, 4, 1, [(0, 1, 1)]))  # the older stream goes on
    assert sorted(r.clients[1].pairs) == [1, 2]
    r.send(attach(1, epoch=2, ack=2))
    assert r.clients[1].attached[-1].refused == 0


def test_an_acknowledgement_of_what_is_not_numbered_yet_lets_nothing_go() -> None:
    r = rig()
    r.send(inserts(1, [1]), attach(1), release(0, 4, 1, [(0, 1, 1)]), credit(1, 1, 0, 0, 99))
    r.send(StreamDetach(1, 1), release(4, 4, 1, [(0, 1, 1)]), credit(1, 1, 0, 0, 0))
    r.send(attach(1, epoch=2))
    assert sorted(r.clients[1].pairs) == [1, 2]
    assert r.clients[1].gapless()


def test_an_acknowledgement_of_what_was_not_sent_lets_nothing_go() -> None:
    r = rig()
    r.send(inserts(1, [1]), attach(1, batches=1))
    for b in (0, 4, 8):
        r.send(release(b, 4, 1, [(0, 1, 1)]))
    r.send(credit(1, 1, 0, 0, 3))
    r.send(credit(1, 1, 9, 0, 3))
    assert sorted(r.clients[1].pairs) == [1, 2, 3]
    assert r.clients[1].gapless()


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(1, 300) | st.integers(2**62, 2**62 + 300), max_size=300)))
def test_a_stream_learns_each_handle_once(calls: list[list[int]]) -> None:
    known, twin = KnownHandles(), set[int]()
    for handles in calls:
        new = known.learn(np.array(handles, np.int64)).tolist()
        assert new == [h for h in dict.fromkeys(handles) if h not in twin]
        twin |= set(handles)


def test_a_stream_that_knows_too_much_is_told_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ps2stream.merger.sessions.MAX_KNOWN", 100)
    known = KnownHandles()
    handles = 64 * np.arange(1, 151)
    assert len(known.learn(handles)) == 150
    assert len(known.learn(handles)) == 150
    assert len(known._table) <= 1_024


def test_a_stream_knows_a_million_handles_in_little_memory() -> None:
    known = KnownHandles()
    handles = np.arange(1, 1_000_001)
    assert len(known.learn(handles)) == 1_000_000
    assert not len(known.learn(handles))
    assert known.held_bytes <= 1 << 20
