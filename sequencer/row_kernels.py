"""Kernels that pack queries into chunks: a live query in as few bytes as its columns allow.

A row is: session; id; head; post; number of terms and the terms, by their numbers in the chunk;
program if it has one; box and geom, or for a plain region geom alone, whose box follows from it,
and for a rectangle without the high bytes of east and north that are those of west and south;
source, for a plain source without the shape and the region that it begins with, and packed with
its size before it (text_kernels.py) if that is shorter. Sizes and small numbers are varints.
Everything else is copied bit by bit, so that a row is read back as it was.
"""

# Numba takes any integer for any other one, and gives an intrinsic its first argument.
# mypy: disable-error-code="arg-type, assignment, call-arg, return-value", no-warn-unreachable
from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from ps2stream.protocol.frame import I64, U8, U32, U64
from ps2stream.protocol.pointers import (
    borrow,
    count_high_zeros,
    find_address,
    is_same,
    load_word,
    prefetch,
    put_bytes,
    store_word,
)
from ps2stream.protocol.rows import RegionShape
from ps2stream.sequencer.table_kernels import NONE
from ps2stream.sequencer.text_kernels import WORDS, pack_text

# The head: form in two bits, shape in two, and these.
PLAIN_REGION: Final = 16
PLAIN_SOURCE: Final = 32
HAS_PROGRAM: Final = 64
PACKED_TEXT: Final = 128
FORMS: Final = 3  # a form or shape above is not packed
RECT: Final = int(RegionShape.RECT)
_WORLD = np.uint8(RegionShape.WORLD)
_RECT = np.uint8(RECT)
WORLD_BOX = np.array([-180.0, -90.0, 180.0, 90.0]).view(np.uint8)
BOX_BYTES: Final = 32
_HEAD_BYTES: Final = 104  # more than all sizes and numbers of a row have, _AHEAD, and a word
_AHEAD: Final = 16  # bytes that a text is packed ahead, until its size is known
TERM_BYTES: Final = 5  # the most that the number of a term has
DEAD_BIT: Final = 1 << 31
HANDLES: Final = DEAD_BIT - 1  # the highest handle above the base
_DEAD = np.uint32(DEAD_BIT)


class RowColumns(NamedTuple):
    """The columns of QueryRows to pack: session int64[n]; form, shape uint8[n]; post uint64[n];
    and (offsets, data) of the ragged ones, data as bytes but for the terms; offsets count
    elements."""

    session: I64
    form: U8
    post: U64
    shape: U8
    id_off: I64
    id: U8
    term_off: I64
    term: U64
    prog_off: I64
    prog: U8
    box_off: I64
    box: U8
    geom_off: I64
    geom: U8
    source_off: I64
    source: U8


class ChunkColumns(NamedTuple):
    """The columns of a chunk, with room for more rows. handle uint32[]: above the first one, with
    DEAD_BIT if the row is dead; off uint32[], one more than the rows; data uint8[]."""

    handle: U32
    off: U32
    data: U8


class ChunkTerms(NamedTuple):
    """The terms of a chunk. terms uint64[]: by their numbers; slots uint32[2 ** k]: a table of
    the numbers plus one; at least half of it stays 0."""

    terms: U64
    slots: U32


@njit(inline="always")
def _put_varint(out: U8, at: int, value: np.uint64) -> int:
    """Writes a varint; returns where it ends."""
    while value >= np.uint64(0x80):
        out[np.uint64(at)] = np.uint8(value & np.uint64(0x7F)) | np.uint8(0x80)
        value >>= np.uint64(7)
        at += 1
    out[np.uint64(at)] = np.uint8(value)
    return at + 1


@njit(inline="always")
def _put_rect(out: U8, at: int, geom: U8, begin: int) -> int:
    """Writes a rectangle, and perhaps eight bytes more; returns where it ends."""
    sizes_at = put_bytes(out, at, geom, begin, begin + 16)
    at, sizes, numbers, to = sizes_at + 1, 0, find_address(geom) + begin, find_address(out)
    for k in range(2):
        low, high = load_word(numbers + 8 * k), load_word(numbers + 8 * k + 16)
        # Of the high bytes, which come last, those that differ; eight are written at once.
        size = 8 - np.int64(count_high_zeros(low ^ high) >> np.uint64(3))
        store_word(to + at, high)
        at += size
        sizes |= size << (4 * k)
    out[sizes_at] = np.uint8(sizes)
    return at


@njit(inline="always")
def take_rect(data: U8, at: int, out: U8, to: int) -> int:
    """Reads a rectangle as four numbers; returns where it ends."""
    put_bytes(out, to, data, at, at + 16)
    sizes = np.int64(data[at + 16])
    at += 17
    for k in range(2):
        size = (sizes >> (4 * k)) & 15
        end = put_bytes(out, to + 16 + 8 * k, data, at, at + size)
        put_bytes(out, end, out, to + 8 * k + size, to + 8 * k + 8)
        at += size
    return at


