"""FISH, figure 17: states when a worker is added or removed half way, with consistent hashing and
without."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ps2stream.experiments.keyed.fish_runs import (
    SOURCES,
    USAGE,
    FishExperiment,
    index_rows,
    list_streams,
)
from ps2stream.experiments.keyed.measure import (
    RunClock,
    count_states,
    steady_arrivals,
)
from ps2stream.experiments.keyed.streams import KeyStream
from ps2stream.experiments.plans import ExperimentSettings, Row
from ps2stream.experiments.report import ClaimVerdict, ExperimentReport, ordering
from ps2stream.keyed.partitioner import KeyedPartitioner, SchemeOptions, make_ring_source
from ps2stream.keyed.ring import HashRing
from ps2stream.keyed.sources import FishSource

CHANGES = ("none", "add", "remove")
WITH, WITHOUT = "consistent", "hash by number"
COLUMNS = ("stream", "tuples", "workers", "change", "hashing", "states", "over_none")
LOW, HIGH = "ZF z=1", "ZF z=2"
MORE_NOTES = (
    "hash by number: the places on the ring are hashed with the number of workers, so that",
    "every key has other candidates when a worker comes or goes, as with hash(k) mod n.",
    "over_none: states over those of the same stream without a change. States of a worker that has",
    "gone are counted, as the paper does not say that they are freed.",
    "paper: without consistent hashing almost twice the memory at low skew, less at high skew.",
)


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Counts states with and without a change of workers half way."""
    experiment = FishExperiment(
        "fish-ring", "FISH: workers that come and go", COLUMNS, MORE_NOTES, compare_changes,
        list_verdicts, "over_none", "states / without a change",
    )  # fmt: skip
    return experiment.run(settings, list_streams(settings))


def compare_changes(
    stream: KeyStream, workers: int, settings: ExperimentSettings, clock: RunClock
) -> list[Row]:
    """Returns a row for each change and way of hashing."""
    settings.progress(f"{stream.name}: {workers} workers")
    rows: list[Row] = []
    for change in CHANGES:
        for hashing in (WITH, WITHOUT) if change != "none" else (WITH,):
            states = _count_changed(stream, workers, change, hashing, settings, clock)
            rows.append({
                "stream": stream.name, "tuples": len(stream.keys), "workers": workers,
                "change": change, "hashing": hashing, "scheme": f"{change}, {hashing}",
                "states": states, "over_none": states / (rows[0]["states"] if rows else states),
            })  # fmt: skip
    return rows


def _count_changed(
    stream: KeyStream, workers: int, change: str, hashing: str,
    settings: ExperimentSettings, clock: RunClock,
) -> int:  # fmt: skip
    """Returns the states of a stream half way through which the workers change."""
    rng = np.random.default_rng([settings.seed, 7])
    leaver, size = int(rng.integers(workers)), workers + 1
    seconds = np.ones(size)
    options = SchemeOptions(seconds=seconds)
    before = HashRing(range(workers), settings.seed)
    after = before
    if change == "add":
        after = before.plus(workers)
    elif change == "remove" and workers > 1:
        after = before.without(leaver)
    if hashing == WITHOUT:
        after = HashRing(after.workers, settings.seed + len(after.workers))
    sources = [make_ring_source(before, SOURCES, settings.seed, options) for _ in range(SOURCES)]
    mine = KeyedPartitioner(sources, size)
    times = steady_arrivals(len(stream.keys), np.ones(workers), USAGE)
    half = len(stream.keys) // 2

    def part(rows: slice) -> KeyStream:
        return KeyStream(stream.name, stream.keys[rows], stream.size)

    first = clock.assign(mine, part(slice(half)), times[:half])
    for source in mine.sources:
        assert isinstance(source, FishSource)
        source.change_ring(after)
    second = clock.assign(mine, part(slice(half, None)), times[half:])
    return count_states(stream, np.concatenate([first, second]), size)


def list_verdicts(rows: Sequence[Row]) -> list[ClaimVerdict]:
    """Returns verdicts on hashing with and without a ring, and on low against high skew."""
    at = index_rows(rows)
    streams = list(dict.fromkeys(row["stream"] for row in rows))
    out = []
    for n in sorted({row["workers"] for row in rows}):
        for change in CHANGES[1:]:
            without, within = f"{change}, {WITHOUT}", f"{change}, {WITH}"
            ratio = {
                s: float(at[s, n, without]["states"] / at[s, n, within]["states"])
                for s in streams
            }  # fmt: skip
            claim = f"{n} workers, {change}: memory without a ring above with it, z = 1"
            out.append(ordering(claim, {LOW: ratio[LOW]}, "almost 2x", 2.0))
            for stream in streams:
                if not stream.startswith("ZF"):
                    claim = f"{n} workers, {change}: memory without a ring above with it"
                    out.append(ordering(claim, {stream: ratio[stream]}, "not told"))
            claim = f"{n} workers, {change}: what the ring saves, z = 1 above z = 2"
            out.append(ordering(claim, {"ratio": ratio[LOW] / ratio[HIGH]}, "less at high skew"))
    return out
