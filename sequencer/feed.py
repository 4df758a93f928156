"""Answers to actors that know nothing yet, or have lost updates (docs/decisions/0006)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from ps2stream.protocol.addresses import ROLES, Address, nothing
from ps2stream.protocol.frame import U8
from ps2stream.protocol.messages.updates import LedgerBatch, LedgerFetch
from ps2stream.protocol.ports import Store
from ps2stream.protocol.rows import QueryRows, no_queries
from ps2stream.sequencer.registry import QueryRegistry, StatePiece

FEED_ROWS = 16_384
IDLE_TICKS = 100  # without a request after which a state is dropped


class StateFeed:
    """The state `number`, as of the LSN `until`, on its way to one receiver. `strategy` is the
    record of the plan, or the plan change, that was in force, and `sessions` that of the tables of
    sessions. Without `texts`, the rows have no ids and no sources: dispatchers do not need them,
    and they are a third of the bytes."""

    def __init__(
        self,
        number: int,
        pieces: Sequence[StatePiece],
        until: int,
        strategy: U8,
        sessions: U8,
        texts: bool = True,
    ) -> None:
        self.number = number
        self._texts = texts
        self._strategy = strategy
        self._sessions = sessions
        self.until = until
        self.idle = 0  # ticks since the last request
        self._pieces = pieces
        self._starts = [0, *(piece.last for piece in pieces[:-1])]
        self._total = sum(len(piece.at) + piece.end - piece.first for piece in pieces)
        self._asked = -1  # the piece requested last
        self._sent = 0  # pieces sent

    def answer(self, request: LedgerFetch) -> list[LedgerBatch]:
        """Returns the requested piece and the one after it, which is on its way while the receiver
        applies this one, without what was sent before; all of it if the request is repeated. If the
        request fits no piece of this state, the first one is meant; a receiver that has the first
        piece ignores it. A new state instead would let two requests that are under way start two
        states again and again."""
        self.idle = 0
        asked = 0
        if request.state == self.number and request.after in self._starts:
            asked = self._starts.index(request.after)
        first = max(asked, self._sent) if asked > self._asked else asked
        self._asked, self._sent = asked, min(asked + 2, len(self._starts))
        return [self._make_piece(number) for number in range(first, self._sent)]

    def _make_piece(self, number: int) -> LedgerBatch:
        """Returns one piece as a message; the first has the records."""
        rows = self._pieces[number].rows() if self._pieces else no_queries()
        if not self._texts:
            off, none = np.zeros(len(rows) + 1, np.int64), np.zeros(0, np.uint8)
            rows = rows.replace(id_off=off, id=none, source_off=off, source=none)
        ends = [*self._starts[1:], self.until]
        records = nothing(), nothing()
        if number == 0:
            records = self._strategy, self._sessions
        span = self._starts[number] + 1, ends[number]
        counts = self.number, self.until
        return LedgerBatch(*span, -1, *counts, packed(rows), *records, self._total)


class FetchAnswers:
    """The answers to Fetch: from the log, or from a state that is on its way to a receiver.
    `number` is that of the last state before; the log lacks updates up to `horizon`, none above."""

    def __init__(self, number: int, horizon: int) -> None:
        self._number = number
        self._horizon = horizon
        self._feeds: dict[Address, StateFeed] = {}

    def __len__(self) -> int:
        return len(self._feeds)

    def note_left_out(self, lsn: int) -> None:
        """Notes that a row of this LSN was left out of the log, and perhaps lower ones."""
        self._horizon = max(self._horizon, lsn)

    def tick(self) -> None:
        for feed in self._feeds.values():
            feed.idle += 1
        self._feeds = {to: f for to, f in self._feeds.items() if f.idle < IDLE_TICKS}

    def joined(self, peer: Address) -> None:
        self._feeds.pop(peer, None)

    def answer(
        self,
        request: LedgerFetch,
        live: QueryRegistry,
        store: Store,
        lsn: int,
        strategy: Callable[[], U8],
        sessions: Callable[[], U8] = nothing,
    ) -> list[LedgerBatch]:
        """Returns what follows `request.after` in the state, or in the log FEED_ROWS or a few more
        rows, if anything does. `lsn` is the last of the ledger, and `strategy` makes the record of
        the plan, or the plan change, in force, `sessions` that of the tables of sessions."""
        to = Address(ROLES[request.role], request.index)
        if request.after >= max(self._horizon, 1) and not request.state:
            self._feeds.pop(to, None)
            return [_read_log(store, request.after)] if request.after < lsn else []
        if not lsn:
            return []
        feed = self._feeds.get(to)
        # One that has all of a state needs another one, if the log has lost what follows it.
        if feed is None or (not request.state and request.after >= feed.until):
            self._number += 1
            pieces = live.state(FEED_ROWS)
            feed = StateFeed(
                self._number, pieces, lsn, strategy(), sessions(), texts=to.role != "dispatcher"
            )
            self._feeds[to] = feed
        return feed.answer(request)


def _read_log(store: Store, after: int) -> LedgerBatch:
    """Returns what follows this LSN in the log: rows, or one change of plan or sessions."""
    found: list[LedgerBatch] = []
    for batch in store.replay(after):
        if len(batch.strategy) or len(batch.sessions):
            if found:
                break
            return dataclasses.replace(batch, owner=-1)
        found.append(batch)
        if batch.lsn_to - found[0].lsn_from >= FEED_ROWS:
            break
    rows = QueryRows.concat([QueryRows.decode(batch.rows.data) for batch in found])
    return LedgerBatch(found[0].lsn_from, found[-1].lsn_to, -1, 0, 0, packed(rows))


def packed(rows: QueryRows) -> U8:
    """Returns the rows as a column of a message."""
    return np.frombuffer(rows.encode(), np.uint8)


def find_left_out(batch: LedgerBatch, rows: QueryRows) -> int:
    """Returns the highest LSN of which the batch lacks a row; 0 when it has all. An insert alone
    may be what compaction left of a replacement, so `until` says so."""
    if (
        len(batch.strategy)
        or len(batch.sessions)
        or (not batch.until and len(rows) > batch.lsn_to - batch.lsn_from)
    ):
        return 0
    present = np.unique(np.concatenate([[batch.lsn_from - 1], rows.lsn]))
    after = np.concatenate([present[1:], [batch.lsn_to + 1]])  # the next one that is there
    gaps = after[after > present + 1]
    return max(batch.until, int(gaps[-1]) - 1 if len(gaps) else 0)