@njit(inline="always")
def _find_term_slot(term: np.uint64, slots: U32) -> np.uint64:
    """Returns the slot at which the search for a term begins."""
    return (term ^ (term >> np.uint64(32))) & np.uint64(len(slots) - 1)


@njit(inline="always")
def _number_term(term: np.uint64, terms: U64, slots: U32, count: int) -> int:
    """Returns the number of a term; `count` for one that was not known, which is added."""
    mask = np.uint64(len(slots) - 1)
    slot = _find_term_slot(term, slots)
    while slots[slot] and terms[np.uint64(slots[slot]) - np.uint64(1)] != term:
        slot = (slot + np.uint64(1)) & mask
    if not slots[slot]:
        terms[count] = term
        slots[slot] = np.uint32(count + 1)
    return np.int64(slots[slot]) - 1


@njit(inline="always")
def _guess_terms(rows: I64, term_off: I64, term: U64, terms: U64, slots: U32) -> U32:
    """Returns what the slots have at which the search for each term of the rows begins: mostly its
    number plus one. They are all asked for first, and so are the terms, so that the cache misses
    overlap."""
    at_slots, at_terms, count = find_address(slots), find_address(terms), 0
    for i in range(len(rows)):
        for k in range(term_off[rows[i]], term_off[rows[i] + 1]):
            prefetch(at_slots + 4 * np.int64(_find_term_slot(term[k], slots)))
            count += 1
    guesses, count = np.empty(count, np.uint32), 0
    for i in range(len(rows)):
        for k in range(term_off[rows[i]], term_off[rows[i] + 1]):
            guesses[count] = slots[_find_term_slot(term[k], slots)]
            prefetch(at_terms + 8 * (np.int64(guesses[count]) - 1))
            count += 1
    return guesses


