"""Figure 10: the memory of a worker, its GI2."""

from __future__ import annotations

from ps2stream.experiments.plans import (
    HYBRID,
    KD,
    METRIC,
    PLUS,
    Settings,
    bars,
    cases,
    every,
    table,
)  # fmt: skip
from ps2stream.experiments.report import Chart, Report, Verdict, ordering

COLUMNS = ("stream", "queries", "algorithm", "worker_mb", "largest_mb")


def run(settings: Settings) -> Report:
    """F10 for Q1, Q2 and Q3."""
    rows, notes = every(settings, ("q1", "q2", "q3"), (HYBRID, PLUS, METRIC, KD))
    for row in rows:
        row["worker_mb"] = row["worker_bytes"] / 1e6
        row["largest_mb"] = max(row["each"]["bytes"]) / 1e6
    verdicts: list[Verdict] = []
    for stream, queries in cases(rows):
        found = table(rows, "worker_mb", stream=stream, queries=queries)
        for other in (METRIC, KD):
            claim = f"{stream} {queries}: {other} above hybrid"
            verdicts.append(ordering(claim, {"MB": found[other] / found[HYBRID]}))
    notes.append("Mean over the workers, with the slack of arrays that grow by a quarter.")
    return Report(
        "f10", "memory of a worker, MB", settings.to_dict(), [*settings.notes(), *notes],
        COLUMNS, rows, verdicts,
        Chart("bars", "MB", bars(rows, {"mean": "worker_mb", "largest": "largest_mb"})),
    )  # fmt: skip
