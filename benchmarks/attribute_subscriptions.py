"""Workload W0 of Le Subscribe on one core: subscriptions of attributes alone.

A subscription has five equalities, two of attributes that all have and three of others; an event
has all 32 attributes; each value is one of 35. There are no places and no words. An event is
searched for the terms of its attributes, as a dispatcher does it, and then matched by an index.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any, Final

import numpy as np

from ps2stream.benchmarks.figures import summarise_values
from ps2stream.benchmarks.post_batches import BATCH, watch_rows
from ps2stream.benchmarks.query_tags import TaggedRows, tags_of
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.language.expression import hash_literals
from ps2stream.language.literals import LiteralKind
from ps2stream.language.object_terms import find_terms
from ps2stream.language.pairs import pair_text
from ps2stream.language.predicate_terms import mark_names
from ps2stream.protocol.frame import I64, U8, Array
from ps2stream.protocol.opaque import OpaqueColumns, pack_opaque, take_opaque
from ps2stream.protocol.rows import PROG_NOTES, ExpressionForm, QueryRows, RegionShape, UpdateKind
from ps2stream.space.grid import Grid
from ps2stream.v1.object_pb2 import Attributes
from ps2stream.workers.index import MatchColumns
from ps2stream.workers.indexes import INDEXES, IndexName

ATTRIBUTES, FIXED, FREE, VALUES = 32, 2, 3, 35
PAPER: Final = 600.0
"""Events per second that the paper's dynamic algorithm matches, with 6M subscriptions."""
BATCHES = 10
CHECKED = 40  # events compared with brute force
_NAMES: Final = [f"a{i:02}" for i in range(ATTRIBUTES)]
_CHUNK = 1 << 16


def literal_of(attribute: int, value: int) -> str:
    """Returns the equality of an attribute and a value, by their numbers."""
    return f"{_NAMES[attribute]} = {value}"


def count_values(events: int) -> dict[str, int]:
    """Returns the counts of a sample of so many events, as a plan has them."""
    present = {f"{name} EXISTS": events for name in _NAMES}
    numbers = [(a, v) for a in range(ATTRIBUTES) for v in range(VALUES)]
    return present | {literal_of(a, v): events // VALUES for a, v in numbers}


class AttributeWorld:
    """The subscriptions and the events. wanted int64[n, ATTRIBUTES]: the value of each attribute,
    -1 for any; held int64[events, ATTRIBUTES]."""

    def __init__(self, subscriptions: int, events: int, seed: int) -> None:
        rng = np.random.default_rng([seed, 8])
        self.analyzer = Analyzer(Analysis(salt=seed))
        self.wanted = np.full((subscriptions, ATTRIBUTES), -1, np.int8)
        self.held = rng.integers(0, VALUES, (events, ATTRIBUTES))
        self._free = self._draw_free(subscriptions, rng)
        own = np.concatenate([np.tile(np.arange(FIXED), (subscriptions, 1)), self._free], 1)
        values = rng.integers(0, VALUES, own.shape)
        np.put_along_axis(self.wanted, own, values.astype(np.int8), 1)
        every = [literal_of(a, v) for a in range(ATTRIBUTES) for v in range(VALUES)]
        self._equal = hash_literals(self.analyzer, every).reshape(ATTRIBUTES, VALUES)
        pairs = [
            pair_text(literal_of(0, v), literal_of(1, w))
            for v in range(VALUES)
            for w in range(VALUES)
        ]
        self._pair = hash_literals(self.analyzer, pairs).reshape(VALUES, VALUES)
        self._mark = mark_names(self.analyzer.keys, pairs[0])

    @staticmethod
    def _draw_free(subscriptions: int, rng: np.random.Generator) -> I64:
        """Draws three different attributes of each subscription, behind the fixed ones."""
        free = ATTRIBUTES - FIXED
        first = rng.integers(0, free, subscriptions)
        second = (first + rng.integers(1, free, subscriptions)) % free
        third = (first + rng.integers(1, free, subscriptions)) % free
        while (same := third == second).any():
            third[same] = (first[same] + rng.integers(1, free, int(same.sum()))) % free
        return FIXED + np.stack([first, second, third], 1)

    def build_rows(self, first: int, last: int) -> QueryRows:
        """Returns subscriptions first..last - 1 as the compiler builds them by `count_values`: each
        is posted under the pair of its fixed attributes; LSN and handle are 1 + their number."""
        n = last - first
        wanted, free = self.wanted[first:last].astype(np.int64), self._free[first:last]
        pair = self._pair[wanted[:, 0], wanted[:, 1]]
        own = self._equal[free, np.take_along_axis(wanted, free, 1)]
        unsorted = np.concatenate([pair[:, None], own], 1)
        order = np.argsort(unsorted, 1)
        term = np.take_along_axis(unsorted, order, 1)
        rank = np.argsort(order, 1)  # of each of `unsorted` among the terms
        notes = np.zeros((n, 2 * (1 + FREE) + 1), np.int16)
        notes[:, 0:-1:2] = rank | int(LiteralKind.EQUAL) << 8
        notes[:, 0] = rank[:, 0] | int(LiteralKind.PAIR) << 8
        notes[:, 1] = np.uint16(self._mark).view(np.int16)
        notes[:, -1] = PROG_NOTES - 1 - FREE
        handle, nothing = np.arange(first + 1, last + 1), np.zeros(n + 1, np.int64)
        return QueryRows(
            kind=np.full(n, UpdateKind.INSERT, np.uint8),
            lsn=handle,
            handle=handle,
            session=np.ones(n, np.int64),
            id_off=nothing,
            id=np.zeros(0, np.uint8),
            form=np.full(n, ExpressionForm.ALL, np.uint8),
            post=np.uint64(1) << rank[:, 0].astype(np.uint64),
            term_off=np.arange(n + 1) * (1 + FREE),
            term=term.ravel(),
            prog_off=np.arange(n + 1) * notes.shape[1],
            prog=notes.ravel(),
            box_off=np.arange(n + 1) * 4,
            box=np.tile([-180.0, -90.0, 180.0, 90.0], n),
            shape=np.full(n, RegionShape.WORLD, np.uint8),
            geom_off=nothing,
            geom=np.zeros(0),
            source_off=nothing,
            source=np.zeros(0, np.uint8),
        )

    def describe(self, number: int) -> str:
        """Returns the expression of a subscription."""
        own = np.flatnonzero(self.wanted[number] >= 0).tolist()
        return " AND ".join(literal_of(a, int(self.wanted[number, a])) for a in own)

    def pack_events(self) -> tuple[I64, U8]:
        """Returns the opaque column of the events."""
        parts = []
        for row in self.held.tolist():
            found = Attributes()
            for name, value in zip(_NAMES, row, strict=True):
                found.values[name].integer = value
            parts.append(found.SerializeToString(deterministic=True))
        off = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(part) for part in parts], out=off[1:])
        data = np.frombuffer(b"".join(parts), np.uint8)
        return pack_opaque(OpaqueColumns(off, data, np.zeros_like(off), np.zeros(0, np.uint8)))

    def find_matches(self, event: int) -> Array:
        """Returns the subscriptions that an event matches, by brute force."""
        held = self.held[event].astype(np.int8)
        return np.flatnonzero(((self.wanted == held) | (self.wanted < 0)).all(1))


