"""Figure 9: the memory of a dispatcher's gridt (H1 and H2)."""

from __future__ import annotations

import dataclasses

from ps2stream.experiments.plans import (
    GROUPS,
    HYBRID,
    KD,
    MAIN,
    METRIC,
    ExperimentSettings,
    by_case,
    judge_all,
    make_bar_panels,
)  # fmt: skip
from ps2stream.experiments.report import (
    ClaimVerdict,
    ExperimentReport,
    ReportChart,
    at_most,
    ordering,
)

COLUMNS = ("stream", "queries", "algorithm", "dispatcher_mb", "units")


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Runs F9 for Q1, Q2 and Q3."""
    settings = dataclasses.replace(settings, repeats=0)  # nothing is timed
    rows, notes = judge_all(settings, GROUPS, MAIN)
    for row in rows:
        row["dispatcher_mb"] = row["dispatcher_bytes"] / 1e6
    verdicts: list[ClaimVerdict] = []
    by = by_case(rows, "dispatcher_mb")
    for (stream, queries), found in by.items():
        most = {name: found[name] for name in (HYBRID, METRIC, KD)}
        verdicts.append(at_most(f"{stream} {queries}: MB", most, 1000, "all below 1000 MB"))
        for other in (HYBRID, METRIC):
            claim = f"{stream} {queries}: {other} above kd-tree"
            verdicts.append(ordering(claim, {"MB": found[other] / found[KD]}))
    for stream in settings.sources:
        for other in ("Q1", "Q3"):
            ratio = by[stream, "Q2"][HYBRID] / by[stream, other][HYBRID]
            verdicts.append(ordering(f"{stream}: hybrid on Q2 above {other}", {"MB": ratio}))
    notes.append(
        "A unit of H2 has one owner under every plan, so the plans differ by H1's term maps."
    )
    return ExperimentReport(
        "f9", "memory of a dispatcher, MB", settings.to_dict(), [*settings.notes(), *notes],
        COLUMNS, rows, verdicts,
        ReportChart("bars", "MB", make_bar_panels(rows, {"gridt": "dispatcher_mb"})),
    )  # fmt: skip
