"""Sessions keep their numbers, and look-ups find the queries in them."""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.frame import column_to_strings
from ps2stream.protocol.messages.sessions import SessionRequest
from ps2stream.protocol.messages.updates import (
    LookupReply,
    LookupRequest,
)
from ps2stream.protocol.rows import QueryRows
from ps2stream.security import NO_QUOTAS
from ps2stream.sequencer.machine import SequencerMachine
from ps2stream.sequencer.sessions import SessionRegistry
from ps2stream.store.memory import MemoryStore
from tests.support.sequencing import granted
from tests.support.updates import DISPATCHERS, delete, ids_of, insert, update


def test_sessions_keep_their_numbers() -> None:
    store = MemoryStore()
    machine = SequencerMachine(DISPATCHERS[:2], store)
    machine.append([update([insert("a", session="s"), insert("b", session="ß")])])
    numbers = [granted(machine, n, 1) for n in ("s", "ß", "new", "s")]
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


def test_a_look_up_finds_one_query_or_a_page_of_them() -> None:
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


def test_a_session_gets_a_number_when_it_is_first_named_and_keeps_it() -> None:
    def grant(name: str, make: int) -> int:
        return sessions.grant(
            SessionRequest(0, 1, make, np.frombuffer(name.encode(), np.uint8))
        ).session

    store = MemoryStore()
    sessions = SessionRegistry(store, NO_QUOTAS, 0)
    assert grant("a", 0) == 0
    assert (grant("a", 1), grant("b", 1), grant("a", 1), grant("a", 0)) == (1, 2, 1, 1)
    assert SessionRegistry(store, NO_QUOTAS, 0).numbers == {b"a": 1, b"b": 2}
