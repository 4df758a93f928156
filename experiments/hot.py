"""Ours: most of the stream jumps to one place or word, and how soon the workers are balanced again.

A whole service runs in this process, tick by tick, so that a second is that of the stream and not
of the machine. After a while four fifths of the stream jump: to one point, a neighbourhood, a word
that a plan by text gives to one worker, or a word at one point. Three ways are compared: no
adjustment, the local adjustment (parts migrate and are split by text), and the replication of hot
units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ps2stream.cluster.local_runtime import LocalRuntime
from ps2stream.cluster.topology import Topology
from ps2stream.controller.policy import ControllerPolicy
from ps2stream.experiments.plans import ExperimentSettings, Row
from ps2stream.experiments.report import ClaimVerdict, ExperimentReport, ReportChart
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.language.expression import compile_column
from ps2stream.language.query_rows import RectColumns, build_rows
from ps2stream.protocol.frame import F64, strings_to_column
from ps2stream.protocol.rows import ObjectRows
from ps2stream.routing.plan import RoutingPlan, built_in_plan, text_plan
from ps2stream.space.grid import Grid
from ps2stream.store.memory import MemoryStore

JUMPS = ("point", "neighbourhood", "word", "word at a point", "none")
WAYS = ("off", "local", "replicate")
COLUMNS = (
    "jump", "way", "workers", "first_change_s", "balanced_s", "most_over_mean", "copies",
    "plan_changes", "over_ideal", "collapsed",
)  # fmt: skip
QUERIES, QUERIES_THERE = 20_000, 4_000
"""Queries all over, and where the stream will jump."""
WORDS, SKEW = 3_000, 0.9
PLACE = (10.3, 20.3)
RATE = 2_560  # objects a second
BATCH = 256
CALM_S, JUMPED_S = 10, 45
STATIONARY_S = 600
SHARE = 0.8
BALANCED, ANSWERED_S, BALANCED_S, IDEAL = 1.3, 2.0, 10.0, 0.8
HELD_S = 3
"""Seconds for which a balance must last to count."""
NOTES = (
    "A service in one process; seconds are those of the stream, 2,560 objects in each.",
    "first_change_s, balanced_s: after the jump, until the first plan change has ended and until",
    "the most loaded worker has less than 1.3 times the mean, in copies of objects, for 3 s.",
    "most_over_mean, copies an object: at the end. over_ideal: the throughput that the most loaded",
    "worker allows, over that of a fair division of the copies that are sent without adjustment.",
    'collapsed: pairs that two workers found, which the mergers made one. The jump "none" is ten',
    "minutes of the calm stream. The local adjustment decides once in 10 s.",
)


class JumpWorld(NamedTuple):
    """The queries and the batches of one kind of jump, and the plan that it meets."""

    plan: RoutingPlan
    queries: tuple[list[str], F64, F64, F64]
    calm: list[ObjectRows]
    jumped: list[ObjectRows]


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Plays each jump in each way."""
    rows: list[Row] = []
    workers = settings.workers[0]
    stationary_s = STATIONARY_S if settings.sweeps else STATIONARY_S // 10
    for jump in JUMPS:
        world = make_jump(jump, workers, settings.seed)
        for way in WAYS if jump != "none" else WAYS[2:]:
            settings.progress(f"{jump}: {way}")
            rows.append(play(world, jump, way, settings.seed, stationary_s))
        free = next((row["copies"] for row in rows if row["jump"] == jump), 0.0)
        for row in rows:
            if row["jump"] == jump:
                row["over_ideal"] = free / row["most_copies"] / workers if free else 0.0
    panels = {
        jump: {way: dict(enumerate(row["course"])) for way, row in by.items()}
        for jump in JUMPS[:-1]
        for by in [{row["way"]: row for row in rows if row["jump"] == jump}]
    }
    return ExperimentReport(
        "hot", "hot spots: reaction and balance", settings.to_dict(), NOTES, COLUMNS, rows,
        list_verdicts(rows), ReportChart("course", "most over mean, by seconds", panels),
    )  # fmt: skip


def make_jump(jump: str, workers: int, seed: int) -> JumpWorld:
    """Returns a made world of QUERIES all over, and of QUERIES_THERE."""
    rng = np.random.default_rng([seed, JUMPS.index(jump)])
    analysis, grid = Analysis(salt=seed), Grid(9, 8)
    names = np.array([f"w{i}" for i in range(WORDS)])
    skew = 1 / np.arange(1, WORDS + 1) ** SKEW
    skew /= skew.sum()

    def places(n: int) -> tuple[F64, F64]:
        return rng.uniform(-120, 120, n), rng.uniform(-60, 60, n)

    def near(n: int) -> tuple[F64, F64]:
        if jump == "neighbourhood":
            return PLACE[0] + rng.uniform(-4, 4, n), PLACE[1] + rng.uniform(-4, 4, n)
        if jump == "word":
            return places(n)
        return PLACE[0] + rng.normal(0, 0.05, n), PLACE[1] + rng.normal(0, 0.05, n)

    def query_words(n: int) -> list[str]:
        return [str(word) for word in rng.choice(names, n, p=skew)]

    many, few = QUERIES, QUERIES_THERE
    hot_word = ["w5"] * few
    lon, lat = (np.r_[a, b] for a, b in zip(places(many), near(few), strict=True))
    side = np.r_[rng.uniform(0.05, 2, many), rng.uniform(0.05, 0.3, few)]
    words = query_words(many) + (hot_word if "word" in jump else query_words(few))
    analyzer = Analyzer(analysis)

    def batch(jumped: bool) -> ObjectRows:
        x, y = places(BATCH)
        texts = rng.choice(names, (BATCH, 6), p=skew)
        if jumped:
            some = np.flatnonzero(rng.random(BATCH) < SHARE)
            x[some], y[some] = near(len(some))
            if "word" in jump:
                texts[some, 0] = "w5"
        text = strings_to_column([" ".join(row) for row in texts.tolist()])
        blank = np.zeros(BATCH + 1, np.int64), np.zeros(0, np.uint8)
        return ObjectRows(*blank, np.zeros(BATCH, np.int64), x, y, *text, *analyzer.analyse(*text))

    calm, hot = ([batch(jumped) for _ in range(40)] for jumped in (False, jump != "none"))
    if jump == "word":
        plan = text_plan(analysis, grid, workers)
    else:
        plan = built_in_plan(analysis, grid, workers, places(20_000))
    return JumpWorld(plan, (words, lon, lat, side), calm, hot)


