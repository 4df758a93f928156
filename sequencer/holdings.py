"""The check at the end of a migration that all workers hold what they own, and nothing else.

When it applies the end of a migration, each worker counts its live postings, and each dispatcher
those that the plan gives to each worker. Both count at the same LSN, and a dispatcher counts from
H2, which does not depend on what was transferred or dropped. Of sharded units it knows no more than
how many postings all of their workers hold together. A posting that its owner lacks is a
missed match; a posting beyond what a worker owns is a duplicate one.
"""

from __future__ import annotations

from ps2stream.protocol.addresses import ROLES
from ps2stream.protocol.frame import I64
from ps2stream.protocol.messages.plan import PostingCounts

PATIENCE_TICKS = 100


class MigrationCheck:
    """The counts of the migration that ended last, until it has been checked."""

    def __init__(self) -> None:
        self._lsn = 0  # of the end; 0: no count is expected
        self._ticks = 0
        self._held: dict[int, int] = {}  # postings, by worker
        self._wanted: dict[int, I64] = {}  # by dispatcher: PostingCounts.count

    def wait(self, lsn: int) -> None:
        """Waits for the counts of the end at this LSN; 0: for none."""
        self._lsn, self._ticks = lsn, PATIENCE_TICKS
        self._held.clear()
        self._wanted.clear()

    def tick(self) -> None:
        """Counts down the patience. Called ten times a second."""
        self._ticks -= 1

    def hear(self, postings: PostingCounts) -> None:
        """Takes the count of a worker or a dispatcher."""
        if postings.lsn != self._lsn:
            return
        if ROLES[postings.role] == "worker":
            self._held[postings.index] = int(postings.count[0])
        else:
            self._wanted[postings.index] = postings.count

    def figures(self, workers: int, dispatchers: int) -> dict[str, int] | None:
        """Returns the `missing` and `surplus` postings, each by the dispatcher that finds most. The
        result is empty if a count is still missing after PATIENCE_TICKS, as when an actor has
        died; it is None while counts may still be received, or when none are expected."""
        if not self._lsn:
            return None
        whole = self._wanted.keys() >= set(range(dispatchers))
        whole = whole and self._held.keys() >= set(range(workers))
        if not whole:
            return {} if self._ticks <= 0 else None
        off = [self._compare(wanted, workers) for wanted in self._wanted.values()]
        return {
            "missing": max(missing for missing, _ in off),
            "surplus": max(surplus for _, surplus in off),
        }

    def _compare(self, wanted: I64, workers: int) -> tuple[int, int]:
        """Returns the missing and the surplus postings by a dispatcher's count."""
        beyond = [self._held[w] - int(wanted[w]) for w in range(workers)]
        missing, surplus = sum(max(-n, 0) for n in beyond), sum(max(n, 0) for n in beyond)
        sharded = int(wanted[-1])  # these are what workers hold beyond the others
        return missing + max(sharded - surplus, 0), max(surplus - sharded, 0)
