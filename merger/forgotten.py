"""Names of queries that the ledger has forgotten while pairs of them are kept.

They stand in the match log, as DeadNames records; memory has only where. The names are
found by the few sessions that read their backlog back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ps2stream.merger.journal import Journal
from ps2stream.merger.records import DeadNames
from ps2stream.protocol.frame import I64, concat_ragged, take_ragged
from ps2stream.protocol.wire import StringColumn

MAX_RECORDS = 64  # then they are made one


class _Grave(NamedTuple):
    """A record, and between which handles."""

    position: int
    low: int
    high: int


class Forgotten:
    """The DeadNames of a match log."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._graves: list[_Grave] = []

    def recovered(self, position: int, record: DeadNames) -> None:
        """A record that the log has."""
        self._graves.append(_Grave(position, int(record.handle[0]), int(record.handle[-1])))

    def add(self, record: DeadNames) -> bool:
        """Write these names, at least one, handles rising; whether the log took them."""
        position = self._journal.append(record)
        if position is not None:
            self.recovered(position, record)
        return position is not None

    def of(self, handles: I64) -> StringColumn:
        """The ids of these handles. Raises KeyError for an unknown one."""
        parts = [self._one(handle) for handle in handles.tolist()]
        return concat_ragged(parts)

    def trimmed(self, before: int) -> None:
        """The log goes on from this position. Names were written behind the pairs that need
        them, so that they went with the last of those."""
        self._graves = [g for g in self._graves if g.position >= before]

    def tidy(self, floor: Callable[[int], int]) -> None:
        """Where records are many, write what is needed of them as one; floor(session) is the
        number to which its pairs are not kept."""
        if len(self._graves) <= MAX_RECORDS:
            return
        old, self._graves = self._graves, []
        new = _joined([self._journal.read(g.position, DeadNames) for g in old], floor)
        if new is not None and not self.add(new):
            self._graves = old

    def _one(self, handle: int) -> StringColumn:
        for grave in self._graves:
            if grave.low <= handle <= grave.high:
                record = self._journal.read(grave.position, DeadNames)
                at = int(np.searchsorted(record.handle, handle))
                if record.handle[at] == handle:
                    return take_ragged(record.id_off, record.id, np.array([at]))
        raise KeyError(f"no name for query {handle}")


def _joined(records: list[DeadNames], floor: Callable[[int], int]) -> DeadNames | None:
    """What is needed of several records as one, if anything."""
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
    return DeadNames(session[rows], handle[rows], last[rows], *take_ragged(off, data, rows))
