"""Chunks of queries packed into bytes (row_kernels.py), in the order of their handles."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ps2stream.protocol.frame import I64, U8, U32, U64, sealed
from ps2stream.protocol.rows import QueryRows, UpdateKind, no_queries
from ps2stream.sequencer import chunk_kernels, row_kernels
from ps2stream.sequencer.row_kernels import DEAD_BIT, HANDLES
from ps2stream.sequencer.table_kernels import NONE

_NO_SLOTS = np.zeros(0, np.uint32)
_FIRST_ROWS = 16  # of a new chunk, which doubles its room when it is full
_SLACK = 32  # a chunk with less spare room than one part in so many is not copied to free it
_MOST_BYTES = 1 << 29  # numbers of terms may take five times as much when rows are moved


class QueryChunk:
    """Queries with rising handles, packed, and which of them are live. A row keeps its place, so
    whoever holds the chunk may read a row later. `number` names the chunk in the table of ids.

    Most terms are frequent ones, so the chunk has each term once, and its rows have numbers."""

    def __init__(self, number: int, base: int) -> None:
        self.number = number
        self.base = base  # the first handle
        self._count = self._term_count = 0
        self._handle = np.zeros(_FIRST_ROWS, np.uint32)  # above the base, with DEAD_BIT
        self._off = np.zeros(_FIRST_ROWS + 1, np.uint32)
        self._data = np.zeros(64 * _FIRST_ROWS, np.uint8)
        self._terms = np.zeros(_FIRST_ROWS, np.uint64)
        self._slots = _NO_SLOTS  # of the terms, while rows are appended
        self._addresses: tuple[int, ...] = ()  # of the columns, once they were needed

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """The bytes of all columns, without room that was never written to: it takes no memory."""
        rows, size = self.extent
        return 8 * rows + 4 + size + self._terms.nbytes + self._slots.nbytes

    @property
    def extent(self) -> tuple[int, int]:
        """The number of rows, and their bytes."""
        return self._count, int(self._off[self._count])

    @property
    def live(self) -> NDArray[np.bool_]:
        """Which rows are live, as they are now."""
        return self._handle[: self._count] < DEAD_BIT

    @property
    def live_count(self) -> int:
        """The number of live rows."""
        return int(np.count_nonzero(self.live))

    def mark_dead(self, at: I64) -> None:
        """Marks rows as dead."""
        self._handle[at] |= np.uint32(DEAD_BIT)

    def describe(self) -> tuple[int, ...]:
        """Returns the chunk as chunk_kernels.py has it, without the dead rows. It holds until
        the chunk is changed otherwise than by those kernels."""
        if not self._addresses:
            columns = self._handle, self._off, self._data, self._terms
            self._addresses = tuple(column.ctypes.data for column in columns)
        size = len(self._data)
        return *self._addresses, self.base, self._count, size, self._term_count, 0, 0

    def append(self, columns: tuple[Any, ...], at: I64, handles: I64, most: int) -> int:
        """Appends the rows `at` of RowColumns as live queries with these handles, until the chunk
        has `most` rows, its bytes or its handles are too many; returns how many were appended."""
        at, done = at[: max(0, most - self._count)], 0
        while done < len(at):
            if not len(self._slots):
                self._make_room_for_terms(self._term_count + 1)
            state = np.array([self._count, self._term_count, self.base, 0])
            done += row_kernels.append_rows(
                columns, at[done:], handles[done:], self._list_columns(),
                (self._terms, self._slots), state,
            )  # fmt: skip
            self._count, self._term_count, _, need = state.tolist()
            if done == len(at) or not self._grow(need, int(handles[done])):
                break
        return done

    @property
    def room(self) -> tuple[Any, ...]:
        """The columns as a plain tuple of the fields of ChunkColumns, as kernels append to them."""
        return self._list_columns()

    @property
    def dictionary(self) -> tuple[U64, U32]:
        """The terms as a plain tuple of the fields of ChunkTerms."""
        return self._terms, self._slots

    def place(self, most: int) -> tuple[int, int, int, int, int]:
        """Returns where apply_kernels.py appends, at most to so many rows."""
        most = most if len(self._slots) else 0
        return self._count, self._term_count, self.base, self.number, most

    def count_appended(self, rows: int, terms: int) -> None:
        """Notes that so many rows were appended, and how many terms there are now."""
        self._count += rows
        self._term_count = terms

    def move_live_rows(self, chunks: Sequence[QueryChunk]) -> None:
        """Takes over the live rows of these chunks, one behind the other; this one is empty."""
        terms = sum(chunk._term_count for chunk in chunks)
        # In the worst case each byte is the number of a term, and all have the longest one now.
        size = sum(int(chunk._off[chunk._count]) for chunk in chunks)
        self._resize(
            sum(chunk.live_count for chunk in chunks), size * (terms.bit_length() // 7 + 1)
        )
        self._make_room_for_terms(terms)
        state = np.array([0, 0, self.base, 0])
        for chunk in chunks:
            row_kernels.move_rows(
                chunk._list_columns(chunk._count), chunk._terms, chunk.base,
                self._list_columns(), (self._terms, self._slots), state,
            )  # fmt: skip
        self._count, self._term_count = state[:2].tolist()
        self.seal()

    def can_follow(self, other: QueryChunk) -> bool:
        """Returns whether another chunk's handles and bytes would leave room for this one's."""
        span = int(self.handles(np.array([len(self) - 1]))[0]) - other.base
        return span <= HANDLES and len(self._data) + len(other._data) <= _MOST_BYTES

    def drop_dead_bytes(self, dead: int) -> QueryChunk:
        """Returns a chunk with the same rows at the same places, in which the dead ones, which have
        so many bytes, have none. Both share the other columns, so this one is only read from now
        on, up to its present rows."""
        out = copy.copy(self)
        size = int(self._off[self._count]) - dead
        out._data, out._off = np.empty(size, np.uint8), np.empty_like(self._off)
        row_kernels.keep_live_bytes(self._list_columns(self._count), out._data, out._off)
        out._addresses = ()
        return out

    def expect(self, rows: int, size: int) -> None:
        """Makes room in this empty chunk for as many rows and bytes as the one before it had:
        to grow step by step would copy all of them, and room without use takes no memory."""
        self._resize(max(rows, _FIRST_ROWS), min(size + size // _SLACK, _MOST_BYTES))

    def seal(self) -> None:
        """Frees the room that no more rows will fill, unless there is little of it."""
        rows, size = self._count, int(self._off[self._count])
        fits = (
            len(self._handle) - rows <= rows // _SLACK and len(self._data) - size <= size // _SLACK
        )
        if not fits:
            self._resize(rows, size)
        self._terms = self._terms[: self._term_count].copy()
        self._slots = _NO_SLOTS
        self._addresses = ()

    def handles(self, at: I64) -> I64:
        """Returns the handles of the rows `at`."""
        return (self._handle[at] & np.uint32(HANDLES)).astype(np.int64) + self.base

    def count_through(self, handle: int) -> int:
        """Returns how many rows have a handle up to this one."""
        if handle < self.base:
            return 0
        above = np.uint32(min(handle - self.base, HANDLES))
        rising = self._handle[: self._count] & np.uint32(HANDLES)
        return int(np.searchsorted(rising, above, "right"))

    def take(self, at: I64) -> QueryRows:
        """Returns the inserts of the rows `at`."""
        table, (handle, session) = self._make_table(), self._read_owners(at)
        return unpack_inserts(table, at, handle, session)

    def read_sessions(self, at: I64) -> I64:
        """Returns the sessions of the rows `at`."""
        return self._read_owners(at)[1]

    def _read_owners(self, at: I64) -> tuple[I64, I64]:
        handle, session = np.empty(len(at), np.int64), np.empty(len(at), np.int64)
        chunk_kernels.read_owners(self._make_table(), at, handle, session)
        return handle, session

    def _make_table(self) -> I64:
        """Returns a table with this chunk alone, so that its places are its rows."""
        return np.array([self.describe()])

    def _list_columns(self, rows: int | None = None) -> tuple[Any, ...]:
        """Returns the fields of ChunkColumns as a plain tuple, with so many rows."""
        return self._handle[:rows], self._off, self._data

    def _grow(self, need: int, handle: int) -> bool:
        """Makes room for a row of at most `need` bytes; returns False for more than may be."""
        used = int(self._off[self._count])
        if handle - self.base > HANDLES or used + need > _MOST_BYTES:
            return False
        rows, size = len(self._handle), len(self._data)
        if self._count == rows:
            rows = 2 * rows + 1
        if used + need > size:
            size = min(2 * (used + need), _MOST_BYTES)
        if (rows, size) != (len(self._handle), len(self._data)):
            self._resize(rows, size)
        self._make_room_for_terms(self._term_count + need // row_kernels.TERM_BYTES)
        return True

    def _make_room_for_terms(self, count: int) -> None:
        """Makes room for so many terms, if there is less."""
        if 2 * count > len(self._slots):
            size = 1 << (4 * count).bit_length()
            self._terms = _copy_into(size // 2, self._terms[: self._term_count])
            self._slots = np.zeros(size, np.uint32)
            row_kernels.fill_slots(self._terms, self._term_count, self._slots)
            self._addresses = ()

    def _resize(self, rows: int, size: int) -> None:
        """Makes room for so many rows and bytes."""
        count, used = self._count, int(self._off[self._count])
        self._handle = _copy_into(rows, self._handle[:count])
        self._off = _copy_into(rows + 1, self._off[: count + 1])
        self._data = _copy_into(size, self._data[:used])
        self._addresses = ()


def unpack_inserts(table: I64, places: I64, handle: I64, session: I64) -> QueryRows:
    """Returns the inserts of the rows at these places, which have these owners."""
    n = len(places)
    kind, rows = np.full(n, UpdateKind.INSERT, np.uint8), np.full(n, NONE)
    heads = kind, handle, handle, session
    return QueryRows.decode(encode_rows(table, places, _NO_COLUMNS, rows, heads).data)


def encode_rows(
    table: I64,
    places: I64,
    columns: tuple[Any, ...],
    rows: I64,
    heads: tuple[U8, I64, I64, I64],
) -> U8:
    """Returns encoded QueryRows: updates of rows that are each at a place of `table`, or where that
    is NONE in these rows of `columns`; heads: their kinds, LSNs, handles and sessions. A delete
    has no source. Raises ValueError for columns with a form, shape or session that no query
    has."""
    n, kind = len(places), heads[0]
    off = np.empty((chunk_kernels.COLUMNS, n + 1), np.int64)
    bad = chunk_kernels.measure_rows(table, places, columns, rows, kind, off)
    if bad != NONE:
        raise ValueError(f"row {bad} has an unknown form or shape, or a negative session")
    room, starts = allocate_rows(n, off)
    encoded: U8 = room.view(np.uint8)
    frame = room, encoded
    chunk_kernels.write_rows(table, places, columns, rows, heads, off, frame, np.array(starts))
    encoded.flags.writeable = False
    return encoded


def allocate_rows(n: int, off: I64, ahead: int = 0) -> tuple[U64, list[int]]:
    """Returns room for n rows as encoded QueryRows, with the offsets that measure_rows has found,
    and where their columns begin; with so many bytes ahead of them."""
    term, prog, box, geom, source, ids = off[:, n].tolist()
    more = n + 1
    sizes = [n, n, n, n, more, ids, n, n, more, term, more, prog, more, box, n, more, geom]
    return QueryRows.allocate([*sizes, more, source], ahead)


def list_columns(rows: QueryRows) -> tuple[Any, ...]:
    """Returns the fields of RowColumns as a plain tuple, which a kernel takes faster."""
    return (
        sealed(rows.session), sealed(rows.form), sealed(rows.post), sealed(rows.shape),
        sealed(rows.id_off), sealed(rows.id), sealed(rows.term_off), sealed(rows.term),
        sealed(rows.prog_off), sealed(rows.prog).view(np.uint8),
        sealed(rows.box_off), sealed(rows.box).view(np.uint8),
        sealed(rows.geom_off), sealed(rows.geom).view(np.uint8),
        sealed(rows.source_off), sealed(rows.source),
    )  # fmt: skip


def _copy_into(size: int, column: NDArray[Any]) -> NDArray[Any]:
    """Returns a column of this size that begins with another one."""
    out = np.empty(size, column.dtype)
    out[: len(column)] = column
    return out


_NO_COLUMNS = list_columns(no_queries())


def find_live_handles(chunks: Sequence[QueryChunk], first: I64, handles: I64) -> NDArray[np.bool_]:
    """Returns which handles, which rise, are of live rows of these chunks, in the order of their
    handles; first: the first handle of each."""
    lives = np.zeros(len(handles), np.bool_)
    chunk = np.searchsorted(first, handles, "right") - 1
    for number in np.unique(chunk[chunk >= 0]).tolist():
        a, b = np.searchsorted(chunk, [number, number + 1]).tolist()
        live = chunks[number].live
        above = chunks[number].handles(np.arange(len(live)))
        at = np.minimum(np.searchsorted(above, handles[a:b]), len(above) - 1)
        lives[a:b] = (above[at] == handles[a:b]) & live[at]
    return lives
