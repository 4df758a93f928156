"""Kernels of packed rows: a live query in as few bytes as its columns allow.

A row is: session; id; head; post unless it is of the usual form; number of terms and the terms;
program if it has one; box and geom, or for a plain region geom alone, whose box follows from it;
source, for a plain source without the shape and the region that it begins with. Sizes and small
numbers are varints. Everything else is copied bit by bit, so that a row is read back as it was.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from ps2stream.protocol.frame import I64, U8, U32, U64
from ps2stream.protocol.rows import RegionShape
from ps2stream.protocol.wire_kernels import read_varint

# The head: form in two bits, shape in two, and these.
_PLAIN_REGION: Final = 16
_PLAIN_SOURCE: Final = 32
_HAS_PROGRAM: Final = 64
_FORMS: Final = 3  # a form or shape above is not packed
_WORLD = np.uint8(RegionShape.WORLD)
_RECT = np.uint8(RegionShape.RECT)
_WORLD_BOX = np.array([-180.0, -90.0, 180.0, 90.0]).view(np.uint8)
_BOX_BYTES: Final = 32
TERM, PROGRAM, BOX, GEOM, SOURCE, ID = range(6)  # columns of the sizes


class RowColumns(NamedTuple):
    """The columns of QueryRows to pack: session int64[n]; form, shape uint8[n]; post uint64[n];
    and (offsets, data) of the ragged ones, data as bytes; offsets count elements."""

    session: I64
    form: U8
    post: U64
    shape: U8
    id_off: I64
    id: U8
    term_off: I64
    term: U8
    prog_off: I64
    prog: U8
    box_off: I64
    box: U8
    geom_off: I64
    geom: U8
    source_off: I64
    source: U8


@njit(inline="always")
def _measure_varint(value: np.uint64) -> int:
    size = 1
    while value >= np.uint64(0x80):
        value >>= np.uint64(7)
        size += 1
    return size


@njit(inline="always")
def _put_varint(out: U8, at: int, value: np.uint64) -> int:
    """Writes a varint; returns where it ends."""
    while value >= np.uint64(0x80):
        out[at] = np.uint8(value & np.uint64(0x7F)) | np.uint8(0x80)
        value >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(value)
    return at + 1


# Unsigned indices: signed ones could count from the end, which keeps loops from being vectorised.


@njit(inline="always")
def _put_bytes(out: U8, at: int, data: U8, begin: int, end: int) -> int:
    """Copies bytes; returns where they end."""
    to, first = np.uint64(at), np.uint64(begin)
    for k in range(np.uint64(end - begin)):
        out[to + k] = data[first + k]
    return at + end - begin


@njit(inline="always")
def _have_same_bytes(data: U8, at: int, other: U8, begin: int, size: int) -> bool:
    a, b, difference = np.uint64(at), np.uint64(begin), np.uint8(0)
    for k in range(np.uint64(size)):
        difference |= data[a + k] ^ other[b + k]
    return bool(difference == 0)


@njit(cache=True, nogil=True)
def measure_rows(columns: tuple[Any, ...], rows: I64, heads: U8, off: I64) -> int:
    """Finds the heads of these rows and where each one ends when packed, off int64[n + 1];
    returns the first row that cannot be packed, or -1."""
    c = RowColumns(*columns)
    at = off[0]
    for i in range(len(rows)):
        row = rows[i]
        shape = c.shape[row]
        if c.form[row] > _FORMS or shape > _FORMS or c.session[row] < 0:
            return int(row)
        head = np.int64(c.form[row]) | np.int64(shape) << 2
        geom, box = 8 * c.geom_off[row], 8 * c.box_off[row]
        region, boxes = 8 * c.geom_off[row + 1] - geom, 8 * c.box_off[row + 1] - box
        if boxes == _BOX_BYTES and (
            (
                shape == _RECT
                and region == _BOX_BYTES
                and _have_same_bytes(c.box, box, c.geom, geom, _BOX_BYTES)
            )
            or (
                shape == _WORLD
                and region == 0
                and _have_same_bytes(c.box, box, _WORLD_BOX, 0, _BOX_BYTES)
            )
        ):
            head |= _PLAIN_REGION
        begin = c.source_off[row]
        source = c.source_off[row + 1] - begin
        if (
            source > region
            and c.source[begin] == shape
            and _have_same_bytes(c.source, begin + 1, c.geom, geom, region)
        ):
            head |= _PLAIN_SOURCE
            source -= 1 + region
        size = c.id_off[row + 1] - c.id_off[row]
        at += 1 + _measure_varint(np.uint64(c.session[row])) + _measure_varint(c.post[row])
        at += _measure_varint(np.uint64(size)) + size
        size = c.term_off[row + 1] - c.term_off[row]
        at += _measure_varint(np.uint64(size)) + 8 * size
        size = c.prog_off[row + 1] - c.prog_off[row]
        if size:
            head |= _HAS_PROGRAM
            at += _measure_varint(np.uint64(size)) + 2 * size
        if not head & _PLAIN_REGION:
            at += _measure_varint(np.uint64(boxes // 8)) + boxes
            at += _measure_varint(np.uint64(region // 8))
        at += region + _measure_varint(np.uint64(source)) + source
        heads[i] = head
        off[i + 1] = at
    return -1


@njit(cache=True, nogil=True)
def pack_rows(columns: tuple[Any, ...], rows: I64, heads: U8, at: int, out: U8) -> int:
    """Writes these rows, one behind the other; returns where they end."""
    c = RowColumns(*columns)
    for i in range(len(rows)):
        row = rows[i]
        head = int(heads[i])
        at = _put_varint(out, at, np.uint64(c.session[row]))
        begin, end = c.id_off[row], c.id_off[row + 1]
        at = _put_varint(out, at, np.uint64(end - begin))
        at = _put_bytes(out, at, c.id, begin, end)
        out[at] = head
        at = _put_varint(out, at + 1, c.post[row])
        begin, end = c.term_off[row], c.term_off[row + 1]
        at = _put_varint(out, at, np.uint64(end - begin))
        at = _put_bytes(out, at, c.term, 8 * begin, 8 * end)
        if head & _HAS_PROGRAM:
            begin, end = c.prog_off[row], c.prog_off[row + 1]
            at = _put_varint(out, at, np.uint64(end - begin))
            at = _put_bytes(out, at, c.prog, 2 * begin, 2 * end)
        geom, geom_end = c.geom_off[row], c.geom_off[row + 1]
        if not head & _PLAIN_REGION:
            begin, end = c.box_off[row], c.box_off[row + 1]
            at = _put_varint(out, at, np.uint64(end - begin))
            at = _put_bytes(out, at, c.box, 8 * begin, 8 * end)
            at = _put_varint(out, at, np.uint64(geom_end - geom))
        at = _put_bytes(out, at, c.geom, 8 * geom, 8 * geom_end)
        begin, end = c.source_off[row], c.source_off[row + 1]
        if head & _PLAIN_SOURCE:
            begin += 1 + 8 * (geom_end - geom)
        at = _put_varint(out, at, np.uint64(end - begin))
        at = _put_bytes(out, at, c.source, begin, end)
    return at


@njit(inline="always")
def _read_region_sizes(data: U8, at: int, head: int) -> tuple[int, int, int]:
    """Returns (numbers of the box, words of the region, where the region begins)."""
    if head & _PLAIN_REGION:
        return 4, 4 if (head >> 2) & 3 == _RECT else 0, at
    boxes, at = read_varint(data, at, len(data))
    words, _ = read_varint(data, at + 8 * boxes, len(data))
    return boxes, words, at


@njit(cache=True, nogil=True)
def measure_unpacked(data: U8, begin: I64, keep: U8, sizes: I64) -> None:
    """Finds the offsets of the unpacked rows that begin at `begin`: sizes int64[6, n + 1].
    A row keeps its source if keep[i]."""
    end = len(data)
    sizes[:, 0] = 0
    for i in range(len(begin)):
        _, at = read_varint(data, begin[i], end)
        ids, at = read_varint(data, at, end)
        at += ids
        head = int(data[at])
        _, at = read_varint(data, at + 1, end)
        terms, at = read_varint(data, at, end)
        at += 8 * terms
        program = 0
        if head & _HAS_PROGRAM:
            program, at = read_varint(data, at, end)
            at += 2 * program
        boxes, words, at = _read_region_sizes(data, at, head)
        if not head & _PLAIN_REGION:
            _, at = read_varint(data, at + 8 * boxes, end)
        size, _ = read_varint(data, at + 8 * words, end)
        if head & _PLAIN_SOURCE:
            size += 1 + 8 * words
        sizes[ID, i + 1] = sizes[ID, i] + ids
        sizes[TERM, i + 1] = sizes[TERM, i] + terms
        sizes[PROGRAM, i + 1] = sizes[PROGRAM, i] + program
        sizes[BOX, i + 1] = sizes[BOX, i] + boxes
        sizes[GEOM, i + 1] = sizes[GEOM, i] + words
        sizes[SOURCE, i + 1] = sizes[SOURCE, i] + (size if keep[i] else 0)


@njit(cache=True, nogil=True)
def unpack_rows(data: U8, begin: I64, keep: U8, sizes: I64, columns: tuple[Any, ...]) -> None:
    """Writes the columns of rows that measure_unpacked has measured; `columns` as of
    RowColumns, writable, their offsets unused."""
    c = RowColumns(*columns)
    end = len(data)
    for i in range(len(begin)):
        number, at = read_varint(data, begin[i], end)
        c.session[i] = number
        size, at = read_varint(data, at, end)
        _put_bytes(c.id, sizes[ID, i], data, at, at + size)
        at += size
        head = int(data[at])
        c.form[i] = head & 3
        c.shape[i] = head >> 2 & 3
        post, at = read_varint(data, at + 1, end)
        c.post[i] = np.uint64(post)
        size, at = read_varint(data, at, end)
        _put_bytes(c.term, 8 * sizes[TERM, i], data, at, at + 8 * size)
        at += 8 * size
        if head & _HAS_PROGRAM:
            size, at = read_varint(data, at, end)
            _put_bytes(c.prog, 2 * sizes[PROGRAM, i], data, at, at + 2 * size)
            at += 2 * size
        boxes, words, at = _read_region_sizes(data, at, head)
        box, geom = sizes[BOX, i], sizes[GEOM, i]
        if head & _PLAIN_REGION:
            if words:
                _put_bytes(c.box, 8 * box, data, at, at + _BOX_BYTES)
            else:
                _put_bytes(c.box, 8 * box, _WORLD_BOX, 0, _BOX_BYTES)
        else:
            _put_bytes(c.box, 8 * box, data, at, at + 8 * boxes)
            _, at = read_varint(data, at + 8 * boxes, end)
        _put_bytes(c.geom, 8 * geom, data, at, at + 8 * words)
        if not keep[i]:
            continue
        region, to = at, sizes[SOURCE, i]
        size, at = read_varint(data, at + 8 * words, end)
        if head & _PLAIN_SOURCE:
            c.source[to] = c.shape[i]
            to = _put_bytes(c.source, to + 1, data, region, region + 8 * words)
        _put_bytes(c.source, to, data, at, at + size)


@njit(cache=True, nogil=True)
def read_sessions(data: U8, begin: I64, session: I64) -> None:
    """Reads the sessions of the rows that begin at `begin`."""
    for i in range(len(begin)):
        number, _ = read_varint(data, begin[i], len(data))
        session[i] = number


@njit(cache=True, nogil=True)
def find_ids(data: U8, begin: I64, id_begin: I64, id_end: I64) -> None:
    """Finds where the ids lie of the rows that begin at `begin`."""
    for i in range(len(begin)):
        _, at = read_varint(data, begin[i], len(data))
        size, at = read_varint(data, at, len(data))
        id_begin[i] = at
        id_end[i] = at + size


@njit(cache=True, nogil=True)
def compare_ids(data: U8, begin: I64, off: I64, key: U8, keys: I64, same: U8) -> None:
    """Sets same[i] to whether the row that begins at begin[i] has the id in row keys[i] of a
    ragged column."""
    for i in range(len(begin)):
        _, at = read_varint(data, begin[i], len(data))
        size, at = read_varint(data, at, len(data))
        first = off[keys[i]]
        equal = size == off[keys[i] + 1] - first
        same[i] = equal and _have_same_bytes(data, at, key, first, size)


@njit(cache=True, nogil=True)
def copy_rows(data: U8, begin: I64, end: I64, out: U8, to: I64) -> None:
    """Copies data[begin[i]:end[i]] to out[to[i]]."""
    for i in range(len(begin)):
        _put_bytes(out, to[i], data, begin[i], end[i])


@njit(inline="always")
def _find_terms(data: U8, at: int) -> int:
    """Returns where the number of terms lies of the row that begins at `at`."""
    end = len(data)
    _, at = read_varint(data, at, end)
    size, at = read_varint(data, at, end)
    _, at = read_varint(data, at + size + 1, end)
    return at


@njit(cache=True, nogil=True)
def intern_rows(
    data: U8, off: I64, slots: I64, terms: U64, count: int, out: U8, out_off: U32
) -> int:
    """Writes rows with the numbers of their terms instead of the terms, from out_off[0] on;
    returns how many terms are known now, `count` of which were before.

    slots int64[2 ** k]: the number of each known term plus one, at least half of them 0 in the
    end; terms: the known terms, with room for more; out_off uint32[n + 1].
    """
    mask = np.uint64(len(slots) - 1)
    to = int(out_off[0])
    for i in range(len(off) - 1):
        at = _find_terms(data, off[i])
        number, after = read_varint(data, at, len(data))
        to = _put_bytes(out, to, data, off[i], after)
        for k in range(number):
            term = np.uint64(0)
            for b in range(8):
                term |= np.uint64(data[after + 8 * k + b]) << np.uint64(8 * b)
            slot = term & mask
            while slots[slot] and terms[slots[slot] - 1] != term:
                slot = (slot + np.uint64(1)) & mask
            if not slots[slot]:
                terms[count] = term
                count += 1
                slots[slot] = count
            to = _put_varint(out, to, np.uint64(slots[slot] - 1))
        to = _put_bytes(out, to, data, after + 8 * number, off[i + 1])
        out_off[i + 1] = to
    return count


@njit(cache=True, nogil=True)
def fill_slots(terms: U64, slots: I64) -> None:
    """Adds the number plus one of each term to empty slots, int64[2 ** k]."""
    mask = np.uint64(len(slots) - 1)
    for i in range(len(terms)):
        slot = terms[i] & mask
        while slots[slot]:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = i + 1


@njit(cache=True, nogil=True)
def measure_expanded(data: U8, off: U32, rows: I64, size: I64) -> None:
    """Finds the sizes that rows of intern_rows have with their terms; passes over negative rows."""
    for i in range(len(rows)):
        if rows[i] < 0:
            continue
        begin, end = int(np.int64(off[rows[i]])), int(np.int64(off[rows[i] + 1]))
        number, after = read_varint(data, _find_terms(data, begin), len(data))
        at = after
        for _ in range(number):
            _, at = read_varint(data, at, len(data))
        size[i] = end - begin + 8 * number - (at - after)


@njit(cache=True, nogil=True)
def expand_rows(data: U8, off: U32, rows: I64, terms: U64, out: U8, to: I64) -> None:
    """Writes rows of intern_rows with their terms, to out[to[i]]; passes over negative rows."""
    for i in range(len(rows)):
        if rows[i] < 0:
            continue
        begin, end = int(np.int64(off[rows[i]])), int(np.int64(off[rows[i] + 1]))
        number, at = read_varint(data, _find_terms(data, begin), len(data))
        put = _put_bytes(out, to[i], data, begin, at)
        for _ in range(number):
            known, at = read_varint(data, at, len(data))
            term = terms[known]
            for b in range(8):
                out[put + b] = np.uint8(term >> np.uint64(8 * b) & np.uint64(0xFF))
            put += 8
        _put_bytes(out, put, data, at, end)
