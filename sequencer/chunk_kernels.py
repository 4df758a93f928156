"""Kernels that read rows of any chunk, at their places: number of the chunk << ROW_BITS | row.

An update names queries of all chunks. A call for each chunk would cost more than the reading, and
a kernel takes no list of arrays. Therefore a table has the addresses of the columns of each
chunk, int64[chunks, FIELDS]; a place beyond the rows of a chunk raises IndexError.
"""

# Numba gives an intrinsic its first argument, and arrays of any type to a function.
# mypy: disable-error-code="call-arg, arg-type, assignment, attr-defined", no-warn-unreachable
from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import carray, njit

from ps2stream.protocol.frame import I64, U8, U64
from ps2stream.protocol.pointers import borrow, is_same, point_to, prefetch, put_bytes
from ps2stream.protocol.rows import UpdateKind
from ps2stream.sequencer.row_kernels import (
    BOX_BYTES,
    DEAD_BIT,
    FORMS,
    HANDLES,
    HAS_PROGRAM,
    PACKED_TEXT,
    PLAIN_REGION,
    PLAIN_SOURCE,
    RECT,
    WORLD_BOX,
    take_rect,
    take_varint,
)
from ps2stream.sequencer.table_kernels import NONE, find_home, find_part, find_row, prefetch_home
from ps2stream.sequencer.text_kernels import WORDS, unpack_text

ROW_BITS: Final = 16
_ROW: Final = (1 << ROW_BITS) - 1
# Addresses of columns, and numbers.
HANDLE, OFF, DATA, TERMS, BASE, COUNT, BYTES, TERM_COUNT, DEAD, DEAD_BYTES = range(10)
FIELDS: Final = 10
PARTS: Final = 8  # of the bytes of a chunk; when one is dead, the dead bytes are dropped
TERM, PROGRAM, BOX, GEOM, SOURCE, ID = range(6)  # columns of the sizes
COLUMNS: Final = 6
_ABOVE = np.uint32(HANDLES)
_DEAD = np.uint32(DEAD_BIT)
_INSERT = np.uint8(UpdateKind.INSERT)


@njit(inline="always")
def _find_chunk(table: I64, place: int) -> tuple[int, int]:
    """Returns the number of the chunk and the row at a place."""
    number, row = place >> ROW_BITS, place & _ROW
    if place < 0 or number >= len(table) or row >= table[number, COUNT]:
        raise IndexError("no chunk has a row at this place")
    return number, row


@njit(inline="always")
def _find_bytes(table: I64, number: int, row: int) -> tuple[U8, int]:
    """Returns the bytes of a chunk, and where a row begins in them."""
    off = carray(point_to(table[number, OFF]), table[number, COUNT] + 1, np.uint32)
    data = carray(point_to(table[number, DATA]), table[number, BYTES], np.uint8)
    return data, int(np.int64(off[row]))


@njit(cache=True, nogil=True)
def find_queries(
    parts: I64, table: I64, hashes: U64, off: I64, ids: U8, place: I64, handle: I64, session: I64
) -> None:
    """Finds the live queries that have the ids of a column: their places, NONE for none, handles
    and sessions. parts: the table of the hashes of the live ids (table_kernels.py), which only
    finds candidates; the bytes of their ids decide."""
    # What is read of each row lies anywhere in memory, here and in the kernels that follow.
    n = len(hashes)
    for i in range(n):
        prefetch_home(parts, hashes[i])
    at_slot = np.empty(n, np.int64)
    for i in range(n):
        slots, hash = find_part(parts, hashes[i])
        at_slot[i], place[i] = find_row(slots, hash, find_home(hash, len(slots)))
        if place[i] != NONE:
            number, row = _find_chunk(table, place[i])
            prefetch(table[number, OFF] + 4 * row)
            prefetch(table[number, HANDLE] + 4 * row)
    for i in range(n):
        if place[i] != NONE:
            number, row = _find_chunk(table, place[i])
            data, at = _find_bytes(table, number, row)
            prefetch(table[number, DATA] + at)
            prefetch(table[number, DATA] + at + 64)
    for i in range(n):
        while place[i] != NONE:
            number, row = _find_chunk(table, place[i])
            data, at = _find_bytes(table, number, row)
            session[i], at = take_varint(data, at)
            size, at = take_varint(data, at)
            first = off[i]
            if size == off[i + 1] - first and is_same(data, at, ids, first, size):
                above = carray(point_to(table[number, HANDLE]), table[number, COUNT], np.uint32)
                handle[i] = table[number, BASE] + np.int64(above[row] & _ABOVE)
                break
            slots, hash = find_part(parts, hashes[i])
            later = at_slot[i] + 1 if at_slot[i] + 1 < len(slots) else 0
            at_slot[i], place[i] = find_row(slots, hash, later)


