"""Measurements of matchers: load time, memory, and the time of matches by phase.

Times are CPU time of one thread. The paper's include the messages between two processes; ours are
the matcher alone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ps2stream.experiments.le_subscribe.greedy import choose_tables
from ps2stream.experiments.le_subscribe.layout import SelectivityColumns
from ps2stream.experiments.le_subscribe.matcher import (
    COUNTING,
    DYNAMIC,
    PREFETCHING,
    PROPAGATION,
    STATIC,
    ClusteringLimits,
    ClusterMatcher,
    CountingMatcher,
    SubscriptionMatcher,
)
from ps2stream.experiments.le_subscribe.rows import EventRows, SubscriptionRows
from ps2stream.experiments.le_subscribe.workloads import BATCH, PredicateWorkload
from ps2stream.experiments.plans import ExperimentSettings, Row
from ps2stream.protocol.frame import I64

EVENTS = 100  # of a batch, as in the paper
BATCHES = 5
REPEATS = 3
QUICK_SUBSCRIPTIONS, FULL_SUBSCRIPTIONS = 3_000_000, 6_000_000
LIMITS = ClusteringLimits()
NOTES = (
    "Times are CPU time of one core for 100 events in the matcher alone, the fastest of",
    f"{REPEATS} runs over {BATCHES} batches; the paper's, on a 500 MHz Pentium, include messages",
    "between two processes. phase 1 sets bits and finds clusters, phase 2 scans them.",
)


def count_subscriptions(settings: ExperimentSettings) -> int:
    """Returns the number of subscriptions that the settings say."""
    size = FULL_SUBSCRIPTIONS if settings.sweeps else QUICK_SUBSCRIPTIONS
    return settings.subscriptions or size


def describe_settings(settings: ExperimentSettings) -> dict[str, Any]:
    """Returns the settings as JSON-able data."""
    return {
        "subscriptions": count_subscriptions(settings), "seed": settings.seed,
        "events": EVENTS * BATCHES, "bm_max": LIMITS.bm_max, "b_min": LIMITS.b_min,
        "rp_min": LIMITS.rp_min,
    }  # fmt: skip


def warm_up() -> None:
    """Compiles all kernels, or loads them, so that no measurement does."""
    rng = np.random.default_rng(0)
    workload = PredicateWorkload((2, 0, 1, 3, 4, 5), 3)
    known, rows = workload.learn(rng), workload.draw_subscriptions(10, rng)
    events = workload.draw_events(2, rng)
    choose_tables(rows, known)
    made = (CountingMatcher(), ClusterMatcher(known, [(0, 7)], LIMITS))
    for matcher in made:
        numbers = matcher.insert(rows)
        matcher.match(events)
        matcher.test(events)
        matcher.observe(known)
        matcher.delete(numbers)


def make_matcher(
    name: str,
    known: SelectivityColumns,
    rows: SubscriptionRows,
    limits: ClusteringLimits = LIMITS,
    seed: int = 1,
) -> SubscriptionMatcher:
    """Returns an empty matcher of one of ALGORITHMS; rows: what static learns from."""
    if name == COUNTING:
        return CountingMatcher()
    if name == STATIC:
        tables = [step.schema for step in choose_tables(rows, known, seed=seed)]
        return ClusterMatcher(known, tables)
    return ClusterMatcher(
        known, limits=limits if name == DYNAMIC else None, prefetching=name != PROPAGATION
    )


def load_rows(matcher: SubscriptionMatcher, rows: SubscriptionRows) -> float:
    """Inserts subscriptions in the paper's batches. Returns the seconds that it took."""
    began = time.process_time()
    for first in range(0, rows.size, BATCH):
        matcher.insert(rows.cut(first, min(first + BATCH, rows.size)))
    return time.process_time() - began


