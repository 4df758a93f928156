"""Figure 16: adjustment against none, while regions of Q3 flip between Q1 and Q2.

Two services begin with the same plan and have the same stream. At the end of each period the
workers of one report what they counted, and the controller's rules decide, as in the service: no
decision before a whole period has passed since the last, and parts that are too hot to move are
divided by a sample of the period. A move takes no time here; f14 measures what it takes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from ps2stream.experiments.evaluate import PlanJudgement, StreamPeriod, evaluate
from ps2stream.experiments.loads import measured
from ps2stream.experiments.plans import (
    HYBRID,
    JUDGED_AT,
    NOTES,
    TIMED,
    ExperimentSettings,
    Row,
    planned,
)
from ps2stream.experiments.report import (
    ClaimVerdict,
    ExperimentReport,
    ReportChart,
    at_least,
    at_most,
    unless_idle,
)
from ps2stream.experiments.worlds import UPDATE_EVERY, StreamWorld, make_world, sample
from ps2stream.planner.adjust.adjustment import PartMove
from ps2stream.planner.adjust.apply import apply
from ps2stream.planner.adjust.decide import Rules, decide
from ps2stream.planner.adjust.units import PartLoads, carried, smoothed
from ps2stream.protocol.rows import QueryRows
from ps2stream.routing.costs import balance
from ps2stream.routing.plan import RoutingPlan

COLUMNS = (
    "stream", "flips", "balance", "balance_adjusted", "throughput", "throughput_adjusted",
    "gain", "kernel_gain", "moves", "splits", "megabytes", "above_sigma",
)  # fmt: skip
GAIN, PERIODS, SHARE = 1.2, 3, 0.1
FLIPS = {False: 2, True: 8}  # quick, full
MOST = 50_000  # live queries, and objects of a period


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Runs F16: the live queries are exchanged between two flips."""
    settings = dataclasses.replace(settings, timed=True)
    workers = settings.workers[0]
    rules = Rules(JUDGED_AT, pairs=max(1, workers // 2))
    rows: list[Row] = []
    panels: dict[str, dict[str, dict[int, float]]] = {}
    notes = []
    for world, periods in make_streams(settings):
        course = list(run_services(world, workers, rules, periods, settings))
        rows += [merge_periods(course[k : k + periods]) for k in range(0, len(course), periods)]
        panels[f"{world.name}: balance"] = {
            label: {row["period"]: row[label] for row in course}
            for label in ("balance", "balance_adjusted")
        }
        if any(row["differ"] for row in course):
            notes.append(f"WRONG: both services of {world.name} find different matches")
    return ExperimentReport(
        "f16", "with and without adjustment, Q3 with flips", settings.to_dict(),
        [
            *NOTES[1:],
            "Of the 100 regions as many as have a tenth of the queries together flip whenever",
            f"{count_live(settings):,} queries are replaced.",
            "A row is the time up to the next flip: the worst balance; all else of the last",
            "period. above_sigma: the longest run of periods above sigma of the adjusted service.",
            *notes,
        ],
        COLUMNS, rows, verdicts(rows, rules), ReportChart("course", "by period", panels),
    )  # fmt: skip


def count_live(settings: ExperimentSettings) -> int:
    """Returns the number of live queries."""
    return min(settings.size.queries, MOST)


def make_streams(settings: ExperimentSettings) -> Iterator[tuple[StreamWorld, int]]:
    """Yields (a stream, periods between two flips)."""
    size = settings.size
    objects = min(size.judged, MOST)
    periods = count_live(settings) * UPDATE_EVERY // objects
    rounds = periods * (FLIPS[settings.sweeps] + 1)
    drawn = size.planned + size.judged
    whole = size._replace(
        queries=count_live(settings),
        judged=rounds * objects,
        rounds=rounds,
        generated=1,
        drawn=drawn,
    )
    before = size.planned // UPDATE_EVERY
    for stream, source in settings.sources.items():
        settings.progress(f"{stream} Q3: drawing the stream")
        yield (
            make_world(
                stream, source, "q3", whole, settings.seed,
                lambda load: load.flipping(count_live(settings), before, SHARE),
                stream == TIMED,
            ),
            periods,
        )  # fmt: skip


def run_services(
    world: StreamWorld, workers: int, rules: Rules, periods: int, settings: ExperimentSettings
) -> Iterator[Row]:
    """Yields a row for each period; the kernel is measured only in the last one before a flip."""
    plan = adjusted = planned(world, HYBRID, workers, settings)
    standing, units, settled = world.period.live, None, 0
    size = len(world.period.rounds[0].objects.lon)
    first = len(world.load.posts.lon) - size * len(world.period.rounds)
    for k, part in enumerate(world.period.rounds):
        settings.progress(f"{world.name} Q3: period {k + 1} of {len(world.period.rounds)}")
        period = StreamPeriod(standing, [part])
        repeats = settings.repeats if (k + 1) % periods == 0 else 0
        found = [evaluate(p, world.analyzer, period, JUDGED_AT, repeats) for p in (plan, adjusted)]
        units = smoothed(units, measured(adjusted, world.analyzer, period))
        moves: Sequence[PartMove] = ()
        if k >= settled and balance(units.loads(workers, JUDGED_AT)) > rules.sigma:
            now = first + k * size
            moves, adjusted, units = _adjust_plan(world, adjusted, units, rules, now, now + size)
            settled = k + 2 if moves else settled
        yield _make_row(world.name, k, k // periods, found, moves)
        standing = _apply_updates(standing, part.inserts, part.deletes)


def _adjust_plan(
    world: StreamWorld, plan: RoutingPlan, units: PartLoads, rules: Rules, first: int, last: int
) -> tuple[Sequence[PartMove], RoutingPlan, PartLoads]:
    """Decides as the controller does, by a report of objects first..last - 1."""
    updates = slice(first // UPDATE_EVERY, last // UPDATE_EVERY)
    recent = sample(world.load, slice(first, last), updates, world.analyzer)
    found = decide(units, plan, rules, recent.stats)
    if not found.moves:
        return (), plan, units
    return found.moves, apply(plan, found), carried(units, found.moves, rules.costs)


def _apply_updates(standing: QueryRows, inserts: QueryRows, deletes: QueryRows) -> QueryRows:
    """Returns the live queries after these inserts and deletes."""
    now = QueryRows.concat([standing, inserts])
    return now.take(np.flatnonzero(~np.isin(now.handle, deletes.handle)))


def _make_row(
    stream: str, k: int, flips: int, found: Sequence[PlanJudgement], moves: Sequence[PartMove]
) -> Row:
    row: Row = {"stream": stream, "period": k, "flips": flips}
    for label, judged in zip(("", "_adjusted"), found, strict=True):
        row |= {
            f"balance{label}": balance(judged.load),
            f"throughput{label}": judged.throughput,
            f"kernel_throughput{label}": judged.kernel_throughput,
        }
    return row | {
        "differ": found[0].matches != found[1].matches,
        "moves": len(moves),
        "splits": sum(move.kind == "split" for move in moves),
        "megabytes": sum(move.bytes for move in moves) / 1e6,
    }


def merge_periods(course: Sequence[Row]) -> Row:
    """Returns the periods between two flips as one row."""
    last = course[-1]
    row: Row = {"stream": last["stream"], "flips": last["flips"], "periods": list(course)}
    for name in ("balance", "balance_adjusted"):
        row[name] = max(period[name] for period in course)
    for name in ("throughput", "throughput_adjusted"):
        row[name] = last[name]
    row["gain"] = last["throughput_adjusted"] / last["throughput"]
    kernel = last["kernel_throughput"]
    row["kernel_gain"] = last["kernel_throughput_adjusted"] / kernel if kernel else 0.0
    for name in ("moves", "splits", "megabytes"):
        row[name] = sum(period[name] for period in course)
    return row


def verdicts(rows: Sequence[Row], rules: Rules) -> list[ClaimVerdict]:
    """Returns the verdicts on our goals, for what follows the first flip."""
    found: list[ClaimVerdict] = []
    for stream in dict.fromkeys(row["stream"] for row in rows):
        mine = [row for row in rows if row["stream"] == stream]
        for row in mine:
            row["above_sigma"] = longest(
                [p["balance_adjusted"] > rules.sigma for p in row["periods"]]
            )
        gains = {"modelled": mine[-1]["gain"], "kernel": mine[-1]["kernel_gain"]}
        moves = sum(row["moves"] for row in mine)
        claim = f"{stream}: adjusted over unadjusted at the end"
        found.append(unless_idle(at_least(claim, gains, GAIN), moves))
        runs = longest([p["balance_adjusted"] > rules.sigma for r in mine for p in r["periods"]])
        claim = f"{stream}: periods in a row with a balance above {rules.sigma:g}"
        verdict = at_most(claim, {"adjusted": float(runs)}, PERIODS, "our goal")
        found.append(unless_idle(verdict, moves + runs))
    return found


def longest(flags: Sequence[bool]) -> int:
    """Returns the length of the longest run of true."""
    best = run = 0
    for flag in flags:
        run = run + 1 if flag else 0
        best = max(best, run)
    return best
