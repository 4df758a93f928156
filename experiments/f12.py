"""Figure 12: the time that the algorithms of Minimum Cost Migration take, and the bytes they
move.

The service is planned for the first part of a stream whose hot spot moves west. The algorithms
choose among the parts of the worker that is the most loaded in the second part, as workers and
controller count them.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ps2stream.experiments.loads import measured
from ps2stream.experiments.plans import (
    GROUPS,
    HYBRID,
    JUDGED_AT,
    ExperimentSettings,
    Row,
    list_cases,
    make_worlds,
    planned,
)
from ps2stream.experiments.report import (
    ClaimVerdict,
    ExperimentReport,
    ReportChart,
    at_most,
    ordering,
)
from ps2stream.experiments.selections import (
    DRAWS,
    SelectionCase,
    bytes_of,
    cases_of_worker,
    chosen,
    draw_small_cases,
    generated,
    optimum,
)
from ps2stream.experiments.worlds import westward
from ps2stream.planner.adjust.algorithms import SELECTIONS
from ps2stream.protocol.frame import F64

COLUMNS = (
    "stream", "queries", "standing", "tau", "parts", "dp_table_mb",
    *(f"{name}_ms" for name in SELECTIONS),
    "dp_bytes", *(f"{name}_over_dp" for name in SELECTIONS if name != "dp"),
)  # fmt: skip
PARTS_OF = {False: (0.25, 1.0), True: (0.25, 0.5, 1.0)}  # quick, full
SHARES = (0.05, 0.1, 0.2)
RUNS = 15
GREEDY = ("gr", "gr+")
PAPERS = ("gr", "dp", "si", "ra")
TRIED, SMALL = 96, 600


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Runs F12: up to as many queries as `settings.size` has."""
    return run_selections("f12", settings, PARTS_OF[settings.sweeps])


def run_selections(
    name: str, settings: ExperimentSettings, counts: Sequence[float]
) -> ExperimentReport:
    """Runs the algorithms. counts: numbers of live queries, as multiples of those of the size."""
    rows, without = [], 0
    for count in counts:
        standing = round(count * settings.size.queries)
        size = settings.size._replace(queries=standing, generated=1)
        for world in make_worlds(dataclasses.replace(settings, size=size), GROUPS, change=westward):
            plan = planned(world, HYBRID, workers := settings.workers[0], settings)
            units = measured(plan, world.analyzer, world.period)
            stream, queries = world.name.split(" ", 1)
            at = {"stream": stream, "queries": queries, "standing": standing}
            for tau, case in cases_of_worker(units, workers, JUDGED_AT, SHARES).items():
                if chosen("gr", case) is None:
                    without += 1
                else:
                    rows.append(at | {"tau": tau} | measure_case(case))
    settings.progress("generated cases")
    drawn = [case for case in generated(TRIED, settings.seed) if chosen("gr", case) is not None]
    by = {n: np.array([bytes_of(n, case) for case in drawn]) for n in SELECTIONS}
    real = {n: np.array([row[f"{n}_bytes"] for row in rows]) for n in by}
    verdicts = [
        *judge_speed(rows),
        *judge_bytes("of the streams", real),
        *judge_bytes("generated", by),
        judge_dp(draw_small_cases(SMALL, settings.seed)),
    ]
    notes = [
        f"Parts of the most loaded of {settings.workers[0]} workers, as they count them.",
        "tau: half the gap to the least loaded worker, or a share of the load.",
        f"ms: the fastest of {RUNS} compiled runs. ra_bytes: the mean of {DRAWS} draws.",
        "dp_table_mb: the paper's table, 8 bytes for each part and each byte up to gr_bytes;",
        "ours counts sizes in their common divisor, or in coarser steps.",
        f"Left out, because no set of parts fits: {without}. Generated: {len(drawn)} cases.",
    ]
    return ExperimentReport(
        name, "choice of what migrates: time and bytes", settings.to_dict(), notes, COLUMNS, rows,
        verdicts, ReportChart("lines", "ms, median", make_panels(rows)),
    )  # fmt: skip


