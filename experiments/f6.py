"""Figure 6: the throughput of text and space partitioning, and the conditions that turn the
order."""

from __future__ import annotations

import dataclasses

import numpy as np

from ps2stream.experiments.evaluate import PlanJudgement
from ps2stream.experiments.plans import (
    GRID,
    JUDGED_AT,
    KD,
    KD_LOAD,
    METRIC,
    PAPER,
    RTREE,
    SPACE,
    STRONG,
    TEXT,
    ExperimentSettings,
    Row,
    compare_throughputs,
    judge_all,
    judge_plan,
    list_cases,
    make_bar_panels,
    make_worlds,
    planned,
)  # fmt: skip
from ps2stream.experiments.report import LOST, ClaimVerdict, ExperimentReport, ReportChart, ordering
from ps2stream.experiments.sweep import SweepCondition, compared, sides, swept
from ps2stream.experiments.worlds import StreamWorld, all_rare
from ps2stream.language.analyzer import TOP
from ps2stream.protocol.frame import F64

COLUMNS = (
    "stream", "queries", "condition", "workers", "algorithm", "throughput", "kernel_throughput",
    "balance", "slowest_over_bound", "copies",
)  # fmt: skip
BEST = tuple(
    (best, tuple(name for name in among if name != best))
    for best, among in ((METRIC, TEXT), (KD, SPACE))
)
CONDITIONS = (SweepCondition(workers=(2, 16)), SweepCondition("sides x4", sides(4.0)))


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Runs F6 for Q1 and Q2, and the sweeps."""
    rows, notes = judge_all(settings, ("q1", "q2"), (*TEXT, *SPACE, *STRONG, PAPER))
    verdicts: list[ClaimVerdict] = []
    for stream, queries in list_cases(rows):
        at = {"stream": stream, "queries": queries}
        name = f"{stream} {queries}"
        if queries == "Q1":
            claim = f"{name}: every space method above every text method"
            verdicts.append(ordering(claim, compare_throughputs(rows, SPACE, TEXT, **at)))
            found = compare_throughputs(rows, (GRID,), ("frequency",), **at)
            paper = "160,659 / 76,921 tuples/s"
            verdicts.append(
                ordering(f"{name}: grid above frequency", found, paper, 160_659 / 76_921)
            )
        else:
            claim = f"{name}: every text method above every space method"
            verdicts.append(ordering(claim, compare_throughputs(rows, TEXT, SPACE, **at)))
            found = compare_throughputs(rows, (METRIC,), (RTREE,), **at)
            paper = "267,415 / 181,542 tuples/s"
            verdicts.append(
                ordering(f"{name}: metric above R-tree", found, paper, 267_415 / 181_542)
            )
        for best, others in BEST:
            claim = f"{name}: {best} above {' and '.join(others)}"
            verdicts.append(ordering(claim, compare_throughputs(rows, (best,), others, **at)))
        claim = f"{name}: kd-tree by load above the plain one"
        found = compare_throughputs(rows, (KD_LOAD,), (KD,), **at)
        verdicts.append(ordering(claim, found, "none"))
    more, found_more = sweep_conditions(settings)
    if settings.sweeps:
        counted = dataclasses.replace(settings, repeats=0)
        more += (far := swept(counted, ("q1",), (*TEXT, *SPACE), CONDITIONS))
        found_more += [
            ordering(f"{case}: {best} above {' and '.join(others)}", found)
            for best, others in BEST
            for case, found in compared(far, (best,), others, {"modelled": "throughput"})
        ]
    return ExperimentReport(
        "f6", "throughput of the baselines, tuples/s", settings.to_dict(),
        [*settings.notes(), *notes, *SWEEP_NOTES], COLUMNS, [*rows, *more],
        [*verdicts, *found_more],
        ReportChart("bars", "tuples/s", make_bar_panels(rows, {"modelled": "throughput",
                                              "kernel": "kernel_throughput"})),
    )  # fmt: skip


SWEEP_NOTES = (
    "Sweep: Q2 with one keyword rare, or all; kd-tree with H2, or sending each object to the",
    "worker of its place whatever its words (`kd-tree, no H2`; modelled), as the paper",
    "describes kdt-tree leaves. At full size also other numbers of workers and",
    "larger squares, modelled, each with its best text and its best space method.",
)


def sweep_conditions(settings: ExperimentSettings) -> tuple[list[Row], list[ClaimVerdict]]:
    """Looks for conditions under which text is above space on Q2."""
    rows: list[Row] = []
    verdicts: list[ClaimVerdict] = []
    for rare in (False, True):
        changed = ("all rare", all_rare) if rare else ()
        for world in make_worlds(settings, ("q2",), *changed):
            _, text = judge_plan(world, METRIC, settings.workers[0], settings)
            kd, space = judge_plan(world, KD, settings.workers[0], settings)
            slowest = float(compute_unfiltered_load(world, space, settings).max())
            bare = space.tuples / slowest * 1e6
            fields = ("stream", "queries", "workers")
            row = {n: kd[n] for n in fields} | {"algorithm": "kd-tree, no H2", "throughput": bare}
            if rare:
                metric_row = {n: kd[n] for n in fields} | {
                    "algorithm": METRIC, "throughput": text.throughput,
                    "kernel_throughput": text.kernel_throughput,
                }  # fmt: skip
                rows += [metric_row, kd]
            rows.append(row)
            for label, value in (("kd-tree", space.throughput), ("kd-tree without H2", bare)):
                claim = f"{world.name}: metric above {label}"
                verdicts.append(ordering(claim, {"modelled": text.throughput / value}, LOST))
    return rows, verdicts


def compute_unfiltered_load(
    world: StreamWorld, found: PlanJudgement, settings: ExperimentSettings
) -> F64:
    """Returns the load of each worker of a kd-tree, float64[workers], if every object were sent
    to the worker of its place. Where kd-tree divides a cell by text, that is the worker of the
    pseudo-term."""
    plan = planned(world, KD, len(found.load), settings)
    h1 = plan.compile(world.analyzer)
    objects = np.zeros(len(found.load), np.int64)
    for part in world.period.rounds:
        cell = plan.grid.cells(part.objects.lon, part.objects.lat, 0)
        worker = h1.owners(cell, np.full(len(cell), TOP, np.uint64))
        objects += np.bincount(worker, minlength=len(objects))
    more = np.maximum(objects - found.objects, 0)
    load: F64 = found.load + JUDGED_AT.c2 * more
    return load
