"""FISH's experiments: what is common to them, and one run of a scheme, its execution time and its
states."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ps2stream.experiments.keyed.measure import (
    RunClock,
    count_states,
    describe_settings,
    measure_times,
    steady_arrivals,
)
from ps2stream.experiments.keyed.streams import (
    CONTENT,
    PATHS,
    KeyStream,
    draw_flipping,
    generated,
    real_streams,
)
from ps2stream.experiments.plans import ExperimentSettings, Row
from ps2stream.experiments.report import ClaimVerdict, ExperimentReport, ReportChart
from ps2stream.keyed.partitioner import Scheme, SchemeOptions, make_partitioner
from ps2stream.protocol.frame import F64

SOURCES = 4
USAGE = 1.0
"""The part of all workers' time that the stream needs."""
SEGMENT, ZIPF_KEYS = 5_000_000, 100_000
EXPONENTS = (1.0, 1.2, 1.4, 1.6, 1.8, 2.0)
SG, FG, PKG, DC, WC, FISH = "SG", "FG", "PKG", "D-C", "W-C", "FISH"
SCHEME_OF: dict[str, Scheme] = {
    SG: "shuffle", FG: "hash", PKG: "pkg", DC: "d-choices", WC: "w-choices", FISH: "fish",
}  # fmt: skip
NOTES = (
    f"{SOURCES} sources, the stream dealt out to them in turn. Tuples come at equal distances and",
    "need all of the workers' time, so that SG is done when the stream ends. time: until the last",
    "worker is done, over SG's; held: the same where 100 tuples fill a worker's queue, and one for",
    "a full queue holds up the stream; memory: distinct pairs (key, worker), over FG's, one a key.",
    "ZF: 100,000 keys; segments of 5,000,000 tuples (half of the stream, if it is shorter), each",
    "with a seed of its own; in the last fifth of each the ranking is reversed, which the paper's",
    "text has lost and we have rebuilt. The paper's z are 1.0 to 2.0, its stream 50M tuples.",
    "In the place of the paper's MT (words of quotes, 49.21M) and AM (reviewed films, 7.91M) are",
    "our tweet words without stop words, and git paths, which are fewer and drift.",
    "FISH: alpha 0.2, epoch 1,000, 1,000 counters, theta 1/(4n), 128 virtual nodes; dmin, the",
    "cooling of degrees and the continuous drain are ours (docs/spec/algorithms.md 5).",
)


def list_streams(
    settings: ExperimentSettings, exponents: Sequence[float] = EXPONENTS
) -> Iterator[KeyStream]:
    """Yields the real streams and ZF over its exponents."""
    yield from real_streams(settings, CONTENT, PATHS)
    yield from zipf_streams(settings, exponents)


def zipf_streams(
    settings: ExperimentSettings, exponents: Sequence[float] = EXPONENTS
) -> Iterator[KeyStream]:
    """Yields ZF over its exponents."""
    n, seed = settings.tuples, settings.seed
    segment = min(SEGMENT, -(-n // 2))
    for z in exponents:

        def draw(z: float = z) -> KeyStream:
            return draw_flipping(ZIPF_KEYS, z, n, segment, seed)

        yield generated(settings, f"ZF z={z:g}", draw)


@dataclasses.dataclass(frozen=True, eq=False)
class FishRunner:
    """Runs schemes on one stream and one number of workers, and compares them with SG and FG.

    seconds: of a tuple on each worker, float64[workers].
    """

    stream: KeyStream
    workers: int
    seconds: F64
    settings: ExperimentSettings
    clock: RunClock

    def run(self, shown: str, scheme: str, options: SchemeOptions | None = None) -> Row:
        """Runs a scheme. Returns its row: done and states, not yet over others'."""
        options = dataclasses.replace(options or SchemeOptions(), seconds=self.seconds)
        arrivals = steady_arrivals(len(self.stream.keys), self.seconds, USAGE)
        mine = make_partitioner(
            SCHEME_OF[scheme], self.workers, SOURCES, self.settings.seed, options
        )
        chosen = self.clock.assign(mine, self.stream, arrivals)
        times = measure_times(chosen, arrivals, self.seconds)
        return {
            "stream": self.stream.name, "tuples": len(self.stream.keys), "workers": self.workers,
            "scheme": shown, "done": times.done, "held_done": times.bounded,
            "mean_delay": times.mean, "states": count_states(self.stream, chosen, self.workers),
        }  # fmt: skip


def even_seconds(workers: int) -> F64:
    """Returns the times of a tuple on workers that are alike, 1 s each."""
    return np.ones(workers)


def uneven_seconds(workers: int) -> F64:
    """Returns the times where every second worker is twice as fast."""
    return np.where(np.arange(workers) % 2, 0.5, 1.0)


def compare_schemes(
    stream: KeyStream,
    workers: int,
    schemes: dict[str, tuple[str, SchemeOptions | None]],
    settings: ExperimentSettings,
    clock: RunClock,
    seconds: Callable[[int], F64] = even_seconds,
) -> list[Row]:
    """Returns a row for SG and for each scheme, `shown -> (scheme, options)`: time over SG's,
    memory over FG's and over SG's."""
    settings.progress(f"{stream.name}: {workers} workers")
    runner = FishRunner(stream, workers, seconds(workers), settings, clock)
    rows = [runner.run(SG, SG)]
    rows += [runner.run(shown, scheme, options) for shown, (scheme, options) in schemes.items()]
    keys = int((stream.counts() > 0).sum())
    for row in rows:
        row["time"] = row["done"] / rows[0]["done"]
        row["held"] = row["held_done"] / rows[0]["held_done"]
        row["memory"] = row["states"] / keys
        row["of_sg"] = row["states"] / rows[0]["states"]
    return rows


def index_rows(rows: Sequence[Row]) -> dict[tuple[str, int, str], Row]:
    """Returns rows by stream, number of workers and scheme."""
    return {(row["stream"], row["workers"], row["scheme"]): row for row in rows}


def make_panels(
    rows: Sequence[Row], value: str
) -> dict[str, dict[str, dict[int, float]]]:  # fmt: skip
    """Returns the panels of a chart: a stream, a line for each scheme, over workers."""
    out: dict[str, dict[str, dict[int, float]]] = {}
    for row in rows:
        series = out.setdefault(row["stream"], {}).setdefault(row["scheme"], {})
        series[row["workers"]] = row[value]
    return out


class FishExperiment(NamedTuple):
    """One of FISH's experiments. measure: makes the rows of a stream and a number of workers;
    judge: the verdicts on all rows; notes: those beside NOTES; value and axis: the column that the
    chart shows, and its label."""

    name: str
    title: str
    columns: Sequence[str]
    notes: Sequence[str]
    measure: Callable[[KeyStream, int, ExperimentSettings, RunClock], list[Row]]
    judge: Callable[[Sequence[Row]], list[ClaimVerdict]]
    value: str
    axis: str

    def run(self, settings: ExperimentSettings, streams: Iterable[KeyStream]) -> ExperimentReport:
        """Measures all streams on all numbers of workers."""
        rows: list[Row] = []
        clock = RunClock()
        for stream in streams:
            for workers in settings.workers:
                rows += self.measure(stream, workers, settings, clock)
        return ExperimentReport(
            self.name, self.title, describe_settings(settings),
            [*NOTES, *self.notes, clock.note()], self.columns, rows, self.judge(rows),
            ReportChart("lines", self.axis, make_panels(rows, self.value)),
        )  # fmt: skip
