"""Which units the stream meets most, counted as FISH counts keys (algorithms.md 5.1, 6.3).

Some thousand objects a second are looked at, and only while the controller requests reports. The
counters forget by tuples, so that a jump of a fast stream is seen at once, and that of a slow one
after some hundred objects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ps2stream.dispatcher.gridt import Gridt, ObjectShare
from ps2stream.dispatcher.hot_unit_kernels import EVERY, TERM_BITS, WORD_BIT
from ps2stream.dispatcher.literal_table import LiteralTable
from ps2stream.dispatcher.reservoir import ObjectSample
from ps2stream.keyed.counters import CounterOptions, HotKeyCounters
from ps2stream.language.analyzer import TOP, Analyzer
from ps2stream.language.literal_names import name_literals
from ps2stream.language.literals import WatchedLiterals
from ps2stream.protocol.frame import F64, I64, U64, strings_to_column, take_ragged
from ps2stream.protocol.messages.loads import NO_CELL, HotUnitsReport, HotUnitsRequest
from ps2stream.protocol.opaque import take_opaque
from ps2stream.protocol.rows import ObjectRows

LOOKED_AT_PER_S = 4_000
LOOKED_AT_ONCE = 32
"""The objects of a batch at which is looked, or all of a small one: fewer would cost as much."""
MOST_UNITS = 256
MOST_WORDS = 8
"""The most words of a report, phrases and predicates among them: each is searched for in recent
objects."""
LEAST_SHARE = 0.001
LEAST_WORD_SHARE = 0.02
FULL_ROWS = 4_096
"""The mean rows of a batch from which on batches are full: they leave as soon as they have enough,
and not because none is under way (see intake.py)."""
CROWDED = 0.8
"""The part of the ticks at which a batch is under way where they always are, or nearly."""
PATIENCE_TICKS = 50
"""Ticks after the last request for which units are counted."""
OPTIONS = CounterOptions(alpha=0.2, epoch=2_000, capacity=1_000)
_OWNER = np.uint64(0xFFFF)


class MetShares(NamedTuple):
    """The shares of recent objects that met units, the highest first: share float64[u], key
    uint64[u] as in hot_unit_kernels.py."""

    share: F64
    key: U64


class HotUnitCounter:
    """Counts the units that objects meet, and the objects that each worker was sent, from one
    report to the next."""

    def __init__(self) -> None:
        self._counters = HotKeyCounters(1, OPTIONS)
        self._patience = 0
        self._stride, self._turn = 1, 0
        self._due = 0  # objects for which none was looked at yet, one in `stride`
        self._objects = 0
        self._sent: dict[int, int] = {}
        self._updates = 0  # postings inserted or deleted
        self._since = 0  # ticks since the last report
        self._crowds = 0  # of these, ticks with a batch under way
        self._batches = 0
        self._squares: dict[int, int] = {}  # of the objects of a batch that a worker was sent

    @property
    def active(self) -> bool:
        """Returns whether reports were requested lately."""
        return self._patience > 0

    def tick(self, is_busy: bool = False) -> None:
        """Counts time, ten times a second; is_busy: whether a batch is under way."""
        self._since += 1
        self._crowds += is_busy
        self._patience = max(self._patience - 1, 0)

    def count(self, gridt: Gridt, rows: ObjectRows, shares: list[ObjectShare]) -> None:
        """Counts a batch that was routed, which was not empty."""
        for share in shares:
            worker, n = share.worker, len(share.row)
            self._sent[worker] = self._sent.get(worker, 0) + n
            self._squares[worker] = self._squares.get(worker, 0) + n * n
        self._batches += 1
        n = len(rows)
        self._objects += n
        self._due += n
        looked_at = min(self._due // self._stride, n)
        if looked_at < min(LOOKED_AT_ONCE, n):
            return
        self._due = min(self._due - looked_at * self._stride, n * self._stride)
        stride = n // looked_at
        first, self._turn = self._turn % stride, self._turn + 1
        columns = rows.lon, rows.lat, rows.term_off, rows.term
        self._counters.count(gridt.list_met_units(*columns, first, stride))

    def note_updates(self, postings: int) -> None:
        """Notes that so many postings were inserted or deleted."""
        self._updates += postings

    def find_shares(self) -> MetShares:
        """Returns what the recent part of the stream met most."""
        key, count = self._counters.counts()
        every = float(count[key == EVERY].sum())
        share = count / every if every else count
        some = np.flatnonzero((share >= LEAST_SHARE) & (key != EVERY))
        some = some[np.argsort(-share[some], kind="stable")][:MOST_UNITS]
        return MetShares(share[some], key[some])

    def report(
        self, request: HotUnitsRequest, dispatcher: int, route: int, workers: int,
        find_texts: Callable[[], ObjectSample], analyzer: Analyzer | None, gridt: Gridt, busy: I64,
        literals: LiteralTable,
    ) -> HotUnitsReport:  # fmt: skip
        """Answers a request, and begins to count objects anew. find_texts: returns recent objects,
        in which the words are found of which only hashes were counted; gridt: has the queries;
        busy: as in the report; literals: those of the queries."""
        found = self.find_shares()
        seconds = max(self._since, 1) / 10
        sent = np.array([self._sent.get(w, 0) for w in range(workers)], np.int64)
        cell, term, owner = _name_units(found, find_texts, analyzer, literals)
        known = np.array([c != NO_CELL or t is not None for c, t in zip(cell, term, strict=True)])
        kept = np.flatnonzero(known) if len(known) else np.zeros(0, np.int64)
        postings, stored = np.zeros(len(kept), np.int64), 0
        if request.weigh and len(kept):
            postings, stored = _weigh_units(found.key[kept], gridt)
        report = HotUnitsReport(
            dispatcher, request.epoch, request.number, route, self._objects, round(seconds * 1000),
            self._updates, stored, sent, found.share[kept],
            np.array([cell[i] for i in kept], np.uint32),
            *strings_to_column([term[i] or "" for i in kept]),
            np.array([owner[i] for i in kept], np.uint32), postings,
            busy, self._find_scatter(workers), int(self._is_crowded),
        )  # fmt: skip
        self._stride = max(1, round(self._objects / seconds / LOOKED_AT_PER_S))
        self._patience, self._since, self._objects = PATIENCE_TICKS, 0, 0
        self._updates = self._crowds = self._batches = 0
        self._sent.clear()
        self._squares.clear()
        return report

    @property
    def _is_crowded(self) -> bool:
        """Returns whether publications have had to wait since the last report."""
        is_full = self._objects >= FULL_ROWS * self._batches > 0
        return is_full and self._crowds >= CROWDED * self._since > 0

    def _find_scatter(self, workers: int) -> F64:
        """Returns the variance of the objects that each worker was sent, float64[workers], as
        estimated from what each batch brought; of a single batch, all that there was."""
        n = self._batches
        sent = np.array([self._sent.get(w, 0) for w in range(workers)], float)
        squares = np.array([self._squares.get(w, 0) for w in range(workers)], float)
        if n < 2:
            return squares
        scatter: F64 = np.maximum(squares - sent * sent / n, 0.0) * (n / (n - 1))
        return scatter


def _name_units(
    found: MetShares,
    find_texts: Callable[[], ObjectSample],
    analyzer: Analyzer | None,
    literals: LiteralTable,
) -> tuple[list[int], list[str | None], list[int]]:
    """Returns the cell (NO_CELL of a word), the word, if it is found, and the owner of each. A
    phrase, prefix, predicate or pair is a word here."""
    is_word = (found.key & WORD_BIT) != 0
    hot = np.flatnonzero(is_word & (found.share >= LEAST_WORD_SHARE))[:MOST_WORDS]
    hashes, words = found.key[hot] & TERM_BITS, list[str | None]()
    if len(hot):
        words = find_names(hashes, find_texts(), analyzer, literals)
    named = dict(zip(hot.tolist(), words, strict=True))
    cell = [NO_CELL if w else int(k) for k, w in zip(found.key, is_word, strict=True)]
    owner = [int(k & _OWNER) if w else 0 for k, w in zip(found.key, is_word, strict=True)]
    return cell, [named.get(i) for i in range(len(cell))], owner


def _weigh_units(key: U64, gridt: Gridt) -> tuple[I64, int]:
    """Returns the postings of each unit, int64[u], and how many there are in all."""
    is_word = (key & WORD_BIT) != 0
    words, word = np.unique(key[is_word] & TERM_BITS, return_inverse=True)
    cells, cell = np.unique(key[~is_word].astype(np.uint32), return_inverse=True)
    by_cell, by_word, stored = gridt.count_stored(cells, words)
    out: I64 = np.empty(len(key), np.int64)
    out[is_word], out[~is_word] = by_word[word], by_cell[cell]
    return out, stored


def find_names(
    hashes: U64, objects: ObjectSample, analyzer: Analyzer | None, literals: LiteralTable
) -> list[str | None]:
    """Returns the word, phrase, prefix, predicate or pair of each hash, of which only TERM_BITS are
    compared: None for one that no recent object has. The hash of queries without words gives an
    empty text."""
    names: list[str | None] = ["" if h == TOP & TERM_BITS else None for h in hashes]
    bits = objects.term & TERM_BITS
    for i, wanted in enumerate(hashes):
        at = np.flatnonzero(bits == wanted)
        if names[i] is None and len(at) and analyzer is not None:
            names[i] = _find_name(objects, int(at[-1]), analyzer, literals)
    return names


def _find_name(
    objects: ObjectSample, at: int, analyzer: Analyzer, literals: LiteralTable
) -> str | None:
    """Returns the name of the term at a place in the column of terms."""
    row = np.array([np.searchsorted(objects.term_off, at, "right") - 1])
    text = take_ragged(objects.text_off, objects.text, row)
    term = objects.term[at : at + 1]
    watched = WatchedLiterals.everywhere_of(term, *literals.describe(term))
    if watched.kind[0]:
        opaque = take_opaque(objects.opaque_off, objects.opaque, row)
        return name_literals(watched, text, opaque, analyzer).get(int(term[0]))
    tokens = analyzer.tokens(text[1].tobytes().decode())
    same = np.flatnonzero(analyzer.hash_terms(tokens) == term)
    return tokens[same[0]] if len(same) else None
