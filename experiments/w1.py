"""Le Subscribe, figure 3(b): dynamic clustering and propagation on W1, four predicates of which one
is not an equality."""

from __future__ import annotations

from collections.abc import Sequence

from ps2stream.experiments.le_subscribe.matcher import DYNAMIC, PREFETCHING
from ps2stream.experiments.le_subscribe.measure import (
    NOTES,
    compare_times,
    count_subscriptions,
    describe_settings,
    run_algorithms,
    select_row,
)
from ps2stream.experiments.le_subscribe.workloads import W1, PredicateWorkload
from ps2stream.experiments.plans import ExperimentSettings, Row
from ps2stream.experiments.report import (
    ClaimVerdict,
    ExperimentReport,
    ReportChart,
    at_most,
    ordering,
)

COLUMNS = (
    "workload", "algorithm", "subscriptions", "ms", "phase1_ms", "phase2_ms", "events_per_s",
    "satisfied", "checks", "probes", "tables", "matches", "load_s", "mb",
)  # fmt: skip
COMPARED = (PREFETCHING, DYNAMIC)
PAPER_SUBSCRIPTIONS = 3_000_000
CLOSE = 1.25


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Runs W1."""
    return run_workloads("w1", {"W1": W1}, settings)


def run_workloads(
    name: str, workloads: dict[str, PredicateWorkload], settings: ExperimentSettings
) -> ExperimentReport:
    """Runs these workloads, with at most the paper's 3 million subscriptions."""
    size = min(count_subscriptions(settings), PAPER_SUBSCRIPTIONS)
    rows: list[Row] = []
    wrong: list[str] = []
    for label, workload in workloads.items():
        found, other = run_algorithms(workload, [size], COMPARED, settings, label)
        rows += found
        wrong += other
    bars = {
        label: {
            phase: {row["algorithm"]: row[value] for row in rows if row["workload"] == label}
            for phase, value in (("phase 1", "phase1_ms"), ("phase 2", "phase2_ms"))
        }
        for label in workloads
    }
    title = f"Le Subscribe, {' and '.join(workloads)}: time of 100 events, ms"
    return ExperimentReport(
        name, title, describe_settings(settings) | {"subscriptions": size},
        [*NOTES, "The paper's figures of W1 and W2 are a chart that the text lacks.", *wrong],
        COLUMNS, rows, list_verdicts(rows, list(workloads)),
        ReportChart("bars", "ms for 100 events", bars),
    )  # fmt: skip


def list_verdicts(rows: Sequence[Row], labels: Sequence[str]) -> list[ClaimVerdict]:
    """Returns the verdicts on each workload, and on the second over the first."""
    slow = {label: select_row(rows, PREFETCHING, workload=label) for label in labels}
    fast = {label: select_row(rows, DYNAMIC, workload=label) for label in labels}
    out = [
        ordering(f"{label}: {DYNAMIC} is faster than {PREFETCHING}",
                 compare_times(slow[label], fast[label]))
        for label in labels
    ]  # fmt: skip
    if len(labels) == 2:
        first, second = labels
        for name, of in ((PREFETCHING, slow), (DYNAMIC, fast)):
            claim = f"{name}: {second} is slower than {first} by a constant factor"
            out.append(ordering(claim, compare_times(of[second], of[first])))
        apart = {label: slow[label]["ms"] - fast[label]["ms"] for label in labels}
        ratio = apart[second] / apart[first]
        claim = f"the gaps between both in {second} and {first} are apart by"
        out.append(at_most(claim, {"ms": max(ratio, 1 / ratio)}, CLOSE, "equal"))
    return out
