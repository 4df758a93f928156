"""The live queries: id -> handle, and their rows in columnar chunks; and those deleted lately.

Handles rise with time, so a chunk's handles are sorted and a row is found by two binary
searches. A query takes no more memory than its dictionary entry and its columns. Small chunks
are merged like the digits of a binary counter, and a chunk is rewritten when half of it is dead.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator
from itertools import compress, repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ps2stream.protocol.frame import F64, I64, U8
from ps2stream.protocol.rows import QueryRows, UpdateKind, no_queries

CHUNK = 65_536  # rows


def split(off: I64, data: U8) -> list[bytes]:
    """Returns the rows of a string column as bytes, without a Python-level loop."""
    raw = data.tobytes()
    at = off.tolist()
    return list(map(raw.__getitem__, map(slice, at[:-1], at[1:])))


@dataclasses.dataclass
class _RegistryChunk:
    """Rows with rising handles, which of them are live, and how many are not."""

    rows: QueryRows
    live: NDArray[np.bool_]
    dead: int = 0

    def copy_live(self) -> _RegistryChunk:
        rows = self.rows.take(np.flatnonzero(self.live)) if self.dead else self.rows
        return _RegistryChunk(rows, np.ones(len(rows), np.bool_))

    def count_live(self) -> int:
        return len(self.live) - self.dead


class StatePiece(NamedTuple):
    """A piece of a state: the rows `at` of `live`, and the rows first..end of `past`."""

    live: QueryRows
    at: I64
    past: QueryRows
    first: int
    end: int

    @property
    def last(self) -> int:
        """The highest LSN of the piece."""
        live = int(self.live.lsn[self.at[-1]]) if len(self.at) else 0
        return max(live, int(self.past.lsn[self.end - 1]) if self.end > self.first else 0)

    def rows(self) -> QueryRows:
        """Returns the rows in LSN order."""
        past = self.past.take(np.arange(self.first, self.end))
        rows = QueryRows.concat([self.live.take(self.at), past])
        return rows.take(np.argsort(rows.lsn, kind="stable")) if len(past) else rows


class QueryRegistry:
    """All live queries. Memory is proportional to them, not to the history.

    A deleted query stays in `_dying` until `forget`: objects may still be matched as of an LSN at
    which it was live.
    """

    def __init__(self) -> None:
        self._handle: dict[bytes, int] = {}
        self._chunks: list[_RegistryChunk] = []
        self._first = np.zeros(0, np.int64)
        self._dying: deque[tuple[int, QueryRows]] = deque()  # last LSN, inserts and deletes

    def __len__(self) -> int:
        return len(self._handle)

    def handles(self, ids: list[bytes]) -> I64:
        """Returns the handle of each id; 0 where it is not live."""
        return np.fromiter(map(self._handle.get, ids, repeat(0)), np.int64, len(ids))

    def rows(self, handles: I64) -> QueryRows:
        """Returns the insert rows of these handles, which must be live, in this order."""
        found = list(self._find_chunks(handles))
        if not found:
            return no_queries()
        rows = QueryRows.concat([chunk.rows.take(at) for chunk, at, _ in found])
        if len(found) == 1:
            return rows
        order = np.concatenate([which for _, _, which in found])
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return rows.take(back)

    def apply(self, rows: QueryRows) -> None:
        """Applies committed rows in LSN order, above all earlier ones."""
        if not len(rows):
            return
        insert = rows.kind == UpdateKind.INSERT
        ids = split(rows.id_off, rows.id)
        # In row order, so that the last row of an id wins; 0 marks a deleted one.
        self._handle.update(zip(ids, np.where(insert, rows.handle, 0).tolist(), strict=True))
        if not insert.all():
            dropped = list(compress(ids, (~insert).tolist()))
            gone = self.handles(dropped) == 0
            out = map(self._handle.pop, compress(dropped, gone.tolist()), repeat(None))
            deque(out, maxlen=0)
        if insert.any():
            fresh = rows.take(np.flatnonzero(insert))
            self._chunks.append(_RegistryChunk(fresh, np.ones(len(fresh), np.bool_)))
            self._merge_small_chunks()
        if not insert.all():
            gone = rows.take(np.flatnonzero(~insert))
            # A delete has the columns of its insert except the source.
            born = gone.replace(kind=np.full_like(gone.kind, UpdateKind.INSERT), lsn=gone.handle)
            self._dying.append((int(gone.lsn[-1]), QueryRows.concat([born, gone])))
            self._mark_dead(gone.handle)

    def forget(self, watermark: int) -> None:
        """Drops the queries deleted up to `watermark`: no object is matched as of a lower LSN."""
        while self._dying and self._dying[0][0] <= watermark:
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
            mask = chunk.live & (chunk.rows.handle > after)
            if session:
                mask &= chunk.rows.session == session
            if sessions is not None:
                mask &= sessions[chunk.rows.session]
            at = np.flatnonzero(mask)
            if len(at) and left == 0:
                return _concat_rows(parts), True
            parts.append(chunk.rows.take(at[:left]))
            if len(at) > left:
                return _concat_rows(parts), True
            left -= len(at)
        return _concat_rows(parts), False

    def count_up_to(self, upto: int) -> int:
        """Returns how many live queries have a handle up to this one."""
        return sum(
            int(chunk.live[: np.searchsorted(chunk.rows.handle, upto, "right")].sum())
            for chunk in self._chunks
        )

    def load(self, after: int, upto: int, box: F64, size: int) -> tuple[QueryRows, int]:
        """Returns (rows with after < handle <= last: live ones that meet the box, and all dying
        ones with their deletes; last, which is `upto` when no more follow). At most `size` rows
        and the dying ones are examined."""
        parts: list[QueryRows] = []
        last, left = upto, size
        start = max(int(np.searchsorted(self._first, after, "right")) - 1, 0)
        for chunk in self._chunks[start:]:
            handle = chunk.rows.handle
            a, b = np.searchsorted(handle, [after, upto], "right").tolist()
            at = np.arange(a, min(b, a + left))
            left -= len(at)
            parts.append(chunk.rows.take(at[chunk.live[at] & meets_box(chunk.rows, at, box)]))
            if b - a > len(at) or not left:
                last = int(handle[a + len(at) - 1]) if len(at) else last
                break
        for _, rows in self._dying:
            mine = (rows.handle > after) & (rows.handle <= last)
            if mine.any():
                parts.append(rows.take(np.flatnonzero(mine)))
        return _concat_rows(parts), last

    def state(self, size: int) -> list[StatePiece]:
        """Returns the live rows, and the dying ones with their deletes, as they are now, in LSN
        order; a piece has at most 2 * `size`. Nothing is copied before a piece is read."""
        dying = [rows for _, rows in self._dying]
        past = QueryRows.concat(dying) if dying else no_queries()
        past = past.take(np.argsort(past.lsn, kind="stable"))
        alive = [
            (chunk.rows, np.flatnonzero(chunk.live)) for chunk in self._chunks if chunk.count_live()
        ]
        ends = [
            _find_piece_ends(past.lsn, size),
            *(_find_piece_ends(rows.lsn[at], size) for rows, at in alive),
        ]
        bounds = np.unique(np.concatenate(ends))
        upto = np.searchsorted(past.lsn, bounds, "right").tolist()
        pieces: list[StatePiece] = []
        done = low = 0
        for rows, at in (*alive, (no_queries(), np.zeros(0, np.int64))):
            lsn = rows.lsn[at]
            high = int(np.searchsorted(bounds, lsn[-1], "right")) if len(at) else len(bounds)
            cuts = np.searchsorted(lsn, bounds[low:high], "right")
            for part, end in zip(np.split(at, cuts)[:-1], upto[low:high], strict=True):
                pieces.append(StatePiece(rows, part, past, done, end))
                done = end
            low = high
        return pieces

    def _find_chunks(self, handles: I64) -> Iterator[tuple[_RegistryChunk, I64, I64]]:
        """Yields (chunk, positions in it, their indices in `handles`) for each chunk concerned."""
        if not len(handles):
            return
        which = np.searchsorted(self._first, handles, "right") - 1
        for number in np.unique(which).tolist():
            mine = np.flatnonzero(which == number)
            chunk = self._chunks[number]
            yield chunk, np.searchsorted(chunk.rows.handle, handles[mine]), mine

    def _mark_dead(self, handles: I64) -> None:
        """Marks the rows of these handles as dead, and rewrites chunks that are mostly dead."""
        stale = False
        for chunk, at, _ in self._find_chunks(handles):
            chunk.live[at] = False
            chunk.dead += len(at)
            stale |= 2 * chunk.dead > len(chunk.live)
        if stale:
            self._chunks = [c.copy_live() if 2 * c.dead > len(c.live) else c for c in self._chunks]
            self._chunks = [c for c in self._chunks if len(c.live)]
            for i in range(len(self._chunks) - 1, 0, -1):
                if self._chunks[i - 1].count_live() + self._chunks[i].count_live() <= CHUNK // 2:
                    self._merge_with_next(i - 1)
            self._list_first_handles()

    def _merge_small_chunks(self) -> None:
        """Merges the last chunks while they are small beside each other."""
        chunks = self._chunks
        while len(chunks) > 1:
            a, b = chunks[-2].count_live(), chunks[-1].count_live()
            if a >= 2 * b or a + b > CHUNK:
                break
            self._merge_with_next(len(chunks) - 2)
        self._list_first_handles()

    def _merge_with_next(self, i: int) -> None:
        """Merges chunk i with the next one."""
        pair = [c.copy_live().rows for c in self._chunks[i : i + 2]]
        rows = QueryRows.concat(pair)
        self._chunks[i : i + 2] = [_RegistryChunk(rows, np.ones(len(rows), np.bool_))]

    def _list_first_handles(self) -> None:
        """Lists the first handle of each chunk."""
        first = [int(c.rows.handle[0]) for c in self._chunks]
        self._first = np.array(first, np.int64)


def _find_piece_ends(lsn: I64, size: int) -> I64:
    """Returns every size-th LSN, and the last."""
    return np.concatenate([lsn[size - 1 :: size], lsn[-1:]])


def meets_box(rows: QueryRows, at: I64, box: F64) -> NDArray[np.bool_]:
    """Returns bool[n]: which rows `at` have a box that meets this one, borders included."""
    west, south, east, north = box
    b = rows.box.reshape(-1, 4)
    hit = (b[:, 0] <= east) & (b[:, 2] >= west) & (b[:, 1] <= north) & (b[:, 3] >= south)
    count = np.concatenate([np.zeros(1, np.int64), np.cumsum(hit)])
    return count[rows.box_off[at + 1] // 4] > count[rows.box_off[at] // 4]


def _concat_rows(parts: list[QueryRows]) -> QueryRows:
    return QueryRows.concat(parts) if parts else no_queries()
