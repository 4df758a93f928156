"""Figure 14: the size and the time of a migration in the running service."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ps2stream.experiments.moving import (
    DELAYED_MS,
    SHARE,
    STALLED_MS,
    MeasuredMigration,
    make_scene,
    migrations,
)
from ps2stream.experiments.plans import ExperimentSettings, Row
from ps2stream.experiments.report import (
    ClaimVerdict,
    ExperimentReport,
    ReportChart,
    at_most,
    ordering,
)
from ps2stream.planner.adjust.algorithms import SELECTIONS

COLUMNS = (
    "stream", "standing", "algorithm", "moves", "parts", "megabytes", "loaded_mb", "seconds",
    "balance", "balance_after", "sampled", "lost", "doubled",
)  # fmt: skip
POSTS_OF = 2  # multiple of the objects before T
REPEATS = {False: 1, True: 3}  # quick, full
FEWER = 0.25  # share of the queries, which full size runs besides all of them
GREEDY = ("gr", "gr+")
NOTES = (
    "The service runs on Ray, 1 dispatcher, 1 merger; objects, inserts and deletes 10 : 1 : 1 at",
    f"{SHARE:.0%} of the rate that saturates it, all on this machine. A migration that is not",
    "counted comes first. Between two migrations the service returns to the same plan.",
    "megabytes: of the parts that were chosen; loaded_mb: what the new owners fetched. seconds:",
    "the median from begin to end of a migration. sampled objects equal brute force.",
)


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Runs F14 on the first stream."""
    return report(settings, *measured(settings, tuple(SELECTIONS)))


def report(
    settings: ExperimentSettings, rows: Sequence[Row], rates: Sequence[str]
) -> ExperimentReport:
    """Returns the report on the measured rows."""
    panels = {
        f"{standing:,} queries": {
            name: {row["algorithm"]: row[name] for row in rows if row["standing"] == standing}
            for name in ("megabytes", "seconds")
        }
        for standing in dict.fromkeys(row["standing"] for row in rows)
    }
    return ExperimentReport(
        "f14", "migrations: bytes and time", settings.to_dict(), [*NOTES, *rates], COLUMNS, rows,
        verdicts(rows), ReportChart("bars", "MB and s", panels),
    )  # fmt: skip


def measured(
    settings: ExperimentSettings, algorithms: Sequence[str], rate: float | None = None
) -> tuple[list[Row], list[str]]:
    """Returns (a row for each number of queries and algorithm, a note on each rate). rate: tuples
    per second, by default SHARE of what saturates the service."""
    stream, source = next(iter(settings.sources.items()))
    rows: list[Row] = []
    rates = []
    for share in (FEWER, 1.0) if settings.sweeps else (1.0,):
        standing = round(share * settings.size.queries)
        settings.progress(f"{stream} Q3, {standing:,} queries: drawing the stream")
        set_up = make_scene(
            source, standing, POSTS_OF * settings.size.planned, settings.workers[0], settings.seed
        )
        order = [algorithms[0], *(REPEATS[settings.sweeps] * tuple(algorithms))]
        reached, moves = migrations(set_up, order, settings.runtime, settings.progress, rate)
        rates.append(f"{standing:,} queries: {reached:,.0f} tuples/s.")
        for name in algorithms:
            mine = [move for move in moves[1:] if move.algorithm == name]
            rows.append({"stream": stream, "standing": standing} | row_of(name, mine))
    return rows, rates


def row_of(algorithm: str, moves: Sequence[MeasuredMigration]) -> Row:
    """Returns the moves by one algorithm as one row: sums and medians."""
    sizes = [sum(part["bytes"] for part in move.proposal["migrations"]) for move in moves]
    row: Row = {
        "algorithm": algorithm,
        "moves": len(moves),
        "parts": float(np.median([len(move.proposal["migrations"]) for move in moves])),
        "megabytes": float(np.median(sizes)) / 1e6,
        "loaded_mb": float(np.median([move.info.bytes or 0 for move in moves])) / 1e6,
        "seconds": float(np.median([move.seconds for move in moves])),
        "balance": float(np.median([move.proposal["balance_before"] for move in moves])),
        "balance_after": float(np.median([move.proposal["balance_after"] for move in moves])),
        "each": [
            {"seconds": m.seconds, "bytes": b} | dataclasses.asdict(m.info)
            for m, b in zip(moves, sizes, strict=True)
        ],
    }
    for name in ("sampled", "lost", "doubled"):
        row[name] = sum(move.checked[name] for move in moves)
    for label, parts in (
        ("", [move.ms for move in moves]),
        ("quiet_", [move.quiet_ms for move in moves]),
    ):
        ms = np.concatenate(parts)
        row[f"{label}deliveries"] = len(ms)
        late, stalled = (int((ms >= least).sum()) for least in (DELAYED_MS, STALLED_MS))
        of = max(len(ms), 1)
        row[f"{label}below_100ms"] = 1 - late / of
        row[f"{label}to_1s"] = (late - stalled) / of
        row[f"{label}above_1s"] = stalled / of
        row[f"{label}worst_ms"] = float(ms.max(initial=0.0))
    return row


def verdicts(rows: Sequence[Row]) -> list[ClaimVerdict]:
    """Returns the verdicts on bytes and time."""
    found: list[ClaimVerdict] = []
    for standing in dict.fromkeys(row["standing"] for row in rows):
        of = {row["algorithm"]: row for row in rows if row["standing"] == standing}
        for name in (n for n in GREEDY if n in of):
            case = f"{standing:,} queries: {name}"
            mb = {
                other: of[other]["megabytes"] / of[name]["megabytes"]
                for other in ("si", "ra")
                if other in of
            }
            found.append(ordering(f"{case} moves fewer bytes than", mb))
            if "ra" in of:
                took = {"seconds": of[name]["seconds"] / max(of["ra"]["seconds"], 1e-3)}
                found.append(at_most(f"{case}: time over ra's", took, 0.5, "about half"))
    counts = sorted({row["standing"] for row in rows})
    if len(counts) > 1:
        more = {
            name: _find_megabytes(rows, name, counts[-1]) / _find_megabytes(rows, name, counts[0])
            for name in dict.fromkeys(row["algorithm"] for row in rows)
        }
        found.append(ordering(f"{counts[-1] / counts[0]:g} times the queries: more bytes", more))
    return [*found, judge_losses(rows)]


def _find_megabytes(rows: Sequence[Row], name: str, standing: int) -> float:
    [value] = [
        row["megabytes"] for row in rows if (row["algorithm"], row["standing"]) == (name, standing)
    ]
    return float(value)


def judge_losses(rows: Sequence[Row]) -> ClaimVerdict:
    """Returns the verdict that no match was lost or doubled."""
    sampled, lost, doubled = (
        sum(row[name] for row in rows) for name in ("sampled", "lost", "doubled")
    )
    word = "met" if sampled and not lost and not doubled else "missed"
    measured = f"{lost} lost, {doubled} duplicated in {sampled:,} sampled objects"
    return ClaimVerdict("no match is lost or duplicated", measured, "our goal", word)
