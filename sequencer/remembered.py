"""The memory that repeated requests are answered from: unsettled answers, recent updates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ps2stream.protocol.frame import I64, U64, Array, sealed
from ps2stream.protocol.messages.updates import UpdateDecision, UpdateRequest
from ps2stream.protocol.ports import NamedUpdates, SettledAnswer
from ps2stream.protocol.rows import QueryRows
from ps2stream.sequencer import kernels
from ps2stream.sequencer.columns import StringColumn
from ps2stream.sequencer.hash_table import SaltedHash
from ps2stream.sequencer.table_kernels import NONE


class RequestKey(NamedTuple):
    """The identity of an UpdateRequest."""

    dispatcher: int
    epoch: int
    seq: int


class RememberedAnswers:
    """The answers that the store keeps, and the number below which each dispatcher needs none."""

    def __init__(self, kept: Iterable[SettledAnswer]) -> None:
        self._answers: dict[tuple[int, int, int], SettledAnswer] = {}
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
        known, settled = self._answers, self._settled
        for answer in answers:
            dispatcher, epoch, _, seq, _ = answer
            known[answer[:3]] = answer
            self._settle_answers(dispatcher, epoch, seq)
        for key in [key for key in known if key[1:] < settled[key[0]]]:
            del known[key]

    def _settle_answers(self, dispatcher: int, epoch: int, seq: int) -> None:
        """Notes that a dispatcher needs no answer below this number."""
        known = self._settled.get(dispatcher, (0, 0))
        self._settled[dispatcher] = max(known, (epoch, seq))


class FoundRepeats(NamedTuple):
    """What is known of n rows. lsn int64[n]: of the earlier update that each row repeats, else 0;
    first int64[n]: the first row with the same id and request id, NONE for a plain insert or a row
    without a request id; hashes uint64[n]: of the pairs of both, for `add`."""

    lsn: I64
    first: I64
    hashes: U64


class RememberedUpdates:
    """The LSNs of the last `bound` deletes and REPLACE rows with a request id, by (id, request id).
    The store keeps those that changed something, with rising LSNs."""

    def __init__(self, kept: Iterable[NamedUpdates], bound: int, salt: int = 0) -> None:
        self._bound = bound
        self._hash = SaltedHash(salt)
        # Rows first..end are remembered; the columns have room for more behind them.
        self._first = self._end = 0
        self._number = 0  # of the first row, as kernels.append_keys counts
        size = 1 << max(bound - 1, 1).bit_length()
        self._heads, self._links = np.zeros(size, np.int64), np.zeros(size, np.uint64)
        self._lsn = np.zeros(0, np.int64)
        self._off = np.zeros(1, np.int64)
        self._keys = np.zeros(0, np.uint8)
        for seen in kept:
            self.add(seen)

    @property
    def first(self) -> int:
        """The LSN of the oldest one, at most that of the oldest which the store must keep; 0
        without any."""
        return int(self._lsn[self._first]) if self._first < self._end else 0

    @property
    def known(self) -> tuple[Array, Array, I64, Array, Array, int, int]:
        """What is remembered, as kernels.find_repeats has it."""
        columns = self._heads, self._links, self._off, self._keys, self._lsn
        return *columns, self._number, self._first

    def find(self, rows: QueryRows, hashes: U64, request_ids: StringColumn) -> FoundRepeats:
        """Finds the earlier updates that the rows repeat. hashes: of their ids, with this salt."""
        n = len(rows)
        if not len(request_ids[1]):
            return FoundRepeats(np.zeros(n, np.int64), np.full(n, NONE, np.int64), hashes)
        lsn, first = np.empty((2, n), np.int64)
        hashes = self._hash_pairs(hashes, request_ids)
        kernels.find_repeats(
            sealed(rows.kind), (sealed(rows.id_off), sealed(rows.id)),
            (sealed(request_ids[0]), sealed(request_ids[1])), hashes, self.known, first, lsn,
        )  # fmt: skip
        return FoundRepeats(lsn, first, hashes)

    def add(self, requests: NamedUpdates | None, hashes: U64 | None = None) -> None:
        """Adds updates, and forgets the oldest ones beyond the bound. hashes: of their pairs, as
        `find` returns them."""
        if requests is None:
            return
        if hashes is None:
            hashes = self._hash.hash(requests.id_off, requests.id)
            hashes = self._hash_pairs(hashes, (requests.request_off, requests.request))
        frame = np.frombuffer(requests.encode(), np.uint8)
        old = self._end
        begin, self._end = int(self._off[old]), old + len(hashes)
        # The frame has more bytes than its keys.
        if self._end >= len(self._lsn) or begin + len(frame) > len(self._keys):
            self._lsn = _make_room(self._lsn, old, self._end + 1)
            self._off = _make_room(self._off, old + 1, len(self._lsn))
            self._keys = _make_room(self._keys, begin, begin + len(frame))
        columns = self._lsn, self._off, self._keys
        kernels.append_keys(self._heads, self._links, hashes, old, self._number, columns, frame)
        self._first = max(self._first, self._end - self._bound)
        if self._first > self._bound // 4:
            self._drop_forgotten()

    def _hash_pairs(self, hashes: U64, request_ids: StringColumn) -> U64:
        """Returns the hashes of pairs of ids, of which these are the hashes, and request ids."""
        # With a factor, for else two strings would have one hash with each in the other's place.
        return hashes + kernels.PAIR * self._hash.hash(*request_ids)

    def _drop_forgotten(self) -> None:
        """Moves what is remembered to the beginning of the columns."""
        first, end, n = self._first, self._end, self._end - self._first
        self._number += first
        begin, last = int(self._off[first]), int(self._off[end])
        # Piece by piece, none of which overlaps its place: NumPy would make a copy else.
        for at in range(begin, last, begin):
            stop = min(at + begin, last)
            self._keys[at - begin : stop - begin] = self._keys[at:stop]
        self._off[: n + 1] = self._off[first : end + 1]
        self._off[: n + 1] -= begin
        self._lsn[:n] = self._lsn[first:end]
        self._first, self._end = 0, n


def _make_room(column: Array, used: int, end: int) -> Array:
    """Returns a column with room up to `end`: the same one, or a copy of what is used of it."""
    if end <= len(column):
        return column
    grown = np.zeros(end + end // 4 + 64, column.dtype)
    grown[:used] = column[:used]
    return grown
