"""The kernel that applies committed rows to the registry, as far as nothing has to grow."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ps2stream.protocol.frame import I64, U8, U64
from ps2stream.protocol.pointers import borrow
from ps2stream.sequencer.chunk_kernels import COUNT, ROW_BITS, TERM_COUNT, mark_dead
from ps2stream.sequencer.encoded_rows import (
    FIELDS,
    HANDLE,
    KIND,
    LSN,
    find_rows,
    read_bytes,
    read_columns,
    read_numbers,
)
from ps2stream.sequencer.kernels import count_updates, part_updates
from ps2stream.sequencer.row_kernels import append_rows
from ps2stream.sequencer.table_kernels import NONE, insert_rows, remove_rows

# What became of the deletes; below WAIT - k, the k-th of them was not in the table.
STALE, REMOVED, WAIT = 2, 1, 0


@njit(cache=True, nogil=True)
def apply_updates(
    rows: U8,
    hashes: U64,
    places: I64,
    chunk: tuple[Any, ...],
    dictionary: tuple[Any, ...],
    place: tuple[int, int, int, int, int],
    parts: I64,
    table: I64,
    tenants: tuple[I64, I64],
    parted: I64,
) -> tuple[int, int, int, int, int, int, int]:
    """Applies rows in one call, since each call costs as much as many rows. Returns (the number
    of inserts; that of deletes whose place is NONE; the inserts that were appended to the chunk,
    and of these added to the table of hashes; the terms that the chunk has then; what became of the
    deletes; the LSN of the last delete). The deletes WAIT if something is left to be done before.

    rows: encoded QueryRows; hashes, places: of their ids, and of the queries that deletes name;
    chunk, dictionary: as append_rows; place: the chunk's numbers of rows and of terms, its first
    handle, its number, and the rows that it may have at most; parts: the table of hashes; table:
    that of the chunks; tenants: as count_updates. parted int64[6, n], written: as part_updates has
    them, the inserts, their handles, the deletes, their places; then the hashes of both, uint64.
    """
    rows, hashes, places, chunk = borrow(rows), borrow(hashes), borrow(places), borrow(chunk)
    dictionary, parts, table = borrow(dictionary), borrow(parts), borrow(table)
    tenants, parted = borrow(tenants), borrow(parted)
    starts = np.empty((2, FIELDS), np.int64)
    if not find_rows(rows, starts):
        raise ValueError("not encoded QueryRows")
    columns, lsn = read_columns(rows, starts), read_numbers(rows, starts, LSN)
    kind, handle = read_bytes(rows, starts, KIND), read_numbers(rows, starts, HANDLE)
    count_updates(kind, columns[0], tenants[0], tenants[1])
    born, gone, both = parted[:2], parted[2:4], parted[4:].view(np.uint64)
    inserts, unknown = part_updates(kind, handle, hashes, places, born, gone, both)
    first, known, base, number, most = place
    deletes = len(kind) - inserts
    last = lsn[gone[0, deletes - 1]] if deletes else 0
    state = np.array([first, known, base, 0])
    room = min(inserts, max(most - first, 0))
    done = append_rows(columns, born[0, :room], born[1, :room], chunk, dictionary, state)
    known = state[1]
    if done:
        table[number, COUNT], table[number, TERM_COUNT] = state[0], known
        for i in range(done):
            born[0, i] = number << ROW_BITS | first + i  # the row is not needed any more
    added = insert_rows(parts, both[0, :done], born[0, :done])
    if added < inserts or unknown or not deletes:
        return inserts, unknown, done, added, known, WAIT, last
    bad = remove_rows(parts, both[1, :deletes], gone[1, :deletes])
    if bad != NONE:
        return inserts, unknown, done, added, known, WAIT - 1 - bad, last
    stale = mark_dead(table, gone[1, :deletes])
    return inserts, unknown, done, added, known, STALE if stale else REMOVED, last
