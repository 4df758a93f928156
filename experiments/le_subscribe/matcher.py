"""The algorithms behind one interface.

counting: hits per subscription. propagation: clusters by single equalities, without prefetching;
propagation_wp: with it. static: the tables that `greedy` chooses beforehand. dynamic: tables made
and dropped while subscriptions come and go. All but counting are one structure with other tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from ps2stream.experiments.le_subscribe.counting_arrays import make_counted
from ps2stream.experiments.le_subscribe.counting_kernels import (
    NO_SIZE,
    delete_counted,
    insert_counted,
    match_counted,
)
from ps2stream.experiments.le_subscribe.growth import (
    grow_arrays,
    grow_counted,
    list_used_bytes,
)
from ps2stream.experiments.le_subscribe.layout import (
    COUNT,
    CREATED,
    DONE,
    DROPPED,
    ENTRY,
    FIRST_TABLE,
    LIVE,
    MOVED,
    REPEATED,
    SHORT_OF_MATCHES,
    SUBS,
    SelectivityColumns,
    make_arrays,
    make_room,
)
from ps2stream.experiments.le_subscribe.maintain_kernels import (
    create_table,
    delete_rows,
    insert_rows,
    refresh_shares,
    settle_clusters,
)
from ps2stream.experiments.le_subscribe.match_kernels import match_events
from ps2stream.experiments.le_subscribe.rows import (
    ATTRIBUTES,
    PREDICATES,
    EventRows,
    MatchedPairs,
    SubscriptionRows,
    check_events,
    check_subscriptions,
)
from ps2stream.protocol.frame import I64

COUNTING, PROPAGATION, PREFETCHING = "counting", "propagation", "propagation_wp"
STATIC, DYNAMIC = "static", "dynamic"
ALGORITHMS = (COUNTING, PROPAGATION, PREFETCHING, STATIC, DYNAMIC)


class ClusteringLimits(NamedTuple):
    """The thresholds of dynamic clustering: bm_max, the benefit margin of a cluster above which it
    is redistributed, in checks an event; b_min, the subscriptions below which a table is dropped;
    rp_min, the subscriptions for which one is made."""

    bm_max: float = 0.25
    b_min: float = 1_000.0
    rp_min: float = 4_000.0


class MatchCounts(NamedTuple):
    """Sums over the events matched so far: satisfied predicates, checked columns (counting: hits),
    probed tables of several attributes, scanned clusters."""

    satisfied: int
    checks: int
    probes: int
    visits: int


class SubscriptionMatcher(Protocol):
    """What all algorithms can do. Numbers of subscriptions are reused after a delete."""

    def insert(self, rows: SubscriptionRows) -> I64:
        """Inserts subscriptions. Returns their numbers, int64[n]. Raises ValueError."""

    def delete(self, subscriptions: I64) -> None:
        """Deletes live subscriptions. Raises KeyError, and deletes none, for any other."""

    def match(self, events: EventRows) -> MatchedPairs:
        """Returns all matches. Raises ValueError."""

    def test(self, events: EventRows) -> None:
        """Does phase 1 of a match, and nothing else."""

    def observe(self, known: SelectivityColumns) -> None:
        """Takes new statistics on events in."""

    def __len__(self) -> int:
        """Returns the number of live subscriptions."""

    def counts(self) -> MatchCounts:
        """Returns what was counted since the last call."""

    def tables(self) -> list[tuple[int, ...]]:
        """Returns the attributes of the tables of several attributes."""

    def used_bytes(self) -> int:
        """Returns the bytes of the structures in use."""


class ClusterMatcher:
    """Clusters behind access predicates. tables: those of several attributes to begin with;
    limits: of dynamic clustering, None for none; prefetching: asks for memory ahead."""

    def __init__(
        self,
        known: SelectivityColumns,
        tables: Sequence[tuple[int, ...]] = (),
        limits: ClusteringLimits | None = None,
        prefetching: bool = True,
    ) -> None:
        if limits is not None and not limits.b_min < limits.rp_min:
            raise ValueError("b_min must be below rp_min, or a new table would be dropped at once")
        bounds = np.array(limits or ClusteringLimits(), np.float64)
        self._arrays = make_arrays(bounds, limits is not None)
        self._room = make_room()
        self._known = known
        self.prefetching = prefetching
        self._counts = np.zeros(4, np.int64)
        self._space = MatchSpace()
        for table in tables:
            if not 2 <= len(set(table)) == len(table) <= 3:
                raise ValueError("a table has two or three attributes")
            if create_table(self._arrays, np.uint64(sum(1 << a for a in table))) < 0:
                raise ValueError("too many tables")
            settle_clusters(self._arrays, self._room)

    def insert(self, rows: SubscriptionRows) -> I64:
        """Inserts subscriptions. Returns their numbers, int64[n]. Raises ValueError."""
        check_subscriptions(rows)
        subs = np.zeros(rows.size, np.int64)

        def step(first: int) -> tuple[int, int]:
            found: tuple[int, int] = insert_rows(
                self._arrays, self._room, self._known, rows, first, subs
            )
            return found

        self._run_growing(step)
        return subs

    def delete(self, subscriptions: I64) -> None:
        """Deletes live subscriptions. Raises KeyError, and deletes none, for any other."""
        check_live(subscriptions, self._arrays.sub_cluster[: self._arrays.state[SUBS]] >= 0)

        def step(first: int) -> tuple[int, int]:
            found: tuple[int, int] = delete_rows(self._arrays, self._room, subscriptions, first)
            return found

        self._run_growing(step)

    def match(self, events: EventRows) -> MatchedPairs:
        """Returns all matches. Raises ValueError."""
        check_events(events)
        return self._run_events(events, True)

    def test(self, events: EventRows) -> None:
        """Does phase 1 of a match, and nothing else."""
        self._run_events(events, False)

    def observe(self, known: SelectivityColumns) -> None:
        """Takes new statistics on events in, and does what maintenance they ask for."""
        self._known = known
        refresh_shares(self._arrays, known)

        def step(_first: int) -> tuple[int, int]:
            return settle_clusters(self._arrays, self._room), 0

        self._run_growing(step)

    def __len__(self) -> int:
        return int(self._arrays.state[LIVE])

    def counts(self) -> MatchCounts:
        """Returns what was counted since the last call."""
        found = MatchCounts(*self._counts.tolist())
        self._counts[:] = 0
        return found

    def tables(self) -> list[tuple[int, ...]]:
        """Returns the attributes of the tables of several attributes."""
        masks = self._arrays.table_mask[FIRST_TABLE:].tolist()
        return [tuple(a for a in range(ATTRIBUTES) if mask >> a & 1) for mask in masks if mask]

    def changes(self) -> dict[str, int]:
        """Returns how many tables were created and dropped, and how many subscriptions moved."""
        state = self._arrays.state
        return {
            "created": int(state[CREATED]), "dropped": int(state[DROPPED]),
            "moved": int(state[MOVED]),
        }  # fmt: skip

    def expected_checks(self) -> float:
        """Returns how many subscriptions an event checks by the statistics."""
        a = self._arrays
        live = a.cluster[a.cluster[:, COUNT] > 0]
        return float((a.entry_nu[live[:, ENTRY]] * live[:, COUNT]).sum())

    def used_bytes(self) -> int:
        """Returns the bytes of the structures in use."""
        return list_used_bytes(self._arrays)

    def _run_growing(self, step: Callable[[int], tuple[int, int]]) -> None:
        short, first = step(0)
        while short != DONE:
            self._arrays = grow_arrays(self._arrays, short)
            short, first = step(first)

    def _run_events(self, events: EventRows, scanned: bool) -> MatchedPairs:
        a, space = self._arrays, self._space
        space.make_fit(len(a.pred_value), 0)

        def step(first: int) -> tuple[int, int, int]:
            found: tuple[int, int, int] = match_events(
                a, events, first, scanned, self.prefetching, space.satisfied, space.chosen,
                space.heads, space.row, space.out, self._counts,
            )  # fmt: skip
            return found

        return space.collect(step)


class CountingMatcher:
    """Counts the satisfied predicates of each subscription."""

    def __init__(self) -> None:
        self._arrays = make_arrays(np.array(ClusteringLimits()), False)
        self._counted = make_counted(len(self._arrays.pred_value))
        self._ids = np.zeros(PREDICATES, np.int32)
        self._counts = np.zeros(4, np.int64)
        self._space = MatchSpace()

    def insert(self, rows: SubscriptionRows) -> I64:
        """Inserts subscriptions. Returns their numbers, int64[n]. Raises ValueError."""
        check_subscriptions(rows)
        subs = np.zeros(rows.size, np.int64)
        short, first = insert_counted(self._arrays, self._counted, self._ids, rows, 0, subs)
        while short != DONE:
            self._arrays = grow_arrays(self._arrays, short)
            self._counted = grow_counted(self._counted, self._arrays)
            short, first = insert_counted(self._arrays, self._counted, self._ids, rows, first, subs)
        return subs

    def delete(self, subscriptions: I64) -> None:
        """Deletes live subscriptions. Raises KeyError, and deletes none, for any other."""
        check_live(subscriptions, self._counted.size[: self._arrays.state[SUBS]] != NO_SIZE)
        delete_counted(self._arrays, self._counted, subscriptions)

    def match(self, events: EventRows) -> MatchedPairs:
        """Returns all matches. Raises ValueError."""
        check_events(events)
        return self._run_events(events, True)

    def test(self, events: EventRows) -> None:
        """Does phase 1 of a match, and nothing else."""
        self._run_events(events, False)

    def observe(self, known: SelectivityColumns) -> None:
        """Has no use for statistics."""

    def __len__(self) -> int:
        return int(self._arrays.state[LIVE])

    def counts(self) -> MatchCounts:
        """Returns what was counted since the last call."""
        found = MatchCounts(*self._counts.tolist())
        self._counts[:] = 0
        return found

    def tables(self) -> list[tuple[int, ...]]:
        """Returns nothing: there are no tables."""
        return []

    def used_bytes(self) -> int:
        """Returns the bytes of the structures in use."""
        return list_used_bytes(self._arrays) + sum(column.nbytes for column in self._counted)

    def _run_events(self, events: EventRows, scanned: bool) -> MatchedPairs:
        a, space = self._arrays, self._space
        space.make_fit(len(a.pred_value), len(self._counted.size))

        def step(first: int) -> tuple[int, int, int]:
            found: tuple[int, int, int] = match_counted(
                a, self._counted, events, first, scanned, space.satisfied, space.hits,
                space.row, space.out, self._counts,
            )  # fmt: skip
            return found

        return space.collect(step)


class MatchSpace:
    """The memory of matches, kept from one call to the next."""

    def __init__(self) -> None:
        self.satisfied = np.zeros(0, np.int32)
        self.chosen = np.full(ATTRIBUTES, -1, np.int32)
        self.heads = np.zeros(2 * 1024, np.int64)
        self.hits = np.zeros(0, np.uint8)
        self.row = np.zeros(1 << 12, np.int64)
        self.out = np.zeros(1 << 12, np.int64)

    def make_fit(self, predicates: int, subscriptions: int) -> None:
        """Makes room for as many predicates and counted subscriptions."""
        if len(self.satisfied) < predicates:
            self.satisfied = np.zeros(predicates, np.int32)
        if len(self.hits) < subscriptions:
            self.hits = np.zeros(subscriptions, np.uint8)

    def collect(self, step: Callable[[int], tuple[int, int, int]]) -> MatchedPairs:
        """Calls `step` until all events are matched, with more room where it stopped for want of
        it. Returns all matches."""
        parts: list[tuple[I64, I64]] = []
        short, count, first = step(0)
        while short == SHORT_OF_MATCHES:
            parts.append((self.row[:count].copy(), self.out[:count].copy()))
            if count == 0:
                self.row = np.zeros(2 * len(self.row), np.int64)
                self.out = np.zeros(2 * len(self.out), np.int64)
            short, count, first = step(first)
        if short == REPEATED:
            raise ValueError(f"attribute: event {first} has two values of one attribute")
        parts.append((self.row[:count].copy(), self.out[:count].copy()))
        return MatchedPairs(
            np.concatenate([row for row, _ in parts]), np.concatenate([out for _, out in parts])
        )


def check_live(subscriptions: I64, live: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
    """Raises KeyError unless these are distinct numbers of live subscriptions."""
    inside = (subscriptions >= 0) & (subscriptions < len(live))
    if not inside.all() or not live[subscriptions].all():
        raise KeyError("no such subscription")
    if len(np.unique(subscriptions)) < len(subscriptions):
        raise KeyError("a subscription is named twice")
