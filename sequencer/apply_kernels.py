"""The kernel that applies committed rows to the registry, as far as nothing has to grow."""

from __future__ import annotations

from typing import Any, Final

from numba import njit

from ps2stream.protocol.frame import I64, U8, U64
from ps2stream.sequencer.chunk_kernels import COUNT, ROW_BITS, TERM_COUNT, mark_dead
from ps2stream.sequencer.kernels import part_updates
from ps2stream.sequencer.pointers import borrow
from ps2stream.sequencer.row_kernels import append_rows
from ps2stream.sequencer.table_kernels import NONE, insert_rows, remove_rows

# What became of the deletes; below WAIT - k, the k-th of them was not in the table.
STALE, REMOVED, WAIT = 2, 1, 0
STATE: Final = 6
"""Numbers of the state of a chunk: those of append_rows; the chunk's number; the rows that it may
have at most."""


@njit(cache=True, nogil=True)
def apply_updates(
    update: tuple[U8, I64, I64, U64, I64],
    columns: tuple[Any, ...],
    chunk: tuple[Any, ...],
    dictionary: tuple[Any, ...],
    state: I64,
    parts: I64,
    table: I64,
    born: I64,
    gone: I64,
    hashes: U64,
) -> tuple[int, int, int, int, int]:
    """Applies rows in one call, since each call costs as much as many rows. Returns (the number
    of inserts; that of deletes whose place is NONE; the inserts that were appended to the chunk,
    and of these added to the table of hashes; what became of the deletes). The deletes WAIT if
    something is left to be done before.

    update, born, gone, hashes: as part_updates has them; columns, chunk, dictionary: as
    append_rows, whose state is the first part of `state`, int64[STATE]; parts: the table of hashes;
    table: that of the chunks.
    """
    update, columns, chunk = borrow(update), borrow(columns), borrow(chunk)
    dictionary, state, parts, table = (
        borrow(dictionary),
        borrow(state),
        borrow(parts),
        borrow(table),
    )
    born, gone, hashes = borrow(born), borrow(gone), borrow(hashes)
    inserts, unknown = part_updates(*update, born, gone, hashes)
    number, first = state[4], state[0]
    room = min(inserts, max(state[5] - first, 0))
    done = append_rows(columns, born[0, :room], born[1, :room], chunk, dictionary, state)
    if done:
        table[number, COUNT], table[number, TERM_COUNT] = state[0], state[1]
        for i in range(done):
            born[0, i] = number << ROW_BITS | first + i  # the source is not needed any more
    added = insert_rows(parts, hashes[0, :done], born[0, :done])
    deletes = len(update[0]) - inserts
    if added < inserts or unknown or not deletes:
        return inserts, unknown, done, added, WAIT
    bad = remove_rows(parts, hashes[1, :deletes], gone[1, :deletes])
    if bad != NONE:
        return inserts, unknown, done, added, WAIT - 1 - bad
    stale = mark_dead(table, gone[1, :deletes])
    return inserts, unknown, done, added, STALE if stale else REMOVED
