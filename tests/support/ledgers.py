"""Content of ledgers in tests: three batches, sessions, answers, a delete request."""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.messages.updates import LedgerBatch, UpdateDecision
from ps2stream.protocol.ports import LedgerChange, NamedUpdates, SettledAnswer, Store
from ps2stream.protocol.rows import QueryRows
from tests.support.updates import applied, delete, insert

ANALYSIS = '{"stem": "english", "stop": true}'


def requests(lsn: int, id: str = "a", request: str = "r") -> NamedUpdates:
    return NamedUpdates(np.array([lsn]), *strings_to_column([id]), *strings_to_column([request]))


def answer(dispatcher: int, epoch: int, seq: int, settled: int = 0, lsn: int = 1) -> SettledAnswer:
    decision = UpdateDecision(seq, np.zeros(2, np.uint8), np.array([lsn, lsn + 1]))
    return SettledAnswer(dispatcher, epoch, seq, settled, decision)


def rows_of(batch: LedgerBatch) -> QueryRows:
    return QueryRows.decode(batch.rows.data)


def fill(store: Store) -> list[bytes]:
    first = applied([insert("a"), insert("b")], 1)
    second, third = applied([insert("c", "é" * 9)], 3, 1), applied([delete("a")], 4)
    store.commit(LedgerChange(first, sessions=[(1, b"s"), (7, "ß".encode())]))
    store.epoch("worker", 1)
    store.commit(LedgerChange(second, answers=[answer(0, 1, 1), answer(1, 1, 1)]))
    store.commit(LedgerChange(third, requests=requests(4, "a", "r"), answers=[answer(0, 1, 2, 2)]))
    return [b.encode() for b in (first, second, third)]
