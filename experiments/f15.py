"""Figure 15: the delays of deliveries during a migration in the running service."""

from __future__ import annotations

from collections.abc import Sequence

from ps2stream.experiments.f14 import GREEDY, NOTES, judge_losses, measured
from ps2stream.experiments.plans import ExperimentSettings, Row
from ps2stream.experiments.report import ClaimVerdict, ExperimentReport, ReportChart, ordering
from ps2stream.planner.adjust.algorithms import SELECTIONS

STEPS = ("below_100ms", "to_1s", "above_1s")
COLUMNS = (
    "stream", "standing", "algorithm", "moves", "seconds", "deliveries", *STEPS, "worst_ms",
    *(f"quiet_{step}" for step in STEPS), "quiet_worst_ms", "lost", "doubled",
)  # fmt: skip
LEAST = 0.98


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Runs F15 on the first stream."""
    return report(settings, *measured(settings, tuple(SELECTIONS)))


def report(
    settings: ExperimentSettings, rows: Sequence[Row], rates: Sequence[str]
) -> ExperimentReport:
    """Returns the report on the measured rows."""
    notes = [
        *NOTES,
        "Shares of the deliveries, timed from the planned sending of their batch, of batches sent",
        "from begin to end of a migration, or for half a second; quiet: before the migration.",
        *rates,
    ]
    panels = {
        f"{standing:,} queries{label}": {
            step: {
                row["algorithm"]: row[f"{when}{step}"]
                for row in rows
                if row["standing"] == standing
            }
            for step in STEPS
        }
        for standing in dict.fromkeys(row["standing"] for row in rows)
        for when, label in (("", ""), ("quiet_", ", no migration"))
    }
    return ExperimentReport(
        "f15", "delays during a migration", settings.to_dict(), notes, COLUMNS, rows,
        verdicts(rows), ReportChart("bars", "share of deliveries", panels),
    )  # fmt: skip


def verdicts(rows: Sequence[Row]) -> list[ClaimVerdict]:
    """Returns the verdicts on the shares."""
    found: list[ClaimVerdict] = []
    for standing in dict.fromkeys(row["standing"] for row in rows):
        of = {row["algorithm"]: row for row in rows if row["standing"] == standing}
        for name in (n for n in GREEDY if n in of):
            share, quiet = of[name]["below_100ms"], of[name]["quiet_below_100ms"]
            case = f"{standing:,} queries: {name}"
            measured = f"{share:.2%}, {quiet:.2%} without a migration"
            word = "met" if share >= LEAST else "missed"
            claim = f"{case}, deliveries below 100 ms at least {LEAST:.0%}"
            found.append(ClaimVerdict(claim, measured, "our goal", word))
            others = {
                other: share / max(row["below_100ms"], 1e-3)
                for other, row in of.items()
                if other not in GREEDY
            }
            found.append(ordering(f"{case} delays fewer than", others))
    return [*found, judge_losses(rows)]
