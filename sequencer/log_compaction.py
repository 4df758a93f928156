"""The compaction of the ledger's log while the service runs, a little at a time.

A pass reads the log twice, from its beginning to a cutoff: first it lists the queries that were
deleted up to there; then, if they are worth it, it replaces some batches at a time by one without
their rows. Who has applied less than what was left out gets the state instead of the log
(feed.py). A pass that ends early, as the service does, leaves deletes whose inserts are gone:
`leave_orphans_out`. The next one removes them.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from ps2stream.errors import StoreFailed, Unavailable
from ps2stream.protocol.frame import I64
from ps2stream.protocol.messages.updates import LedgerBatch
from ps2stream.protocol.ports import Store
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.sequencer.feed import packed
from ps2stream.sequencer.registry import QueryRegistry

STEP_ROWS = 4096
"""Rows that a step reads, and those of one batch more; there is a step a tick."""
STEP_BATCHES = 256
WORTH = 100_000
"""Dead rows from which on a pass is worthwhile, if there are DEAD_PER_LIVE as well."""
DEAD_PER_LIVE = 1
KEPT_ROWS = 100_000
"""Rows at the end of the log that stay, and a quarter as many as there are live queries."""
KEPT_TICKS = 3000
"""The cutoff was the watermark this long ago at least: workers go on from snapshots by the log."""


class LogCompaction:
    """The compaction of the log of `store`, which has so many `rows`."""

    def __init__(self, store: Store, rows: int) -> None:
        self._store = store
        self.rows = rows
        self._marks = 0, 0  # the watermark at the last KEPT_TICKS, and at those before
        self._ticks = 0
        self._cutoff = 0  # of the pass under way, or the last one
        self._gone: I64 | None = None  # handles of the pass under way, sorted, once they are listed
        self._deleted: list[I64] | None = None  # the same while they are being listed
        self._after = 0  # the LSN up to which the pass has come

    def tick(self, lsn: int, live: int) -> int:
        """Does a step, if a pass is under way or one is due. Returns the highest LSN of which a row
        was left out in it; 0 if none was. `lsn` is the last of the ledger, of which `live` queries
        are live. Raises StoreFailed."""
        self._ticks += 1
        if not self._ticks % KEPT_TICKS:
            self._marks = self._raise_marks(self._store.watermark)
        if self._deleted is None and self._gone is None and not self._begin(lsn, live):
            return 0
        try:
            return self._list_deleted() if self._gone is None else self._leave_out(self._gone)
        except StoreFailed:
            raise
        except Unavailable:
            return 0  # the same step follows at the next tick

    def _raise_marks(self, watermark: int) -> tuple[int, int]:
        return watermark, self._marks[0]

    def _begin(self, lsn: int, live: int) -> bool:
        """Begins a pass, if the log has more dead rows than others; returns whether it does."""
        cutoff = min(self._marks[1], lsn - KEPT_ROWS - live // 4)
        dead = self.rows - (lsn - cutoff) - live  # at the cutoff or below, or somewhat more
        if cutoff <= self._cutoff or dead <= max(WORTH, DEAD_PER_LIVE * live):
            return False
        self._cutoff, self._after, self._deleted = cutoff, 0, []
        return True

    def _list_deleted(self) -> int:
        assert self._deleted is not None
        if (batches := self._read_step()) is None:
            handles = np.sort(np.concatenate([np.zeros(0, np.int64), *self._deleted]))
            self._gone, self._deleted, self._after = handles if len(handles) else None, None, 0
            return 0
        for batch in batches:
            rows = QueryRows.decode(batch.rows.data)
            is_dead = (rows.kind == UpdateKind.DELETE) & (rows.lsn <= self._cutoff)
            self._deleted.append(rows.handle[is_dead])
        return 0

    def _leave_out(self, gone: I64) -> int:
        """Replaces the next batches by one without the rows of these handles, if it has any."""
        before = self._after
        if (batches := self._read_step()) is None:
            self._gone = None
            return 0
        if not batches:
            return 0
        rows = QueryRows.concat([QueryRows.decode(batch.rows.data) for batch in batches])
        at = np.minimum(np.searchsorted(gone, rows.handle), len(gone) - 1)
        is_left_out = gone[at] == rows.handle
        if not is_left_out.any():
            return 0
        left_out = int(rows.lsn[is_left_out].max())
        one = dataclasses.replace(
            batches[0],
            lsn_to=batches[-1].lsn_to,
            until=max(left_out, *(batch.until for batch in batches)),
            rows=packed(rows.take(np.flatnonzero(~is_left_out))),
        )
        try:
            self._store.replace(one)
        except Unavailable:
            self._after = before
            raise
        self.rows -= int(np.count_nonzero(is_left_out))
        return left_out

    def _read_step(self) -> list[LedgerBatch] | None:
        """Reads the next batches up to the cutoff without those that change the plans or the tables
        of sessions, between which there may be none; None at the end."""
        found: list[LedgerBatch] = []
        count, after = 0, self._after
        for batch in itertools.islice(self._store.replay(after), STEP_BATCHES):
            if batch.lsn_to > self._cutoff or count >= STEP_ROWS:
                break
            if not len(batch.strategy) and not len(batch.sessions):
                found.append(batch)
                count += len(QueryRows.decode(batch.rows.data))
            elif found:
                break
            after = batch.lsn_to
        is_over, self._after = after == self._after, after
        return None if is_over else found


def leave_orphans_out(rows: QueryRows, live: QueryRegistry, horizon: int) -> QueryRows:
    """Returns the rows of a batch of the log without deletes of queries whose inserts are gone.
    `live` are the queries before it; the log before it lacks rows up to `horizon`."""
    is_old = (rows.kind == UpdateKind.DELETE) & (rows.handle <= horizon)
    if not is_old.any():
        return rows
    old = rows.take(np.flatnonzero(is_old))
    is_left = ~is_old
    is_left[is_old] = live.handles(old.id_off, old.id) == old.handle
    return rows if is_left.all() else rows.take(np.flatnonzero(is_left))