@njit(cache=True, nogil=True)
def _take_long_varint(data: U8, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while data[np.uint64(at)] >= 0x80:
        value |= (np.int64(data[np.uint64(at)]) & 0x7F) << shift
        shift += 7
        at += 1
    return int(value | np.int64(data[np.uint64(at)]) << shift), at + 1


@njit(inline="always")
def take_varint(data: U8, at: int) -> tuple[int, int]:
    """Returns a varint and where it ends; one of this module, most of which have one byte."""
    byte = int(data[np.uint64(at)])
    if byte < 0x80:
        return byte, at + 1
    end: tuple[int, int] = _take_long_varint(data, at)
    return end


@njit(cache=True, nogil=True)
def append_rows(
    columns: tuple[Any, ...],
    rows: I64,
    handles: I64,
    chunk: tuple[Any, ...],
    dictionary: tuple[U64, U32],
    state: I64,
) -> int:
    """Appends these rows as far as there is room; returns how many.

    columns, chunk, dictionary: plain tuples of the fields of RowColumns, ChunkColumns and
    ChunkTerms. state int64[4], writable: the numbers of rows and of terms in the chunk; its first
    handle; the bytes that the first row without room may need.
    """
    # As plain arrays: one that is taken out of a tuple anew for each row is counted each time.
    session, form, post, shape, id_off, id, term_off, term = columns[:8]
    prog_off, prog, box_off, box, geom_off, geom, source_off, source = columns[8:]
    handle, off, data = chunk
    terms, slots = dictionary
    count, known, base = state[0], state[1], state[2]
    at = np.int64(off[count])
    words = np.empty(3 * WORDS, np.int64)
    guesses, guess = _guess_terms(rows, term_off, term, terms, slots), 0
    for i in range(len(rows)):
        row = rows[i]
        ids = id_off[row + 1] - id_off[row]
        first, last = term_off[row], term_off[row + 1]
        program = 2 * (prog_off[row + 1] - prog_off[row])
        box_at, boxes = 8 * box_off[row], 8 * (box_off[row + 1] - box_off[row])
        geom_at, region = 8 * geom_off[row], 8 * (geom_off[row + 1] - geom_off[row])
        begin, end = source_off[row], source_off[row + 1]
        need = _HEAD_BYTES + ids + TERM_BYTES * (last - first) + program + boxes
        need += region + end - begin
        if (
            count == len(handle)
            or at + need > len(data)
            or handles[i] - base > HANDLES
            or 2 * (known + last - first) > len(slots)
        ):
            state[0], state[1], state[3] = count, known, need
            return i
        head = np.int64(form[row]) | np.int64(shape[row]) << 2
        if boxes == BOX_BYTES and (
            (
                shape[row] == _RECT
                and region == BOX_BYTES
                and is_same(box, box_at, geom, geom_at, BOX_BYTES)
            )
            or (
                shape[row] == _WORLD
                and region == 0
                and is_same(box, box_at, WORLD_BOX, 0, BOX_BYTES)
            )
        ):
            head |= PLAIN_REGION
        if (
            end - begin > region
            and source[begin] == shape[row]
            and is_same(source, begin + 1, geom, geom_at, region)
        ):
            head |= PLAIN_SOURCE
            begin += 1 + region
        at = _put_varint(data, at, np.uint64(session[row]))
        at = _put_varint(data, at, np.uint64(ids))
        at = put_bytes(data, at, id, id_off[row], id_off[row + 1])
        to_head = at
        at = _put_varint(data, at + 1, post[row])
        at = _put_varint(data, at, np.uint64(last - first))
        for k in range(first, last):
            number = np.int64(guesses[guess]) - 1
            guess += 1
            if number < 0 or terms[np.uint64(number)] != term[k]:
                number = _number_term(term[k], terms, slots, known)
                known += number == known
            at = _put_varint(data, at, np.uint64(number))
        if program:
            head |= HAS_PROGRAM
            at = _put_varint(data, at, np.uint64(program // 2))
            at = put_bytes(data, at, prog, 2 * prog_off[row], 2 * prog_off[row + 1])
        data[to_head] = head
        if not head & PLAIN_REGION:
            at = _put_varint(data, at, np.uint64(boxes // 8))
            at = put_bytes(data, at, box, box_at, box_at + boxes)
            at = _put_varint(data, at, np.uint64(region // 8))
        if head & PLAIN_REGION and region:
            at = _put_rect(data, at, geom, geom_at)
        else:
            at = put_bytes(data, at, geom, geom_at, geom_at + region)
        stop = NONE
        if head & PLAIN_SOURCE:
            stop = pack_text(source, begin, end, data, at + _AHEAD, words)
        size = stop - at - _AHEAD
        if stop != NONE and size + 1 < end - begin:
            data[to_head] = head | PACKED_TEXT
            at = _put_varint(data, at, np.uint64(size))
            at = _put_varint(data, at, np.uint64(end - begin))
            at = put_bytes(data, at, data, stop - size, stop)
        else:
            at = _put_varint(data, at, np.uint64(end - begin))
            at = put_bytes(data, at, source, begin, end)
        handle[count] = np.uint32(handles[i] - base)
        count += 1
        off[count] = np.uint32(at)
    state[0], state[1] = count, known
    return len(rows)


@njit(cache=True, nogil=True)
def fill_slots(terms: U64, count: int, slots: U32) -> None:
    """Adds the numbers of the first terms to empty slots."""
    for i in range(count):
        _number_term(terms[i], terms, slots, i)


@njit(inline="always")
def find_terms(data: U8, at: int) -> int:
    """Returns where the number of terms lies of the row that begins at `at`."""
    _, at = take_varint(data, at)
    size, at = take_varint(data, at)
    _, at = take_varint(data, at + size + 1)
    return at


@njit(cache=True, nogil=True)
def move_rows(
    old: tuple[Any, ...],
    old_terms: U64,
    base: int,
    chunk: tuple[Any, ...],
    dictionary: tuple[U64, U32],
    state: I64,
) -> None:
    """Appends the live rows of a chunk, whose first handle is `base`, to another one, which has
    room for them; the rest as append_rows."""
    old_handle, old_off, old_data = borrow(old)
    handle, off, data = borrow(chunk)
    terms, slots = borrow(dictionary)
    old_terms, state = borrow(old_terms), borrow(state)
    count, known = state[0], state[1]
    number_of = np.full(len(old_terms), -1, np.int64)
    to = np.int64(off[count])
    for row in range(len(old_handle)):
        if old_handle[row] & _DEAD:
            continue
        begin, end = np.int64(old_off[row]), np.int64(old_off[row + 1])
        number, at = take_varint(old_data, find_terms(old_data, begin))
        to = put_bytes(data, to, old_data, begin, at)
        for _ in range(number):
            term, at = take_varint(old_data, at)
            if number_of[term] < 0:
                number_of[term] = _number_term(old_terms[term], terms, slots, known)
                known += number_of[term] == known
            to = _put_varint(data, to, np.uint64(number_of[term]))
        to = put_bytes(data, to, old_data, at, end)
        handle[count] = np.uint32(base + np.int64(old_handle[row]) - state[2])
        count += 1
        off[count] = np.uint32(to)
    state[0], state[1] = count, known


@njit(cache=True, nogil=True)
def keep_live_bytes(old: tuple[Any, ...], out: U8, out_off: U32) -> int:
    """Copies the bytes of live rows, for which `out` has room; the dead ones have none then.
    Returns where they end."""
    handle, off, data = borrow(old)
    out, out_off = borrow(out), borrow(out_off)
    to, first, count = 0, 0, len(handle)
    for row in range(count):
        if handle[row] & _DEAD:
            # Live rows that lie behind each other are copied at once.
            if to + np.int64(off[row]) - np.int64(off[first]) > len(out):
                raise IndexError("live rows have more bytes")
            to = put_bytes(out, to, data, np.int64(off[first]), np.int64(off[row]))
            first = row + 1
        begin = off[row + 1] if handle[row] & _DEAD else off[row]
        out_off[row] = np.uint32(to + np.int64(begin) - np.int64(off[first]))
    if to + np.int64(off[count]) - np.int64(off[first]) != len(out):
        raise IndexError("live rows have more bytes, or fewer")
    to = put_bytes(out, to, data, np.int64(off[first]), np.int64(off[count]))
    out_off[count] = np.uint32(to)
    return to
