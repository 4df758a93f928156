"""Partial Key Grouping, figures 4 to 6 and 8: what each of several sources knows by itself against
a global oracle, with probing, with skewed sources, and with drift."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from ps2stream.experiments.keyed.measure import RunClock, describe_settings, measure_imbalance
from ps2stream.experiments.keyed.streams import (
    PATHS,
    ROUTES,
    WIKIPEDIA,
    WORDS,
    KeyStream,
    draw_like,
    draw_zipf,
    generated,
    real_streams,
)
from ps2stream.experiments.plans import ExperimentSettings, Row
from ps2stream.experiments.report import (
    ClaimVerdict,
    ExperimentReport,
    ReportChart,
    at_most,
    ordering,
)
from ps2stream.keyed.key_kernels import hash_all
from ps2stream.keyed.partitioner import Scheme, SchemeOptions, make_partitioner
from ps2stream.protocol.frame import U16, Array

SOURCES = (5, 10, 15, 20)
PROBES = 1440
"""Probes in a stream: one a minute in WP, which is a day's."""
COLUMNS = (
    "stream", "workers", "estimator", "fraction", "average", "worst", "over_global", "agree",
    "jaccard",
)  # fmt: skip
GLOBAL, HASH, L5, PROBING, SKEWED = "G", "H", "L5", "L5P1", "L5 skewed"
MAGNITUDE = 10.0
SKEWS = (0.2, 0.6, 1.0)
SKEW_KEYS, SKEW_WORKERS = 10_000, 5
NOTES = (
    "fraction: (max - mean) / m at the end; average: the mean over all moments, over m; worst: the",
    "largest I(t) / t after the first tenth. over_global: average over that of G, each plus one",
    "tuple. agree: part of the tuples that go where G sends them; jaccard: the same as the overlap",
    "of the pairs (tuple, worker), agree / (2 - agree), the paper's measure.",
    "L5 skewed: each tuple comes to a source by the hash of another key (the flight's origin; its",
    "destination is the key; the paper: the ends of the edges of social graphs).",
    f"Probing: {PROBES:,} times in a stream, as every minute in the paper's WP, which is a day's.",
    "'like WP' is a Zipf stream with the K and p1 of WP; git paths drift, as the paper's CT.",
    "The values of the paper's figures are not in the text, but for the overlap of 47% on WP.",
)


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Measures all estimators on the streams, and their agreement over skews."""
    rows: list[Row] = []
    clock = RunClock()
    streams = list(real_streams(settings, WORDS, PATHS, ROUTES))
    n, seed = settings.tuples, settings.seed
    streams.append(generated(settings, WIKIPEDIA, lambda: draw_like(WIKIPEDIA, n, seed)))
    for stream in streams:
        for workers in settings.workers:
            settings.progress(f"{stream.name}: {workers} workers")
            rows += _compare_estimators(stream, workers, settings, clock)
    for z in SKEWS:

        def draw(z: float = z) -> KeyStream:
            return draw_zipf(f"ZF z={z:g}", SKEW_KEYS, z, n, seed)

        stream = generated(settings, f"ZF z={z:g}", draw)
        rows += _compare_estimators(stream, SKEW_WORKERS, settings, clock)
    return ExperimentReport(
        "pkg-local", "Partial Key Grouping: local load estimation", describe_settings(settings),
        [*NOTES, clock.note()], COLUMNS, rows, list_verdicts(rows),
        ReportChart("lines", "average imbalance / tuples", _make_panels(rows)),
    )  # fmt: skip


def _compare_estimators(
    stream: KeyStream, workers: int, settings: ExperimentSettings, clock: RunClock
) -> list[Row]:
    """Returns a row for each estimator."""
    probing = SchemeOptions(probe_every=max(len(stream.keys) // PROBES, 1))

    def assign(scheme: Scheme, sources: int, options: SchemeOptions | None = None) -> U16:
        mine = make_partitioner(scheme, workers, sources, settings.seed, options)
        return clock.assign(mine, stream)

    runs: dict[str, Callable[[], U16]] = {
        GLOBAL: lambda: assign("pkg", 5, SchemeOptions(shared=True)),
        HASH: lambda: assign("hash", 1),
        **{f"L{n}": functools.partial(assign, "pkg", n) for n in SOURCES},
        PROBING: lambda: assign("pkg", 5, probing),
    }
    if stream.first is not None:
        runs[SKEWED] = lambda: clock.assign(
            make_partitioner("pkg", workers, 5, settings.seed), stream, senders=_skew(stream, 5)
        )
    rows: list[Row] = []
    oracle = runs[GLOBAL]()
    for name, make in runs.items():
        chosen = oracle if name == GLOBAL else make()
        found = measure_imbalance(chosen, workers)
        agree = float((chosen == oracle).mean())
        rows.append({
            "stream": stream.name, "workers": workers, "estimator": name, "fraction": found.final,
            "average": found.average, "worst": found.worst, "agree": agree,
            "jaccard": agree / (2 - agree), "tuples": len(chosen),
        })  # fmt: skip
    for row in rows:
        row["over_global"] = _compare_averages(row, rows[0])
    return rows


def _skew(stream: KeyStream, sources: int) -> Array:
    """Returns the source of each tuple by the hash of its other key, int64[n]."""
    assert stream.first is not None
    hashed = np.empty(len(stream.first), np.uint64)
    hash_all(stream.first, np.uint64(0), hashed)
    return (hashed % np.uint64(sources)).astype(np.int64)


def _compare_averages(row: Row, other: Row) -> float:
    mine, its = (1 + each["average"] * each["tuples"] for each in (row, other))
    return float(mine / its)


def list_verdicts(rows: Sequence[Row]) -> list[ClaimVerdict]:
    """Returns verdicts on local against global, on probing, skew and drift."""
    at = {(r["stream"], r["workers"], r["estimator"]): r for r in rows}
    streams = list(dict.fromkeys(r["stream"] for r in rows if not r["stream"].startswith("ZF")))
    workers = list(dict.fromkeys(r["workers"] for r in rows if r["stream"] in streams))
    out = []
    for stream in streams:
        for n in SOURCES:
            found = {f"{w}": at[stream, w, f"L{n}"]["over_global"] for w in workers}
            claim = f"{stream}: average imbalance of L{n} over that of G"
            out.append(at_most(claim, found, MAGNITUDE, "less than one order of magnitude"))
        found = {f"{w}": _compare_averages(at[stream, w, L5], at[stream, w, HASH]) for w in workers}
        out.append(at_most(f"{stream}: L5 over H", found, 1.0, "always lower"))
        found = {
            f"{w}": _compare_averages(at[stream, w, L5], at[stream, w, PROBING]) for w in workers
        }
        claim = f"{stream}: what probing saves, L5 over L5P1"
        out.append(at_most(claim, found, 1.5, "probing does not improve"))
        if (stream, workers[0], SKEWED) in at:
            found = {
                f"{w}": _compare_averages(at[stream, w, SKEWED], at[stream, w, L5]) for w in workers
            }
            claim = f"{stream}: skewed sources over even ones"
            out.append(at_most(claim, found, 2.0, "similar"))
        if stream == PATHS:
            found = {f"{w}": at[stream, w, L5]["worst"] / at[stream, w, GLOBAL]["worst"]
                     for w in workers}  # fmt: skip
            claim = f"{stream} (drift): worst moment of L5 over that of G"
            out.append(at_most(claim, found, MAGNITUDE, "occasional spikes, as G"))
        if stream == WIKIPEDIA:
            row = at[stream, workers[0], L5]
            claim = f"{stream}: L5 and G disagree, 1 over their overlap"
            out.append(ordering(claim, {"jaccard": 1 / row["jaccard"]}, "47%", 1 / 0.47))
    if (f"ZF z={SKEWS[0]:g}", SKEW_WORKERS, L5) in at:
        low, high = (1 - at[f"ZF z={z:g}", SKEW_WORKERS, L5]["agree"] for z in
                     (SKEWS[0], SKEWS[-1]))  # fmt: skip
        claim = f"ZF: disagreement at z={SKEWS[0]:g} above that at z={SKEWS[-1]:g}"
        out.append(ordering(claim, {L5: low / max(high, 1e-9)}))
    return out


def _make_panels(rows: Sequence[Row]) -> dict[str, dict[str, dict[int, float]]]:
    out: dict[str, dict[str, dict[int, float]]] = {}
    for row in rows:
        series = out.setdefault(row["stream"], {}).setdefault(row["estimator"], {})
        series[row["workers"]] = max(row["average"], 1e-9)
    return out
