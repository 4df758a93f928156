"""Le Subscribe, sections 3 and 6.2.2: what clusters save. Example 3.1; static against dynamic over
the thresholds; the size of the domain; the number of predicates."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ps2stream.experiments.le_subscribe.greedy import count_checks, make_example
from ps2stream.experiments.le_subscribe.matcher import (
    DYNAMIC,
    PREFETCHING,
    STATIC,
    ClusteringLimits,
)
from ps2stream.experiments.le_subscribe.measure import (
    LIMITS,
    NOTES,
    compare_times,
    count_subscriptions,
    describe_settings,
    run_algorithms,
    select_row,
)
from ps2stream.experiments.le_subscribe.workloads import W0, PredicateWorkload
from ps2stream.experiments.plans import ExperimentSettings, Row
from ps2stream.experiments.report import (
    ClaimVerdict,
    ExperimentReport,
    ReportChart,
    at_most,
    ordering,
)

COLUMNS = (
    "workload", "algorithm", "bm_max", "subscriptions", "ms", "phase1_ms", "phase2_ms", "checks",
    "probes", "visits", "tables", "load_s", "mb",
)  # fmt: skip
MARGINS = (0.1, 0.25, 1.0, 4.0, 64.0)
DOMAINS, PREDICATES = (10, 40, 100), (4, 8, 14)
CLOSE = 1.5


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Runs a sweep over thresholds with half of the subscriptions, the others with a sixth."""
    most = count_subscriptions(settings)
    half, sixth = max(most // 2, 1), max(most // 6, 1)
    rows, wrong = run_algorithms(W0, [half], [PREFETCHING, STATIC], settings, "W0")
    for margin in MARGINS:
        limits = LIMITS._replace(bm_max=margin)
        found = _run_one(W0, half, [DYNAMIC], settings, "W0", limits)
        rows += [row | {"bm_max": margin} for row in found]
    for values in DOMAINS:
        workload = dataclasses.replace(W0, values=values)
        both = [PREFETCHING, DYNAMIC]
        rows += _run_one(workload, sixth, both, settings, f"W0, {values} values", LIMITS)
    for free in PREDICATES:
        workload = dataclasses.replace(W0, free=free - len(W0.fixed))
        both = [PREFETCHING, DYNAMIC]
        rows += _run_one(workload, sixth, both, settings, f"W0, {free} predicates", LIMITS)
    swept = [row for row in rows if row["algorithm"] == DYNAMIC and "bm_max" in row]
    chart = {
        "W0 by BMmax": {
            value: {row["bm_max"]: row[value] for row in swept} for value in ("ms", "phase2_ms")
        }
    }
    return ExperimentReport(
        "clusters", "Le Subscribe: what clusters save", describe_settings(settings),
        [*NOTES, *EXAMPLE_NOTES, *wrong], COLUMNS, rows,
        [*list_example_verdicts(), *list_verdicts(rows)],
        ReportChart("lines", "ms for 100 events", chart),
    )  # fmt: skip


EXAMPLE_NOTES = (
    "Example 3.1: one million subscriptions on each subset of A, B, C, 100 values; an event with",
    "A and B. The paper rounds 2.33 million subscriptions in a table to 23,300 in a cluster.",
)


def list_example_verdicts() -> list[ClaimVerdict]:
    """Returns the verdicts on the checks of example 3.1."""
    subscriptions, values = make_example()
    out = []
    for more, paper in (((), "46,600"), (((0, 1), (1, 2)), "25,150")):
        tables = ((0,), (1,), (2,), *more)
        probes, checks = count_checks(subscriptions, values, tables, (0, 1))
        claim = f"example 3.1 with {len(tables)} tables: {probes} look-ups, checks"
        goal = float(paper.replace(",", "")) * 1.002
        out.append(at_most(claim, {"checks": float(checks)}, goal, paper))
    return out


def list_verdicts(rows: Sequence[Row]) -> list[ClaimVerdict]:
    """Returns the verdicts on static and dynamic, on domains and on numbers of predicates."""
    static = select_row(rows, STATIC)
    default = select_row(rows, DYNAMIC, workload="W0", bm_max=LIMITS.bm_max)
    wide = select_row(rows, PREFETCHING, workload="W0")
    apart = {name: max(v, 1 / v) for name, v in compare_times(static, default).items() if v > 0}
    out = [
        at_most("static and dynamic differ: time", apart, CLOSE, "a few ms"),
        ordering("propagation checks more than dynamic", {"checks": wide["checks"]
                                                          / max(default["checks"], 1e-9)}),
    ]  # fmt: skip
    few, many = (f"W0, {n} values" for n in (DOMAINS[0], DOMAINS[-1]))
    gains = {}
    for name in (PREFETCHING, DYNAMIC):
        gains[name] = compare_times(
            select_row(rows, name, workload=few), select_row(rows, name, workload=many)
        )
        claim = f"{name}: {DOMAINS[-1]} values are faster than {DOMAINS[0]}"
        out.append(ordering(claim, gains[name]))
    sensitive = {name: gains[PREFETCHING][name] / gains[DYNAMIC][name] for name in gains[DYNAMIC]}
    out.append(ordering("propagation is more sensitive to the domain than dynamic", sensitive))
    least, most = (f"W0, {n} predicates" for n in (PREDICATES[0], PREDICATES[-1]))
    found = compare_times(
        select_row(rows, DYNAMIC, workload=least), select_row(rows, DYNAMIC, workload=most)
    )
    claim = f"dynamic: {PREDICATES[-1]} predicates are faster than {PREDICATES[0]}"
    out.append(ordering(claim, found))
    return out


def _run_one(
    workload: PredicateWorkload,
    size: int,
    names: Sequence[str],
    settings: ExperimentSettings,
    label: str,
    limits: ClusteringLimits,
) -> list[Row]:
    """Returns the rows of one workload and size. Raises RuntimeError if matches differ."""
    rows, wrong = run_algorithms(workload, [size], names, settings, label, limits)
    if wrong:
        raise RuntimeError(wrong[0])
    return rows
