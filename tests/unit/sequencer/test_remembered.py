"""Repeated requests: they are answered alike, and nothing is done twice."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.protocol.messages.updates import (
    LedgerBatch,
    UpdateDecision,
    UpdateRequest,
    UpdateStatus,
)
from ps2stream.sequencer.machine import SequencerMachine
from ps2stream.sequencer.remembered import RememberedAnswers, RequestKey
from ps2stream.store.memory import MemoryStore
from tests.support.sequencing import (
    MISSING,
    OK,
    a_request,
    answers,
    decisions,
)
from tests.support.updates import DISPATCHERS, delete, insert, update


def log_of(store: MemoryStore) -> list[bytes]:
    return [batch.encode() for batch in store.replay()]


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


@pytest.mark.takes_turns
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


def test_an_answer_is_kept_until_its_dispatcher_needs_it_no_longer() -> None:
    """Requests of seq 1 and 2 are decided; 1 comes again; then all below 3 is settled."""

    def request(seq: int, settled: int) -> UpdateRequest:
        none = np.zeros(0, np.uint8)
        off = np.zeros(1, np.int64)
        return UpdateRequest(0, 4, seq, settled, none, off, none, off, none)

    answers = RememberedAnswers([])
    fresh, known = answers.sift([request(1, 1), request(2, 1)])
    assert (list(fresh), known) == ([RequestKey(0, 4, 1), RequestKey(0, 4, 2)], {})
    made = [
        answers.make_answer(
            key, UpdateDecision(key.seq, np.zeros(1, np.uint8), np.ones(1, np.int64))
        )
        for key in fresh
    ]
    answers.keep(made)
    fresh, known = answers.sift([request(1, 1)])
    assert (fresh, [decision.seq for decision in known.values()]) == ({}, [1])
    assert answers.sift([request(1, 3)]) == ({}, {})
