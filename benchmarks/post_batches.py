"""Posts in batches as an index is given them, with the attributes that queries look at."""

from __future__ import annotations

import time

import numpy as np

from ps2stream.benchmarks.predicates import QueryPredicates
from ps2stream.benchmarks.workload import PostColumns, Workload
from ps2stream.language.analyzer import Analyzer
from ps2stream.language.literals import NO_LITERALS, LiteralView, WatchedLiterals
from ps2stream.language.object_terms import NO_VALUES, ComparedValues, find_terms, list_compared
from ps2stream.protocol.frame import F64, I64, U64
from ps2stream.protocol.rows import QueryRows, no_offsets

BATCH = 1024
"""Objects of a batch."""


class PostBatches:
    """Analysed posts in batches of BATCH objects."""

    def __init__(
        self, posts: PostColumns, term_off: I64, term: U64, values: ComparedValues = NO_VALUES
    ) -> None:
        self._posts, self._off, self._term, self._values = posts, term_off, term, values

    def __len__(self) -> int:
        return len(self._posts.lon) // BATCH

    def __getitem__(self, k: int) -> tuple[F64, F64, I64, U64]:
        a, b = k * BATCH, (k + 1) * BATCH
        off = self._off[a : b + 1]
        lon, lat = self._posts.lon[a:b], self._posts.lat[a:b]
        return lon, lat, off - off[0], self._term[off[0] : off[-1]]

    def values(self, k: int) -> tuple[I64, U64]:
        """Returns the values of batch k that queries compare, as a ragged column."""
        off = self._values.off[k * BATCH : (k + 1) * BATCH + 1]
        if not len(off):
            return NO_VALUES
        return off - off[0], self._values.word[off[0] : off[-1]]


def watch_rows(parts: list[QueryRows]) -> LiteralView:
    """Returns the literals that objects are searched for, as a dispatcher with these queries has
    them."""
    found = [WatchedLiterals.of(rows) for rows in parts]
    if not any(len(each.term) for each in found):
        return NO_LITERALS
    columns = (np.concatenate(column) for column in zip(*found, strict=True))
    return WatchedLiterals(*columns).view()


def search_posts(
    load: Workload, predicates: QueryPredicates, analyzer: Analyzer, view: LiteralView
) -> tuple[PostBatches, float]:
    """Returns the posts with the terms of their attributes and what queries compare of them, and
    the processor seconds that this takes beyond the analysis of texts (the least of five)."""
    opaque, text = predicates.pack_attributes(), (load.posts.text_off, load.posts.text)
    clock = np.empty((5, 3))
    for turn in clock:
        turn[0] = time.process_time()
        analyzer.analyse(*text)
        turn[1] = time.process_time()
        terms = find_terms(analyzer, text, opaque, view)
        values = list_compared(opaque, analyzer, view)
        turn[2] = time.process_time()
    plain, searched = np.diff(clock, axis=1).min(0).tolist()
    return PostBatches(load.posts, *terms, values), searched - plain


def find_literals(posts: PostColumns, analyzer: Analyzer, view: LiteralView) -> PostBatches:
    """Returns the posts with the literals that queries have where they are."""
    text, place = (posts.text_off, posts.text), (posts.lon, posts.lat)
    return PostBatches(posts, *find_terms(analyzer, text, _NOTHING_OPAQUE, view, place=place))


def analyse_batches(posts: PostColumns, analyzer: Analyzer, view: LiteralView) -> float:
    """Analyses the texts of posts batch by batch, as a dispatcher with these literals does it;
    returns the processor seconds that it takes."""
    begun = time.process_time()
    for first in range(0, len(posts.lon) - BATCH + 1, BATCH):
        part = slice(first, first + BATCH)
        text = posts.text_off[first : first + BATCH + 1], posts.text
        find_terms(analyzer, text, _NOTHING_OPAQUE, view, place=(posts.lon[part], posts.lat[part]))
    return time.process_time() - begun


_NOTHING_OPAQUE = no_offsets(), np.zeros(0, np.uint8)
