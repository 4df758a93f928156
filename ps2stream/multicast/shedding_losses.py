"""What was shed: counts by worker and term, and the share of matches lost, from a sample.

Nothing is shed silently. Some objects, drawn at random, are sent to all of their workers though
they could be shed; their matches show what the others lose. A tally holds one dispatcher's counts
between two notices, and knows no clock: its caller names the moments.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ps2stream.multicast.bitsets import count_copies
from ps2stream.multicast.capping import CappedMulticast, ChosenWorkers
from ps2stream.protocol.frame import F64, I64, U64, Array

SAMPLED = 0.01
"""Part of the objects that are sent whole while load is shed."""
MOST_TERMS = 4096
"""Terms that are counted apart; those with the fewest losses are counted together."""


class SheddingNotice(NamedTuple):
    """What the sessions are told of a period. begin, end: its moments, ms; objects: objects that
    were not sent to all of their workers; copies int64[workers]: copies that each worker was not
    sent; term uint64[k], term_objects int64[k]: objects by the terms that they lost, descending;
    other_objects: those of all other terms; sampled: matches of the sample; share: the estimated
    part of all matches lost, 0 without any sampled match; session uint64[s], ascending, and
    session_matches, session_lost int64[s]: the sampled matches of each session that has some."""

    begin: int
    end: int
    objects: int
    copies: I64
    term: U64
    term_objects: I64
    other_objects: int
    sampled: int
    share: float
    session: U64
    session_matches: I64
    session_lost: I64

    def shares_of(self, sessions: U64) -> F64:
        """Returns the estimated part of its matches that each session lost, float64[n]: its own
        sampled matches, drawn towards the share of all sessions as if that were one more match."""
        if not len(self.session):
            return np.full(len(sessions), self.share)
        at = np.minimum(np.searchsorted(self.session, sessions), len(self.session) - 1)
        known = self.session[at] == sessions
        matches = np.where(known, self.session_matches[at], 0)
        lost = np.where(known, self.session_lost[at], 0)
        return (lost + self.share) / (matches + 1.0)


class SheddingTally:
    """Counts what a dispatcher sheds, and the matches of sampled objects."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._start_anew()

    def _start_anew(self) -> None:
        self._objects, self._others = 0, 0
        self._copies = np.zeros(self.workers, np.int64)
        self._term, self._term_objects = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        self._session = np.zeros(0, np.uint64)
        self._matches, self._lost = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def add_objects(self, objects: ChosenWorkers, capped: CappedMulticast, term: U64) -> None:
        """Counts what capping took from objects. term uint64[t]: of each object in turn."""
        cut = objects.join() & ~capped.bits
        routed = objects.chosen.any(axis=1)
        self.add_counts(
            int(cut.any(axis=1).sum()),
            count_copies(cut, self.workers),
            term[routed & (capped.kept == 0)],
        )

    def add_counts(self, objects: int, copies: I64, lost: U64) -> None:
        """Counts objects of which copies were not sent. copies int64[workers]; lost uint64[]: the
        terms that some worker was not sent, of each object in turn."""
        self._objects += objects
        self._copies += copies
        lost, count = np.unique(lost, return_counts=True)
        self._term, (self._term_objects,) = _merge_counts(
            self._term, (self._term_objects,), lost, (count,)
        )
        if len(self._term) > MOST_TERMS:
            order = np.argsort(-self._term_objects, kind="stable")
            self._others += int(self._term_objects[order[MOST_TERMS:]].sum())
            kept = np.sort(order[:MOST_TERMS])
            self._term, self._term_objects = self._term[kept], self._term_objects[kept]

    def add_sampled(self, session: U64, lost: Array) -> None:
        """Counts matches of sampled objects. session uint64[m]: whose match it is; lost bool[m]:
        True if no worker that would be left has found it (`find_lost`)."""
        found, at = np.unique(session, return_inverse=True)
        matches = np.bincount(at, minlength=len(found))
        missing = np.bincount(at[np.asarray(lost, np.bool_)], minlength=len(found))
        self._session, (self._matches, self._lost) = _merge_counts(
            self._session, (self._matches, self._lost), found, (matches, missing)
        )

    @property
    def objects(self) -> int:
        """The objects that were counted since the last notice."""
        return self._objects

    @property
    def term_objects(self) -> tuple[U64, I64]:
        """The terms that were lost since the last notice, ascending, and the objects of each."""
        return self._term, self._term_objects

    def resize(self, workers: int) -> None:
        """Counts by so many workers from now on, which are not fewer."""
        self._copies = np.concatenate([self._copies, np.zeros(workers - self.workers, np.int64)])
        self.workers = workers

    def carry_sample(self, notice: SheddingNotice) -> None:
        """Lets half of the sample of a notice count for the next one too, whose objects may not be
        answered yet."""
        self._session, (self._matches, self._lost) = _merge_counts(
            self._session,
            (self._matches, self._lost),
            notice.session,
            (notice.session_matches // 2, notice.session_lost // 2),
        )

    def take(self, begin: int, end: int) -> SheddingNotice | None:
        """Returns the notice of a period, and starts anew. None if nothing was shed."""
        sampled, lost = int(self._matches.sum()), int(self._lost.sum())
        order = np.argsort(-self._term_objects, kind="stable")
        notice = SheddingNotice(
            begin, end, self._objects, self._copies, self._term[order], self._term_objects[order],
            self._others, sampled, lost / sampled if sampled else 0.0,
            self._session, self._matches, self._lost,
        )  # fmt: skip
        self._start_anew()
        return notice if notice.objects else None


def find_lost(capped: U64, row: I64, worker: I64) -> Array:
    """Returns whether capping would have lost each match, bool[m]. capped uint64[n, words]: the
    workers that sampled objects would have gone to; row, worker int64[m]: the object of a match,
    and the worker that emitted it. A query with several posting terms in the object might be found
    by another of them, so of such queries this is an upper bound."""
    bit = np.uint64(1) << (worker & 63).astype(np.uint64)
    return np.asarray((capped[row, worker >> 6] & bit) == 0)


def _merge_counts(
    key: U64, counts: tuple[I64, ...], more: U64, added: tuple[I64, ...]
) -> tuple[U64, tuple[I64, ...]]:
    """Adds counts by key to others. Both keys are distinct and ascending."""
    merged, at = np.unique(np.concatenate([key, more]), return_inverse=True)
    sums = tuple(
        np.bincount(at, np.concatenate(pair), len(merged)).astype(np.int64)
        for pair in zip(counts, added, strict=True)
    )
    return merged, sums
