"""The live queries: ids -> rows of packed chunks (packed_rows.py); and those deleted lately.

A table of salted hashes (hash_table.py) only finds candidates: the ids of their rows decide.
Handles rise with time, so a chunk's handles are sorted and a row is found by two binary searches.
The bytes of dead rows are dropped when they are an eighth of a chunk, and the chunk is rewritten
when half of its rows are dead; one call does little of this at a time.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ps2stream.protocol.frame import F64, I64, U8, U64, sealed
from ps2stream.protocol.rows import QueryRows, UpdateKind, has_term, no_queries
from ps2stream.sequencer import packed_rows
from ps2stream.sequencer.apply_kernels import STALE, WAIT, apply_updates
from ps2stream.sequencer.chunk_kernels import BYTES, COUNT, DEAD, DEAD_BYTES, PARTS, ROW_BITS
from ps2stream.sequencer.chunk_table import ChunkTable, FoundQueries
from ps2stream.sequencer.hash_table import HashTable, SaltedHash
from ps2stream.sequencer.packed_rows import QueryChunk, list_columns, unpack_inserts
from ps2stream.sequencer.table_kernels import NONE

CHUNK = 1 << ROW_BITS  # rows
NO_TENANTS = np.zeros(0, np.int64), np.zeros(0, np.int64)
_NO_CHUNK = QueryChunk(0, 0)
_REWRITTEN = 12  # rows that are rewritten for each deleted one, beyond a first chunk


class PreparedRows(NamedTuple):
    """n committed rows in LSN order, and what is needed to apply them. rows: encoded QueryRows;
    hashes uint64[n]: of the ids; places int64[n]: of the queries that they delete, NONE for inserts
    and where it is not known."""

    rows: U8
    hashes: U64
    places: I64


class DyingQueries(NamedTuple):
    """The queries that one batch deleted, up to the LSN `last`: the rows `at` of it, which are
    encoded. A delete has the columns of its insert except the source."""

    rows: U8
    at: I64
    last: int

    def list_deletes(self) -> QueryRows:
        """Returns their deletes."""
        return QueryRows.decode(self.rows.data).take(self.at)

    def copy(self) -> DyingQueries:
        """Returns them without the other rows of the batch."""
        return DyingQueries(encode(self.list_deletes()), np.arange(len(self.at)), self.last)


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
        if self.chunk is None or not len(self.at):
            return self.past.slice(self.first, self.end)
        rows = self.chunk.take(self.at)
        if self.first == self.end:
            return rows
        rows = QueryRows.concat([rows, self.past.slice(self.first, self.end)])
        return rows.take(np.argsort(rows.lsn, kind="stable"))


class QueryRegistry:
    """All live queries. Memory is proportional to them, not to the history.

    A deleted query stays in `_dying` until `forget`: objects may still be matched as of an LSN at
    which it was live.
    """

    def __init__(self, salt: int = 0) -> None:
        self._hash = SaltedHash(salt)
        self._table = HashTable()
        self._chunks: list[QueryChunk] = []  # in the order of their handles
        self._places = ChunkTable()
        self._is_stale = False  # too much of a chunk is dead
        self._first = self._order = np.zeros(0, np.int64)
        self._dying: deque[DyingQueries] = deque()
        # Loads Numba now: beside busy programs the first insert waited half a minute for that.
        self.hash(np.array([0, 1]), np.zeros(1, np.uint8))

    def __len__(self) -> int:
        return len(self._table)

    @property
    def nbytes(self) -> int:
        """The bytes of the live queries and of the table of their ids."""
        table = self._table.nbytes + self.columns.nbytes
        return table + sum(chunk.nbytes for chunk in self._chunks)

    def hash(self, off: I64, data: U8) -> U64:
        """Returns the salted hash of each row of a ragged column."""
        return self._hash.hash(off, data)

    @property
    def keys(self) -> U64:
        """The keys of the hashes of ids, as kernels take them."""
        return self._hash.keys

    @property
    def parts(self) -> I64:
        """The table of the hashes of the live ids, as kernels take it."""
        return self._table.parts

    @property
    def columns(self) -> I64:
        """The columns of all chunks, as chunk_kernels.py has them."""
        return self._places.columns

    def find(self, off: I64, ids: U8, hashes: U64) -> FoundQueries:
        """Finds the live queries that have the ids of a ragged column."""
        return self._places.find(self._table, hashes, off, ids)

    def take(self, places: I64) -> QueryRows:
        """Returns the inserts of the queries at these places."""
        return unpack_inserts(self.columns, places, *self._places.read_owners(places))

    def handles(self, off: I64, ids: U8) -> I64:
        """Returns the handle of each id of a ragged column; 0 where it is not live."""
        found = self.find(off, ids, self.hash(off, ids))
        return np.where(found.place == NONE, 0, found.handle)

    def rows(self, handles: I64) -> QueryRows:
        """Returns the insert rows of these handles, which must be live, in this order."""
        return (
            self.take(self._places.find_handles(self._order, handles))
            if len(handles)
            else no_queries()
        )

    def find_live(self, handles: I64) -> NDArray[np.bool_]:
        """Returns which of these handles, which rise, are of live queries."""
        return packed_rows.find_live_handles(self._chunks, self._first, handles)

    def apply(
        self, rows: QueryRows, encoded: U8 | None = None, tenants: tuple[I64, I64] = NO_TENANTS
    ) -> None:
        """Applies committed rows in LSN order, above all earlier ones. encoded: the same ones;
        tenants: as apply_prepared has them."""
        hashes, unknown = self.hash(rows.id_off, rows.id), np.full(len(rows), NONE, np.int64)
        encoded = encode(rows) if encoded is None else sealed(encoded)
        self.apply_prepared(PreparedRows(encoded, hashes, unknown), tenants)

    def apply_prepared(self, rows: PreparedRows, tenants: tuple[I64, I64] = NO_TENANTS) -> int:
        """Applies committed rows in LSN order, above all earlier ones, as decide.py prepares
        them. tenants: of each session, and the live queries of each, which are counted here as
        kernels.count_updates does. Returns the number of inserts."""
        encoded, hashes, places = rows
        n = len(hashes)
        if not n:
            return 0
        parted = np.empty((6, n), np.int64)
        chunk = self._chunks[-1] if self._chunks else _NO_CHUNK
        inserts: int
        inserts, missing, appended, added, terms, outcome, last = apply_updates(
            encoded, hashes, places, chunk.room, chunk.dictionary, chunk.place(CHUNK),
            self._table.parts, self._places.columns, tenants, parted,
        )  # fmt: skip
        if appended:
            chunk.count_appended(appended, terms)
        if added < inserts:
            # Something has to grow.
            born, handles, fresh = parted[0], parted[1], parted[4].view(np.uint64)
            self._table.insert(fresh[added:appended], born[added:appended])
            rest, columns = slice(appended, inserts), list_columns(QueryRows.decode(encoded.data))
            self._append(columns, born[rest], handles[rest], fresh[rest])
        if deletes := n - inserts:
            gone, places = parted[2, :deletes], parted[3, :deletes]
            dying = DyingQueries(encoded, gone, last)
            # A batch that is kept for few of its rows costs too much.
            self._dying.append(dying.copy() if 4 * deletes < n else dying)
            if missing:
                unknown = np.flatnonzero(places == NONE)
                lost = QueryRows.decode(encoded.data).handle[gone[unknown]]
                places[unknown] = self._places.find_handles(self._order, lost)
            if outcome < WAIT:
                raise KeyError(int(places[WAIT - 1 - outcome]))
            if outcome == WAIT:
                self._table.remove(parted[5].view(np.uint64)[:deletes], places)
                self._is_stale |= self._places.mark_dead(places)
            self._is_stale |= outcome == STALE
        if self._is_stale:
            self._rewrite_stale_chunks(deletes)
        return inserts

    def forget(self, watermark: int) -> None:
        """Drops the queries deleted up to `watermark`: no object is matched as of a lower LSN."""
        while self._dying and self._dying[0].last <= watermark:
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
            mask = chunk.live
            mask[: chunk.count_through(after)] = False
            if session or sessions is not None:
                at = np.flatnonzero(mask)
                owner = chunk.read_sessions(at)
                mask[at] &= owner == session if session else True
                mask[at] &= sessions[owner] if sessions is not None else True
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

    def load(self, after: int, upto: int, box: F64, term: U64, size: int) -> tuple[QueryRows, int]:
        """Returns (rows with after < handle <= last: live ones that meet the box and have one of
        these terms, or any if there is none, and all dying ones with their deletes; last, which is
        `upto` when no more follow). At most `size` rows and the dying ones are examined."""
        parts: list[QueryRows] = []
        last, left = upto, size
        start = max(int(np.searchsorted(self._first, after, "right")) - 1, 0)
        for chunk in self._chunks[start:]:
            a, b = chunk.count_through(after), chunk.count_through(upto)
            at = np.arange(a, min(b, a + left))
            left -= len(at)
            rows = chunk.take(at[chunk.live[at]])
            parts.append(rows.take(np.flatnonzero(meets_box(rows, box) & has_term(rows, term))))
            if b - a > len(at) or not left:
                last = int(chunk.handles(at[-1:])[0]) if len(at) else last
                break
        for dying in self._dying:
            rows = _with_inserts(dying.list_deletes())
            mine = (rows.handle > after) & (rows.handle <= last)
            if mine.any():
                parts.append(rows.take(np.flatnonzero(mine)))
        return _concat_rows(parts), last

    def state(self, size: int) -> list[StatePiece]:
        """Returns the live rows, and the dying ones with their deletes, as they are now, in LSN
        order; a piece has at most 2 * `size`. Nothing is copied before a piece is read."""
        past = _with_inserts(_concat_rows([dying.list_deletes() for dying in self._dying]))
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

    def _append(self, columns: tuple[Any, ...], at: I64, handles: I64, hashes: U64) -> None:
        """Appends the rows `at` of RowColumns as queries with these handles and hashes."""
        places, done = np.empty(len(at), np.int64), 0
        chunk = self._chunks[-1] if self._chunks else None
        while done < len(at):
            if chunk is not None:
                first = len(chunk)
                more = chunk.append(columns, at[done:], handles[done:], CHUNK)
                places[done : done + more] = self._places.number_span(chunk, first, first + more)
                done += more
                self._places.update(chunk)
            if done < len(at):
                before = chunk
                chunk = self._add_chunk(len(self._chunks), int(handles[done]))
                if before is not None:
                    before.seal()
                    self._places.update(before)
                    chunk.expect(*before.extent)
        self._table.insert(hashes, places)

    def _add_chunk(self, index: int, base: int) -> QueryChunk:
        """Inserts an empty chunk into the order of chunks."""
        chunk = self._places.add(base)
        self._chunks.insert(index, chunk)
        self._list_first_handles()
        return chunk

    def _rewrite_stale_chunks(self, deleted: int) -> None:
        """Rewrites chunks that are mostly dead, and others without their dead bytes; those of few
        live queries are merged. This takes the time of one chunk, or of some rows for each of
        the deleted ones; the rest waits for the next deletes."""
        left = max(_REWRITTEN * deleted, 1)
        columns = self.columns[self._order]
        half = 2 * columns[:, DEAD] > columns[:, COUNT]
        wasted = PARTS * columns[:, DEAD_BYTES] > columns[:, BYTES]
        for i in np.flatnonzero(half | wasted)[::-1].tolist():
            if left <= 0:
                return
            left -= len(self._chunks[i])
            if half[i]:
                self._rewrite_chunks(i, i + 1)
            else:
                self._chunks[i] = self._places.drop_dead_bytes(self._chunks[i])
        alive = self.columns[self._order][:, [COUNT, DEAD]] @ np.array([1, -1])
        for i in np.flatnonzero(alive[1:] + alive[:-1] <= CHUNK // 2)[::-1].tolist():
            if left <= 0:
                return
            pair = self._chunks[i : i + 2]
            if sum(chunk.live_count for chunk in pair) <= CHUNK // 2 and pair[1].can_follow(
                pair[0]
            ):
                left -= len(pair[0]) + len(pair[1])
                self._rewrite_chunks(i, i + 2)
        self._is_stale = False

    def _rewrite_chunks(self, first: int, end: int) -> None:
        """Writes the live rows of neighbouring chunks into a new chunk, which takes their place."""
        old = [chunk for chunk in self._chunks[first:end] if chunk.live_count]
        gone = self._chunks[first:end]
        del self._chunks[first:end]
        if old:
            fresh = self._add_chunk(first, old[0].base)
            fresh.move_live_rows(old)
            self._places.update(fresh)
            places = self._places.number_span(fresh, 0, len(fresh))
            before = [self._places.number_rows(c, np.flatnonzero(c.live)) for c in old]
            hashes = self.hash(*self._places.read_ids(places))
            self._table.replace(hashes, np.concatenate(before), places)
        for chunk in gone:
            self._places.drop(chunk)
        self._list_first_handles()

    def _list_first_handles(self) -> None:
        """Lists the first handle and the number of each chunk."""
        self._first = np.array([chunk.base for chunk in self._chunks], np.int64)
        self._order = np.array([chunk.number for chunk in self._chunks], np.int64)


def encode(rows: QueryRows) -> U8:
    """Returns rows as kernels take them."""
    return np.frombuffer(rows.encode(), np.uint8)


def _find_piece_ends(lsn: I64, size: int) -> I64:
    """Returns every size-th LSN, and the last."""
    return np.concatenate([lsn[size - 1 :: size], lsn[-1:]])


def meets_box(rows: QueryRows, box: F64) -> NDArray[np.bool_]:
    """Returns bool[n]: which rows have a box that meets this one, borders included."""
    west, south, east, north = box
    b = rows.box.reshape(-1, 4)
    hit = (b[:, 0] <= east) & (b[:, 2] >= west) & (b[:, 1] <= north) & (b[:, 3] >= south)
    count = np.concatenate([np.zeros(1, np.int64), np.cumsum(hit)])
    return count[rows.box_off[1:] // 4] > count[rows.box_off[:-1] // 4]


def _with_inserts(deletes: QueryRows) -> QueryRows:
    """Returns the inserts of deleted queries, then their deletes."""
    kind = np.full_like(deletes.kind, UpdateKind.INSERT)
    return QueryRows.concat([deletes.replace(kind=kind, lsn=deletes.handle), deletes])


def _concat_rows(parts: list[QueryRows]) -> QueryRows:
    return QueryRows.concat(parts) if parts else no_queries()
