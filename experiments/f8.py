"""Figure 8: mean latency at a moderate rate, from measured service times.

The model. Batches of equal length leave the dispatcher at random (exponential gaps). Each
worker serves its share of every batch, first come, first served, in the time
that this very share took on its GI2, measured alone. An object's latency runs from the
moment its batch leaves to the moment the last of its workers has served that batch: queueing
and service, without filling the batch, routing, merging and the network.

Two rates: 60% of what each algorithm can bear itself, and one rate for all, 60% of what the
best can bear. Where that is more than an algorithm bears, its queue grows without end and
the figure is what came of 2,000 batches: the judged ones, again and again.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ps2stream.experiments.evaluate import PlanJudgement
from ps2stream.experiments.plans import (
    GROUPS,
    HYBRID,
    KD,
    MAIN,
    METRIC,
    ExperimentSettings,
    Row,
    judge_plan,
    list_cases,
    make_bar_panels,
    make_worlds,
    select_values,
)  # fmt: skip
from ps2stream.experiments.report import LOST, ClaimVerdict, ExperimentReport, ReportChart, ordering
from ps2stream.protocol.frame import F64

SHARE = 0.6
BATCH = 2048
BATCHES = 2000
COLUMNS = ("stream", "queries", "algorithm", "kernel_throughput", "own_ms", "same_ms", "same_load")


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Runs F8 for Q1, Q2 and Q3."""
    rounds = max(settings.size.judged // BATCH, 1)
    # A longer stream would only make longer batches.
    size = settings.size._replace(rounds=rounds, generated=1)
    settings = dataclasses.replace(settings, size=size)
    rows: list[Row] = []
    for world in make_worlds(settings, GROUPS):
        found = {name: judge_plan(world, name, settings.workers[0], settings) for name in MAIN}
        best = max(judgement.kernel_throughput for _, judgement in found.values())
        for row, judgement in found.values():
            own = judgement.kernel_throughput
            row["own_ms"] = 1e3 * mean_latency(judgement, SHARE * own, settings.seed)
            row["same_ms"] = 1e3 * mean_latency(judgement, SHARE * best, settings.seed)
            row["same_load"] = SHARE * best / own
            rows.append(row)
    verdicts: list[ClaimVerdict] = []
    for stream, queries in list_cases(rows):
        at = {"stream": stream, "queries": queries}
        alone, same = select_values(rows, "own_ms", **at), select_values(rows, "same_ms", **at)
        for other in (METRIC, KD):
            later = {
                "own rate": alone[other] / alone[HYBRID],
                "same rate": same[other] / same[HYBRID],
            }
            claim = f"{stream} {queries}: {other} later than hybrid"
            if (queries, other) == ("Q2", KD):
                verdicts.append(ordering(claim, later, "25 ms / 15 ms", 25 / 15))
            else:
                verdicts.append(ordering(claim, later, LOST))
    lines = [" ".join(line.split()) for line in (__doc__ or "").split("\n\n")[1:]]
    lines += [
        f"Batches of {BATCH:,} objects.",
        "The paper has 407 ms for metric on UK-Q1: there are too few UK posts here to compare.",
    ]
    return ExperimentReport(
        "f8", "mean latency, ms", settings.to_dict(), [*settings.notes(), *lines],
        COLUMNS, rows, verdicts,
        ReportChart(
            "bars", "ms", make_bar_panels(rows, {"own rate": "own_ms", "same rate": "same_ms"}),
        ),
    )  # fmt: skip


def mean_latency(judgement: PlanJudgement, rate: float, seed: int) -> float:
    """Returns the seconds from a batch's leaving to the last of an object's workers, mean over
    objects that some worker is sent; rate in tuples per second."""
    kinds = len(judgement.seconds)
    gap = judgement.tuples / kinds / rate
    gaps = np.random.default_rng(seed).exponential(gap, BATCHES)
    late = lateness(np.resize(judgement.seconds, (BATCHES, judgement.seconds.shape[1])), gaps)
    total, objects = 0.0, 0
    for kind, (row, worker) in enumerate(judgement.sent):
        if not len(row):
            continue
        order = np.argsort(row, kind="stable")
        to = worker[order]
        first = np.flatnonzero(np.r_[True, np.diff(row[order]) > 0])
        for batch in range(kind, BATCHES, kinds):
            total += float(np.maximum.reduceat(late[batch, to], first).sum())
            objects += len(first)
    return total / max(objects, 1)


def lateness(seconds: F64, gaps: F64) -> F64:
    """Returns when each worker is done with each batch, from that batch's leaving,
    float64[batches, workers]; batch i leaves gaps[i] after the one before it, and waits for that
    one."""
    late = np.zeros_like(seconds)
    before = np.zeros(seconds.shape[1])
    for batch, took in enumerate(seconds):
        before = np.maximum(before - gaps[batch], 0.0) + took
        late[batch] = before
    return late