@njit(cache=True, nogil=True)
def read_owners(table: I64, places: I64, handle: I64, session: I64) -> None:
    """Reads the handle and the session of each row."""
    for i in range(len(places)):
        number, row = _find_chunk(table, places[i])
        above = carray(point_to(table[number, HANDLE]), table[number, COUNT], np.uint32)
        handle[i] = table[number, BASE] + np.int64(above[row] & _ABOVE)
        data, at = _find_bytes(table, number, row)
        session[i], _ = take_varint(data, at)


@njit(cache=True, nogil=True)
def find_handles(table: I64, order: I64, handles: I64, places: I64) -> None:
    """Finds the places of queries that must be there; order: the numbers of the chunks in the
    order of their handles."""
    for i in range(len(handles)):
        low, high = 0, len(order)
        while high - low > 1:
            middle = (low + high) // 2
            if table[order[middle], BASE] <= handles[i]:
                low = middle
            else:
                high = middle
        number = order[low]
        above = carray(point_to(table[number, HANDLE]), table[number, COUNT], np.uint32)
        low, high, wanted = 0, len(above), handles[i] - table[number, BASE]
        while high - low > 1:
            middle = (low + high) // 2
            if np.int64(above[middle] & _ABOVE) <= wanted:
                low = middle
            else:
                high = middle
        if high == 0 or np.int64(above[low] & _ABOVE) != wanted:
            raise IndexError("no chunk has a row with this handle")
        places[i] = number << ROW_BITS | low


@njit(cache=True, nogil=True)
def find_ids(table: I64, places: I64, off: I64, ids: U8) -> None:
    """Finds the ids of the rows: their offsets, and for ids with as many bytes the ids."""
    table, off, ids = borrow(table), borrow(off), borrow(ids)
    off[0] = 0
    for i in range(len(places)):
        number, row = _find_chunk(table, places[i])
        data, at = _find_bytes(table, number, row)
        _, at = take_varint(data, at)
        size, at = take_varint(data, at)
        off[i + 1] = off[i] + size
        if len(ids):
            put_bytes(ids, off[i], data, at, at + size)


@njit(cache=True, nogil=True)
def mark_dead(table: I64, places: I64) -> bool:
    """Marks live rows as dead, and counts them and their bytes; returns whether half of a chunk's
    rows, or a part of its bytes, are dead now."""
    stale = False
    for i in range(len(places)):
        number, row = _find_chunk(table, places[i])
        prefetch(table[number, OFF] + 4 * row)
        prefetch(table[number, HANDLE] + 4 * row)
    for i in range(len(places)):
        number, row = _find_chunk(table, places[i])
        count = table[number, COUNT]
        handle = carray(point_to(table[number, HANDLE]), count, np.uint32)
        off = carray(point_to(table[number, OFF]), count + 1, np.uint32)
        handle[row] |= _DEAD
        table[number, DEAD] += 1
        table[number, DEAD_BYTES] += np.int64(off[row + 1]) - np.int64(off[row])
        stale |= 2 * table[number, DEAD] > count
        stale |= PARTS * table[number, DEAD_BYTES] > table[number, BYTES]
    return stale


@njit(inline="always")
def _read_region_sizes(data: U8, at: int, head: int) -> tuple[int, int, int]:
    """Returns (numbers of the box, words of the region, where the region begins)."""
    if head & PLAIN_REGION:
        return 4, 4 if (head >> 2) & 3 == RECT else 0, at
    boxes, at = take_varint(data, at)
    words, _ = take_varint(data, at + 8 * boxes)
    return boxes, words, at


