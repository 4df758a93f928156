"""Memory layout of GI2, and the small functions that its kernels share.

Everything is a flat array that can be grown by copying (speed.md 3):

table   uint64[n, 8]: buckets of one cache line, four tags each. Columns 0-3 hold term
        hashes, 4-7 cell << 32 | run, 0 = empty, filled from the left. A tag that finds
        its bucket full goes to the next. Terms and cells are whole, so a hit is exact.
runs    uint32[]: a run of class c is a head (c << 27 | length) and room for 2^c
        postings of five words: x0 | x1 << 16, y0 | y1 << 16, mode << 30 | slot, and the
        high halves of up to two other keywords. The rectangle is in 1/65536 of the cell.
slots   one 64-byte line a query (float64 and int64 views of the same memory): rectangle,
        handle (= insert LSN), delete LSN, session, and the low halves of the keywords
        whose high halves stand in the postings - or, in mode GENERAL, a pool offset.
pool    uint64[]: blocks for what does not fit: second box, long expressions, geometry.
places  uint32[n]: open addressing, handle -> slot + 1, of queries that live or whose delete
        waits for the watermark.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

import numpy as np
from numba import njit

FORMAT = 4
"""The version of what a snapshot holds: raise it with any change of the layout or a hash."""

ALL, ANY, GENERAL, FREE = 0, 1, 2, 3  # modes: what is left to check of the expression
POSTING = 5  # words
SLOT_BITS = 30
SLOT_MASK = (1 << SLOT_BITS) - 1
LEN_BITS = 27
LEN_MASK = (1 << LEN_BITS) - 1
CELL_BITS = 28
CELL_MASK = (1 << CELL_BITS) - 1
LEVELS = 16
BUCKET = 4

# slot columns
HANDLE, DELETED, SESSION, REST = 4, 5, 6, 7

# pool block: head words, then terms, program, geometry
P_HEAD, P_POST, P_GEOM, P_BOX, P_TERM = 0, 1, 2, 3, 7
POOL_UNIT = 8  # words of the smallest block

# state vector (int64)
TABLE_USED, RUN_TOP, SLOT_TOP, SLOT_FREE, POOL_TOP = 0, 1, 2, 3, 4
LIVE, PURGEABLE, POSTINGS, CURSOR, ROW, TAG, SLOT = 5, 6, 7, 8, 9, 10, 11
STATE = 12

LOW = np.uint64(0xFFFFFFFF)
_C1 = np.uint64(0x9E3779B97F4A7C15)
_C2 = np.uint64(0xD6E8FEB86659FD93)
NONE = np.uint64(0)


@njit(inline="always")
def home(term, cell, size):
    """Returns the bucket where a tag belongs in a table of `size` buckets, any size below 2^32."""
    mixed = ((term ^ (np.uint64(cell) * _C1)) * _C2) >> np.uint64(32)
    return np.int64((mixed * np.uint64(size)) >> np.uint64(32))


@njit(inline="always")
def find_in(table, at, key, cell):
    """Returns the word (cell << 32 | run) of a tag in this bucket or 0, and whether the bucket has
    room. All four tags are compared without a branch."""
    word = NONE
    for i in range(BUCKET):
        w = table[at, BUCKET + i]
        if (table[at, i] == key) & (w >> np.uint64(32) == cell):
            word |= w  # an empty word is 0, also beside an old key of cell 0
    return word, table[at, 2 * BUCKET - 1] == NONE


@njit(inline="always")
def find_tag(table, at, key, cell):
    """Returns the bucket and the word of a tag, looking from bucket `at` on; word 0 and a bucket
    with room if the tag is not there."""
    while True:
        word, room = find_in(table, at, key, cell)
        if word != NONE or room:
            return at, word
        at = next_position(at, table.shape[0])


@njit(inline="always")
def count_tags(table, at):
    """Returns the number of tags in a bucket."""
    n = 0
    while n < BUCKET and table[at, BUCKET + n] != NONE:
        n += 1
    return n


@njit(inline="always")
def home_place(handle, size):
    """Returns the position in `places` where a handle belongs."""
    mixed = (np.uint64(handle) * _C1) >> np.uint64(32)
    return np.int64((mixed * np.uint64(size)) >> np.uint64(32))


@njit(inline="always")
def next_position(at, size):
    """Returns the next position of open addressing."""
    return at + 1 if at + 1 < size else 0


@njit(inline="always")
def probe_distance(to, start, size):
    """Returns the number of steps from position `start` on to position `to`."""
    return to - start if to >= start else to - start + size


@njit(inline="always")
def cell_side(lines, is_lat, line, level):
    """Returns where a column (is_lat = 0) or row (1) of a level begins, degrees, and the number of
    steps a degree, of which it has 65536; lines: of a grid (see `Grid.lines`)."""
    bits, spans = np.int64(lines[is_lat]), np.int64(lines[2 + is_lat])
    at = 4 + is_lat * (np.int64(lines[2]) + 1)
    count = line_count(bits, level)
    if spans <= 1:  # all are equal
        width = (lines[at + 1] - lines[at]) / count
        return lines[at] + line * width, 65536.0 / width
    below, n = (1 << bits) // count, (1 << bits) // spans
    first, end = line * below, (line + 1) * below
    low = lines[at + first // n]
    start = low + (first % n) * (lines[at + first // n + 1] - low) / n
    last = min(end // n, spans - 1)
    low = lines[at + last]
    stop = low + (end - last * n) * (lines[at + last + 1] - low) / n
    return start, 65536.0 / (stop - start)


@njit(inline="always")
def cell_step(degrees, start, scale):
    """Returns a coordinate as whole steps from where a cell begins, clamped to 16 bits. It is
    monotone, also in floating point, and exactness needs no more: a <= b gives cell_step(a) <=
    cell_step(b)."""
    return np.uint32(min(max((degrees - start) * scale, 0.0), 65535.0))


@njit(inline="always")
def take_run(runs, run_free, state, cls):
    """Takes a free run of class cls; returns its offset, or -1 when the array must grow."""
    at = np.int64(run_free[cls])
    if at != 0:
        run_free[cls] = runs[at]
        return at
    at = state[RUN_TOP]
    size = 1 + (POSTING << cls)
    if at + size > runs.shape[0]:
        return np.int64(-1)
    state[RUN_TOP] = at + size
    return at


@njit(inline="always")
def free_run(runs, run_free, at, cls):
    """Gives back a run of class cls."""
    runs[at] = np.uint32(run_free[cls])
    run_free[cls] = at


@njit(cache=True, nogil=True)
def find_place(places, slots_i, handle):
    """Returns the position in `places` of a handle, or the empty one where it would go."""
    size = places.shape[0]
    at = home_place(handle, size)
    while places[at] != 0 and slots_i[np.int64(places[at]) - 1, HANDLE] != handle:
        at = next_position(at, size)
    return at


@njit(cache=True, nogil=True)
def take_block(pool, pool_free, state, words):
    """Takes a block of at least `words` words from the pool; returns its offset, or -1 when the
    pool must grow, and its class."""
    cls = 0
    while (POOL_UNIT << cls) < words:
        cls += 1
    at = pool_free[cls]
    if at != 0:
        pool_free[cls] = np.int64(pool[at])
        return at, cls
    at = state[POOL_TOP]
    if at + (POOL_UNIT << cls) > pool.shape[0]:
        return np.int64(-1), cls
    state[POOL_TOP] = at + (POOL_UNIT << cls)
    return at, cls


@njit(inline="always")
def is_dead(dead, slot):
    """Returns whether the postings of this slot are to be removed when met."""
    return (dead[slot >> 6] >> np.uint64(slot & 63)) & np.uint64(1) != 0


@njit(inline="always")
def line_count(bits, level):
    """Returns the number of columns or rows of a level."""
    return 1 << max(bits - 2 * level, 0)
