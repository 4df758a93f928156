"""Which algorithm should be the default: hybrid and hybrid+ on every shared stream of posts.

Each stream is cut into planned and judged parts as in f7, as far as its posts go; longer ones are
cut at the size of the experiment. Counted, not timed, so that the figures are the same anywhere.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq

from ps2stream.experiments.plans import (
    GROUPS,
    HYBRID,
    KD_LOAD,
    LPT,
    PAPER,
    PLUS,
    TIMED,
    ExperimentSettings,
    Row,
    judge_plan,
    list_cases,
    make_bar_panels,
    select_values,
)  # fmt: skip
from ps2stream.experiments.report import ClaimVerdict, ExperimentReport, ReportChart, ordering
from ps2stream.experiments.worlds import SYNTHETIC, StreamSize, make_world

COLUMNS = (
    "stream", "queries", "workers", "algorithm", "throughput", "balance", "slowest_over_bound",
    "copies", "plan_seconds",
)  # fmt: skip
NAMES = (HYBRID, PLUS, PAPER, KD_LOAD, LPT)
FILES = {
    "airbnb": "airbnb_listings", "jodel": "jodel_ch", "earthquakes": "earthquakes",
    "ufo": "ufo_sightings",
}  # fmt: skip
MOST = 50_000
"""Live queries: a plan for 200,000 on every stream would take an hour."""


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Runs every algorithm of NAMES on every stream, group and number of workers."""
    settings = dataclasses.replace(settings, repeats=0)
    rows: list[Row] = []
    for stream, source, timed in list_streams(settings):
        size = shorten_stream(source, settings.size)
        for group in GROUPS:
            settings.progress(f"{stream} {group.upper()}: drawing the stream")
            name = f"{stream} {group.upper()}"
            world = make_world(name, source, group, size, settings.seed, timed=timed)
            for workers in settings.workers:
                rows += [judge_plan(world, name, workers, settings)[0] for name in NAMES]
    first = [row for row in rows if row["workers"] == settings.workers[0]]
    return ExperimentReport(
        "streams", "the default on every stream, tuples/s", settings.to_dict(),
        [
            "modelled as in f7: the slowest worker's load, counted on posts after those planned",
            f"from. {min(settings.size.queries, MOST):,} live queries; seed {settings.seed}.",
            "tweets-by-time: the same posts as they came, not shuffled.",
        ],
        COLUMNS, rows, make_verdicts(rows),
        ReportChart("bars", "tuples/s", make_bar_panels(first, {"modelled": "throughput"})),
    )  # fmt: skip


def list_streams(settings: ExperimentSettings) -> Iterator[tuple[str, str, bool]]:
    """Yields (name, source, whether its posts stay in their order) of the streams that are
    there."""
    for stream, source in dataclasses.replace(settings, timed=True).sources.items():
        yield stream, source, stream == TIMED
    if settings.streams is not None:
        for stream, file in FILES.items():
            if (path := Path(settings.streams) / f"{file}.parquet").exists():
                yield stream, str(path), False


def shorten_stream(source: str, size: StreamSize) -> StreamSize:
    """Returns the size with as many objects as a file has, one in three of them planned from."""
    size = size._replace(queries=min(size.queries, MOST), generated=1)
    if source == SYNTHETIC:
        return size
    posts = pq.read_metadata(source).num_rows if source.endswith(".parquet") else math.inf
    if posts >= size.planned + size.judged:
        return size
    planned = int(posts) // 30 * 10
    return size._replace(planned=planned, judged=(int(posts) - planned) // 10 * 10)


def make_verdicts(rows: Sequence[Row]) -> list[ClaimVerdict]:
    """Returns the verdicts on each algorithm over the present default: in how many cases it is
    ahead, and by how much on average (geometric)."""
    found = []
    workers = sorted({row["workers"] for row in rows})
    for name in NAMES[1:]:
        ratios = {}
        for n in workers:
            for stream, queries in list_cases(rows):
                of = select_values(rows, "throughput", stream=stream, queries=queries, workers=n)
                ratios[stream, queries, n] = of[name] / of[HYBRID]
        mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
        least, most = min(ratios, key=lambda c: ratios[c]), max(ratios, key=lambda c: ratios[c])
        verdict = ordering(f"{name} above hybrid", {"mean": mean}, "none")
        ends = ", ".join(
            f"{what} {ratios[at]:.2f}x ({at[0]} {at[1]}, {at[2]} workers)"
            for what, at in (("least", least), ("most", most))
        )
        found.append(verdict._replace(measured=f"{verdict.measured}, {ends}"))
    return found
