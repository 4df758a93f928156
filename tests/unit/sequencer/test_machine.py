"""The sequencer against a row-by-row twin, over restarts and with stores that fail."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.errors import StoreFailed, Unavailable
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.frame import column_to_strings
from ps2stream.protocol.messages.updates import (
    AppliedReport,
    UpdateDecision,
    UpdateStatus,
)
from ps2stream.protocol.ports import LedgerChange
from ps2stream.protocol.rows import UpdateKind
from ps2stream.sequencer.machine import SequencerMachine
from ps2stream.store.memory import MemoryStore
from tests.support.sequencing import (
    EXISTS,
    OK,
    ROWS,
    TwinSequencer,
    a_request,
    answers,
    applied_rows,
    decisions,
    granted,
    tips,
)
from tests.support.updates import DISPATCHERS, Row, delete, ids_of, insert, replace, update


@pytest.mark.takes_turns
@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.lists(st.lists(ROWS, max_size=8), min_size=1, max_size=3), max_size=8), st.data()
)
def test_it_decides_as_the_twin_does(commits: list[list[list[Row]]], data: st.DataObject) -> None:
    twin, store = TwinSequencer(), MemoryStore()
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
            assert (frame.lsn_from, frame.owner) == (log[-1][0] + 1 if log else 1, 0)
            log += zip(
                rows.lsn.tolist(),
                rows.kind.tolist(),
                rows.handle.tolist(),
                ids_of(rows),
                strict=True,
            )
            assert frame.lsn_to == log[-1][0] == machine.lsn
        assert log == twin.log
        if data.draw(st.booleans()):
            machine = SequencerMachine(DISPATCHERS[:2], store)
            twin.restart()
    assert machine.live == len(twin.live)
    rows, more = machine._live.page(0, 1000)
    live = zip(rows.handle.tolist(), ids_of(rows), strict=True)
    assert list(live) == sorted((h, i) for i, (h, _, _) in twin.live.items())
    assert not more


def test_a_replacement_is_a_delete_and_an_insert_at_one_lsn() -> None:
    machine = SequencerMachine(DISPATCHERS[:1], MemoryStore())
    machine.append([update([insert("a", "x"), insert("b", "x")])])
    rows = [replace("a", "yy"), replace("b", "x"), replace("b", "yy", "t"), replace("c", "x")]
    sends = machine.append([update([*rows, replace("a", "z")], 2)])
    assert answers(sends) == [(OK, 3), (OK, 2), (EXISTS, 0), (OK, 4), (OK, 5)]
    [(frame, out)] = applied_rows(sends)
    assert (frame.lsn_from, frame.lsn_to, machine.lsn, machine.live) == (3, 5, 5, 3)
    columns = out.lsn.tolist(), out.kind.tolist(), out.handle.tolist(), ids_of(out)
    new, end = UpdateKind.INSERT, UpdateKind.DELETE
    assert list(zip(*columns, strict=True)) == [
        (3, end, 1, "a"), (3, new, 3, "a"), (4, new, 4, "c"), (5, end, 3, "a"), (5, new, 5, "a"),
    ]  # fmt: skip
    sources = column_to_strings(out.source_off, out.source)
    assert sources == ["", "yy", "x", "", "z"]  # a delete has all columns but this one


def test_a_repeated_replacement_gets_its_first_answer_and_is_not_done_again() -> None:
    store = MemoryStore()
    machine = SequencerMachine(DISPATCHERS[:1], store)
    machine.append([update([insert("a", "x"), insert("b", "x")])])
    rows = [replace("a", "yy", request="p 0"), replace("a", "x", request="p 1")]
    rows += [replace("new", "x", request="p 2"), replace("b", "x", request="p 3")]
    want = [(OK, 3), (OK, 4), (OK, 5), (OK, 2)]
    assert answers(machine.append([update(rows, 2), update(rows, 3)])) == want * 2
    others = [replace("a", "z"), delete("new"), replace("b", "z")]
    machine.append([update(others, 4)])
    assert answers(machine.append([update(rows, 5)])) == want
    machine = SequencerMachine(DISPATCHERS[:1], store)
    assert answers(machine.append([update(rows[:3], 6)])) == want[:3]
    assert machine.lsn == 8
    same = [replace("d", "x", request=f"q {i}") for i in range(3)]
    machine.append([update([same[0], same[1], replace("e", request="q"), same[2]], 7)])
    kept = [seen.lsn.tolist() for seen in store.requests()]
    assert kept == [[3, 4, 5], [9, 10]]


def test_the_tip_is_repeated_ever_more_seldom_until_it_changes_or_a_peer_joins() -> None:
    peers = [*DISPATCHERS[:2], Address("worker", 0), Address("merger", 0)]
    machine = SequencerMachine(peers, MemoryStore())

    def ticks_with_tips(ticks: int) -> list[int]:
        return [tick for tick in range(ticks) if tips(machine.tick())]

    assert ticks_with_tips(61) == [0, 1, 2, 4, 8, 16, 20, 32, 40, 60]
    machine.append([a_request(1)])
    assert tips(machine.tick()) == dict.fromkeys(peers, (3, 0))
    assert ticks_with_tips(10) == [0, 1, 3, 7]
    machine.joined(peers[2])
    assert ticks_with_tips(4) == [0, 1, 3]
    machine.on(AppliedReport(0, 3, 0))
    machine.on(AppliedReport(1, 3, 0))
    assert tips(machine.tick()) == dict.fromkeys(peers, (3, 3))


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
    assert granted(machine, "s") == 0
    store.refusing = ""
    done = [UpdateDecision.decode(raw) for _, raw in decisions(machine.append(asked))]
    assert [answer.status.tolist() for answer in done] == [[UpdateStatus.OK] * 3] * 2
    assert (machine.live, machine.lsn) == (2, 6)
    assert granted(machine, "s") == 1


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
        granted(machine, "new")
    assert machine.lsn == 0  # nobody was told anything
    store.broken = False
    machine = SequencerMachine(DISPATCHERS[:2], store)
    [(_, told)] = decisions(machine.append([a_request(1)]))
    assert UpdateDecision.decode(told).lsn.tolist() == [1, 2, 3]
    assert machine.lsn == 3
    assert issubclass(StoreFailed, Unavailable)
