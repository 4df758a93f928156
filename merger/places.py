"""The backlogs that a match log holds: the pairs that are not acknowledged, and the rows about
them that were written as Places records."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from ps2stream.merger.backlog import BacklogPlace
from ps2stream.merger.fanout import bytes_of
from ps2stream.merger.records import MatchedRecord, MissingRecord, PlacesRecord
from ps2stream.protocol.frame import I64

FOLD = 1 << 19  # rows


class _PlacesBlock(NamedTuple):
    """A Places record: the row that replaces it, the level and the number of its rows, and the
    position in the first of them."""

    place: BacklogPlace
    level: int
    rows: int
    head: int


class FoundPlaces:
    """Rows (session, position, first, last, bytes) of Matched and Missing records, and the blocks
    of Places records."""

    def __init__(self) -> None:
        self._parts: list[I64] = []
        self._size = 0
        self._blocks: dict[int, list[_PlacesBlock]] = defaultdict(list)

    @property
    def is_large(self) -> bool:
        """True if there are so many rows that `drop` should be called."""
        return self._size > FOLD

    def add_matched(self, position: int, record: MatchedRecord) -> None:
        last = record.first + np.diff(record.cut) - 1
        sizes = np.array(bytes_of(record), np.int64)
        columns = (record.session, position, record.first, last, sizes)
        self._parts.append(np.stack(np.broadcast_arrays(*columns), 1))
        self._size += len(last)

    def add_missing(self, position: int, record: MissingRecord) -> None:
        columns = (record.session, position, record.first, record.last, 0)
        self._parts.append(np.stack(np.broadcast_arrays(*columns), 1))
        self._size += len(record.session)

    def add_block(self, position: int, record: PlacesRecord) -> None:
        rows = record.row.reshape(-1, 4)
        place = BacklogPlace(position, int(rows[0, 1]), int(rows[-1, 2]), int(rows[:, 3].sum()))
        self._blocks[record.session].append(
            _PlacesBlock(place, record.level, len(rows), int(rows[0, 0]))
        )

    def drop(self, sessions: I64, floor: I64) -> I64:
        """Drops what is at or below the floor of its session (both are columns, sessions rising),
        and returns the other rows, sorted by session and number."""
        rows: I64 = np.concatenate([np.zeros((0, 5), np.int64), *self._parts])
        rows = rows[rows[:, 3] > floor[np.searchsorted(sessions, rows[:, 0])]]
        rows = rows[np.lexsort((rows[:, 1], rows[:, 2], rows[:, 0]))]
        # What came from another merger may be there twice; then the last counts.
        differs = (np.diff(rows[:, [0, 2]], axis=0) != 0).any(1)
        rows = rows[np.append(differs, True)[: len(rows)]]
        self._parts = [rows]
        self._size = min(len(rows), FOLD // 2)
        for number, lowest in zip(sessions.tolist(), floor.tolist(), strict=True):
            if blocks := self._blocks.get(number):
                self._blocks[number] = [b for b in blocks if b.place.first > lowest]
        return rows

    def drop_sessions(self, sessions: I64) -> None:
        """Drops all rows of these sessions."""
        rows = np.concatenate([np.zeros((0, 5), np.int64), *self._parts])
        self._parts = [rows[~np.isin(rows[:, 0], sessions)]]
        for number in sessions.tolist():
            self._blocks.pop(number, None)

    def fold_blocks(self, session: int, rows: I64) -> list[tuple[int, BacklogPlace]]:
        """Returns (level, row) of a session's backlog, the oldest first. `rows` come without the
        session; those that a block holds are replaced by the row of that block."""
        out = [(0, BacklogPlace(*row)) for row in rows.tolist()]
        blocks = self._blocks.get(session, [])
        for level in range(1 + max((b.level for b in blocks), default=-1)):
            block_at = {b.head: b for b in blocks if b.level == level}
            out = _fold_level(out, level, block_at)
        return out


def _fold_level(
    rows: list[tuple[int, BacklogPlace]], level: int, block_at: dict[int, _PlacesBlock]
) -> list[tuple[int, BacklogPlace]]:
    """Replaces each run of rows of this level that a block holds by the block's row. `block_at`
    has the blocks by their first position."""
    out: list[tuple[int, BacklogPlace]] = []
    at = 0
    while at < len(rows):
        block = block_at.get(rows[at][1].position) if rows[at][0] == level else None
        end = at + (block.rows if block is not None else 1)
        if block is not None and end <= len(rows) and rows[end - 1][1].last == block.place.last:
            out.append((level + 1, block.place))
        else:
            end = at + 1
            out.append(rows[at])
        at = end
    return out
