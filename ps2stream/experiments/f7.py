"""Figure 7: hybrid against the best of text and of space, and the project's own goals."""

from __future__ import annotations

from ps2stream.experiments.f6 import COLUMNS
from ps2stream.experiments.plans import (
    HASH,
    HYBRID,
    KD,
    METRIC,
    PLUS,
    SPACE,
    TEXT,
    Settings,
    bars,
    cases,
    every,
    ratios,
    table,
)  # fmt: skip
from ps2stream.experiments.report import LOST, Chart, Report, Verdict, at_least, at_most, ordering

GOALS = {"Q1": (1.3, 1.4), "Q2": (1.2, 1.5), "Q3": (1.3, 1.5)}  # over kd-tree, over metric
BOUND = {"tweets": 1.3, "synthetic": 1.4}
BALANCE, NEVER_BELOW = 1.4, 0.97


def run(settings: Settings) -> Report:
    """F7 for Q1, Q2 and Q3, all baselines beside it."""
    rows, notes = every(settings, ("q1", "q2", "q3"), (HYBRID, PLUS, *TEXT, *SPACE, HASH))
    verdicts: list[Verdict] = []
    for stream, queries in cases(rows):
        at = {"stream": stream, "queries": queries}
        for other in (KD, METRIC):
            found = ratios(rows, (HYBRID,), (other,), **at)
            claim = f"{stream} {queries}: hybrid above {other}"
            if queries == "Q3":
                verdicts.append(ordering(claim, found, "30% above both", 1.3))
            else:
                verdicts.append(ordering(claim, found, LOST))
        if queries == "Q2":
            claim = f"{stream} Q2: metric above kd-tree"
            verdicts.append(ordering(claim, ratios(rows, (METRIC,), (KD,), **at)))
    for stream, queries in cases(rows):
        at = {"stream": stream, "queries": queries}
        for name in (HYBRID, PLUS):
            case = f"{stream} {queries}: {name}"
            for other, goal in zip((KD, METRIC), GOALS[queries], strict=True):
                found = ratios(rows, (name,), (other,), **at)
                verdicts.append(at_least(f"{case} over {other}", found, goal))
            found = ratios(rows, (name,), (*TEXT, *SPACE, HASH), **at)
            verdicts.append(at_least(f"{case} over the best baseline", found, NEVER_BELOW))
            over = {"modelled": table(rows, "slowest_over_bound", **at)[name]}
            claim = f"{case}, slowest worker over the lower bound"
            verdicts.append(at_most(claim, over, BOUND[stream], "our goal"))
            even = {"modelled": table(rows, "balance", **at)[name]}
            verdicts.append(at_most(f"{case}, balance", even, BALANCE, "our goal"))
    series = {"modelled": "throughput", "kernel": "kernel_throughput"}
    return Report(
        "f7", "throughput of hybrid, tuples/s", settings.to_dict(),
        [*settings.notes(), *notes], COLUMNS, rows, verdicts,
        Chart("bars", "tuples/s", bars(rows, series)),
    )  # fmt: skip
