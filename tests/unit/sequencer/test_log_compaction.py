"""The log loses the rows of dead queries while it is written and followed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest

from ps2stream.errors import Unavailable
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.messages.handover import MergersRequest, SessionsHeld
from ps2stream.protocol.messages.updates import AppliedReport, LedgerBatch, NamesKept
from ps2stream.protocol.ports import LedgerChange, Store
from ps2stream.protocol.rows import QueryRows, UpdateKind, no_queries
from ps2stream.sequencer import log_compaction
from ps2stream.sequencer.log_compaction import LogCompaction
from ps2stream.sequencer.machine import SequencerMachine
from ps2stream.store.ledger import Ledger
from ps2stream.store.memory import MemoryStore
from tests.support.compaction import compact_often
from tests.support.updates import (
    Row,
    applied,
    delete,
    ids_of,
    insert,
    packed,
    query_rows,
    replace,
    update,
)

DISPATCHER = Address("dispatcher", 0)


@pytest.fixture(autouse=True)
def often() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        compact_often(patch)
        yield


class Churn:
    """A sequencer whose queries come and go, and what must be live."""

    def __init__(self, store: Store, random: Random) -> None:
        self.store, self.random = store, random
        self.live: dict[str, int] = {}  # handle of each id
        self.names = iter(range(1 << 30))
        self.seq = 0
        self.machine = self.start()

    def start(self) -> SequencerMachine:
        self.machine = SequencerMachine([DISPATCHER], self.store)
        self.machine.on(AppliedReport(0, self.machine.lsn, self.machine.lsn))
        return self.machine

    def change(self) -> None:
        """Inserts, replaces and deletes a few queries, in one commit."""
        ids, random = sorted(self.live), self.random
        gone = random.sample(ids, min(len(ids), random.randint(0, 4)))
        again = [id for id in ids if id not in gone and random.random() < 0.2]
        new = [str(next(self.names)) for _ in range(random.randint(1, 3))]
        rows: list[Row] = [insert(id) for id in new]
        rows += [replace(id, f"other {next(self.names)}") for id in again]
        rows += [delete(id) for id in gone]
        self.seq += 1
        self.machine.append([update(rows, self.seq)])
        self.machine.on(AppliedReport(0, self.machine.lsn, self.machine.lsn))
        for id in gone:
            del self.live[id]
        for id in (*new, *again):
            self.live[id] = 0

    def check(self) -> None:
        page, _ = self.machine._live.page(0, 1 << 20)
        assert sorted(ids_of(page)) == sorted(self.live)

    def count_rows(self) -> int:
        return sum(len(QueryRows.decode(batch.rows.data)) for batch in self.store.replay())


def list_tables(store: Store) -> list[bytes]:
    return [batch.sessions.tobytes() for batch in store.replay() if len(batch.sessions)]


def list_spans(store: Store) -> list[tuple[int, int]]:
    return [(batch.lsn_from, batch.lsn_to) for batch in store.replay()]


@pytest.mark.takes_turns
@pytest.mark.parametrize("seed", range(8))
def test_what_is_live_survives_restarts_amid_passes(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    with Ledger.open(tmp_path / "ledger", "{}") as ledger:
        churn = Churn(ledger, random)
        for _ in range(60):
            for _ in range(random.randint(0, 3)):
                churn.change()
            for _ in range(random.randint(0, 12)):
                churn.machine.tick()
            if random.random() < 0.2:
                churn.start()
            churn.check()
        spans = list_spans(ledger)
        assert [first for first, _ in spans] == [1, *(last + 1 for _, last in spans[:-1])]
        assert spans[-1][1] == churn.machine.lsn
    with Ledger.open(tmp_path / "ledger", "{}", compact=False) as ledger:
        churn.store = ledger
        churn.start()
        churn.check()


def test_a_log_of_churn_stays_as_small_as_what_is_live() -> None:
    churn = Churn(MemoryStore(), Random(1))
    for _ in range(400):
        churn.change()
        for _ in range(8):
            churn.machine.tick()
        assert churn.count_rows() < 3 * len(churn.live) + 50
    assert churn.machine.lsn > 1500


def test_changes_of_the_tables_of_sessions_stay() -> None:
    churn = Churn(MemoryStore(), Random(4))
    machine = churn.machine
    machine.run_actors("merger", 3)
    for n, mergers in enumerate((2, 3, 1)):
        for _ in range(20):
            churn.change()
        machine.on(MergersRequest(0, n, mergers))
        for merger in range(3):
            machine.on(SessionsHeld(merger, machine.lsn))
    before = list_tables(churn.store)
    assert len(before) == 6
    rows = churn.count_rows()
    for _ in range(40):
        churn.change()
        machine.on(NamesKept(0, machine.lsn, machine.tables.now.lsn))
        for _ in range(8):
            machine.tick()
    assert churn.count_rows() < rows / 2
    assert list_tables(churn.store) == before
    assert (churn.start().tables.mergers, churn.machine.tables.is_changing) == (1, False)
    churn.check()


def test_a_pass_that_ends_early_leaves_no_query_that_was_deleted() -> None:
    churn = Churn(MemoryStore(), Random(2))
    churn.machine.append([update([insert(str(i)) for i in range(9)], 1)])
    for i in range(9):
        churn.machine.append([update([delete(str(i))], 2 + i)])
        churn.machine.on(AppliedReport(0, churn.machine.lsn, churn.machine.lsn))
    churn.machine.append([update([insert("alive")], 20)])
    orphans = 0
    for _ in range(60):
        churn.machine.tick()
        rows = [QueryRows.decode(batch.rows.data) for batch in churn.store.replay()]
        all_rows = QueryRows.concat(rows)
        is_insert = all_rows.kind == UpdateKind.INSERT
        born, died = all_rows.handle[is_insert], all_rows.handle[~is_insert]
        orphans += bool(set(died.tolist()) - set(born.tolist()))
        assert ids_of(SequencerMachine([DISPATCHER], churn.store)._live.page(0, 99)[0]) == ["alive"]
    assert orphans  # an insert was gone whose delete was still there
    assert churn.count_rows() == 1


def test_a_full_disk_lets_a_pass_wait() -> None:
    store = MemoryStore()
    churn = Churn(store, Random(3))
    for _ in range(40):
        churn.change()
    before = churn.count_rows()
    store.refusing = "the disk is full"
    for _ in range(60):
        churn.machine.tick()
    assert churn.count_rows() == before
    store.refusing = ""
    for _ in range(60):
        churn.machine.tick()
    assert churn.count_rows() < before
    churn.check()


def test_nothing_is_left_out_that_a_snapshot_may_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_compaction, "KEPT_ROWS", 50)
    churn = Churn(MemoryStore(), Random(4))
    for _ in range(200):
        churn.change()
        for _ in range(4):
            churn.machine.tick()
        horizon = churn.machine._feeds._horizon
        assert horizon <= max(churn.machine.lsn - 50, 0)
    assert horizon > 100


def test_a_store_that_cannot_be_read_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    churn = Churn(store, Random(5))
    replay, calls = MemoryStore.replay, [0]

    def fail_often(self: MemoryStore, after: int = 0) -> Iterator[LedgerBatch]:
        calls[0] += 1
        for i, batch in enumerate(replay(self, after)):
            if calls[0] % 3 and i == 1:
                raise Unavailable("away")
            yield batch

    for _ in range(60):
        churn.change()
        with monkeypatch.context() as patch:
            patch.setattr(MemoryStore, "replay", fail_often)
            for _ in range(6):
                churn.machine.tick()
    churn.start()
    churn.check()


def test_many_changes_of_the_plan_in_a_row_end_no_pass() -> None:
    store = MemoryStore()
    plan = np.frombuffer(b"plan", np.uint8)
    for lsn in range(1, 11):
        store.commit(LedgerChange(LedgerBatch(lsn, lsn, 0, 0, 0, packed(no_queries()), plan)))
    store.commit(LedgerChange(applied([insert(str(i)) for i in range(4)], 11)))
    gone = query_rows([delete(str(i)) for i in range(4)], 15).replace(handle=np.arange(11, 15))
    store.commit(LedgerChange(LedgerBatch(15, 18, 0, 0, 0, packed(gone)), watermark=18))
    compaction = LogCompaction(store, rows=8)
    left_out = [compaction.tick(lsn=18, live=0) for _ in range(30)]
    assert max(left_out) == 18
    assert compaction.rows == 0
    assert sum(len(QueryRows.decode(batch.rows.data)) for batch in store.replay()) == 0
    assert sum(len(batch.strategy) > 0 for batch in store.replay()) == 10
