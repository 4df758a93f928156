"""Queries packed into bytes (row_kernels.py), and chunks of them in the order of their handles."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ps2stream.protocol.frame import I64, U8, sealed
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.sequencer import row_kernels as kernels

_NO_SLOTS = np.zeros(0, np.int64)
_FIRST_ROWS = 16  # of a new chunk, which doubles its room when it is full


class PackedRows(NamedTuple):
    """The inserts of n queries without LSN, handle and kind. off int64[n + 1], data uint8[]."""

    off: I64
    data: U8

    def __len__(self) -> int:
        return len(self.off) - 1

    @classmethod
    def pack(cls, rows: QueryRows, at: I64) -> Self:
        """Packs the rows `at`. Raises ValueError for a form, shape or session that no query has."""
        heads, off = np.empty(len(at), np.uint8), np.zeros(len(at) + 1, np.int64)
        columns, at = _list_columns(rows), sealed(at)
        if (bad := kernels.measure_rows(columns, at, heads, off)) >= 0:
            raise ValueError(f"row {bad} has an unknown form or shape, or a negative session")
        data = np.empty(int(off[-1]), np.uint8)
        kernels.pack_rows(columns, at, heads, 0, data)
        return cls(off, data)

    @classmethod
    def join(cls, first: PackedRows, second: PackedRows) -> Self:
        """Returns the rows of both."""
        off = np.concatenate([first.off, second.off[1:] + len(first.data)])
        return cls(off, np.concatenate([first.data, second.data]))

    def slice(self, first: int, end: int) -> PackedRows:
        """Returns these rows, as views."""
        off = self.off[first : end + 1]
        return PackedRows(off - off[0], self.data[off[0] : off[-1]])

    def select(self, at: I64) -> PackedRows:
        """Returns the rows `at`, packed."""
        if len(at) == len(self):
            return self
        begin, end = self.off[at], self.off[at + 1]
        off = np.zeros(len(at) + 1, np.int64)
        np.cumsum(end - begin, out=off[1:])
        data = np.empty(int(off[-1]), np.uint8)
        kernels.copy_rows(self.data, begin, end, data, off)
        return PackedRows(off, data)

    def take(self, at: I64, keep: NDArray[np.bool_] | None = None) -> QueryRows:
        """Unpacks the rows `at`; LSN and handle are 0. keep: which of them keep their sources."""
        return _unpack_rows(self.data, self.off[at], keep)

    def read_sessions(self) -> I64:
        """Returns the session of each row."""
        return _read_sessions(self.data, self.off[:-1])

    def match_ids(self, off: I64, data: U8, keys: I64) -> NDArray[np.bool_]:
        """Returns which rows have, byte by byte, the ids in the rows `keys` of a column."""
        same = np.zeros(len(self), np.uint8)
        kernels.compare_ids(self.data, self.off[:-1], sealed(off), sealed(data), sealed(keys), same)
        return same.view(np.bool_)


class QueryChunk:
    """Queries with rising handles, packed, and which of them are live. A row keeps its place, so
    whoever holds the chunk may read a row later. `number` names the chunk in the table of ids.

    Most terms are frequent ones, so the chunk has each term once, and its rows have numbers."""

    ROOM = 1 << 32  # handles above the first one, and bytes

    def __init__(self, number: int, base: int) -> None:
        self.number = number
        self.base = base  # the first handle
        self.dead = self._count = 0
        self._live = np.zeros(_FIRST_ROWS, np.bool_)
        self._handle = np.zeros(_FIRST_ROWS, np.uint32)  # above the base
        self._off = np.zeros(_FIRST_ROWS + 1, np.uint32)
        self._data = np.zeros(64 * _FIRST_ROWS, np.uint8)
        self._terms = np.zeros(_FIRST_ROWS, np.uint64)
        self._term_count = 0
        self._slots = _NO_SLOTS  # of the terms, while rows are appended

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """The bytes of all columns."""
        columns = (self._live, self._handle, self._off, self._data, self._terms, self._slots)
        return sum(column.nbytes for column in columns)

    @property
    def live(self) -> NDArray[np.bool_]:
        """Which rows are live."""
        return self._live[: self._count]

    @property
    def live_count(self) -> int:
        """The number of live rows."""
        return self._count - self.dead

    def has_room(self, rows: PackedRows, handle: int) -> bool:
        """Returns whether rows up to this handle fit."""
        end = int(self._off[self._count]) + len(rows.data)
        return handle - self.base < self.ROOM and end < self.ROOM

    def append(self, rows: PackedRows, handles: I64) -> None:
        """Appends live rows, for which has_room holds."""
        old, new = self._count, self._count + len(rows)
        begin = int(self._off[old])
        end = begin + len(rows.data)
        if new > len(self._live) or end > len(self._data):
            self._resize(max(new, 2 * old), max(end, 2 * begin))
        self._make_room_for_terms(self._term_count + len(rows.data) // 8)
        self._live[old:new] = True
        self._handle[old:new] = handles - self.base
        self._term_count = kernels.intern_rows(
            rows.data, rows.off, self._slots, self._terms, self._term_count,
            self._data, self._off[old : new + 1],
        )  # fmt: skip
        self._count = new

    def seal(self) -> None:
        """Frees the room that no more rows will fill."""
        self._resize(self._count, int(self._off[self._count]))
        self._terms = self._terms[: self._term_count].copy()
        self._slots = _NO_SLOTS

    def mark_dead(self, at: I64) -> None:
        """Marks live rows as dead."""
        self._live[at] = False
        self.dead += len(at)

    def handles(self, at: I64) -> I64:
        """Returns the handles of the rows `at`."""
        return self._handle[at].astype(np.int64) + self.base

    def find_rows(self, handles: I64) -> I64:
        """Returns the rows of these handles, which must be there."""
        above = (handles - self.base).astype(np.uint32)
        return np.searchsorted(self._handle[: self._count], above).astype(np.int64)

    def count_through(self, handle: int) -> int:
        """Returns how many rows have a handle up to this one."""
        if handle < self.base:
            return 0
        above = np.uint32(min(handle - self.base, self.ROOM - 1))
        return int(np.searchsorted(self._handle[: self._count], above, "right"))

    def take(self, at: I64) -> QueryRows:
        """Unpacks the rows `at`."""
        handle = self.handles(at)
        rows = self.copy_packed(at).take(np.arange(len(at)))
        return rows.replace(lsn=handle, handle=handle)

    def read_sessions(self) -> I64:
        """Returns the session of each row."""
        return _read_sessions(self._data, self._off[: self._count].astype(np.int64))

    def read_ids(self) -> tuple[I64, U8]:
        """Returns the ids of all rows as a ragged column."""
        data, begin = self._data, self._off[: self._count].astype(np.int64)
        first, last = np.empty(self._count, np.int64), np.empty(self._count, np.int64)
        kernels.find_ids(data, begin, first, last)
        off = np.concatenate([np.zeros(1, np.int64), np.cumsum(last - first)])
        ids = np.empty(int(off[-1]), np.uint8)
        kernels.copy_rows(data, first, last, ids, off)
        return off, ids

    def measure(self, rows: I64, size: I64) -> None:
        """Finds how many bytes rows have as PackedRows; passes over negative ones."""
        kernels.measure_expanded(self._data, self._off, rows, size)

    def write_packed(self, rows: I64, out: U8, to: I64) -> None:
        """Writes rows as those of PackedRows to out[to[i]]; passes over negative ones."""
        kernels.expand_rows(self._data, self._off, rows, self._terms, out, to)

    def copy_packed(self, at: I64) -> PackedRows:
        """Returns the rows `at`."""
        off = np.zeros(len(at) + 1, np.int64)
        self.measure(at, off[1:])
        off = np.cumsum(off)
        data = np.empty(int(off[-1]), np.uint8)
        self.write_packed(at, data, off)
        return PackedRows(off, data)

    def _make_room_for_terms(self, count: int) -> None:
        """Makes room for so many terms, if there is less."""
        if count > len(self._terms):
            self._terms = _copy_into(2 * count, self._terms[: self._term_count])
        if 2 * count > len(self._slots):
            self._slots = np.zeros(1 << (4 * count).bit_length(), np.int64)
            kernels.fill_slots(sealed(self._terms[: self._term_count]), self._slots)

    def _resize(self, rows: int, size: int) -> None:
        """Makes room for so many rows and bytes; new arrays, as others may still read the old."""
        count, used = self._count, int(self._off[self._count])
        self._live = _copy_into(rows, self._live[:count])
        self._handle = _copy_into(rows, self._handle[:count])
        self._off = _copy_into(rows + 1, self._off[: count + 1])
        self._data = _copy_into(size, self._data[:used])


def _copy_into(size: int, column: NDArray[Any]) -> NDArray[Any]:
    """Returns a column of this size that begins with another one."""
    out = np.empty(size, column.dtype)
    out[: len(column)] = column
    return out


def _list_columns(rows: QueryRows) -> tuple[Any, ...]:
    """Returns the fields of RowColumns as a plain tuple, which a kernel takes faster."""
    return (
        sealed(rows.session), sealed(rows.form), sealed(rows.post), sealed(rows.shape),
        sealed(rows.id_off), sealed(rows.id),
        sealed(rows.term_off), sealed(rows.term).view(np.uint8),
        sealed(rows.prog_off), sealed(rows.prog).view(np.uint8),
        sealed(rows.box_off), sealed(rows.box).view(np.uint8),
        sealed(rows.geom_off), sealed(rows.geom).view(np.uint8),
        sealed(rows.source_off), sealed(rows.source),
    )  # fmt: skip


def _read_sessions(data: U8, begin: I64) -> I64:
    out = np.empty(len(begin), np.int64)
    kernels.read_sessions(data, begin, out)
    return out


def _unpack_rows(data: U8, begin: I64, keep: NDArray[np.bool_] | None) -> QueryRows:
    """Returns the rows that begin at `begin`; LSN and handle are 0."""
    n = len(begin)
    kept = sealed(np.ones(n, np.uint8) if keep is None else keep.view(np.uint8))
    off = np.empty((6, n + 1), np.int64)
    kernels.measure_unpacked(data, begin, kept, off)
    total = off[:, n].tolist()
    rows = QueryRows(
        kind=np.full(n, UpdateKind.INSERT, np.uint8),
        lsn=np.zeros(n, np.int64),
        handle=np.zeros(n, np.int64),
        session=np.empty(n, np.int64),
        id_off=off[kernels.ID],
        id=np.empty(total[kernels.ID], np.uint8),
        form=np.empty(n, np.uint8),
        post=np.empty(n, np.uint64),
        term_off=off[kernels.TERM],
        term=np.empty(total[kernels.TERM], np.uint64),
        prog_off=off[kernels.PROGRAM],
        prog=np.empty(total[kernels.PROGRAM], np.int16),
        box_off=off[kernels.BOX],
        box=np.empty(total[kernels.BOX]),
        shape=np.empty(n, np.uint8),
        geom_off=off[kernels.GEOM],
        geom=np.empty(total[kernels.GEOM]),
        source_off=off[kernels.SOURCE],
        source=np.empty(total[kernels.SOURCE], np.uint8),
    )
    columns = (
        rows.session, rows.form, rows.post, rows.shape,
        rows.id_off, rows.id, rows.term_off, rows.term.view(np.uint8),
        rows.prog_off, rows.prog.view(np.uint8), rows.box_off, rows.box.view(np.uint8),
        rows.geom_off, rows.geom.view(np.uint8), rows.source_off, rows.source,
    )  # fmt: skip
    kernels.unpack_rows(data, begin, kept, off, columns)
    return rows
