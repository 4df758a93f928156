"""The memory that repeated requests are answered from: unsettled answers, recent updates."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ps2stream.protocol.frame import I64, U8, U64, Array, sealed
from ps2stream.protocol.messages.updates import UpdateDecision, UpdateRequest
from ps2stream.protocol.ports import NamedUpdates, SettledAnswer
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.sequencer import kernels
from ps2stream.sequencer.columns import StringColumn
from ps2stream.sequencer.hash_table import HashTable, SaltedHash
from ps2stream.sequencer.kernels import NONE, NUMBERS


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


class UpdateKeys(NamedTuple):
    """The pairs (id, request id) of n updates. at int64[n]: their rows; off int64[n + 1],
    data: the pairs as strings; hashes uint64[n]."""

    at: I64
    off: I64
    data: U8
    hashes: U64


_NO_KEYS = UpdateKeys(
    np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.uint8), np.zeros(0, np.uint64)
)


class FoundRepeats(NamedTuple):
    """What is known of n rows. lsn int64[n]: of the earlier update that each row repeats, else 0;
    first int64[n]: the first row with the same id and request id, NONE for a plain insert or a row
    without a request id; keys: of the other rows."""

    lsn: I64
    first: I64
    keys: UpdateKeys


class RememberedUpdates:
    """The LSNs of the last `bound` deletes and REPLACE rows with a request id, by (id, request id).
    The store keeps those that changed something, with rising LSNs."""

    def __init__(self, kept: Iterable[NamedUpdates], bound: int, salt: int = 0) -> None:
        self._bound = bound
        self._hash = SaltedHash(salt)
        self._table = HashTable()
        # Rows first..end are remembered; the columns have room for more behind them.
        self._first = self._end = 0
        self._number = 0  # in the table, of the first row
        self._lsn = np.zeros(0, np.int64)
        self._off = np.zeros(1, np.int64)
        self._keys = np.zeros(0, np.uint8)
        self._hashes = np.zeros(0, np.uint64)
        for seen in kept:
            self.add(seen)

    @property
    def first(self) -> int:
        """The LSN of the oldest one, at most that of the oldest which the store must keep; 0
        without any."""
        return int(self._lsn[self._first]) if self._first < self._end else 0

    def find(self, rows: QueryRows, request_ids: StringColumn) -> FoundRepeats:
        """Finds the earlier updates that the rows repeat."""
        n = len(rows)
        lsn, first = np.zeros(n, np.int64), np.full(n, NONE, np.int64)
        if not len(request_ids[1]):
            return FoundRepeats(lsn, first, _NO_KEYS)
        keys = self._join_keys(rows.kind, (rows.id_off, rows.id), request_ids)
        if len(keys.at):
            kernels.find_repeats(*keys, self._list_known(), first, lsn)
        return FoundRepeats(lsn, first, keys)

    def add(self, requests: NamedUpdates | None, keys: UpdateKeys | None = None) -> None:
        """Adds updates, and forgets the oldest ones beyond the bound. keys: those
        that `find` has found, if they are of the same updates."""
        if requests is None:
            return
        n, old = len(requests.lsn), self._end
        if keys is None or len(keys.at) != n:
            ids, request_ids = (
                (requests.id_off, requests.id),
                (requests.request_off, requests.request),
            )
            keys = self._join_keys(np.full(n, UpdateKind.DELETE, np.uint8), ids, request_ids)
        begin, self._end = int(self._off[old]), old + n
        self._lsn = _make_room(self._lsn, old, old + n)
        self._off = _make_room(self._off, old + 1, old + n + 1)
        self._keys = _make_room(self._keys, begin, begin + len(keys.data))
        self._hashes = _make_room(self._hashes, old, old + n)
        self._hashes[old : self._end] = keys.hashes
        kernels.append_keys(
            self._table.make_room(n), keys.hashes, old, self._number,
            (self._lsn, self._off, self._keys), (sealed(requests.lsn), keys.off, keys.data),
        )  # fmt: skip
        if (end := self._end - self._bound) > self._first:
            numbers = self._number_rows(self._first, end)
            self._table.remove(self._hashes[self._first : end], numbers)
            self._first = end
        if self._first > self._bound // 4:
            self._drop_forgotten()

    def _join_keys(self, kind: U8, ids: StringColumn, request_ids: StringColumn) -> UpdateKeys:
        """Returns the keys of all but plain inserts that have a request id."""
        n, size = len(kind), len(ids[1]) + len(request_ids[1])
        at, off = np.empty(n, np.int64), np.empty(n + 1, np.int64)
        data = np.empty(4 * n + size, np.uint8)
        count: int = kernels.join_keys(
            sealed(kind), sealed(ids[0]), sealed(ids[1]),
            sealed(request_ids[0]), sealed(request_ids[1]), at, off, data,
        )  # fmt: skip
        off, data = sealed(off[: count + 1]), sealed(data[: off[count]])
        return UpdateKeys(at[:count], off, data, self._hash.hash(off, data))

    def _list_known(self) -> tuple[U64, I64, U8, I64, int]:
        """Returns what is remembered as a plain tuple, for a kernel."""
        return self._table.slots, self._off, self._keys, self._lsn, self._number

    def _drop_forgotten(self) -> None:
        """Moves what is remembered to the beginning of the columns."""
        first, end, n = self._first, self._end, self._end - self._first
        self._number = (self._number + first) % NUMBERS
        begin, size = int(self._off[first]), int(self._off[end] - self._off[first])
        self._keys[:size] = self._keys[begin : begin + size]
        self._off[: n + 1] = self._off[first : end + 1]
        self._off[: n + 1] -= begin
        self._lsn[:n] = self._lsn[first:end]
        self._hashes[:n] = self._hashes[first:end]
        self._first, self._end = 0, n

    def _number_rows(self, first: int, end: int) -> I64:
        """Returns the numbers that rows have in the table. They outlast the forgotten rows."""
        return (np.arange(first, end) + self._number) % NUMBERS


def _make_room(column: Array, used: int, end: int) -> Array:
    """Returns a column with room up to `end`: the same one, or a copy of what is used of it."""
    if end <= len(column):
        return column
    grown = np.zeros(end + end // 4 + 64, column.dtype)
    grown[:used] = column[:used]
    return grown
