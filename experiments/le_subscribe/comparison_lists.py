"""A long list: queries of two comparisons alone, which have one posting term and one place.

Nothing but the comparisons tells them apart, so that the index has them in one leaf. Beside it the
algorithms of Le Subscribe match the same subscriptions, compiled, of which the index has none: a
subscription without an equality is in the universal list there, as one cluster of columns.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from ps2stream.benchmarks.query_tags import tags_of
from ps2stream.experiments.le_subscribe.measure import load_rows, make_matcher, warm_up
from ps2stream.experiments.le_subscribe.rows import (
    GT,
    LT,
    EventRows,
    MatchedPairs,
    SubscriptionRows,
)
from ps2stream.experiments.le_subscribe.selectivity import count_events
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.language.literals import LiteralKind
from ps2stream.language.predicate_terms import hash_predicate
from ps2stream.language.predicates import Predicate
from ps2stream.language.values import ValueType, number_value
from ps2stream.protocol.frame import F64, I64, U64, Array
from ps2stream.protocol.programs import VALUE_TYPE_SHIFT, write_comparison
from ps2stream.protocol.rows import (
    PROG_AND,
    PROG_NOTES,
    ExpressionForm,
    QueryRows,
    RegionShape,
    UpdateKind,
)
from ps2stream.space.grid import Grid
from ps2stream.workers.index import ALL_TERMS, MatchColumns
from ps2stream.workers.indexes import INDEXES, IndexName

SHARES: Final = (0.5, 0.05)  # of the events, that satisfy a comparison on average
ALGORITHMS: Final = ("counting", "propagation", "dynamic")
EVENTS = 256
RUNS = 3
_NAMES: Final = ("depth", "magnitude")
_VALUES = 10_000
_KEY, _KEY_VALUES = 3, 4  # where the key of a comparison begins, and its values of two bytes
_LESS, _GREATER = 0, 2  # operators
_CHUNK = 1 << 16


class ComparisonWorld:
    """Subscriptions and events. above bool[n, 2] and wanted int64[n, 2]: the comparisons of either
    attribute, > or <; held int64[events, 2]."""

    def __init__(self, subscriptions: int, share: float, seed: int) -> None:
        rng = np.random.default_rng([seed, 9])
        self.above: Array = rng.integers(0, 2, (subscriptions, 2)).astype(np.bool_)
        satisfied = 2 * share * rng.random((subscriptions, 2))
        below = np.where(self.above, 1 - satisfied, satisfied)
        self.wanted: I64 = (below * _VALUES).astype(np.int64)
        self.held: I64 = rng.integers(0, _VALUES, (EVENTS, 2))
        keys = Analyzer(Analysis(salt=seed)).keys
        compared = [Predicate(name, ">", number_value(0)) for name in _NAMES]
        self.term: U64 = np.array([hash_predicate(keys, p) for p in compared], np.uint64)

    def build_rows(self, first: int, last: int) -> QueryRows:
        """Returns subscriptions first..last - 1; LSN and handle are 1 + their number."""
        n, rank = last - first, np.argsort(np.argsort(self.term))
        parts = []
        for k, place in enumerate(rank.tolist()):
            ways = [
                write_comparison(place, way, int(ValueType.NUMBER), bytes(8))
                for way in (_LESS, _GREATER)
            ]
            own = np.array(ways, np.int16)[self.above[first:last, k].astype(np.int64)]
            halves = _order_numbers(self.wanted[first:last, k]).astype(">u8").view(">i2")
            own[:, _KEY : _KEY + _KEY_VALUES] = halves.reshape(n, _KEY_VALUES)
            parts.append(own)
        notes = [v for p in rank.tolist() for v in (p | int(LiteralKind.COMPARED) << 8, 0)]
        end = np.array([PROG_AND, *notes, PROG_NOTES - len(rank)], np.int16)
        prog = np.concatenate([*parts, np.tile(end, (n, 1))], 1)
        handle, nothing = np.arange(first + 1, last + 1), np.zeros(n + 1, np.int64)
        return QueryRows(
            kind=np.full(n, UpdateKind.INSERT, np.uint8),
            lsn=handle,
            handle=handle,
            session=np.ones(n, np.int64),
            id_off=nothing,
            id=np.zeros(0, np.uint8),
            form=np.full(n, ExpressionForm.PROGRAM, np.uint8),
            post=np.ones(n, np.uint64),
            term_off=np.arange(n + 1) * 2,
            term=np.tile(np.sort(self.term), n),
            prog_off=np.arange(n + 1) * prog.shape[1],
            prog=prog.ravel(),
            box_off=np.arange(n + 1) * 4,
            box=np.tile([-180.0, -90.0, 180.0, 90.0], n),
            shape=np.full(n, RegionShape.WORLD, np.uint8),
            geom_off=nothing,
            geom=np.zeros(0),
            source_off=nothing,
            source=np.zeros(0, np.uint8),
        )

    def list_objects(self) -> tuple[F64, F64, I64, U64, Array, I64, U64]:
        """Returns the events as an index matches them."""
        value: U64 = np.empty((EVENTS, 2, 3), np.uint64)
        value[..., 0] = self.term
        value[..., 1] = int(ValueType.NUMBER) << VALUE_TYPE_SHIFT | 8
        value[..., 2] = _order_numbers(self.held)
        nowhere, off = np.zeros(EVENTS), np.arange(EVENTS + 1)
        term = np.tile(np.sort(self.term), EVENTS)
        return nowhere, nowhere, 2 * off, term, ALL_TERMS, 6 * off, value.ravel()

    def list_subscriptions(self) -> SubscriptionRows:
        """Returns the subscriptions as the algorithms of Le Subscribe take them."""
        n = len(self.wanted)
        attribute = np.tile(np.arange(2, dtype=np.uint8), n)
        operator = np.where(self.above, GT, LT).astype(np.uint8)
        return SubscriptionRows(
            np.arange(n + 1) * 2, attribute, operator.ravel(), self.wanted.ravel()
        )

    def list_events(self) -> EventRows:
        """Returns the events as the algorithms of Le Subscribe take them."""
        attribute = np.tile(np.arange(2, dtype=np.uint8), EVENTS)
        return EventRows(np.arange(EVENTS + 1) * 2, attribute, self.held.ravel())

    def count_matches(self) -> int:
        """Counts the pairs of a subscription and an event that match, by brute force."""
        return sum(
            int(np.where(self.above, held > self.wanted, held < self.wanted).all(1).sum())
            for held in self.held
        )


def _order_numbers(numbers: I64) -> U64:
    """Returns the keys of integers from 0 on; see language/values.py."""
    return numbers.astype(np.float64).view(np.uint64) | np.uint64(1 << 63)


def run_comparisons(
    subscriptions: int = 100_000, index: IndexName = "gi2-radix", seed: int = 1
) -> dict[str, Any]:
    """Returns the microseconds of processor time an event, the least of some runs, of the index and
    of each algorithm, by the share of the events that satisfy a comparison; JSON-able."""
    warm_up()
    out: dict[str, Any] = {
        "settings": {
            "workload": "comparisons", "index": index, "subscriptions": subscriptions,
            "events": EVENTS, "runs": RUNS, "seed": seed,
        }
    }  # fmt: skip
    for share in SHARES:
        world = ComparisonWorld(subscriptions, share, seed)
        grid = Grid()
        store = INDEXES[index](grid)
        for first in range(0, subscriptions, _CHUNK):
            rows = world.build_rows(first, min(first + _CHUNK, subscriptions))
            store.insert(*tags_of(rows, grid))
        batch, want = world.list_objects(), world.count_matches()
        found = dict[str, tuple[float, int]]()
        found[index] = _measure(partial(store.match, subscriptions, *batch))
        subscribed, events = world.list_subscriptions(), world.list_events()
        known = count_events(events)
        for name in ALGORITHMS:
            matcher = make_matcher(name, known, subscribed)
            load_rows(matcher, subscribed)
            found[name] = _measure(partial(matcher.match, events))
        out[f"share {share:g}"] = {
            "matches_per_event": want / EVENTS,
            **{f"{name}_us": us for name, (us, _) in found.items()},
            "different": sum(matches != want for _, matches in found.values()),
        }
    return out


def _measure(match: Callable[[], MatchColumns | MatchedPairs]) -> tuple[float, int]:
    """Returns the least microseconds an event that matching all takes, and the matches."""
    match()
    times = []
    for _ in range(RUNS):
        began = time.process_time()
        matches = len(match().row)
        times.append(time.process_time() - began)
    return 1e6 * min(times) / EVENTS, matches
