"""The live queries: ids -> rows of packed chunks (packed_rows.py); and those deleted lately.

A table of salted hashes (hash_table.py) only finds candidates: the ids of their rows decide.
Handles rise with time, so a chunk's handles are sorted and a row is found by two binary searches.
A chunk is rewritten when half of it is dead.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ps2stream.protocol.frame import F64, I64, U8, U64
from ps2stream.protocol.rows import QueryRows, UpdateKind, no_queries
from ps2stream.sequencer.hash_table import HashTable, SaltedHash
from ps2stream.sequencer.kernels import NONE
from ps2stream.sequencer.packed_rows import PackedRows, QueryChunk

_ROW_BITS = 18
_ROW = (1 << _ROW_BITS) - 1
CHUNK = 1 << _ROW_BITS  # rows


class FoundQueries(NamedTuple):
    """Live queries that ids name. at int64[n]: which of them has the id, NONE for none; place,
    handle int64[m]; rows: the m queries."""

    at: I64
    place: I64
    handle: I64
    rows: PackedRows


class PreparedRows(NamedTuple):
    """What is needed to apply n rows. hashes uint64[n]: of their ids; inserts: those among them;
    gone: the places of the queries that the others delete, NONE for one of these inserts."""

    hashes: U64
    inserts: PackedRows
    gone: I64


class DyingQueries(NamedTuple):
    """The queries that one batch deleted: the rows `at` of it. A delete has the columns of its
    insert except the source."""

    rows: QueryRows
    at: I64

    def list_updates(self) -> QueryRows:
        """Returns their inserts and deletes."""
        gone = self.rows.take(self.at)
        born = gone.replace(kind=np.full_like(gone.kind, UpdateKind.INSERT), lsn=gone.handle)
        return QueryRows.concat([born, gone])


class StatePiece(NamedTuple):
    """A piece of a state: the rows `at` of `chunk`, and the rows first..end of `past`."""

    chunk: QueryChunk | None
    at: I64
    past: QueryRows
    first: int
    end: int

    @property
    def last(self) -> int:
        """The highest LSN of the piece."""
        live = int(self.chunk.handles(self.at[-1:])[0]) if self.chunk and len(self.at) else 0
        return max(live, int(self.past.lsn[self.end - 1]) if self.end > self.first else 0)

    def rows(self) -> QueryRows:
        """Returns the rows in LSN order."""
        past = self.past.take(np.arange(self.first, self.end))
        if self.chunk is None or not len(self.at):
            return past
        rows = self.chunk.take(self.at)
        if not len(past):
            return rows
        rows = QueryRows.concat([rows, past])
        return rows.take(np.argsort(rows.lsn, kind="stable"))


class QueryRegistry:
    """All live queries. Memory is proportional to them, not to the history.

    A deleted query stays in `_dying` until `forget`: objects may still be matched as of an LSN at
    which it was live.
    """

    def __init__(self, salt: int = 0) -> None:
        self._hash = SaltedHash(salt)
        self._table = HashTable()
        self._chunks: list[QueryChunk] = []
        self._by_number: list[QueryChunk | None] = []
        self._first = np.zeros(0, np.int64)
        self._dying: deque[DyingQueries] = deque()

    def __len__(self) -> int:
        return len(self._table)

    @property
    def nbytes(self) -> int:
        """The bytes of the live queries and of the table of their ids."""
        return self._table.nbytes + sum(chunk.nbytes for chunk in self._chunks)

    def hash(self, off: I64, data: U8) -> U64:
        """Returns the salted hash of each row of a ragged column."""
        return self._hash.hash(off, data)

    def find(self, off: I64, ids: U8, hashes: U64 | None = None) -> FoundQueries:
        """Finds the live queries that have the ids of a ragged column."""
        if hashes is None:
            hashes = self.hash(off, ids)
        slot = np.full(len(hashes), NONE, np.int64)
        row = self._table.find(hashes, slot)
        while True:
            mine = np.flatnonzero(row != NONE)
            handle, found = self._collect_rows(row[mine])
            same = found.match_ids(off, ids, mine)
            if same.all():
                break
            other = mine[~same]
            later = slot[other] + 1
            row[other] = self._table.find(hashes[other], later)
            slot[other] = later
        at = np.full(len(row), NONE, np.int64)
        at[mine] = np.arange(len(mine))
        return FoundQueries(at, row[mine], handle, found)

    def handles(self, off: I64, ids: U8) -> I64:
        """Returns the handle of each id of a ragged column; 0 where it is not live."""
        found = self.find(off, ids)
        out = np.zeros(len(found.at), np.int64)
        out[found.at != NONE] = found.handle
        return out

    def rows(self, handles: I64) -> QueryRows:
        """Returns the insert rows of these handles, which must be live, in this order."""
        if not len(handles):
            return no_queries()
        handles, found = self._collect_rows(self._find_places(handles))
        return found.take(np.arange(len(found))).replace(lsn=handles, handle=handles)

    def apply(self, rows: QueryRows, prepared: PreparedRows | None = None) -> None:
        """Applies committed rows in LSN order, above all earlier ones."""
        if not len(rows):
            return
        insert = rows.kind == UpdateKind.INSERT
        born, gone = np.flatnonzero(insert), np.flatnonzero(~insert)
        if prepared is None:
            hashes = self.hash(rows.id_off, rows.id)
            places = np.full(len(gone), NONE, np.int64)
            prepared = PreparedRows(hashes, PackedRows.pack(rows, born), places)
        self._append(prepared.inserts, rows.handle[born], prepared.hashes[born])
        if len(gone):
            few = 4 * len(gone) < len(rows)  # a batch that is kept for them costs too much
            dying = (rows.take(gone), np.arange(len(gone))) if few else (rows, gone)
            self._dying.append(DyingQueries(*dying))
            handles, places = rows.handle[gone], prepared.gone
            if (unknown := np.flatnonzero(places == NONE)).size:
                places = places.copy()
                places[unknown] = self._find_places(handles[unknown])
            self._mark_dead(places, prepared.hashes[gone])

    def forget(self, watermark: int) -> None:
        """Drops the queries deleted up to `watermark`: no object is matched as of a lower LSN."""
        while self._dying and self._dying[0].rows.lsn[self._dying[0].at[-1]] <= watermark:
            self._dying.popleft()

    def page(
        self,
        after: int,
        limit: int,
        session: int = 0,
        sessions: NDArray[np.bool_] | None = None,
    ) -> tuple[QueryRows, bool]:
        """Returns at most `limit` live rows with handle > after in handle order, and whether more
        follow. Only rows of `session` count unless it is 0, and of sessions whose number is true
        in `sessions`."""
        parts: list[QueryRows] = []
        left = limit
        start = max(int(np.searchsorted(self._first, after, "right")) - 1, 0)
        for chunk in self._chunks[start:]:
            mask = chunk.live.copy()
            mask[: chunk.count_through(after)] = False
            if session or sessions is not None:
                owner = chunk.read_sessions()
                mask &= owner == session if session else True
                mask &= sessions[owner] if sessions is not None else True
            at = np.flatnonzero(mask)
            if len(at) and left == 0:
                return _concat_rows(parts), True
            parts.append(chunk.take(at[:left]))
            if len(at) > left:
                return _concat_rows(parts), True
            left -= len(at)
        return _concat_rows(parts), False

    def count_up_to(self, upto: int) -> int:
        """Returns how many live queries have a handle up to this one."""
        return sum(int(c.live[: c.count_through(upto)].sum()) for c in self._chunks)

    def load(self, after: int, upto: int, box: F64, size: int) -> tuple[QueryRows, int]:
        """Returns (rows with after < handle <= last: live ones that meet the box, and all dying
        ones with their deletes; last, which is `upto` when no more follow). At most `size` rows
        and the dying ones are examined."""
        parts: list[QueryRows] = []
        last, left = upto, size
        start = max(int(np.searchsorted(self._first, after, "right")) - 1, 0)
        for chunk in self._chunks[start:]:
            a, b = chunk.count_through(after), chunk.count_through(upto)
            at = np.arange(a, min(b, a + left))
            left -= len(at)
            rows = chunk.take(at[chunk.live[at]])
            parts.append(rows.take(np.flatnonzero(meets_box(rows, box))))
            if b - a > len(at) or not left:
                last = int(chunk.handles(at[-1:])[0]) if len(at) else last
                break
        for dying in self._dying:
            rows = dying.list_updates()
            mine = (rows.handle > after) & (rows.handle <= last)
            if mine.any():
                parts.append(rows.take(np.flatnonzero(mine)))
        return _concat_rows(parts), last

    def state(self, size: int) -> list[StatePiece]:
        """Returns the live rows, and the dying ones with their deletes, as they are now, in LSN
        order; a piece has at most 2 * `size`. Nothing is copied before a piece is read."""
        past = _concat_rows([dying.list_updates() for dying in self._dying])
        past = past.take(np.argsort(past.lsn, kind="stable"))
        alive: list[tuple[QueryChunk | None, I64, I64]] = []
        for chunk in self._chunks:
            if chunk.live_count:
                at = np.flatnonzero(chunk.live)
                alive.append((chunk, at, chunk.handles(at)))
        ends = [_find_piece_ends(past.lsn, size)]
        ends += [_find_piece_ends(lsn, size) for _, _, lsn in alive]
        bounds = np.unique(np.concatenate(ends))
        upto = np.searchsorted(past.lsn, bounds, "right").tolist()
        pieces: list[StatePiece] = []
        done = low = 0
        none = np.zeros(0, np.int64)
        for holder, at, lsn in (*alive, (None, none, none)):
            high = int(np.searchsorted(bounds, lsn[-1], "right")) if len(at) else len(bounds)
            cuts = np.searchsorted(lsn, bounds[low:high], "right")
            for part, end in zip(np.split(at, cuts)[:-1], upto[low:high], strict=True):
                pieces.append(StatePiece(holder, part, past, done, end))
                done = end
            low = high
        return pieces

    def _find_places(self, handles: I64) -> I64:
        """Returns the numbers under which the table has the rows of these handles."""
        places = np.empty(len(handles), np.int64)
        which = np.searchsorted(self._first, handles, "right") - 1
        for index in _list_values(which):
            mine = np.flatnonzero(which == index)
            chunk = self._chunks[index]
            places[mine] = _number_rows(chunk, chunk.find_rows(handles[mine]))
        return places

    def _collect_rows(self, places: I64) -> tuple[I64, PackedRows]:
        """Returns the handles and the rows at these places, in this order."""
        size, handle = np.zeros(len(places) + 1, np.int64), np.empty(len(places), np.int64)
        parts: list[tuple[QueryChunk, I64]] = []
        number, row = places >> _ROW_BITS, places & _ROW
        for k in _list_values(number):
            chunk = self._by_number[k]
            assert chunk is not None
            mine = number == k
            rows = np.where(mine, row, NONE)
            chunk.measure(rows, size[1:])
            handle[mine] = chunk.handles(row[mine])
            parts.append((chunk, rows))
        off = np.cumsum(size)
        data = np.empty(int(off[-1]), np.uint8)
        for chunk, rows in parts:
            chunk.write_packed(rows, data, off)
        return handle, PackedRows(off, data)

    def _append(self, rows: PackedRows, handles: I64, hashes: U64) -> None:
        """Appends rows."""
        while len(rows):
            chunk = self._chunks[-1] if self._chunks else None
            room = CHUNK - len(chunk) if chunk else 0
            part = rows.slice(0, room or CHUNK)
            n = len(part)
            if chunk is None or not room or not chunk.has_room(part, int(handles[n - 1])):
                if chunk is not None:
                    chunk.seal()
                chunk = self._add_chunk(len(self._chunks), int(handles[0]))
            places = _number_rows(chunk, np.arange(len(chunk), len(chunk) + n))
            chunk.append(part, handles[:n])
            self._table.insert(hashes[:n], places)
            rows, handles, hashes = rows.slice(n, len(rows)), handles[n:], hashes[n:]

    def _add_chunk(self, index: int, base: int) -> QueryChunk:
        """Inserts an empty chunk into the order of chunks."""
        free = [k for k, c in enumerate(self._by_number) if c is None]
        if not free:
            self._by_number.append(None)
            free = [len(self._by_number) - 1]
        chunk = self._by_number[free[0]] = QueryChunk(free[0], base)
        self._chunks.insert(index, chunk)
        self._list_first_handles()
        return chunk

    def _mark_dead(self, places: I64, hashes: U64) -> None:
        """Marks the rows at these places as dead, and rewrites chunks that are mostly dead."""
        self._table.remove(hashes, places)
        stale = False
        number, row = places >> _ROW_BITS, places & _ROW
        for k in _list_values(number):
            chunk = self._by_number[k]
            assert chunk is not None
            chunk.mark_dead(row[number == k])
            stale |= 2 * chunk.dead > len(chunk)
        if stale:
            for i in range(len(self._chunks) - 1, -1, -1):
                if 2 * self._chunks[i].dead > len(self._chunks[i]):
                    self._rewrite_chunks(i, i + 1)
            for i in range(len(self._chunks) - 1, 0, -1):
                pair = self._chunks[i - 1 : i + 1]
                if sum(chunk.live_count for chunk in pair) <= CHUNK // 2:
                    self._rewrite_chunks(i - 1, i + 1)

    def _rewrite_chunks(self, first: int, end: int) -> None:
        """Writes the live rows of neighbouring chunks into a new chunk, which takes their place."""
        old, fresh, index = self._chunks[first:end], None, end
        for chunk in old:
            if not chunk.live_count:
                continue
            at = np.flatnonzero(chunk.live)
            rows, handle = chunk.copy_packed(at), chunk.handles(at)
            if fresh is None or not fresh.has_room(rows, int(handle[-1])):
                fresh = self._add_chunk(index, int(handle[0]))
                index += 1
            start = len(fresh)
            fresh.append(rows, handle)
            fresh.seal()
            hashes = self.hash(*chunk.read_ids())[at]
            places = _number_rows(fresh, np.arange(start, start + len(at)))
            self._table.replace(hashes, _number_rows(chunk, at), places)
        for chunk in old:
            self._by_number[chunk.number] = None
        del self._chunks[first:end]
        self._list_first_handles()

    def _list_first_handles(self) -> None:
        """Lists the first handle of each chunk."""
        self._first = np.array([chunk.base for chunk in self._chunks], np.int64)


def _find_piece_ends(lsn: I64, size: int) -> I64:
    """Returns every size-th LSN, and the last."""
    return np.concatenate([lsn[size - 1 :: size], lsn[-1:]])


def _list_values(numbers: I64) -> list[int]:
    """Returns the different values of a column of small numbers."""
    if len(numbers) and (numbers == numbers[0]).all():
        return [int(numbers[0])]
    return [int(k) for k in np.flatnonzero(np.bincount(numbers))]


def _number_rows(chunk: QueryChunk, at: I64) -> I64:
    """Returns the numbers under which the table has the rows `at` of a chunk."""
    return chunk.number << _ROW_BITS | at


def meets_box(rows: QueryRows, box: F64) -> NDArray[np.bool_]:
    """Returns bool[n]: which rows have a box that meets this one, borders included."""
    west, south, east, north = box
    b = rows.box.reshape(-1, 4)
    hit = (b[:, 0] <= east) & (b[:, 2] >= west) & (b[:, 1] <= north) & (b[:, 3] >= south)
    count = np.concatenate([np.zeros(1, np.int64), np.cumsum(hit)])
    return count[rows.box_off[1:] // 4] > count[rows.box_off[:-1] // 4]


def _concat_rows(parts: list[QueryRows]) -> QueryRows:
    return QueryRows.concat(parts) if parts else no_queries()