def run_attributes(
    subscriptions: int = 3_000_000, index: IndexName = "gi2-radix", runs: int = 5, seed: int = 1
) -> dict[str, Any]:
    """Returns the measured figures, JSON-able: events per processor second with the search of their
    attributes and without it, and the matches of a sample against brute force."""
    world = AttributeWorld(subscriptions, BATCHES * BATCH, seed)
    grid = Grid()
    store = INDEXES[index](grid)
    started, parts = time.process_time(), list[QueryRows]()
    for first in range(0, subscriptions, _CHUNK):
        rows = world.build_rows(first, min(first + _CHUNK, subscriptions))
        tagged: TaggedRows = tags_of(rows, grid)
        store.insert(*tagged)
        parts.append(rows.replace(box=np.zeros(0), box_off=np.zeros(len(rows) + 1, np.int64)))
    filled = time.process_time() - started
    view = watch_rows(parts)
    parts.clear()
    opaque = world.pack_events()
    lon, lat = np.zeros(BATCH), np.zeros(BATCH)
    texts = np.zeros(BATCH + 1, np.int64), np.zeros(0, np.uint8)

    def match(k: int) -> tuple[MatchColumns, float, float]:
        rows = np.arange(k * BATCH, (k + 1) * BATCH)
        mine = take_opaque(*opaque, rows)
        clock = [time.process_time()]
        terms = find_terms(world.analyzer, texts, mine, view)
        clock.append(time.process_time())
        found = store.match(subscriptions, lon, lat, *terms)
        clock.append(time.process_time())
        return found, clock[1] - clock[0], clock[2] - clock[1]

    rounds, matches = [], 0
    for _ in range(runs + 1):
        taken = [match(k) for k in range(BATCHES)]
        matches = sum(len(found.row) for found, _, _ in taken)
        rounds.append((sum(x for _, x, _ in taken), sum(x for _, _, x in taken)))
    events = BATCHES * BATCH
    rates = [events / (searched + matched) for searched, matched in rounds[1:]]
    found = match(0)[0]
    checked = np.random.default_rng(seed).choice(BATCH, CHECKED, replace=False)
    checked = np.union1d(checked, found.row[:CHECKED].astype(np.int64))  # few events match at all
    wrong = sum(
        sorted(found.handle[found.row == row].tolist()) != (world.find_matches(row) + 1).tolist()
        for row in checked.tolist()
    )
    stats = store.stats()
    return {
        "settings": {
            "workload": "w0", "index": index, "subscriptions": subscriptions, "runs": runs,
            "seed": seed, "batch": BATCH, "events_per_run": events,
        },
        "events_per_second": summarise_values(rates),
        "over_paper": median(rates) / PAPER,
        "search_us_per_event": 1e6 * median(x for x, _ in rounds[1:]) / events,
        "match_us_per_event": 1e6 * median(x for _, x in rounds[1:]) / events,
        "matches_per_event": matches / events,
        "inserts_per_second": subscriptions / filled,
        "bytes_per_subscription": stats.bytes / max(stats.live, 1),
        "verified": {
            "events": len(checked), "matches": int(np.isin(found.row, checked).sum()),
            "different": wrong,
        },
    }  # fmt: skip
