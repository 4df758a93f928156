"""The memory that repeated requests are answered from: unsettled answers, recent deletes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ps2stream.protocol.frame import I64, U8, U64, Array, sealed
from ps2stream.protocol.messages.updates import UpdateDecision, UpdateRequest
from ps2stream.protocol.ports import DeleteRequests, SettledAnswer
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.sequencer import kernels
from ps2stream.sequencer.hash_table import HashTable, SaltedHash
from ps2stream.sequencer.kernels import NONE


class RequestKey(NamedTuple):
    """The identity of an UpdateRequest."""

    dispatcher: int
    epoch: int
    seq: int


class RememberedAnswers:
    """The answers that the store keeps, and the number below which each dispatcher needs none."""

    def __init__(self, kept: Iterable[SettledAnswer]) -> None:
        self._answers: dict[RequestKey, SettledAnswer] = {}
        self._settled: dict[int, tuple[int, int]] = {}  # epoch, seq
        self.keep(kept)

    def sift(
        self, requests: Iterable[UpdateRequest]
    ) -> tuple[dict[RequestKey, UpdateRequest], dict[RequestKey, UpdateDecision]]:
        """Returns (requests to decide, answers to send again); what is settled is in neither."""
        requests = list(requests)
        for request in requests:
            self._settle_answers(request.dispatcher, request.epoch, request.settled)
        fresh: dict[RequestKey, UpdateRequest] = {}
        known: dict[RequestKey, UpdateDecision] = {}
        for request in requests:
            key = RequestKey(request.dispatcher, request.epoch, request.seq)
            if key[1:] < self._settled[request.dispatcher]:
                continue
            if (answer := self._answers.get(key)) is not None:
                known[key] = answer.decision
            else:
                fresh[key] = request
        return fresh, known

    def make_answer(self, key: RequestKey, decision: UpdateDecision) -> SettledAnswer:
        """Returns the decision as an Answer to be committed with it."""
        return SettledAnswer(*key, self._settled[key.dispatcher][1], decision)

    def keep(self, answers: Iterable[SettledAnswer]) -> None:
        """Keeps committed answers, and drops those that they settle, as the store has done."""
        for answer in answers:
            self._answers[RequestKey(*answer[:3])] = answer
            self._settle_answers(answer.dispatcher, answer.epoch, answer.settled)
        old = [key for key in self._answers if key[1:] < self._settled[key.dispatcher]]
        deque(map(self._answers.pop, old), maxlen=0)

    def _settle_answers(self, dispatcher: int, epoch: int, seq: int) -> None:
        """Notes that a dispatcher needs no answer below this number."""
        known = self._settled.get(dispatcher, (0, 0))
        self._settled[dispatcher] = max(known, (epoch, seq))


class RememberedDeletes:
    """The LSNs of the last `bound` deletes with a request id, by (id, request id)."""

    def __init__(self, kept: Iterable[DeleteRequests], bound: int, salt: int = 0) -> None:
        self._bound = bound
        self._hash = SaltedHash(salt)
        self._table = HashTable()
        # Rows first..end are remembered; the columns have room for more behind them.
        self._first = self._end = 0
        self._lsn = np.zeros(0, np.int64)
        self._hashes = np.zeros(0, np.uint64)
        self._off = np.zeros(1, np.int64)
        self._keys = np.zeros(0, np.uint8)
        for seen in kept:
            self.add(seen)

    @property
    def first(self) -> int:
        """The LSN of the oldest one; 0 without any."""
        return int(self._lsn[self._first]) if self._first < self._end else 0

    def find(self, rows: QueryRows, request_ids: tuple[I64, U8]) -> tuple[I64, I64]:
        """Returns (the LSN of the earlier delete that each row repeats, else 0; the first row with
        the same id and request id, NONE for an insert or a row without a request id)."""
        n = len(rows)
        lsn, first = np.zeros(n, np.int64), np.full(n, NONE, np.int64)
        off, data = request_ids
        at = np.flatnonzero((rows.kind == UpdateKind.DELETE) & (np.diff(off) > 0))
        if not len(at):
            return lsn, first
        keys = _join_keys(rows.id_off, rows.id, off, data, at)
        hashes = self._hash.hash(*keys)
        same = np.empty(len(at), np.int64)
        kernels.find_first_rows(sealed(keys[0]), sealed(keys[1]), hashes, same)
        first[at] = at[same]
        lsn[at] = self._find_lsns(keys, hashes)
        return lsn, first

    def add(self, requests: DeleteRequests | None) -> None:
        """Adds deletes with higher LSNs, and forgets the oldest ones beyond the bound."""
        if requests is None:
            return
        n, old = len(requests.lsn), self._end
        ids, request_ids = (requests.id_off, requests.id), (requests.request_off, requests.request)
        off, keys = _join_keys(*ids, *request_ids, np.arange(n))
        hashes = self._hash.hash(off, keys)
        begin, self._end = int(self._off[old]), old + n
        self._lsn = _write_into(self._lsn, old, requests.lsn)
        self._hashes = _write_into(self._hashes, old, hashes)
        self._off = _write_into(self._off, old + 1, off[1:] + begin)
        self._keys = _write_into(self._keys, begin, keys)
        self._table.insert(hashes, np.arange(old, old + n))
        gone = np.arange(self._first, max(self._first, self._end - self._bound))
        self._table.remove(self._hashes[gone], gone)
        self._first += len(gone)
        if self._first > self._bound:
            self._drop_forgotten()

    def _find_lsns(self, keys: tuple[I64, U8], hashes: U64) -> I64:
        """Returns the LSN of each key, 0 for one that is not remembered."""
        lsn, slot = np.zeros(len(hashes), np.int64), np.full(len(hashes), NONE, np.int64)
        pending = np.arange(len(hashes))
        while len(pending):
            later = slot[pending]
            row = self._table.find(hashes[pending], later)
            slot[pending] = later + 1
            pending, row = pending[row != NONE], row[row != NONE]
            same = np.zeros(len(pending), np.uint8)
            kernels.compare_keys(
                sealed(keys[0]), sealed(keys[1]), pending,
                sealed(self._off), sealed(self._keys), row, same,
            )  # fmt: skip
            found = same.view(np.bool_)
            lsn[pending[found]] = self._lsn[row[found]]
            pending = pending[~found]
        return lsn

    def _drop_forgotten(self) -> None:
        """Moves what is remembered to the beginning of the columns."""
        first, end = self._first, self._end
        self._keys = self._keys[self._off[first] : self._off[end]].copy()
        self._off = self._off[first : end + 1] - self._off[first]
        self._lsn, self._hashes = self._lsn[first:end].copy(), self._hashes[first:end].copy()
        self._first, self._end = 0, end - first
        self._table = HashTable()
        self._table.insert(self._hashes, np.arange(self._end))


def _join_keys(off: I64, ids: U8, request_off: I64, request_ids: U8, at: I64) -> tuple[I64, U8]:
    """Returns the ids and request ids of the rows `at` as one column."""
    joined: tuple[I64, U8] = kernels.join_keys(
        sealed(off), sealed(ids), sealed(request_off), sealed(request_ids), sealed(at)
    )
    return joined


def _write_into(column: Array, at: int, values: Array) -> Array:
    """Writes values at a place of a column, or of a copy that has twice the room."""
    end = at + len(values)
    if end > len(column):
        grown = np.zeros(2 * end, column.dtype)
        grown[:at] = column[:at]
        column = grown
    column[at:end] = values
    return column
