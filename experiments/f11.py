"""Figure 11: throughput by the number of workers."""

from __future__ import annotations

from ps2stream.experiments.plans import (
    GROUPS,
    HYBRID,
    KD,
    MAIN,
    METRIC,
    ExperimentSettings,
    compare_throughputs,
    judge_all,
    list_cases,
    select_values,
)  # fmt: skip
from ps2stream.experiments.report import ClaimVerdict, ExperimentReport, ReportChart, ordering

COLUMNS = (
    "stream", "queries", "workers", "algorithm", "throughput", "kernel_throughput",
    "balance", "copies",
)  # fmt: skip


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Runs F11 for Q1, Q2 and Q3."""
    rows, notes = judge_all(settings, GROUPS, MAIN)
    verdicts: list[ClaimVerdict] = []
    low, high = min(settings.workers), max(settings.workers)
    for stream, queries in list_cases(rows):
        at = {"stream": stream, "queries": queries}
        for workers in settings.workers:
            claim = f"{stream} {queries}, {workers} workers: hybrid above metric and kd-tree"
            found = compare_throughputs(rows, (HYBRID,), (METRIC, KD), workers=workers, **at)
            verdicts.append(ordering(claim, found))
        worst = {"Q1": METRIC, "Q2": KD}.get(queries)
        if worst and low < high:
            growth = {
                label: {
                    name: select_values(rows, column, workers=high, **at)[name]
                    / select_values(rows, column, workers=low, **at)[name]
                    for name in (HYBRID, METRIC, KD)
                }
                for label, column in (("modelled", "throughput"), ("kernel", "kernel_throughput"))
            }
            claim = f"{stream} {queries}: from {low} to {high} workers {worst} gains least"
            found = {
                label: min(g for name, g in of.items() if name != worst) / of[worst]
                for label, of in growth.items()
            }
            verdicts.append(ordering(claim, found))
    panels = {
        f"{stream} {queries}": {
            name: {
                workers: select_values(rows, "throughput", stream=stream, queries=queries,
                               workers=workers)[name]
                for workers in settings.workers
            }
            for name in MAIN
        }
        for stream, queries in list_cases(rows)
    }  # fmt: skip
    return ExperimentReport(
        "f11", "throughput by workers, tuples/s", settings.to_dict(),
        [*settings.notes(), *notes], COLUMNS, rows, verdicts,
        ReportChart("lines", "tuples/s, modelled", panels),
    )  # fmt: skip
