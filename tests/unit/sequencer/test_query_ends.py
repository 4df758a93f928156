"""The ends of queries, against a list; and what the sequencer makes of them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ps2stream.errors import StoreFailed, Unavailable
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import I64
from ps2stream.protocol.messages.updates import (
    LedgerBatch,
    UpdateDecision,
    UpdateRequest,
    UpdateStatus,
)
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.protocol.validity import find_validity
from ps2stream.security import DEFAULT, QuotaTable, TenantQuota
from ps2stream.sequencer import machine as sequencer_machine
from ps2stream.sequencer.machine import SequencerMachine
from ps2stream.sequencer.query_ends import QueryEnds
from ps2stream.store.memory import MemoryStore
from tests.support.ends import ask, deleting, ending, ending_rows


@pytest.mark.parametrize("seed", range(20))
def test_ends_come_as_a_list_has_them(seed: int) -> None:
    rng = random.Random(seed)
    live: dict[int, int] = {}  # handle: end

    def find_live(handles: I64) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        assert (np.diff(handles) >= 0).all()
        return np.array([handle in live for handle in handles.tolist()], np.bool_)

    ends, now, top = QueryEnds(find_live), 0, 0
    for _ in range(300):
        fresh = {top + 1 + i: now + rng.randrange(1, 50) for i in range(rng.randrange(20))}
        top += len(fresh)
        ends.add(np.array(list(fresh.values()), np.int64), np.array(list(fresh), np.int64))
        live |= fresh
        again = rng.sample(list(live), min(len(live), 2))  # as repeated inserts do
        ends.add(np.array([live[h] for h in again], np.int64), np.array(again, np.int64))
        for handle in rng.sample(list(live), min(len(live), rng.randrange(8))):
            del live[handle]
        now += rng.randrange(-3, 12)
        due = {handle for handle, end in live.items() if end <= now}
        while len(some := ends.take_due(now, 1 + rng.randrange(30))) or due:
            assert due.issuperset(some.tolist())
            if rng.random() < 0.1:
                ends.put_back(now, some)
                continue
            due.difference_update(some.tolist())
            for handle in some.tolist():
                del live[handle]
    assert len(ends) <= 2 * 1024 + len(live)


def committed(sends: list[Send]) -> list[tuple[int, int, int]]:
    """What was sent to dispatchers: kind, LSN, handle of each row."""
    found = []
    for send in sends:
        frame = send.frame
        if isinstance(frame, LedgerBatch) and frame.lsn_to:
            rows = QueryRows.decode(frame.rows.data)
            found += list(
                zip(rows.kind.tolist(), rows.lsn.tolist(), rows.handle.tolist(), strict=True)
            )
    return found


PEERS = [Address("dispatcher", 0), Address("worker", 0), Address("merger", 0)]


def test_a_query_is_deleted_at_its_end_and_not_before() -> None:
    store = MemoryStore()
    machine = SequencerMachine(PEERS, store)
    machine.tick(1_000)
    machine.append([ending("a", 2_000), ending("b", 1_500)])
    assert committed(machine.tick(1_499)) == []
    assert committed(machine.tick(1_500)) == [(UpdateKind.DELETE, 3, 2)]
    machine = SequencerMachine(PEERS, store, epoch=1)  # it reads the ends from the ledger
    assert committed(machine.tick(900)) == []  # its clock was put back
    assert committed(machine.tick(5_000)) == [(UpdateKind.DELETE, 4, 1)]
    assert committed(machine.tick(9_000)) == []
    assert machine.live == 0
    assert machine.counters["ended"] == 1
    kinds = [QueryRows.decode(batch.rows.data).kind.tolist() for batch in store.replay()]
    assert kinds == [[1, 1], [2], [2]]


def test_a_query_that_was_deleted_or_inserted_again_does_not_end() -> None:
    machine = SequencerMachine(PEERS, MemoryStore())
    machine.append([ending("a", 2_000)])
    machine.append([deleting("a")])
    machine.append([ending("a", 3_000)])
    assert committed(machine.tick(2_500)) == []
    assert committed(machine.tick(3_000)) == [(UpdateKind.DELETE, 4, 3)]


@pytest.mark.parametrize("together", [False, True])
def test_a_repeated_replacement_does_not_move_the_end(together: bool) -> None:
    """It has another end if that was counted from the present again."""
    machine = SequencerMachine(PEERS, MemoryStore())

    def replacing(name: str, until: int) -> UpdateRequest:
        rows = ending_rows(name, until)
        rows = rows.replace(kind=np.full(1, UpdateKind.REPLACE, np.uint8))
        return ask(rows, request_id="r")

    requests = [replacing("a", 5_000), replacing("a", 2_000), replacing("b", 0)]
    requests.append(replacing("b", 2_000))
    for group in [requests] if together else [[each] for each in requests]:
        machine.append(group)
    assert committed(machine.tick(3_000)) == []
    assert committed(machine.tick(9_000)) == [(UpdateKind.DELETE, 3, 1)]
    assert machine.live == 1


def test_inserts_are_stamped_with_the_time_of_the_sequencer() -> None:
    store = MemoryStore()
    machine = SequencerMachine(PEERS, store)
    machine.note_time(1_234)
    machine.append([ending("a", 2_000)])
    [batch] = store.replay()
    found = find_validity(QueryRows.decode(batch.rows.data))
    assert (found.until.tolist(), found.inserted.tolist()) == ([2_000], [1_234])


def test_ends_wait_for_a_ledger_that_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    machine = SequencerMachine(PEERS, store)
    machine.append([ending("a", 2_000)])
    commit = store.commit

    def refuse(_: object) -> None:
        raise Unavailable("the disk is full")

    monkeypatch.setattr(store, "commit", refuse)
    assert committed(machine.tick(2_000)) == []
    monkeypatch.setattr(store, "commit", commit)
    assert committed(machine.tick(2_001)) == [(UpdateKind.DELETE, 2, 1)]

    def fail(_: object) -> None:
        raise StoreFailed("an I/O error")

    machine.append([ending("b", 2_000)])
    monkeypatch.setattr(store, "commit", fail)
    with pytest.raises(StoreFailed):
        machine.tick(2_002)


def test_few_end_in_one_commit_and_the_others_at_the_next_ticks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sequencer_machine, "ENDED_ROWS", 2)
    machine = SequencerMachine(PEERS, MemoryStore())
    for i in range(5):
        machine.append([ending(f"q{i}", 100 + i)])
    assert [len(committed(machine.tick(200))) for _ in range(4)] == [2, 2, 1, 0]


def test_the_quota_of_a_tenant_falls_with_the_end() -> None:
    quotas = QuotaTable({DEFAULT: TenantQuota(queries=1)})
    machine = SequencerMachine(PEERS, MemoryStore(), quotas=quotas)

    def insert(name: str) -> int:
        frames = [send.frame for send in machine.append([ending(name, 500)])]
        [answer] = [frame for frame in frames if isinstance(frame, UpdateDecision)]
        return int(answer.status[0])

    assert insert("a") == UpdateStatus.OK
    assert insert("b") == UpdateStatus.QUERY_QUOTA
    machine.tick(500)
    assert insert("c") == UpdateStatus.OK
