"""New queries against the objects that are still valid (docs/decisions/0023).

An object whose LSN is below that of a query's insert never meets it on its way through the workers,
and one with this LSN or a later one always does. So a query with retro is matched here, against all
of this dispatcher's objects that have a lower LSN and an end after the time of the insert: no gap
and no repeat at the border. What is found is logged as batches of their own, with offsets of their
own, and released to the mergers once all of it is durable. A merger takes each batch once, so a
repeat after a crash adds nothing; what a crash left unfinished is done anew.

The work is done in turns, a chunk of objects at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ps2stream.dispatcher.gathering import NO_OBJECTS
from ps2stream.dispatcher.instructions import Instruction, SyncLog
from ps2stream.dispatcher.object_log import ObjectLog, column
from ps2stream.dispatcher.ports import NewIndex, RetroRouter, TrialIndex
from ps2stream.dispatcher.retro_queue import RetroQueries
from ps2stream.dispatcher.valid_objects import ValidChunk
from ps2stream.errors import Unavailable
from ps2stream.language.analyzer import Analyzer
from ps2stream.language.literals import LiteralView, WatchedLiterals
from ps2stream.language.object_terms import list_compared, search_rows
from ps2stream.protocol.frame import I64
from ps2stream.protocol.id_sets import IdSet
from ps2stream.protocol.log_records import RetroRecord
from ps2stream.protocol.rows import ObjectRows, no_offsets
from ps2stream.space.grid import Grid

MOST_PAIRS = 1 << 20
"""The pairs of queries that are matched together, about: they stay in memory until all of them are
durable."""


class RetroMeans(NamedTuple):
    """What queries are matched with, and the bytes of valid objects that are kept, about."""

    analyzer: Analyzer
    new_index: NewIndex
    grid: Grid
    limit: int


class FoundPairs(NamedTuple):
    """Pairs of a chunk, by rising row: row, handle and session of each."""

    row: I64
    handle: I64
    session: I64


class _RetroJob:
    """A group of queries that is under way: what is left to scan, and how many parts are logged.
    `end` is that of the log once all is logged."""

    def __init__(
        self,
        queries: RetroQueries,
        index: TrialIndex,
        chunks: Sequence[ValidChunk],
        missed: I64,
        literals: LiteralView,
    ) -> None:
        self.queries = queries
        self.index = index
        self.chunks = deque(chunks)
        self.missed = missed
        self.literals = literals
        self.logged: list[RetroRecord] = []
        self.pairs = self.scanned = 0  # pairs in them; chunks that were matched
        self.end: int | None = None

    def count_fitting(self, pairs: int) -> int:
        """Returns how many of its queries may be matched together, if `pairs` more were found in
        the next chunk: all, or fewer if that is too many pairs."""
        n, found = len(self.queries.rows), self.pairs + pairs
        if found <= MOST_PAIRS or n == 1:
            return n
        chunks = self.scanned + len(self.chunks)
        expected = max(found * chunks // (self.scanned + 1), found)
        return max(min(n * MOST_PAIRS // (2 * expected), n // 2), 1)


class RetroMatching:
    """The matching of new queries against the valid objects of one dispatcher. Instructions go to
    `out`. It goes on from what the log holds."""

    def __init__(
        self,
        router: RetroRouter,
        log: ObjectLog,
        means: RetroMeans,
        out: list[Instruction],
    ) -> None:
        self.objects = log.recover_objects(means.limit, means.analyzer)
        self._router = router
        self._log = log
        self._analyzer, self._new_index, self._grid = means[:3]
        self._out = out
        self._job: _RetroJob | None = None
        self._found: deque[RetroRecord] = deque(log.recover_found())
        for record in self._found:
            router.retro.open_batch(record.batch, record.lsn)
        self._is_blocked = False  # the log took nothing; a tick tries again
        self.pairs = self.gaps = 0

    @property
    def has_work(self) -> bool:
        """Returns whether `work` does something. A group begins once every object of a lower LSN is
        known here: a batch that is reserved is not before it is durable, as nobody may see it
        before."""
        if self._found:
            return self._router.ready
        if self._is_blocked:
            return False
        if self._job is not None:
            return self._job.end is None
        queue = self._router.retro
        if not queue.has_due or queue.open:  # one group is in memory at a time
            return False
        if self._awaits_ends and queue.due_last > self._router.producers.lsn:
            return False
        return self._router.ready and queue.due_last <= self._router.reserved_from

    @property
    def is_idle(self) -> bool:
        """Returns whether nothing is due, under way or to be released."""
        return self._job is None and not self._found and self._router.retro.is_idle

    @property
    def counters(self) -> dict[str, int]:
        """Totals since the start, and present sizes."""
        objects = self.objects
        return {
            "valid_bytes": objects.size,
            "valid_evicted": objects.evicted,
            "retro_pairs": self.pairs,
        }

    def note_batch(self, rows: ObjectRows, offset: int, lsn: int) -> None:
        """Keeps those objects of a routed batch that have an end."""
        n = len(rows)
        self.objects.add(rows, np.arange(offset, offset + n), np.full(n, lsn, np.int64))

    def withdraw(self, ids: IdSet) -> None:
        """Drops the objects with these stored ids, also for the queries that are under way. What
        they have found already stays found."""
        self.objects.withdraw(ids)
        if (job := self._job) is not None:
            left = (chunk.without(ids) for chunk in job.chunks)
            job.chunks = deque(chunk for chunk in left if chunk is not None)

    def tick(self, now_ms: int) -> None:
        """Does periodic work, once a second or so."""
        self._is_blocked = False
        if self._router.ready and self._router.retro.is_idle:
            self.objects.expire(now_ms)  # otherwise queries of long ago may yet need them

    def work(self) -> None:
        """Does one step: releases what an earlier incarnation has found, begins with a group of
        queries, matches it against a chunk, or ends it."""
        if self._found:
            self._release([self._found.popleft()])
            return
        if self._job is None:
            self._job = self._begin(self._router.retro.take())
        try:
            self._go_on(self._job)
        except Unavailable:
            self._is_blocked = True  # a full disk
            self._out.append(SyncLog())  # if the log has failed for good, this incarnation ends

    def synced(self, end: int) -> None:
        """Releases what has become durable."""
        job = self._job
        if job is not None and job.end is not None and job.end <= end:
            self._job = None
            self.pairs += job.pairs
            self._release(job.logged)
            self._router.retro.finish()

    @property
    def _awaits_ends(self) -> bool:
        """Returns whether it is not known yet until when the objects of dispatchers that leave
        would be valid, which the first one reports to the sessions of later queries."""
        return self._router.index == 0 and self._router.producers.is_shrinking

    @property
    def _left_out(self) -> int:
        return 0 if self._router.index else self._router.producers.left_out

    def _begin(self, queries: RetroQueries) -> _RetroJob:
        rows, tags = queries.rows, queries.tags
        # What has ended before the inserts need not be looked at.
        earliest = int(queries.inserted.min())
        chunks = [
            chunk
            for chunk in self.objects.chunks
            if chunk.lsn.min() < queries.last and chunk.rows.until.max() > earliest
        ]
        left_out = max(self._log.validity.left_out, self._left_out)
        is_missed = queries.inserted < max(self.objects.horizon, left_out)
        missed = np.unique(rows.session[is_missed])
        index = self._new_index(self._grid)
        if chunks:
            index.insert(rows, tags.off, tags.cell, tags.term)
        return _RetroJob(queries, index, chunks, missed, WatchedLiterals.of(rows).view())

    def _go_on(self, job: _RetroJob) -> None:
        if job.chunks:
            chunk = job.chunks[0]
            found = self._match(job, chunk)
            fitting = job.count_fitting(len(found.row))
            if fitting < len(job.queries.rows):
                self._begin_anew(job, fitting)
                return
            if len(found.row):
                at, row = np.unique(found.row, return_inverse=True)
                self._append(job, chunk.take(at), found._replace(row=row))
            job.chunks.popleft()
            job.scanned += 1
        elif len(job.missed):
            none = np.zeros(0, np.int64)
            empty = ValidChunk(NO_OBJECTS, none, none)
            self._append(job, empty, FoundPairs(none, none, none), job.missed)
            self.gaps += len(job.missed)
            job.missed = none
        else:
            job.end = self._log.validity.note(
                job.queries.last, self.objects.horizon, len(job.logged)
            )
            self._out.append(SyncLog())

    def _match(self, job: _RetroJob, chunk: ValidChunk) -> FoundPairs:
        """Finds the pairs of the queries and the objects of a chunk that were valid and accepted
        before."""
        rows, queries = chunk.rows, job.queries
        if len(job.literals.term):
            rows = search_rows(rows, self._analyzer, job.literals)
        values = list_compared((rows.opaque_off, rows.opaque), self._analyzer, job.literals)
        found = job.index.match(
            queries.last, rows.lon, rows.lat, rows.term_off, rows.term,
            value_off=values.off, value=values.word,
        )  # fmt: skip
        row, handle = found.row.astype(np.int64), found.handle
        query = np.searchsorted(queries.rows.handle, handle)
        kept = chunk.lsn[row] < handle
        kept &= rows.until[row] > queries.inserted[query]
        row, handle, query = row[kept], handle[kept], query[kept]
        order = np.lexsort((handle, row))  # an index finds them in no order
        return FoundPairs(row[order], handle[order], queries.rows.session[query[order]])

    def _append(
        self, job: _RetroJob, chunk: ValidChunk, pairs: FoundPairs, missed: I64 | None = None
    ) -> None:
        """Logs one part of what was found, as a batch with offsets of its own."""
        router, rows = self._router, chunk.rows.without_terms()
        room = max(len(rows), 1)
        self._log.reserve(router.offset + room)
        record = RetroRecord(
            len(job.logged), router.offset, job.queries.first, column(rows), chunk.offset,
            pairs.row.astype(np.uint32), pairs.handle, pairs.session,
            no_offsets() if missed is None else missed,
        )  # fmt: skip
        self._log.append_found(record)
        router.reserve_found(record.batch, room, record.lsn)
        job.logged.append(record)
        job.pairs += len(pairs.row)

    def _begin_anew(self, job: _RetroJob, together: int) -> None:
        """Makes smaller groups of the queries of a job. What is logged of it counts for nothing, as
        the record behind the last part is missing."""
        self._router.retro.close([record.batch for record in job.logged])
        self._router.retro.split(together)
        self._job = None

    def _release(self, records: Sequence[RetroRecord]) -> None:
        for record in records:
            rows = ObjectRows.decode(record.rows.data)
            self._out += self._router.release_found(record, rows)