def play(world: JumpWorld, jump: str, way: str, seed: int, stationary_s: int) -> Row:
    """Plays one jump in one way; returns its row."""
    policy = ControllerPolicy(automatic=way == "local", hot=way == "replicate", idle=0.0)
    runtime = LocalRuntime(
        Topology(world.plan, policy=policy, sample_objects=20_000), MemoryStore()
    )
    edge = runtime.edges[0]
    words, lon, lat, side = world.queries
    n = len(words)
    compiled = compile_column(*strings_to_column(words), edge.analyzer, edge.frequencies)
    boxes = RectColumns(lon - side, lat - side, lon + side, lat + side)
    ids = strings_to_column([f"q{i}" for i in range(n)])
    edge.update(build_rows(ids, compiled, boxes), ["hot"] * n, [""] * n)
    rng = np.random.default_rng([seed, 7])
    workers, router = world.plan.workers, edge.machine.router
    sent, versions = [np.zeros(workers)], []
    calm_s = CALM_S if jump != "none" else stationary_s
    seconds = calm_s + (JUMPED_S if jump != "none" else 0)
    for second in range(seconds):
        batches = world.jumped if second >= calm_s else world.calm
        for _ in range(10):
            for _ in range(RATE // 10 // BATCH):
                edge.publish(batches[int(rng.integers(len(batches)))])
            runtime.tick()
            versions.append(router.plan_version)
        counts = runtime.status()
        sent.append(np.array([counts[f"worker-{w}"]["objects"] for w in range(workers)], float))
    copies = np.diff(np.array(sent), axis=0) / (RATE // 10 // BATCH * BATCH * 10)
    collapsed = int(runtime.status()["dispatcher-0"]["collapsed"])
    runtime.close()
    course = copies.max(axis=1) / np.maximum(copies.mean(axis=1), 1e-9)
    after = course[calm_s:] if jump != "none" else course[CALM_S:]
    start = 10 * (calm_s if jump != "none" else CALM_S)
    changed = [i - start + 1 for i in range(start, len(versions)) if versions[i] != versions[i - 1]]
    held = [s for s in range(len(after) - HELD_S + 1) if (after[s : s + HELD_S] < BALANCED).all()]
    return {
        "jump": jump, "way": way, "workers": workers,
        "first_change_s": changed[0] / 10 if changed else None,
        "balanced_s": held[0] + 1 if held else None,
        "most_over_mean": float(after[-HELD_S:].mean()),
        "copies": float(copies[-HELD_S:].sum(axis=1).mean()),
        "most_copies": float(copies[-HELD_S:].max(axis=1).mean()),
        "plan_changes": len(changed), "collapsed": collapsed,
        "course": [round(float(value), 3) for value in after],
    }  # fmt: skip


def list_verdicts(rows: Sequence[Row]) -> list[ClaimVerdict]:
    """Returns verdicts on our goals: the reaction, the balance, a stationary stream, and the
    throughput that replicas allow."""
    out = []
    for row in rows:
        if row["way"] != "replicate":
            continue
        jump = row["jump"]
        if jump == "none":
            out.append(_judge("stationary stream: plan changes", row["plan_changes"], 0, ""))
            continue
        first, balanced = row["first_change_s"], row["balanced_s"]
        out.append(_judge(f"{jump}: first plan change", first, ANSWERED_S, " s"))
        out.append(_judge(f"{jump}: balance below {BALANCED}", balanced, BALANCED_S, " s"))
        measured = row["over_ideal"]
        verdict = "met" if measured >= IDEAL else "missed"
        claim = f"{jump}: throughput over the ideal"
        out.append(ClaimVerdict(claim, f"{measured:.2f}, goal {IDEAL}", "our goal", verdict))
    return out


def _judge(claim: str, measured: Any, goal: float, unit: str) -> ClaimVerdict:
    """Returns the verdict on a figure that may be at most its goal; None: never."""
    shown = "never" if measured is None else f"{measured:g}{unit}"
    met = measured is not None and measured <= goal
    text = f"{shown}, goal {goal:g}{unit}"
    return ClaimVerdict(claim, text, "our goal", "met" if met else "missed")
