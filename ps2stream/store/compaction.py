"""Compaction of a ledger: the queries that nobody needs any more, and batches without them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np

from ps2stream.protocol.frame import I64
from ps2stream.protocol.messages.updates import LedgerBatch
from ps2stream.protocol.rows import QueryRows, UpdateKind

MIN_ROWS = 10_000  # below, a rewrite is not worth it


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
    """Yields the log without the rows of these sorted handles, at least one handle. A batch of
    which nothing is left becomes part of the one before: else one would stay for every update
    there ever was."""
    before: LedgerBatch | None = None
    for batch in log:
        kept = _leave_out(batch, handles)
        is_left = _has_record(kept) or len(QueryRows.decode(kept.rows.data))
        if before is None or is_left or _has_record(before):
            if before is not None:
                yield before
            before = kept
        else:
            until = max(before.until, kept.until)
            before = dataclasses.replace(before, lsn_to=kept.lsn_to, until=until)
    if before is not None:
        yield before


def _has_record(batch: LedgerBatch) -> bool:
    """Returns whether a batch is a change of the plan or of the tables of sessions."""
    return len(batch.strategy) + len(batch.sessions) > 0


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
