"""Repeated requests, dead dispatchers, failing stores: nothing is done twice or half."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.errors import StoreFailed, Unavailable
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.messages.sessions import SessionGrant, SessionRequest
from ps2stream.protocol.messages.updates import (
    AppliedReport,
    LedgerBatch,
    LedgerFetch,
    LedgerTip,
    UpdateDecision,
    UpdateRequest,
    UpdateStatus,
)
from ps2stream.protocol.ports import LedgerChange
from ps2stream.sequencer.feed import IDLE_TICKS
from ps2stream.sequencer.machine import SequencerMachine
from ps2stream.store.memory import MemoryStore
from tests.support.updates import DISPATCHERS, Row, delete, insert, update

WORKER = Address("worker", 0)


def decisions(sends: Sequence[Send]) -> list[tuple[int, bytes]]:
    """To whom, and what."""
    found = [(s.to.index, s.frame) for s in sends]
    return [(to, f.encode()) for to, f in found if isinstance(f, UpdateDecision)]


def log_of(store: MemoryStore) -> list[bytes]:
    return [batch.encode() for batch in store.replay()]


def tips(sends: Sequence[Send]) -> dict[Address, tuple[int, int]]:
    return {s.to: (s.frame.lsn, s.frame.visible) for s in sends if isinstance(s.frame, LedgerTip)}


def a_request(seq: int, settled: int = 0, dispatcher: int = 0, epoch: int = 1) -> UpdateRequest:
    """Done twice it would delete what it inserted, and take new LSNs."""
    rows: list[Row] = [insert(f"{seq}"), delete(f"{seq}"), insert(f"{seq}")]
    return update(rows, seq, dispatcher, epoch, settled)


# --- repeats -----------------------------------------------------------------------


@pytest.mark.parametrize("restart", [False, True])
def test_a_repeat_is_answered_alike_and_not_done_again(restart: bool) -> None:
    store = MemoryStore()
    machine = SequencerMachine(DISPATCHERS[:2], store)
    first = machine.append([a_request(1), a_request(1, dispatcher=1)])
    [mine, other] = decisions(first)
    log = log_of(store)
    if restart:
        machine = SequencerMachine(DISPATCHERS[:2], store)
    again = machine.append([a_request(1), a_request(1)])
    assert decisions(again) == [mine]
    assert not [s for s in again if isinstance(s.frame, LedgerBatch)]
    assert log_of(store) == log
    beside = machine.append([a_request(1, dispatcher=1), a_request(2)])
    assert other in decisions(beside)
    assert len(decisions(beside)) == 2
    assert len(log_of(store)) == len(log) + 1


@pytest.mark.parametrize("restart", [False, True])
def test_settled_answers_go_and_their_requests_are_passed_over(restart: bool) -> None:
    store = MemoryStore()
    machine = SequencerMachine(DISPATCHERS[:2], store)
    machine.append([a_request(1), a_request(2)])
    machine.append([a_request(1, dispatcher=1)])
    machine.append([a_request(3, settled=3)])
    assert sorted(a[:3] for a in store.answers()) == [(0, 1, 3), (1, 1, 1)]
    if restart:
        machine = SequencerMachine(DISPATCHERS[:2], store)
    log = log_of(store)
    assert machine.append([a_request(1), a_request(2, settled=1)]) == []
    assert log_of(store) == log
    assert len(decisions(machine.append([a_request(3), a_request(1, dispatcher=1)]))) == 2
    assert log_of(store) == log


@pytest.mark.parametrize("restart", [False, True])
def test_an_older_incarnation_is_passed_over(restart: bool) -> None:
    store = MemoryStore()
    machine = SequencerMachine(DISPATCHERS[:1], store)
    machine.append([a_request(7, settled=7)])
    machine.append([a_request(1, settled=1, epoch=2)])
    assert [a[:3] for a in store.answers()] == [(0, 2, 1)]
    if restart:
        machine = SequencerMachine(DISPATCHERS[:1], store)
    log = log_of(store)
    assert machine.append([a_request(7), a_request(8, settled=8)]) == []
    assert log_of(store) == log
    [(_, told)] = decisions(machine.append([a_request(1, epoch=2)]))
    assert UpdateDecision.decode(told).lsn.tolist() == [4, 5, 6]


def test_what_is_settled_in_the_same_commit_is_passed_over() -> None:
    store = MemoryStore()
    machine = SequencerMachine(DISPATCHERS[:1], store)
    [(_, told)] = decisions(machine.append([a_request(1), a_request(2, settled=2)]))
    assert UpdateDecision.decode(told).seq == 2
    assert machine.lsn == 3


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_dispatchers_that_repeat_at_will_find_each_request_done_once(data: st.DataObject) -> None:
    """Two dispatchers repeat what is not answered; answers and requests get lost, the
    sequencer restarts, the store is full at times."""
    store = MemoryStore()
    machine = SequencerMachine(DISPATCHERS[:2], store)
    asked: list[dict[int, UpdateRequest]] = [{}, {}]
    told: dict[tuple[int, int], bytes] = {}
    late: list[UpdateRequest] = []
    seq = itertools.count(1)
    for _ in range(data.draw(st.integers(1, 25))):
        at = data.draw(st.integers(0, 1))
        if data.draw(st.booleans()):
            number = next(seq)
            settled = min(asked[at], default=number)
            asked[at][number] = a_request(number, settled, at)
        store.refusing = data.draw(st.sampled_from(["", "", "", "full"]))
        pool = [*asked[at].values(), *late]
        group = data.draw(st.lists(st.sampled_from(pool), max_size=4)) if pool else []
        late += group
        for to, raw in decisions(machine.append(group)):
            answer = UpdateDecision.decode(raw)
            if UpdateStatus.UNAVAILABLE in answer.status.tolist():
                continue  # not done, so it is asked again
            assert told.setdefault((to, answer.seq), raw) == raw
            if data.draw(st.booleans()):
                asked[to].pop(answer.seq, None)
        if data.draw(st.integers(0, 4)) == 0:
            machine = SequencerMachine(DISPATCHERS[:2], store)
    assert machine.lsn == 3 * len(told)
    assert machine.live == len(told)
    for (_, number), raw in told.items():
        lsn = UpdateDecision.decode(raw).lsn.tolist()
        assert lsn == list(range(lsn[0], lsn[0] + 3)), number


# --- dispatchers that die ------------------------------------------------------------


def test_visible_is_what_every_dispatcher_has() -> None:
    machine = SequencerMachine(DISPATCHERS, MemoryStore())
    machine.append([a_request(i) for i in range(1, 5)])
    assert machine.on(AppliedReport(0, 5, 0)) == machine.on(AppliedReport(1, 3, 0)) == []
    assert tips(machine.on(AppliedReport(2, 4, 0))) == dict.fromkeys(DISPATCHERS, (12, 3))
    assert machine.on(AppliedReport(2, 9, 0)) == machine.on(AppliedReport(1, 1, 0)) == []
    assert machine.on(AppliedReport(0, 2, 0)) == []  # an old one takes nothing back
    assert tips(machine.on(AppliedReport(1, 8, 0))) == dict.fromkeys(DISPATCHERS, (12, 5))
    assert machine.visible == 5


def test_the_fenced_are_not_waited_for_until_they_have_caught_up() -> None:
    machine = SequencerMachine([*DISPATCHERS[:2], WORKER], MemoryStore())
    machine.append([a_request(1), a_request(2)])
    machine.on(AppliedReport(0, 6, 0))
    assert tips(machine.fence(1)) == {DISPATCHERS[0]: (6, 6)}
    # Its next incarnation starts. It must hear of nothing that is visible without it.
    assert set(tips(machine.tick())) == {DISPATCHERS[0], WORKER}
    machine.append([a_request(3)])
    assert tips(machine.on(AppliedReport(0, 9, 0))) == {DISPATCHERS[0]: (9, 9)}
    assert tips(machine.on(LedgerFetch(0, 1, 0, 0))) == {}
    assert tips(machine.joined(DISPATCHERS[1])) == {DISPATCHERS[1]: (9, 9)}
    machine.append([a_request(4)])
    assert machine.on(AppliedReport(0, 12, 0)) == []
    assert tips(machine.on(AppliedReport(1, 11, 0))) == dict.fromkeys(DISPATCHERS[:2], (12, 11))


def test_one_that_joins_has_nothing_whatever_the_last_one_had() -> None:
    machine = SequencerMachine(DISPATCHERS[:2], MemoryStore())
    machine.append([a_request(1), a_request(2)])
    machine.on(AppliedReport(1, 6, 0))
    machine.joined(DISPATCHERS[1])
    assert machine.on(AppliedReport(0, 6, 0)) == []
    assert machine.visible == 0
    assert set(tips(machine.on(AppliedReport(1, 4, 0))).values()) == {(6, 4)}


def test_everyone_hears_the_tip_again_and_again() -> None:
    peers = [*DISPATCHERS, WORKER, Address("merger", 0)]
    machine = SequencerMachine(peers, MemoryStore())
    machine.append([a_request(1)])
    for _ in range(2 * IDLE_TICKS):
        assert tips(machine.tick()) == dict.fromkeys(peers, (3, 0))


# --- stores that fail ----------------------------------------------------------------


def granted(machine: SequencerMachine, name: bytes) -> int:
    [send] = machine.on(SessionRequest(1, 7, 1, np.frombuffer(name, np.uint8)))
    assert isinstance(send.frame, SessionGrant)
    return send.frame.session


def test_a_full_store_changes_nothing_and_recovers() -> None:
    store = MemoryStore()
    machine = SequencerMachine(DISPATCHERS[:2], store)
    store.refusing = "full"
    asked = [a_request(1), a_request(2, 1, 1)]
    sends = machine.append(asked)
    assert [s.to.index for s in sends] == [0, 1]
    for _, raw in decisions(sends):
        answer = UpdateDecision.decode(raw)
        assert (set(answer.status.tolist()), set(answer.lsn.tolist())) == (
            {UpdateStatus.UNAVAILABLE},
            {0},
        )
    assert (machine.live, machine.lsn, store.sessions()) == (0, 0, [])
    assert granted(machine, b"s") == 0
    store.refusing = ""
    done = [UpdateDecision.decode(raw) for _, raw in decisions(machine.append(asked))]
    assert [answer.status.tolist() for answer in done] == [[UpdateStatus.OK] * 3] * 2
    assert (machine.live, machine.lsn) == (2, 6)
    assert granted(machine, b"s") == 1


class Failing(MemoryStore):
    """Its commits are written, and then fail in a way that leaves that open."""

    broken = False

    def commit(self, change: LedgerChange) -> None:
        super().commit(change)
        if self.broken:
            raise StoreFailed("I/O error")


def test_an_open_outcome_ends_the_machine_and_the_next_one_knows() -> None:
    store = Failing()
    machine = SequencerMachine(DISPATCHERS[:2], store)
    store.broken = True
    with pytest.raises(StoreFailed):
        machine.append([a_request(1)])
    with pytest.raises(StoreFailed):
        granted(machine, b"new")
    assert machine.lsn == 0  # nobody was told anything
    store.broken = False
    machine = SequencerMachine(DISPATCHERS[:2], store)
    [(_, told)] = decisions(machine.append([a_request(1)]))
    assert UpdateDecision.decode(told).lsn.tolist() == [1, 2, 3]
    assert machine.lsn == 3
    assert issubclass(StoreFailed, Unavailable)