def measure_case(case: SelectionCase) -> Row:
    """Returns milliseconds and bytes of each algorithm."""
    size = {name: bytes_of(name, case) for name in SELECTIONS}
    row: Row = {"parts": len(case.load), "dp_table_mb": 8 * len(case.load) * size["gr"] / 1e6}
    for name in SELECTIONS:
        seconds = []
        for _ in range(RUNS):
            began = time.perf_counter()
            chosen(name, case)
            seconds.append(time.perf_counter() - began)
        row[f"{name}_ms"] = min(seconds) * 1e3
        row[f"{name}_bytes"] = size[name]
        row[f"{name}_over_dp"] = size[name] / size["dp"]
    return row


def judge_speed(rows: Sequence[Row]) -> list[ClaimVerdict]:
    """Returns the verdicts on the times: medians over the cases of each stream."""
    streams = list(dict.fromkeys(row["stream"] for row in rows))
    counts = sorted({row["standing"] for row in rows})
    low, high = counts[0], counts[-1]

    def ms(stream: str, name: str, standing: int | None = None) -> float:
        return median(
            row[f"{name}_ms"]
            for row in rows
            if row["stream"] == stream and standing in (None, row["standing"])
        )

    slow = {s: ms(s, "dp") / max(ms(s, name) for name in ("gr", "si", "ra")) for s in streams}
    fast = {s: min(ms(s, name) for name in ("gr", "si", "dp")) / ms(s, "ra") for s in streams}
    even = {s: ms(s, "gr") / ms(s, "si") for s in streams}
    even = {s: max(ratio, 1 / ratio) for s, ratio in even.items()}
    verdicts = [
        ordering("dp is slower than gr, si and ra", slow),
        ordering("ra is faster than gr, si and dp", fast),
        at_most("gr and si, one over the other,", even, 1.25, "about equal"),
        at_most("gr+, milliseconds", {s: ms(s, "gr+") for s in streams}, 100, "our goal"),
    ]
    for name in PAPERS if low < high else ():
        grown = {s: ms(s, name, high) / ms(s, name, low) for s in streams}
        claim = f"{name}, {high / low:g} times the queries: times as long,"
        verdicts.append(at_most(claim, grown, 1.5, "independent of the queries"))
    return verdicts


def judge_bytes(label: str, by: Mapping[str, F64]) -> list[ClaimVerdict]:
    """Returns the verdicts on the bytes of each algorithm, by case."""
    verdicts = []
    for name in GREEDY:
        over = by[name] / by["dp"]
        for what, value, limit in (
            ("bytes over dp, most", over.max(), 1.25),
            ("bytes over dp, median", np.median(over), 1.05),
            ("mean bytes over si", by[name].mean() / by["si"].mean(), 1.0),
            ("mean bytes over ra", by[name].mean() / by["ra"].mean(), 0.7),
        ):
            found = {f"{len(over)} cases {label}": float(value)}
            verdicts.append(at_most(f"{name}, {what}", found, limit, "our goal"))
    return verdicts


def judge_dp(tried: Iterable[SelectionCase]) -> ClaimVerdict:
    """Compares DP with all subsets of a few units."""
    same = total = 0
    for case in tried:
        found, best = chosen("dp", case), optimum(case)
        total += 1
        same += (None if found is None else int(case.size[found].sum())) == best
    word = "met" if same == total else "missed"
    return ClaimVerdict("dp is the optimum, by all subsets", f"{same} of {total}", "exact", word)


def median(values: Iterable[float]) -> float:
    """Returns the median of at least one value."""
    return float(np.median(list(values)))


def make_panels(rows: Sequence[Row]) -> dict[str, dict[str, dict[int, float]]]:
    """Returns milliseconds by the number of queries."""
    counts = sorted({row["standing"] for row in rows})
    return {
        f"{stream} {queries}": {
            name: {
                count: median(
                    row[f"{name}_ms"]
                    for row in rows
                    if (row["stream"], row["queries"], row["standing"]) == (stream, queries, count)
                )
                for count in counts
            }
            for name in SELECTIONS
        }
        for stream, queries in list_cases(rows)
    }
