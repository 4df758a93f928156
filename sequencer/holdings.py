"""Whether at the end of a move everyone holds what it owns, and nothing else.

Each worker counts its live postings when it applies the end of a move, each dispatcher those
that the plan gives to each worker, from the counts of H2, which know nothing of what was loaded
or dropped: the same place of the one order. Postings that an owner lacks are matches missed,
those that it has beyond are matches made twice.
"""

from __future__ import annotations

from ps2stream.protocol.addresses import ROLES
from ps2stream.protocol.frame import I64
from ps2stream.protocol.messages.plan import Postings

PATIENCE_TICKS = 100


class Holdings:
    """Of the move that ended last, unless it is known what came of it."""

    def __init__(self) -> None:
        self._lsn = 0  # of the end; 0: nothing is waited for
        self._ticks = 0
        self._held: dict[int, int] = {}  # by worker
        self._wanted: dict[int, I64] = {}  # by dispatcher, of each worker

    def wait(self, lsn: int) -> None:
        """For what is told of the end at this LSN; 0: for nothing."""
        self._lsn, self._ticks = lsn, PATIENCE_TICKS
        self._held.clear()
        self._wanted.clear()

    def tick(self) -> None:
        """Ten times a second."""
        self._ticks -= 1

    def hear(self, told: Postings) -> None:
        """What one of them counted."""
        if told.lsn != self._lsn:
            return
        if ROLES[told.role] == "worker":
            self._held[told.index] = int(told.count[0])
        else:
            self._wanted[told.index] = told.count

    def figures(self, workers: int, dispatchers: int) -> dict[str, int] | None:
        """`missing` and `surplus` postings, by the dispatcher that finds most; none once
        somebody who counted has died since, None as long as there may be more to hear."""
        if not self._lsn:
            return None
        whole = len(self._wanted) == dispatchers and self._held.keys() >= set(range(workers))
        if not whole:
            return {} if self._ticks <= 0 else None
        off = [
            [int(wanted[w]) - self._held[w] for w in range(workers)]
            for wanted in self._wanted.values()
        ]
        return {
            "missing": max(sum(max(n, 0) for n in row) for row in off),
            "surplus": max(sum(max(-n, 0) for n in row) for row in off),
        }
