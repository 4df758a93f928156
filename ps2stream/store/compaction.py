"""Compaction of a ledger: the queries that nobody needs any more, and batches without them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ps2stream.protocol.frame import I64
from ps2stream.protocol.messages.updates import LedgerBatch
from ps2stream.protocol.rows import QueryRows, UpdateKind

MIN_ROWS = 10_000  # below, a rewrite is not worth it
JOINED_BYTES = 256 << 10  # of rows, up to which what is left of neighbouring batches is joined


def find_outlived(log: Iterable[LedgerBatch], watermark: int) -> I64:
    """Returns the sorted handles of queries deleted at or below the watermark; none when they
    are too few for a rewrite: not more than half of the rows."""
    rows = 0
    deleted = [np.zeros(0, np.int64)]
    for batch in log:
        columns = QueryRows.decode(batch.rows.data)
        rows += len(columns)
        deleted.append(
            columns.handle[(columns.kind == UpdateKind.DELETE) & (columns.lsn <= watermark)]
        )
    handles = np.sort(np.concatenate(deleted))
    is_worth_it = rows >= MIN_ROWS and 4 * len(handles) > rows  # a delete makes two rows dead
    return handles if is_worth_it else handles[:0]


def compact_log(log: Iterable[LedgerBatch], handles: I64) -> Iterator[LedgerBatch]:
    """Yields the log without the rows of these sorted handles, at least one handle. What is left
    of neighbouring batches becomes one batch: else one would stay for every update there ever
    was."""
    joined: list[LedgerBatch] = []
    left = 0
    for batch in log:
        kept = _leave_out(batch, handles)
        size = len(kept.rows) if len(QueryRows.decode(kept.rows.data)) else 0
        if joined and (len(batch.strategy) or left + size > JOINED_BYTES):
            yield _join_batches(joined)
            joined, left = [], 0
        if len(batch.strategy):  # it has its LSN for itself
            yield kept
            continue
        if joined and not size:
            joined[-1] = dataclasses.replace(
                joined[-1], lsn_to=kept.lsn_to, until=max(joined[-1].until, kept.until)
            )
            continue
        joined.append(kept)
        left += size
    if joined:
        yield _join_batches(joined)


def _join_batches(batches: Sequence[LedgerBatch]) -> LedgerBatch:
    """Returns neighbouring batches as one."""
    if len(batches) == 1:
        return batches[0]
    rows = QueryRows.concat([QueryRows.decode(batch.rows.data) for batch in batches])
    return dataclasses.replace(
        batches[0],
        lsn_to=batches[-1].lsn_to,
        until=max(batch.until for batch in batches),
        rows=np.frombuffer(rows.encode(), np.uint8),
    )


def _leave_out(batch: LedgerBatch, handles: I64) -> LedgerBatch:
    """Returns the batch without the rows of these handles. `until` is the highest LSN of those that
    were left out, or that were before."""
    rows = QueryRows.decode(batch.rows.data)
    at = np.searchsorted(handles, rows.handle)
    at[at == len(handles)] = 0
    gone = handles[at] == rows.handle
    until = max(batch.until, int(rows.lsn[gone].max(initial=0)))
    kept = rows.take(np.flatnonzero(~gone)).encode()
    return dataclasses.replace(batch, until=until, rows=np.frombuffer(kept, np.uint8))
