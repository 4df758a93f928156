"""The sequencer against a row-by-row twin, over restarts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import column_to_strings
from ps2stream.protocol.messages.sessions import SessionGrant, SessionRequest
from ps2stream.protocol.messages.updates import (
    LedgerBatch,
    LookupReply,
    LookupRequest,
    UpdateDecision,
    UpdateStatus,
)
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.sequencer.machine import SequencerMachine
from ps2stream.store.memory import MemoryStore
from tests.support.updates import DISPATCHERS, Row, delete, ids_of, insert, query_rows, update

OK, EXISTS, MISSING = UpdateStatus.OK, UpdateStatus.ALREADY_EXISTS, UpdateStatus.NOT_FOUND


class Twin:
    """What semantics.md 5 says, a row at a time."""

    def __init__(self) -> None:
        self.lsn = 0
        self.live: dict[str, tuple[int, str, str]] = {}  # id: handle, session, source
        self.deleted: dict[tuple[str, str], int] = {}
        self.log: list[tuple[int, int, int, str]] = []  # lsn, kind, handle, id

    def decide(self, row: Row) -> tuple[UpdateStatus, int]:
        kind, id, session, source, request = row
        now = self.live.get(id)
        if kind == UpdateKind.INSERT:
            if now is not None:
                return (OK, now[0]) if now[1:] == (session, source) else (EXISTS, 0)
            self.lsn += 1
            self.live[id] = (self.lsn, session, source)
            self.log.append((self.lsn, kind, self.lsn, id))
            return OK, self.lsn
        if request and (id, request) in self.deleted:
            return OK, self.deleted[id, request]
        if now is None or (session and session != now[1]):
            return MISSING, 0
        self.lsn += 1
        del self.live[id]
        if request:
            self.deleted[id, request] = self.lsn
        self.log.append((self.lsn, kind, now[0], id))
        return OK, self.lsn


def answers(sends: Sequence[Send]) -> list[tuple[UpdateStatus, int]]:
    out: list[tuple[UpdateStatus, int]] = []
    for send in sends:
        if isinstance(send.frame, UpdateDecision):
            out += zip(map(UpdateStatus, send.frame.status), send.frame.lsn.tolist(), strict=True)
    return out


def applied_rows(sends: Sequence[Send], dispatcher: int = 0) -> list[tuple[LedgerBatch, QueryRows]]:
    to = Address("dispatcher", dispatcher)
    frames = [s.frame for s in sends if s.to == to and isinstance(s.frame, LedgerBatch)]
    return [(f, QueryRows.decode(f.rows.data)) for f in frames]


IDS = st.sampled_from("abcdef")
ROWS = st.one_of(
    st.builds(insert, IDS, st.sampled_from(["x", "yy"]), st.sampled_from(["s", "t", ""])),
    st.builds(delete, IDS, st.sampled_from(["", "s", "t", "new"]), st.sampled_from(["", "p", "q"])),
)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.lists(st.lists(ROWS, max_size=8), min_size=1, max_size=3), max_size=8), st.data()
)
def test_it_decides_as_the_twin_does(commits: list[list[list[Row]]], data: st.DataObject) -> None:
    twin, store = Twin(), MemoryStore()
    machine = SequencerMachine(DISPATCHERS[:2], store)
    log: list[tuple[int, int, int, str]] = []
    seq = itertools.count(1)
    for requests in commits:
        want = [twin.decide(row) for row in itertools.chain(*requests)]
        asked = [update(rows, next(seq), i % 2) for i, rows in enumerate(requests)]
        sends = machine.append(asked)
        assert answers(sends) == want
        told = [(s.to.index, s.frame.seq) for s in sends if isinstance(s.frame, UpdateDecision)]
        assert told == [(request.dispatcher, request.seq) for request in asked]
        for frame, rows in applied_rows(sends):
            assert (frame.lsn_from, frame.owner) == (len(log) + 1, 0)
            log += zip(
                rows.lsn.tolist(),
                rows.kind.tolist(),
                rows.handle.tolist(),
                ids_of(rows),
                strict=True,
            )
            assert frame.lsn_to == len(log)
        assert log == twin.log
        if data.draw(st.booleans()):
            machine = SequencerMachine(DISPATCHERS[:2], store)
    assert machine.live == len(twin.live)
    rows, more = machine._live.page(0, 1000)
    live = zip(rows.handle.tolist(), ids_of(rows), strict=True)
    assert list(live) == sorted((h, i) for i, (h, _, _) in twin.live.items())
    assert not more


def test_a_delete_carries_its_insert_but_not_the_source() -> None:
    machine = SequencerMachine(DISPATCHERS[:1], MemoryStore())
    rows = [insert(str(i), "body" * i) for i in range(1, 9)]
    machine.append([update(rows)])
    sends = machine.append([update([delete("5"), insert("9"), delete("2")], 2)])
    [(_, out)] = applied_rows(sends)
    assert ids_of(out) == ["5", "9", "2"]
    assert out.kind.tolist() == [UpdateKind.DELETE, UpdateKind.INSERT, UpdateKind.DELETE]
    assert out.lsn.tolist() == [9, 10, 11]
    assert out.handle.tolist() == [5, 10, 2]
    assert column_to_strings(out.source_off, out.source) == ["", "body", ""]
    want = query_rows([insert("5", "body" * 5), insert("9"), insert("2", "body" * 2)])
    for name in ("id", "term", "prog", "box", "geom"):
        np.testing.assert_array_equal(getattr(out, name), getattr(want, name))
        np.testing.assert_array_equal(getattr(out, name + "_off"), getattr(want, name + "_off"))
    for name in ("form", "post", "shape"):
        np.testing.assert_array_equal(getattr(out, name), getattr(want, name))


def test_a_late_retry_of_a_delete_spares_the_new_query() -> None:
    machine = SequencerMachine(DISPATCHERS[:1], MemoryStore())
    rows = [insert("a"), delete("a", request="r"), insert("a")]
    assert answers(machine.append([update(rows)])) == [(OK, 1), (OK, 2), (OK, 3)]
    assert answers(machine.append([update([delete("a", request="r")], 2)])) == [(OK, 2)]
    assert machine.live == 1


def test_remembered_requests_are_bounded_also_after_a_restart() -> None:
    store = MemoryStore()
    machine = SequencerMachine(DISPATCHERS[:1], store, recent=3)
    for i in range(10):
        machine.append([update([insert(str(i)), delete(str(i), request="r")], i)])
    for seq in (10, 11):
        asked = [update([delete(str(i), request="r") for i in range(10)], seq)]
        assert [s for s, _ in answers(machine.append(asked))] == [MISSING] * 7 + [OK] * 3
        machine = SequencerMachine(DISPATCHERS[:1], store, recent=3)
    assert len(list(store.requests())) <= 5


def granted(machine: SequencerMachine, name: str) -> int:
    [send] = machine.on(SessionRequest(1, 7, 1, np.frombuffer(name.encode(), np.uint8)))
    assert isinstance(send.frame, SessionGrant)
    assert (send.to.index, send.frame.seq) == (1, 7)
    return send.frame.session


def test_sessions_keep_their_numbers() -> None:
    store = MemoryStore()
    machine = SequencerMachine(DISPATCHERS[:2], store)
    machine.append([update([insert("a", session="s"), insert("b", session="ß")])])
    numbers = [granted(machine, n) for n in ("s", "ß", "new", "s")]
    assert len(set(numbers)) == 3
    assert min(numbers) >= 1
    assert numbers[0] == numbers[3]
    # A refused insert makes no session, alone or beside one that is taken.
    machine.append([update([insert("a", session="refused")], 2)])
    machine.append([update([insert("a", session="refused"), insert("c", session="s")], 3)])
    assert len(store.sessions()) == 3
    machine = SequencerMachine(DISPATCHERS[:2], store)
    assert [granted(machine, n) for n in ("s", "ß", "new")] == numbers[:3]


def looked_up(machine: SequencerMachine, **ask: object) -> tuple[list[str], list[str], int, int]:
    values: dict[str, object] = {"session": 0, "after": 0, "limit": 100, "id": ""} | ask
    for name in ("id", "tenant"):
        values[name] = np.frombuffer(str(values.get(name, "")).encode(), np.uint8)
    [send] = machine.on(LookupRequest(0, 1, **values))  # type: ignore[arg-type]
    reply = send.frame
    assert isinstance(reply, LookupReply)
    rows = QueryRows.decode(reply.rows.data)
    return ids_of(rows), column_to_strings(reply.name_off, reply.name), reply.more, reply.live


def test_look_up() -> None:
    machine = SequencerMachine(DISPATCHERS[:1], MemoryStore())
    machine.append([update([insert(str(i), session="st"[i % 2]) for i in range(10)])])
    machine.append([update([delete("4")], 2)])
    assert looked_up(machine, id="3") == (["3"], ["t"], 0, 9)
    assert looked_up(machine, id="4") == ([], [], 0, 9)
    assert looked_up(machine, limit=3) == (["0", "1", "2"], ["s", "t", "s"], 1, 9)
    assert looked_up(machine, limit=3, after=3)[0] == ["3", "5", "6"]
    assert looked_up(machine, limit=9)[2] == 0
    number = granted(SequencerMachine(DISPATCHERS[:2], MemoryStore()), "s")
    assert looked_up(machine, session=number, limit=2) == (["0", "2"], ["s", "s"], 1, 9)
    assert looked_up(machine, session=number, after=3) == (["6", "8"], ["s", "s"], 0, 9)
    assert looked_up(machine, after=10)[0] == []


def test_a_page_that_ends_at_the_last_of_a_session_is_the_last() -> None:
    machine = SequencerMachine(DISPATCHERS[:2], MemoryStore())
    machine.append([update([insert(str(i), session="s") for i in range(8)])])
    machine.append([update([insert("other", session="t")], 2)])
    number = granted(machine, "s")
    assert looked_up(machine, session=number, limit=8)[2] == 0
    assert looked_up(machine, session=number, limit=7)[2] == 1
    assert looked_up(machine, limit=8)[2] == 1
