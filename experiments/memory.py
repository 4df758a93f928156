"""Le Subscribe, figures 3(c) and 3(d): memory and load time of all algorithms on W0."""

from __future__ import annotations

from collections.abc import Sequence

from ps2stream.experiments.le_subscribe.matcher import (
    ALGORITHMS,
    COUNTING,
    DYNAMIC,
    PREFETCHING,
    STATIC,
)
from ps2stream.experiments.le_subscribe.measure import (
    count_subscriptions,
    describe_settings,
    run_algorithms,
    select_row,
)
from ps2stream.experiments.le_subscribe.workloads import BATCH, W0
from ps2stream.experiments.plans import ExperimentSettings, Row
from ps2stream.experiments.report import ClaimVerdict, ExperimentReport, ReportChart, ordering

COLUMNS = (
    "algorithm", "subscriptions", "mb", "bytes_each", "load_s", "us_insert", "tables",
)  # fmt: skip
LOADED = tuple(name for name in ALGORITHMS if name != "propagation")
NOTES = (
    "mb: what the structures hold, without what they have room for; the paper's is the memory of",
    f"the process. load_s: CPU seconds to insert all, in batches of {BATCH:,}; static's has the",
    "choice of its tables from 200,000 subscriptions. Both propagations are one structure.",
)


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Runs W0 with a third and all of the subscriptions."""
    most = count_subscriptions(settings)
    sizes = sorted({max(most // 3, 1), most})
    rows, wrong = run_algorithms(W0, sizes, LOADED, settings, "W0")
    for row in rows:
        row["bytes_each"] = row["mb"] * 1e6 / row["subscriptions"]
    last = [row for row in rows if row["subscriptions"] == most]
    return ExperimentReport(
        "memory", "Le Subscribe, W0: memory and load time", describe_settings(settings),
        [*NOTES, *wrong], COLUMNS, rows, list_verdicts(rows),
        ReportChart("bars", "MB, s", {
            "memory": {"MB": {row["algorithm"]: row["mb"] for row in last}},
            "load time": {"s": {row["algorithm"]: row["load_s"] for row in last}},
        }),
    )  # fmt: skip


def list_verdicts(rows: Sequence[Row]) -> list[ClaimVerdict]:
    """Returns the verdicts on the orders of memory and of load time."""
    of = {name: select_row(rows, name) for name in LOADED}
    claims = (
        ("mb", "takes more memory than", ((COUNTING, PREFETCHING), (DYNAMIC, COUNTING),
                                          (DYNAMIC, PREFETCHING))),
        ("load_s", "takes longer to load than", ((PREFETCHING, COUNTING), (DYNAMIC, PREFETCHING),
                                                 (STATIC, DYNAMIC))),
    )  # fmt: skip
    return [
        ordering(f"{above} {verb} {below}", {value: of[above][value] / of[below][value]})
        for value, verb, pairs in claims
        for above, below in pairs
    ]