@njit(cache=True, nogil=True)
def measure_rows(
    table: I64, places: I64, columns: tuple[Any, ...], rows: I64, kind: U8, sizes: I64
) -> int:
    """Finds the offsets of rows as columns, sizes int64[6, n + 1]: each is at its place or, for
    the place NONE, in a row of `columns` (RowColumns). Only an insert has its source. Returns the
    first row of `columns` whose form, shape or session no chunk takes, or NONE."""
    session, form, _, shape, id_off, _, term_off, _ = columns[:8]
    prog_off, _, box_off, _, geom_off, _, source_off, _ = columns[8:]
    sizes[:, 0] = 0
    for i in range(len(places)):
        place, row = places[i], rows[i]
        if place == NONE:
            if form[row] > FORMS or shape[row] > FORMS or session[row] < 0:
                return int(row)
            ids = id_off[row + 1] - id_off[row]
            terms = term_off[row + 1] - term_off[row]
            program = prog_off[row + 1] - prog_off[row]
            boxes = box_off[row + 1] - box_off[row]
            words = geom_off[row + 1] - geom_off[row]
            size = source_off[row + 1] - source_off[row]
        else:
            number, row = _find_chunk(table, place)
            data, at = _find_bytes(table, number, row)
            _, at = take_varint(data, at)
            ids, at = take_varint(data, at)
            at += ids
            head = int(data[at])
            _, at = take_varint(data, at + 1)
            terms, at = take_varint(data, at)
            for _ in range(terms):
                term, at = take_varint(data, at)
                prefetch(table[number, TERMS] + 8 * term)
            program = 0
            if head & HAS_PROGRAM:
                program, at = take_varint(data, at)
                at += 2 * program
            boxes, words, at = _read_region_sizes(data, at, head)
            if not head & PLAIN_REGION:
                _, at = take_varint(data, at + 8 * boxes)
            if head & PLAIN_REGION and words:
                at += 17 + (np.int64(data[at + 16]) & 15) + (np.int64(data[at + 16]) >> 4)
            else:
                at += 8 * words
            size, at = take_varint(data, at)
            if head & PACKED_TEXT:
                size, _ = take_varint(data, at)
            if head & PLAIN_SOURCE:
                size += 1 + 8 * words
        sizes[ID, i + 1] = sizes[ID, i] + ids
        sizes[TERM, i + 1] = sizes[TERM, i] + terms
        sizes[PROGRAM, i + 1] = sizes[PROGRAM, i] + program
        sizes[BOX, i + 1] = sizes[BOX, i] + boxes
        sizes[GEOM, i + 1] = sizes[GEOM, i] + words
        sizes[SOURCE, i + 1] = sizes[SOURCE, i] + (size if kind[i] == _INSERT else 0)
    return NONE


