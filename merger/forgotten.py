"""The names of queries that the ledger has dropped while pairs of them are kept.

The names are in the match log, as DeadNamesRecord records, and memory holds only their positions.
The few sessions that read their backlog from the log look them up here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ps2stream.merger.journal import MatchJournal
from ps2stream.merger.records import DeadNamesRecord
from ps2stream.protocol.frame import I64, concat_ragged, take_ragged
from ps2stream.protocol.wire import StringColumn

MAX_RECORDS = 64  # with more, they are joined into one


class _NamesEntry(NamedTuple):
    """The position of a DeadNamesRecord record, and its lowest and highest handle."""

    position: int
    low: int
    high: int


class ForgottenNames:
    """The DeadNamesRecord records of a match log."""

    def __init__(self, journal: MatchJournal) -> None:
        self._journal = journal
        self._records: list[_NamesEntry] = []

    def add_recovered(self, position: int, record: DeadNamesRecord) -> None:
        """Adds a record that the log has already."""
        self._records.append(_NamesEntry(position, int(record.handle[0]), int(record.handle[-1])))

    def add(self, record: DeadNamesRecord) -> bool:
        """Writes these names, at least one, handles rising; returns whether the log took them."""
        position = self._journal.append(record)
        if position is not None:
            self.add_recovered(position, record)
        return position is not None

    def of(self, handles: I64) -> StringColumn:
        """Returns the ids of these handles. Raises KeyError for an unknown one."""
        parts = [self._find_name(handle) for handle in handles.tolist()]
        return concat_ragged(parts)

    def drop_before(self, before: int) -> None:
        """Drops the records before this position, at which the log starts now. Names are written
        behind the pairs that need them, so none of those pairs is left."""
        self._records = [e for e in self._records if e.position >= before]

    def join_many(self, floor: Callable[[int], int]) -> None:
        """Writes what is still needed of too many records as one. floor(session) is the number up
        to which no pairs of the session are kept."""
        if len(self._records) <= MAX_RECORDS:
            return
        old, self._records = self._records, []
        new = _join_records([self._journal.read(e.position, DeadNamesRecord) for e in old], floor)
        if new is not None and not self.add(new):
            self._records = old

    def _find_name(self, handle: int) -> StringColumn:
        """Returns the id of one handle. Raises KeyError for an unknown one."""
        for entry in self._records:
            if entry.low <= handle <= entry.high:
                record = self._journal.read(entry.position, DeadNamesRecord)
                at = int(np.searchsorted(record.handle, handle))
                if record.handle[at] == handle:
                    return take_ragged(record.id_off, record.id, np.array([at]))
        raise KeyError(f"no name for query {handle}")


def _join_records(
    records: list[DeadNamesRecord], floor: Callable[[int], int]
) -> DeadNamesRecord | None:
    """Returns what is still needed of several records as one; None for nothing."""
    session = np.concatenate([r.session for r in records])
    handle = np.concatenate([r.handle for r in records])
    last = np.concatenate([r.last for r in records])
    off, data = concat_ragged([(r.id_off, r.id) for r in records])
    numbers, which = np.unique(session, return_inverse=True)
    gone = np.array([floor(n) for n in numbers.tolist()], np.int64)[which]
    _, rows = np.unique(handle, return_index=True)
    rows = rows[last[rows] > gone[rows]]
    if not len(rows):
        return None
    return DeadNamesRecord(session[rows], handle[rows], last[rows], *take_ragged(off, data, rows))
