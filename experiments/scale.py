"""A model of a service of 1 to 1,000 hosts: what flows, what it takes, and what is full first.

Costs are measured on this machine in the same run, on the real rooms under real posts, and posts
are routed by real plans (experiments/scaling). With `verify`, real runs are predicted first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ps2stream.benchmarks.workload import make
from ps2stream.experiments.plans import ExperimentSettings, Row
from ps2stream.experiments.report import ClaimVerdict, ExperimentReport, ReportChart
from ps2stream.experiments.scaling.costs import ServiceCosts
from ps2stream.experiments.scaling.flows import (
    FEW_UPDATES,
    NETWORK_BYTES,
    PUBLICATION,
    UPDATES_PER_OBJECT,
    Deployment,
    Design,
    choose_commits,
    rate_flows,
)
from ps2stream.experiments.scaling.kinds import DISPATCHER, ROLES
from ps2stream.experiments.scaling.measuring import (
    LARGE,
    SMALL,
    MeasuredCosts,
    measure_service,
)
from ps2stream.experiments.scaling.runs import RealRun, count_request_bytes, run_service
from ps2stream.experiments.scaling.shapes import make_plan, shape_routing
from ps2stream.experiments.scaling.sizing import (
    CORES,
    QUERIES_PER_NODE,
    SESSIONS_PER_NODE,
    Sizing,
    count_memory,
    divide_actors,
)
from ps2stream.experiments.scaling.timeline import Timeline, TimelineResult, Timing
from ps2stream.experiments.scaling.verifying import (
    ANCHOR,
    compare,
    predict_run,
    set_scale,
)
from ps2stream.experiments.worlds import StreamSize, StreamWorld, make_world

NODES, FULL_NODES = (1, 10, 100, 1_000), (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
WORLD = StreamSize(20_000, 10_000, 40_000, 1)
FULL_WORLD = StreamSize(100_000, 30_000, 80_000, 1)
TARGETS = {100: (5e6, 50e6), 1_000: (10e6, 100e6)}
"""Objects and deliveries a second by number of hosts."""
TARGET_MS = 100.0
TARGET_COORDINATION = 0.1
TARGET_DISPATCHER = 4e9
TARGET_START_S = 600.0
RACK = 16
"""Workers of a rack that is lost: an assumption."""
EVENTS, FULL_EVENTS = 10_000, 500_000
"""About as many as are simulated of each service."""
SHORTEST_S = 0.04
GROUP = "q1"
VERIFY_S = 4.0
RUN_UPDATES = 200_000
"""Queries that a real run may insert: more than it comes to, else it ends without updates."""
NOW = "now"
SIMULATED = NOW, "calm", "local", "sharded", "sharded, calm"
"""Designs of which latency is simulated, and which are held against the targets."""
COLUMNS = (
    "design", "nodes", "dispatchers", "workers", "mergers", "limit", "first", "batch", "messages",
    "messages_s", "gb_s", "dispatcher_cpu", "worker_cpu", "merger_cpu", "sequencer_cpu",
    "coordination", "dispatcher_gb", "worker_gb", "sequencer_gb", "at", "p50_ms", "p99_ms",
)  # fmt: skip


def list_designs(nodes: int) -> dict[str, Design]:
    """Returns the designs that are compared, by name."""
    return {
        NOW: Design(),
        "before": Design(to_all=True),
        "postgres": Design(postgres=True),
        "calm": Design(updates=FEW_UPDATES),
        "local": Design(local=True),
        "sharded": Design(local=True, shards=max(nodes // 20, 1), by_region=True),
        "sharded, calm": Design(
            local=True, shards=max(nodes // 20, 1), by_region=True, updates=FEW_UPDATES
        ),
    }


def run(settings: ExperimentSettings) -> ExperimentReport:
    """Measures, verifies if that is asked for, and models every number of hosts."""
    full = settings.sweeps
    source = next(iter(settings.sources.values()))
    name = next(iter(settings.sources))
    settings.progress(f"{name}: drawing the stream")
    world = make_world(f"{name} Q1", source, GROUP, FULL_WORLD if full else WORLD, settings.seed)
    measured = measure_service(world, LARGE if full else SMALL, settings)
    notes: list[str] = []
    verdicts: list[ClaimVerdict] = []
    if settings.verify:
        measured, verdicts, notes = verify(world, measured, settings)
    events = FULL_EVENTS if full else EVENTS
    rows = model(measured, FULL_NODES if full else NODES, settings, events)
    verdicts += judge_targets(measured, rows, settings, events)
    return ExperimentReport(
        "scale", "a model of 1 to 1,000 hosts", settings.to_dict() | describe_costs(measured),
        [*describe_assumptions(world, measured), *notes], COLUMNS, rows, verdicts,
        ReportChart("lines", "see the titles", make_panels(rows)),
    )  # fmt: skip


def verify(
    world: StreamWorld, measured: MeasuredCosts, settings: ExperimentSettings
) -> tuple[MeasuredCosts, list[ClaimVerdict], list[str]]:
    """Predicts real runs with `settings.workers` workers; the scale is set by runs with ANCHOR
    workers before and after all of them. Returns what was measured at that scale, the verdicts,
    and a line about each run."""
    load = make(
        next(iter(settings.sources.values())), GROUP, world.load.start, RUN_UPDATES,
        len(world.load.posts.lon), settings.seed, world.analyzer,
    )  # fmt: skip
    plans = {n: make_plan(world, n, settings) for n in (ANCHOR, *settings.workers)}
    shapes = {n: shape_routing(world, plan) for n, plan in plans.items()}
    runs: list[RealRun] = []
    for workers in (ANCHOR, *settings.workers, ANCHOR):
        settings.progress(f"a real run with {workers} workers")
        runs.append(run_service(load, plans[workers], VERIFY_S, PUBLICATION, settings.runtime))
    if wrong := sum(each.wrong for each in runs):
        raise RuntimeError(f"{wrong} sampled objects differ from brute force")
    anchors, real = [runs[0], runs[-1]], runs[1:-1]
    near = set_scale(measured.near, shapes[ANCHOR], anchors)
    request = count_request_bytes(load, PUBLICATION)
    verdicts: list[ClaimVerdict] = []
    for each in real:
        found = predict_run(near, shapes[each.workers], each, request)
        verdicts += compare(found, each)
    lines = [
        f"real run, {each.workers} workers: {each.tuples_per_second:,.0f} tuples/s beside what "
        f"else ran (load average {each.loadavg:.1f}), {each.updates:.2f} updates an object, "
        "latency at half of that "
        + ", ".join(f"{name} {value:,.0f} ms" for name, value in each.latency_ms.items())
        for each in runs
    ]
    scaled = dataclasses.replace(
        measured.costs, scale=near.scale, client_us=near.client_us, clients_us=near.clients_us,
        idle=near.idle,
    )  # fmt: skip
    lines.append(
        "A process of its own takes, beyond its room and links: "
        + ", ".join(f"{role} {near.scale[role]:.2f}x" for role in ROLES)
        + f"; a dispatcher {near.client_us:,.0f} us a message of a client. While nothing comes: "
        + ", ".join(f"{role} {1e3 * near.idle[role]:.0f} ms a second" for role in ROLES)
    )
    return dataclasses.replace(measured, costs=scaled, near=near), verdicts, lines


def model(
    measured: MeasuredCosts, sizes: Sequence[int], settings: ExperimentSettings, events: int
) -> list[Row]:
    """Returns a row for each number of hosts and each design."""
    rows = []
    for nodes in sizes:
        for name, design in list_designs(nodes).items():
            if design.by_region and nodes < 40:
                continue
            settings.progress(f"{nodes:,} hosts, {name}")
            sizing = divide_actors(measured.costs, measured.shapes, nodes, design, measured.pairs)
            rows.append(_describe(measured, sizing, name, design, settings.seed, events))
    return rows


def _describe(
    measured: MeasuredCosts, sizing: Sizing, name: str, design: Design, seed: int, events: int
) -> Row:
    """Returns a row: limits, and what flows and how long it takes at a load below them."""
    nodes, at, limit = sizing.nodes, sizing.at, sizing.full.objects
    target = TARGETS.get(nodes, (limit / 2, 0.0))[0]
    load = target if target <= 0.9 * limit else limit / 2
    row: Row = {"design": name, "nodes": nodes, "dispatchers": at.dispatchers,
                "workers": at.workers, "mergers": at.mergers, "sessions": at.sessions,
                "shards": design.shards, "limit": limit, "first": sizing.first,
                "busy": dict(sizing.full.busy), "at": load}  # fmt: skip
    batch = float(PUBLICATION)
    if name in SIMULATED:
        found = simulate(measured.costs, at, design, load, seed, events)
        if found is not None and len(found.latency_ms):
            batch = found.batch
            row |= {f"p{p}_ms": float(np.percentile(found.latency_ms, p)) for p in (50, 99)}
            row |= {"simulated_s": found.seconds, "batches": found.batches}
    rates = rate_flows(measured.costs, at, design, load, batch)
    queries = nodes * QUERIES_PER_NODE
    memory = count_memory(measured.costs, at, design, queries, _units(measured, queries))
    return row | {
        "batch": batch, "messages": rates.batch_messages, "messages_s": rates.messages,
        "gb_s": rates.bytes / 1e9, "coordination": rates.coordination,
        **{f"{role}_cpu": rates.cpu[role] for role in ROLES},
        **{f"{role}_gb": size / 1e9 for role, size in memory.items()},
        "log_mb_s": rates.log_bytes / 1e6, "queries": queries,
        "start_s": count_start(measured.costs, at, design, queries),
    }  # fmt: skip


def _units(measured: MeasuredCosts, queries: float) -> float:
    """Returns the units of H2 for each live query, if they go on to grow as they were seen to."""
    kept = measured.costs.kept
    growth: float = (queries / kept.queries) ** (min(measured.growth, 1.0) - 1)
    return kept.units / kept.queries * growth


def count_start(costs: ServiceCosts, at: Deployment, design: Design, queries: float) -> float:
    """Returns the seconds in which actors that start read all live queries: the sequencer its
    ledger, then dispatchers and workers what it sends them."""
    own = queries / design.shards
    heard = own if design.by_region else queries
    apply_us = costs.factors[("LedgerBatch", DISPATCHER)][1] * costs.scale[DISPATCHER]
    insert_us = costs.factors[("WorkerUpdates", "worker")][1] * costs.scale["worker"]
    held = queries * at.shape.holders / at.workers
    return (own * costs.kept.replay_us + max(heard * apply_us, held * insert_us)) / 1e6


def simulate(
    costs: ServiceCosts, at: Deployment, design: Design, objects: float, seed: int, events: int,
    dead: frozenset[int] = frozenset(),
) -> TimelineResult | None:  # fmt: skip
    """Simulates about so many events of a service under so many objects a second; None if they
    are of less than SHORTEST_S."""
    receivers = at.shape.workers if design.local else at.workers
    commits = choose_commits(costs, at, design, objects * design.updates)
    each = objects / PUBLICATION * (2 * receivers + 4)
    each += commits * (at.dispatchers + at.workers + at.mergers)
    seconds = min(events / each, 5.0)
    if seconds < SHORTEST_S:
        return None
    timing = Timing(objects, seconds, seed, bandwidth=NETWORK_BYTES / 1e6, dead=dead)
    return Timeline(costs, at, design, timing).run()


def judge_targets(
    measured: MeasuredCosts, rows: Sequence[Row], settings: ExperimentSettings, events: int
) -> list[ClaimVerdict]:
    """Returns verdicts on what a service of a hundred and of a thousand hosts should do."""
    out = []
    for row in rows:
        nodes, name = row["nodes"], row["design"]
        if nodes not in TARGETS or name not in SIMULATED:
            continue
        objects, _ = TARGETS[nodes]
        case = f"{nodes:,} hosts, {name}"
        goals = {
            f"{objects / 1e6:.0f}M objects/s": (row["limit"], objects, "objects/s", False),
            "p99": (row.get("p99_ms", 0.0), TARGET_MS, f"ms at {row['at']:,.0f} objects/s",
                    True),
            "coordination": (row["coordination"], TARGET_COORDINATION, "of all CPU", True),
            "messages of a batch over W + M": (
                row["messages"] / (row["workers"] + row["mergers"]), 2.5, "", True),
            "memory of a dispatcher": (row["dispatcher_gb"], TARGET_DISPATCHER / 1e9, "GB", True),
            "start": (row["start_s"], TARGET_START_S, "s", True),
        }  # fmt: skip
        if "p99_ms" not in row:
            del goals["p99"]
        for goal, (found, limit, unit, below) in goals.items():
            met = found <= limit if below else found >= limit
            text = f"{found:,.3g} {unit}".strip()
            paper = f"target {'at most' if below else 'at least'} {limit:,g}"
            out.append(ClaimVerdict(f"{case}: {goal}", text, paper, "met" if met else "missed"))
    for row in (r for r in rows if r["nodes"] == 100 and r["design"] in (NOW, "local")):
        settings.progress(f"100 hosts, {row['design']}: a rack is lost")
        if (verdict := _judge_rack(measured, row, settings, events)) is not None:
            out.append(verdict)
    return out


def _judge_rack(
    measured: MeasuredCosts, row: Row, settings: ExperimentSettings, events: int
) -> ClaimVerdict | None:
    """Returns the verdict on p99 of what the workers of other racks find while one rack is dead;
    None if too little can be simulated."""
    design = list_designs(row["nodes"])[row["design"]]
    at = divide_actors(measured.costs, measured.shapes, row["nodes"], design, measured.pairs).at
    found = []
    for dead in (frozenset[int](), frozenset(range(min(RACK, at.shape.workers)))):
        line = simulate(measured.costs, at, design, row["at"], settings.seed, events, dead)
        if line is None or not len(line.latency_ms):
            return None
        found.append(float(np.percentile(line.latency_ms, 99)))
    ratio = found[1] / found[0]
    text = f"p99 {found[0]:.1f} ms before, {found[1]:.1f} ms while it is dead, {ratio:.2f}x"
    return ClaimVerdict(
        f"{row['nodes']:,} hosts, {row['design']}: a rack of {RACK} workers is lost", text,
        "target: others' p99 unchanged", "met" if ratio <= 1.1 else "missed",
    )  # fmt: skip


def describe_costs(measured: MeasuredCosts) -> dict[str, Any]:
    """Returns the measured costs as JSON-able data."""
    costs = measured.costs
    return {
        "cpu_us": {"@".join(key): list(of) for key, of in costs.factors.items()},
        "bytes": {kind: list(of) for kind, of in costs.sizes.items()},
        "kept": costs.kept._asdict(), "link": costs.link._asdict(),
        "link_of_one_host": measured.near.link._asdict(), "session_us": costs.session_us,
        "sync_us": costs.sync_us, "scale": dict(costs.scale), "client_us": costs.client_us,
        "idle": dict(costs.idle), "pairs_per_object": measured.pairs,
        "growth_of_units": measured.growth,
        "shapes": {
            n: {"copies": of.copies, "candidates": of.candidates, "holders": of.holders,
                "receivers": {size: of.receivers(size) for size in of.batches}}
            for n, of in measured.shapes.items()
        },
    }  # fmt: skip


def describe_assumptions(world: StreamWorld, measured: MeasuredCosts) -> list[str]:
    """Returns what the figures rest on besides what was measured."""
    most, kept = max(measured.shapes), measured.costs.kept
    return [
        f"Measured here under {world.name}: rooms, links, syncs and plans.",
        f"{kept.queries:,} live queries, {measured.pairs:.1f} matches an object.",
        f"Assumed: {CORES} cores a host, one for each actor; 10 Gbit/s; 0.1 ms between hosts;",
        f"{QUERIES_PER_NODE:,} queries and {SESSIONS_PER_NODE} sessions a host;",
        f"{UPDATES_PER_OBJECT:g} updates an object; beyond {most} workers, regions like this one",
        "side by side, with as many matches and candidates an object.",
        "limit: objects/s at which `first` is full, in batches of 8,192, with the best division",
        "of actors among roles. The columns after `first` are of `at` objects/s.",
        "coordination: what messages take whatever is in them, and the sequencer.",
        "messages: of a batch, between dispatcher, workers and mergers; messages_s: all, a second.",
        "before: as before the rebuild of the data path. postgres: logs in one PostgreSQL.",
        f"calm: {FEW_UPDATES:g} updates an object.",
        "local: dispatchers take objects of one region. sharded: local, and the ledger has a",
        "shard for each 20 hosts, of which a dispatcher applies one.",
    ]


def make_panels(rows: Sequence[Row]) -> Mapping[str, Mapping[str, Mapping[int, float]]]:
    """Returns the chart: what can be taken, messages of a batch, and latency, by hosts."""
    panels: dict[str, dict[str, dict[int, float]]] = {}
    for title, key in (
        ("objects/s at the limit", "limit"), ("messages of a batch", "messages"),
        ("p99, ms", "p99_ms"), ("memory of a dispatcher, GB", "dispatcher_gb"),
        ("coordination, part of all CPU", "coordination"),
    ):  # fmt: skip
        panel = panels.setdefault(title, {})
        for row in rows:
            if row.get(key):
                panel.setdefault(row["design"], {})[row["nodes"]] = row[key]
    return panels
