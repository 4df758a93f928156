"""Small query updates for the tests of the ledger and the sequencer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ps2stream.protocol.addresses import Address
from ps2stream.protocol.frame import U8, column_to_strings, strings_to_column
from ps2stream.protocol.messages.updates import LedgerBatch, UpdateRequest
from ps2stream.protocol.rows import QueryRows, UpdateKind

DISPATCHERS = [Address("dispatcher", i) for i in range(3)]
Row = tuple[UpdateKind, str, str, str, str, int]
"""Kind, id, session name, source, request id, and the LSN of what a REPLACE may replace, or 0."""


def query_rows(rows: Sequence[Row], lsn: int = 0) -> QueryRows:
    """Rows whose ragged columns differ by row; a body is told from its source. With `lsn`,
    numbered from there, each its own handle."""
    n = len(rows)
    number = np.arange(lsn, lsn + n) if lsn else np.zeros(n, np.int64)
    handle = number if lsn else np.array([r[5] for r in rows], np.int64)
    size = np.array([len(r[3]) % 4 + 1 for r in rows], np.int64)
    off = np.concatenate([[0], np.cumsum(size)])
    seed = np.repeat([sum(map(ord, r[3])) for r in rows], size)
    id_off, ids = strings_to_column(r[1] for r in rows)
    source_off, source = strings_to_column(r[3] for r in rows)
    return QueryRows(
        kind=np.array([r[0] for r in rows], np.uint8),
        lsn=number,
        handle=handle,
        session=np.ones(n, np.int64),
        id_off=id_off,
        id=ids,
        form=size.astype(np.uint8) % 3,
        post=size.astype(np.uint64),
        term_off=off,
        term=seed.astype(np.uint64),
        prog_off=off,
        prog=seed.astype(np.int16),
        box_off=4 * off,
        box=np.repeat(seed, 4).astype(np.float64),
        shape=size.astype(np.uint8) % 4,
        geom_off=off,
        geom=seed.astype(np.float64),
        source_off=source_off,
        source=source,
    )


def packed(rows: QueryRows) -> U8:
    return np.frombuffer(rows.encode(), np.uint8)


def update(
    rows: Sequence[Row], seq: int = 1, dispatcher: int = 0, epoch: int = 1, settled: int = 0
) -> UpdateRequest:
    return UpdateRequest(
        dispatcher,
        epoch,
        seq,
        settled,
        packed(query_rows(rows)),
        *strings_to_column(r[2] for r in rows),
        *strings_to_column(r[4] for r in rows),
    )


def insert(id: str, source: str = "body", session: str = "s") -> Row:
    return UpdateKind.INSERT, id, session, source, "", 0


def replace(
    id: str, source: str = "body", session: str = "s", request: str = "", if_lsn: int = 0
) -> Row:
    return UpdateKind.REPLACE, id, session, source, request, if_lsn


def delete(id: str, session: str = "", request: str = "") -> Row:
    return UpdateKind.DELETE, id, session, "", request, 0


def applied(rows: Sequence[Row], lsn: int, owner: int = 0) -> LedgerBatch:
    return LedgerBatch(lsn, lsn + len(rows) - 1, owner, 0, 0, packed(query_rows(rows, lsn)))


def ids_of(rows: QueryRows) -> list[str]:
    return column_to_strings(rows.id_off, rows.id)