@njit(cache=True, nogil=True)
def write_rows(
    table: I64,
    places: I64,
    columns: tuple[Any, ...],
    rows: I64,
    heads: tuple[U8, I64, I64, I64],
    sizes: I64,
    room: tuple[U64, U8],
    starts: I64,
) -> None:
    """Writes rows that measure_rows has measured as encoded QueryRows. heads: their kinds, LSNs,
    handles and sessions; room: that of the frame, as words and as bytes; starts int64[19]: where
    the columns begin in it, in bytes."""
    # As plain arrays: one that is taken out of a tuple anew for each row is counted each time.
    _, form, post, shape, id_off, id, term_off, term = columns[:8]
    prog_off, prog, box_off, box, geom_off, geom, source_off, source = columns[8:]
    kind, lsn, handle, session = heads
    words, out = room
    n, texts = len(places), np.empty(3 * WORDS, np.int64)
    for i in range(n):
        out[starts[0] + i] = kind[i]
        words[starts[1] // 8 + i] = np.uint64(lsn[i])
        words[starts[2] // 8 + i] = np.uint64(handle[i])
        words[starts[3] // 8 + i] = np.uint64(session[i])
    for i in range(n + 1):
        words[starts[4] // 8 + i] = np.uint64(sizes[ID, i])
        words[starts[8] // 8 + i] = np.uint64(sizes[TERM, i])
        words[starts[10] // 8 + i] = np.uint64(sizes[PROGRAM, i])
        words[starts[12] // 8 + i] = np.uint64(sizes[BOX, i])
        words[starts[15] // 8 + i] = np.uint64(sizes[GEOM, i])
        words[starts[17] // 8 + i] = np.uint64(sizes[SOURCE, i])
    to_form, to_post, to_shape = starts[6], starts[7] // 8, starts[14]
    follows = 0  # the first row that is not yet copied
    for i in range(n):
        if i < follows:
            continue
        keep, row = kind[i] == _INSERT, rows[i]
        to_id, to_term = starts[5] + sizes[ID, i], starts[9] // 8 + sizes[TERM, i]
        to_prog, to_box = starts[11] + 2 * sizes[PROGRAM, i], starts[13] + 8 * sizes[BOX, i]
        to_geom, to_source = starts[16] + 8 * sizes[GEOM, i], starts[18] + sizes[SOURCE, i]
        if places[i] == NONE:
            # Rows that lie behind each other are copied at once.
            follows, last = i + 1, row + 1
            while follows < n and places[follows] == NONE and rows[follows] == last:
                if kind[follows] != kind[i]:
                    break
                follows, last = follows + 1, last + 1
            put_bytes(out, to_form + i, form, row, last)
            put_bytes(out, to_shape + i, shape, row, last)
            put_bytes(words, to_post + i, post, row, last)
            put_bytes(out, to_id, id, id_off[row], id_off[last])
            put_bytes(words, to_term, term, term_off[row], term_off[last])
            put_bytes(out, to_prog, prog, 2 * prog_off[row], 2 * prog_off[last])
            put_bytes(out, to_box, box, 8 * box_off[row], 8 * box_off[last])
            put_bytes(out, to_geom, geom, 8 * geom_off[row], 8 * geom_off[last])
            if keep:
                put_bytes(out, to_source, source, source_off[row], source_off[last])
            continue
        number, row = _find_chunk(table, places[i])
        data, at = _find_bytes(table, number, row)
        terms = carray(point_to(table[number, TERMS]), table[number, TERM_COUNT], np.uint64)
        _, at = take_varint(data, at)
        size, at = take_varint(data, at)
        put_bytes(out, to_id, data, at, at + size)
        at += size
        head = int(data[at])
        shape_of = np.uint8(head >> 2 & 3)
        out[to_form + i], out[to_shape + i] = head & 3, shape_of
        value, at = take_varint(data, at + 1)
        words[to_post + i] = np.uint64(value)
        size, at = take_varint(data, at)
        for k in range(size):
            known, at = take_varint(data, at)
            words[to_term + k] = terms[known]
        if head & HAS_PROGRAM:
            size, at = take_varint(data, at)
            put_bytes(out, to_prog, data, at, at + 2 * size)
            at += 2 * size
        boxes, region, at = _read_region_sizes(data, at, head)
        if not head & PLAIN_REGION:
            put_bytes(out, to_box, data, at, at + 8 * boxes)
            _, at = take_varint(data, at + 8 * boxes)
            put_bytes(out, to_geom, data, at, at + 8 * region)
            at += 8 * region
        elif region:
            at = take_rect(data, at, out, to_geom)
            put_bytes(out, to_box, out, to_geom, to_geom + BOX_BYTES)
        else:
            put_bytes(out, to_box, WORLD_BOX, 0, BOX_BYTES)
        if keep:
            size, at = take_varint(data, at)
            if head & PLAIN_SOURCE:
                out[to_source] = shape_of
                region_end = to_geom + 8 * region
                to_source = put_bytes(out, to_source + 1, out, to_geom, region_end)
            if head & PACKED_TEXT:
                _, at = take_varint(data, at)
                unpack_text(data, at, at + size, out, to_source, texts)
            else:
                put_bytes(out, to_source, data, at, at + size)
