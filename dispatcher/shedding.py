"""Load shedding of one dispatcher (S3-TM; docs/decisions/0027).

While more objects come than the workers can match, objects that may be shed go to their best
workers alone, fewer at each level. What is shed is counted, by worker and term; some objects are
sent whole, and their matches show what the others lose. A machine without a clock: `step` is called
once a second.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from ps2stream.dispatcher.gathering import ShedShares
from ps2stream.dispatcher.shedding_columns import MOST_FAN, SheddingColumns, prepare_columns
from ps2stream.multicast.capping import SheddingRank
from ps2stream.multicast.capping_kernels import SAMPLED
from ps2stream.multicast.shedding_levels import (
    HIGHEST_LEVEL,
    BufferSegments,
    SheddingLevel,
    divide_buffer,
    targets_at,
)
from ps2stream.multicast.shedding_losses import SAMPLED as SAMPLED_PART
from ps2stream.multicast.shedding_losses import SheddingTally
from ps2stream.protocol.frame import I64, U64, Array
from ps2stream.protocol.messages.objects import MatchBatch
from ps2stream.protocol.rows import ObjectRows

STABLE_END = 0.75
"""The fullness from which on the level rises. At 7/8 large publications wait before they are
accepted."""
NOTICE_STEPS = 5
"""The seconds between two notices while load is shed."""
LISTED_TERMS = 10


@dataclasses.dataclass(eq=False)
class SampledRows:
    """The objects of a batch that were sent whole: row int64[k], rising; cut uint64[k, words], the
    workers that they would not have been sent to; the workers that have answered."""

    row: I64
    cut: U64
    answered: set[int] = dataclasses.field(default_factory=set)


class LostTerms(NamedTuple):
    """The terms with the most objects that some worker was not sent, descending."""

    term: U64
    objects: I64


class LoadShedding:
    """What a dispatcher sheds by `rank`, nothing if that is None. Counters are totals since the
    start."""

    def __init__(self, rank: SheddingRank | None, workers: int, seed: int = 0) -> None:
        self.is_on = rank is not None
        self.objects = self.notices = 0
        self.copies = np.zeros(workers, np.int64)
        self._rank = rank
        self._level = SheddingLevel(BufferSegments(STABLE_END / 2, STABLE_END))
        self._tally = SheddingTally(workers)
        self._rng = np.random.default_rng(seed)
        self._fan = np.zeros(MOST_FAN, np.int64)
        self._samples: dict[int, SampledRows] = {}  # by batch
        self._steps = 0  # since the first object of the next notice
        self._begun_ms = self._stepped_ms = 0
        self._first = 0  # offset of the first batch of the next notice
        self._last_terms = LostTerms(np.zeros(0, np.uint64), np.zeros(0, np.int64))

    @property
    def level(self) -> int:
        """The level, 0 to 8: 0 while nothing is shed."""
        return self._level.level

    @property
    def counters(self) -> dict[str, int]:
        """Totals since the start, and the level."""
        by_worker = {f"shed_copies_worker_{w}": n for w, n in enumerate(self.copies.tolist()) if n}
        return {
            "shedding_level": self.level, "capped_objects": self.objects,
            "shed_copies": int(self.copies.sum()), **by_worker,
        }  # fmt: skip

    @property
    def lost_terms(self) -> LostTerms:
        """The terms of the present period with the most losses, or of the last notice."""
        term, objects = self._tally.term_objects
        if not len(term):
            return self._last_terms
        order = np.argsort(-objects, kind="stable")[:LISTED_TERMS]
        return LostTerms(term[order], objects[order])

    def resize(self, workers: int) -> None:
        """Takes a change of the number of workers; the counts of those that are gone stay."""
        if (more := workers - self._tally.workers) > 0:
            self._tally.resize(workers)
            self.copies = np.concatenate([self.copies, np.zeros(more, np.int64)])

    def prepare(self, rows: ObjectRows, may_shed: Array) -> SheddingColumns:
        """Returns the columns by which a batch is routed. may_shed bool[n]: False for objects that
        are never shed."""
        n = len(rows)
        return prepare_columns(
            targets_at(self.level), self._rank == "subscription", may_shed,
            self._rng.random(n) < SAMPLED_PART, self._rng.random(n),
            len(rows.term), self._tally.workers, self._fan,
        )  # fmt: skip

    def note_routed(self, batch: int, rows: ObjectRows, columns: SheddingColumns) -> None:
        """Notes what was shed of a batch."""
        sampled = np.flatnonzero(columns.state == SAMPLED)
        if len(sampled):
            self._samples[batch] = SampledRows(sampled, columns.cut[sampled])
        if not (shed := int(columns.shed[0])):
            return
        if not self._tally.objects:
            self._steps, self._begun_ms, self._first = 0, self._stepped_ms, batch
        self._tally.add_counts(shed, columns.copies, rows.term[columns.lost != 0])
        self.objects += shed
        self.copies += columns.copies

    def take_answer(self, frame: MatchBatch) -> None:
        """Notes the matches of sampled objects in a worker's first answer to a batch."""
        sampled = self._samples.get(frame.batch)
        if sampled is None or frame.worker in sampled.answered:
            return
        sampled.answered.add(frame.worker)
        at = np.searchsorted(sampled.row, frame.row)
        at[at == len(sampled.row)] = 0
        known = sampled.row[at] == frame.row
        word = sampled.cut[at[known], frame.worker >> 6]
        lost = (word >> np.uint64(frame.worker & 63)) & np.uint64(1)
        self._tally.add_sampled(frame.session[known].astype(np.uint64), lost != 0)

    def close(self, batches: list[int]) -> None:
        """Forgets the samples of batches that are complete."""
        for batch in batches if self._samples else ():
            self._samples.pop(batch, None)

    def step(self, fullness: float, now_ms: int) -> None:
        """Sets the level, once a second. fullness: how full the buffer of objects under way is, 1
        where others have to wait; now_ms: Unix time."""
        loads = measure_loads(self._fan)
        if loads[-1] > 0:
            self._level.segments = divide_buffer(STABLE_END, loads)
        self._fan //= 2
        self._level.step(fullness)
        self._stepped_ms = now_ms
        self._steps += 1

    @property
    def has_notice(self) -> bool:
        """Returns whether the sessions should be sent a notice now: after some seconds, or when
        nothing is shed any more and the sample is answered."""
        is_over = self.level == 0 and not self._samples
        return self._tally.objects > 0 and (is_over or self._steps >= NOTICE_STEPS)

    def take_notice(self, now_ms: int, offset: int, oldest: int) -> ShedShares:
        """Returns what the sessions are sent, and begins a period anew. offset: that of the next
        object; oldest: every batch of a lower one is complete."""
        self._last_terms = self.lost_terms
        notice = self._tally.take(self._begun_ms, max(now_ms, self._begun_ms))
        assert notice is not None, "nothing was shed"
        self._tally.carry_sample(notice)
        self._samples = {b: s for b, s in self._samples.items() if b >= oldest}
        self.notices += 1
        numbers = notice.begin, notice.end, self._first, offset, notice.objects, notice.sampled
        known = notice.session.astype(np.int64)
        shares = np.append(notice.share, notice.shares_of(notice.session))
        return ShedShares(np.array(numbers, np.int64), np.append(-1, known), shares)


def measure_loads(fan: I64) -> list[float]:
    """Returns the copies of objects at each level from 0 on, by the numbers of workers that
    objects were to go to: fan as in `shed_copies`."""
    width = np.arange(len(fan))
    whole, capped = float(fan[0]), fan * (width > 0)
    return [
        whole + float((capped * np.minimum(width, targets_at(level))).sum())
        for level in range(HIGHEST_LEVEL + 1)
    ]
