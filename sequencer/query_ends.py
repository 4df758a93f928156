"""The ends of live queries: which are due at a time.

The ends wait in runs sorted by time, of which the shorter are merged, so that an insert costs
little and a look at the clock one comparison a run. A query that was deleted before its end stays
in its run until it is due, or until half of what waits may be of this kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ps2stream.protocol.frame import I64
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.protocol.validity import find_validity

_LEAST = 1024  # ends below which nothing is looked through


class _EndRun(NamedTuple):
    """Ends by rising time: until, Unix ms, and the handle of each query."""

    until: I64
    handle: I64


class QueryEnds:
    """The ends of queries. `find_live` says of rising handles which are of live queries."""

    def __init__(self, find_live: Callable[[I64], NDArray[np.bool_]]) -> None:
        self._find_live = find_live
        self._runs: list[_EndRun] = []  # the longest first
        self._checked = _LEAST  # ends, when all were last known to be of live queries

    def __len__(self) -> int:
        return sum(len(run.until) for run in self._runs)

    @property
    def nbytes(self) -> int:
        """The bytes of all ends."""
        return sum(run.until.nbytes + run.handle.nbytes for run in self._runs)

    def add(self, until: I64, handle: I64) -> None:
        """Adds queries with their ends."""
        if not len(until):
            return
        self._push(until, handle)
        if len(self) > 2 * self._checked:
            self._drop_dead()

    def note(
        self,
        rows: QueryRows,
        handle: I64,
        find_taken: Callable[[], NDArray[np.bool_]] | None = None,
    ) -> None:
        """Adds those of the rows that have an end, as queries with these handles: the inserts, or
        those that were taken, which is asked for only if some row has a validity."""
        validity = find_validity(rows)
        if len(validity.row):
            taken = find_taken() if find_taken else rows.kind == UpdateKind.INSERT
            ends = (validity.until > 0) & taken[validity.row]
            self.add(validity.until[ends], handle[validity.row[ends]])

    def take_due(self, now_ms: int, most: int) -> I64:
        """Removes and returns, rising, the handles of at most `most` live queries that have ended
        by now, the earliest first."""
        due: list[_EndRun] = []
        for i, run in enumerate(self._runs):
            if run.until[0] <= now_ms:
                # More would have to be put back, again and again where many end at once.
                cut = int(np.searchsorted(run.until[:most], now_ms, "right"))
                due.append(_EndRun(run.until[:cut], run.handle[:cut]))
                self._runs[i] = _EndRun(run.until[cut:], run.handle[cut:])
        if not due:
            return np.zeros(0, np.int64)
        self._runs = [run for run in self._runs if len(run.until)]
        ended = _sort(due)
        self._push(ended.until[most:], ended.handle[most:])  # they come at the next call
        handles = np.unique(ended.handle[:most])  # a repeated insert has added its query again
        found: I64 = handles[self._find_live(handles)]
        return found

    def put_back(self, now_ms: int, handles: I64) -> None:
        """Adds queries that were taken and could not be ended."""
        self._push(np.full(len(handles), now_ms, np.int64), handles)

    def _push(self, until: I64, handle: I64) -> None:
        if not len(until):
            return
        run = _sort([_EndRun(until, handle)])
        while self._runs and len(self._runs[-1].until) <= 2 * len(run.until):
            run = _sort([self._runs.pop(), run])
        self._runs.append(run)

    def _drop_dead(self) -> None:
        """Drops the ends of queries that live no more."""
        everything = _sort(self._runs)
        order = np.argsort(everything.handle, kind="stable")
        lives = np.empty(len(order), np.bool_)
        lives[order] = self._find_live(everything.handle[order])
        self._runs = []
        self._push(everything.until[lives], everything.handle[lives])
        self._checked = max(len(self), _LEAST)


def _sort(runs: list[_EndRun]) -> _EndRun:
    """Returns the ends of several runs as one."""
    until = np.concatenate([run.until for run in runs])
    order = np.argsort(until, kind="stable")
    return _EndRun(until[order], np.concatenate([run.handle for run in runs])[order])