def measure_matches(
    matcher: SubscriptionMatcher, events: EventRows, repeats: int = REPEATS
) -> tuple[Row, I64]:
    """Matches the events in batches. Returns (milliseconds for 100 events, in all and by phase, and
    counts per event; the matches, int64[n, 2], in order)."""
    batches = [events.cut(k, k + EVENTS) for k in range(0, events.size, EVENTS)]
    matcher.match(batches[0])
    matcher.counts()
    total, first = float("inf"), float("inf")
    for _ in range(repeats):
        began = time.process_time()
        for batch in batches:
            matcher.test(batch)
        first = min(first, time.process_time() - began)
    matcher.counts()
    for _ in range(repeats):
        began = time.process_time()
        for batch in batches:
            matcher.match(batch)
        total = min(total, time.process_time() - began)
    counts = matcher.counts()
    found = [matcher.match(batch) for batch in batches]
    matcher.counts()
    pairs = np.concatenate(
        [np.stack([k * EVENTS + each.row, each.subscription], 1) for k, each in enumerate(found)]
    )
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    per = 1e3 / len(batches)
    matched = events.size * repeats
    row = {
        "ms": total * per,
        "phase1_ms": first * per,
        "phase2_ms": max(total - first, 0.0) * per,
        "events_per_s": events.size / total,
        "checks": counts.checks / matched,
        "probes": counts.probes / matched,
        "visits": counts.visits / matched,
        "satisfied": counts.satisfied / matched,
        "matches": len(pairs) / events.size,
        "tables": len(matcher.tables()),
        "mb": matcher.used_bytes() / 1e6,
    }
    return row, pairs


def run_algorithms(
    workload: PredicateWorkload,
    sizes: Sequence[int],
    names: Sequence[str],
    settings: ExperimentSettings,
    label: str,
    limits: ClusteringLimits = LIMITS,
) -> tuple[list[Row], list[str]]:
    """Returns (a row for each algorithm and number of subscriptions, warnings). The same
    subscriptions and events for all; they are measured on the way to the largest number."""
    warm_up()
    rng = np.random.default_rng([settings.seed, 11])
    settings.progress(f"{label}: drawing {max(sizes):,} subscriptions")
    known = workload.learn(rng)
    events = workload.draw_events(EVENTS * BATCHES, rng)
    rows = workload.draw_subscriptions(max(sizes), rng)
    out: list[Row] = []
    found: dict[int, I64] = {}
    wrong: list[str] = []
    for name in names:
        if name == PREFETCHING and PROPAGATION in names:
            continue
        settings.progress(f"{label}: {name}")
        began = time.process_time()
        matcher = make_matcher(name, known, rows, limits, settings.seed)
        seconds, first = time.process_time() - began, 0
        for size in sorted(sizes):
            seconds += load_rows(matcher, rows.cut(first, size))
            first = size
            # Both propagations are one structure, so they have one load.
            both = name == PROPAGATION and PREFETCHING in names
            for variant in (PROPAGATION, PREFETCHING) if both else (name,):
                if isinstance(matcher, ClusterMatcher):
                    matcher.prefetching = variant != PROPAGATION
                repeats = 1 if name == COUNTING and size > 1_000_000 else REPEATS
                row, pairs = measure_matches(matcher, events, repeats)
                if not np.array_equal(found.setdefault(size, pairs), pairs):
                    wrong.append(f"WRONG: {variant} finds other matches at {size:,} subscriptions")
                head = {"workload": label, "algorithm": variant, "subscriptions": size}
                out.append({**head, **row, "load_s": seconds, "us_insert": seconds / size * 1e6})
    out.sort(key=lambda row: (row["subscriptions"], names.index(row["algorithm"])))
    return out, wrong


def select_row(rows: Sequence[Row], algorithm: str, **fixed: Any) -> Row:
    """Returns the row of an algorithm with these fields, the one with the most subscriptions."""
    among = [
        row
        for row in rows
        if row["algorithm"] == algorithm and all(row[name] == v for name, v in fixed.items())
    ]
    return max(among, key=lambda row: int(row["subscriptions"]))


def compare_times(slow: Mapping[str, Any], fast: Mapping[str, Any]) -> dict[str, float]:
    """Returns how many times as long the first takes as the second, in all and in phase 2."""
    return {
        "in all": slow["ms"] / fast["ms"],
        "phase 2": slow["phase2_ms"] / max(fast["phase2_ms"], 1e-9),
    }


def make_panels(rows: Sequence[Row], value: str) -> dict[str, dict[int, float]]:
    """Returns series of a line chart: algorithm -> subscriptions -> value."""
    out: dict[str, dict[int, float]] = {}
    for row in rows:
        out.setdefault(row["algorithm"], {})[row["subscriptions"]] = row[value]
    return out
