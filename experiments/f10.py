"""Figure 10: the memory of a worker's GI2, and the condition under which hybrid's is least."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ps2stream.experiments.plans import (
    GROUPS,
    HYBRID,
    KD,
    MAIN,
    METRIC,
    ExperimentSettings,
    Row,
    judge_all,
    make_bar_panels,
)  # fmt: skip
from ps2stream.experiments.report import ClaimVerdict, ExperimentReport, ReportChart, ordering
from ps2stream.experiments.sweep import SweepCondition, compared, joined, sides, swept

COLUMNS = (
    "stream", "queries", "condition", "workers", "algorithm", "worker_mb", "largest_mb",
)  # fmt: skip
CONDITIONS = (
    SweepCondition(workers=(16, 64)),
    SweepCondition("every AND", joined(True)),
    SweepCondition("every OR", joined(False)),
    SweepCondition("sides x4", sides(4.0), (8, 64)),
)


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Runs F10 for Q1, Q2 and Q3, and the sweep."""
    settings = dataclasses.replace(settings, repeats=1)  # nothing is timed
    rows, notes = judge_all(settings, GROUPS, MAIN)
    more = swept(settings, ("q1",), MAIN, CONDITIONS) if settings.sweeps else []
    for row in (*rows, *more):
        row["worker_mb"] = row["worker_bytes"] / 1e6
        row["largest_mb"] = max(row["each"]["bytes"]) / 1e6
    notes.append(
        "The mean over the workers, including the spare room of arrays that grow by a quarter."
    )
    return ExperimentReport(
        "f10", "memory of a worker, MB", settings.to_dict(), [*settings.notes(), *notes],
        COLUMNS, [*rows, *more], [*verdicts(rows), *verdicts(more)],
        ReportChart(
            "bars", "MB", make_bar_panels(rows, {"mean": "worker_mb", "largest": "largest_mb"}),
        ),
    )  # fmt: skip


def verdicts(rows: Sequence[Row]) -> list[ClaimVerdict]:
    """Returns the verdicts on the mean and the largest worker, in every condition."""
    values = {"mean": "worker_mb", "largest": "largest_mb"}
    return [
        ordering(f"{case}: {other} above hybrid", found)
        for other in (METRIC, KD)
        for case, found in compared(rows, (other,), (HYBRID,), values)
    ]
