"""The common part of experiments on plans: made on one part of the stream, judged on the other."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from ps2stream.experiments.evaluate import PlanJudgement, evaluate
from ps2stream.experiments.worlds import (
    FULL,
    QUICK,
    Change,
    StreamSize,
    StreamWorld,
    as_drawn,
    make_world,
)
from ps2stream.planner.algorithms import ALGORITHMS
from ps2stream.planner.partition import PartitionOptions, to_plan
from ps2stream.routing.costs import Costs
from ps2stream.routing.plan import RoutingPlan

HYBRID, PLUS, METRIC, KD = "hybrid", "hybrid+", "metric", "kdtree"
PAPER, KD_LOAD, LPT = "hybrid-paper", "kdtree-load", "lpt"
GRID, RTREE, HASH = "grid", "rtree", "hash"
TEXT = ("frequency", "hypergraph", METRIC)
SPACE = (GRID, KD, RTREE)
MAIN = (HYBRID, PLUS, METRIC, KD)
STRONG = (KD_LOAD, LPT)
"""Baselines by load, which the paper does not have."""
TIMED = "tweets-by-time"
"""The shared posts as they came, not shuffled."""
GROUPS = ("q1", "q2", "q3")
JUDGED_AT = Costs(c1=0.02, c2=0.6, c3=0.6, c4=0.2)
"""The costs that "modelled" counts with, whatever a plan was made with."""
NOTES = (
    "Plans are made on the stream before a moment T and judged on the stream after it.",
    "modelled: the slowest worker's load, counted exactly, at 0.6 us for an object, 0.02 for a",
    "candidate, 0.6 and 0.2 for a posting inserted and deleted.",
    "kernel: each worker's share runs on a real GI2, one worker after the other at full speed",
    "in one process; the throughput of the cluster is bounded by the slowest worker.",
    "Neither counts dispatchers, mergers or the network.",
)
Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class ExperimentSettings:
    """The settings of an experiment.

    posts: a file of real posts, None for the synthetic stream alone. costs: what plans are made
    with. repeats: timed runs of each worker, of which the fastest counts; 0 only counts. timed:
    also the real posts by time. runtime: of experiments that run a service. subscriptions: of the
    experiments of Le Subscribe, 0 for what the size says. streams: the folder of the shared
    streams, None for generated ones alone; tuples: the length of generated keyed streams, and the
    most of shared ones. verify: whether the model is compared with real runs. progress: receives a
    line about each step.
    """

    size: StreamSize = QUICK
    workers: Sequence[int] = (8,)
    seed: int = 1
    posts: str | None = None
    costs: Costs = dataclasses.field(default_factory=Costs)
    repeats: int = 5
    timed: bool = False
    runtime: Literal["ray", "local"] = "ray"
    subscriptions: int = 0
    streams: str | None = None
    tuples: int = 1_000_000
    verify: bool = False
    progress: Callable[[str], None] = lambda what: None

    @property
    def sources(self) -> dict[str, str]:
        """The streams by name."""
        real = {"tweets": self.posts} if self.posts is not None else {}
        timed = {TIMED: self.posts} if self.posts is not None and self.timed else {}
        return {**real, **timed, "synthetic": "synthetic"}

    @property
    def sweeps(self) -> bool:
        """True at full size, where conditions of orderings that do not hold are looked for."""
        return self.size == FULL

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings as JSON-able data."""
        return {
            **self.size._asdict(),
            "workers": list(self.workers),
            "seed": self.seed,
            "streams": list(self.sources),
            "costs": dataclasses.asdict(self.costs),
            "repeats": self.repeats,
        }

    def notes(self) -> list[str]:
        """Returns notes on how to read the figures."""
        size = self.size
        streams = "" if self.posts else " No file of real posts was given: synthetic alone."
        more = f"; {size.generated} times as many of the synthetic stream"
        more = more if size.generated > 1 else ""
        return [
            *NOTES,
            f"{size.queries:,} live queries; seed {self.seed}.{streams}",
            f"{size.planned:,} objects before T, {size.judged:,} after{more}.",
        ]


def make_worlds(
    settings: ExperimentSettings, groups: Sequence[str], label: str = "", change: Change = as_drawn
) -> Iterator[StreamWorld]:
    """Yields every group over every stream; a label names what is changed."""
    for stream, source in settings.sources.items():
        for group in groups:
            name = f"{stream} {group.upper()}{label and ' ' + label}"
            settings.progress(f"{name}: drawing the stream")
            yield make_world(
                name, source, group, settings.size, settings.seed, change, stream == TIMED
            )


def planned(
    world: StreamWorld, name: str, workers: int, settings: ExperimentSettings
) -> RoutingPlan:
    """Returns the plan of one algorithm."""
    options = PartitionOptions(costs=settings.costs, seed=settings.seed)
    partition = ALGORITHMS[name](world.statistics, workers, options)
    return to_plan(partition, world.statistics, workers, world.analyzer.analysis, world.frequencies)


def judge_plan(
    world: StreamWorld, name: str, workers: int, settings: ExperimentSettings
) -> tuple[Row, PlanJudgement]:
    """Makes and judges a plan: (a row of a report, the whole judgement)."""
    settings.progress(f"{world.name}: {name}, {workers} workers")
    began = time.perf_counter()
    plan = planned(world, name, workers, settings)
    took = time.perf_counter() - began
    found = evaluate(plan, world.analyzer, world.period, JUDGED_AT, settings.repeats)
    stream, group = world.name.split(" ", 1)
    row = {
        "stream": stream,
        "queries": group,
        "workers": workers,
        "algorithm": name,
        **found.to_dict(),
        "plan_seconds": took,
    }
    return row, found


def judge_all(
    settings: ExperimentSettings, groups: Sequence[str], names: Sequence[str]
) -> tuple[list[Row], list[str]]:
    """Returns (rows, warnings): every algorithm in every world with every number of workers."""
    rows = []
    for world in make_worlds(settings, groups):
        for workers in settings.workers:
            rows += [judge_plan(world, name, workers, settings)[0] for name in names]
    different = {
        (row["stream"], row["queries"])
        for row in rows
        for other in rows
        if (row["stream"], row["queries"]) == (other["stream"], other["queries"])
        and row["matches"] != other["matches"]
    }
    return rows, [f"WRONG: the plans of {' '.join(d)} find different matches" for d in different]


def select_values(rows: Sequence[Row], value: str, **fixed: Any) -> dict[str, float]:
    """Returns algorithm -> value for the rows that have the fixed fields."""
    return {
        row["algorithm"]: row[value]
        for row in rows
        if all(row[name] == want for name, want in fixed.items())
    }


def compare_throughputs(
    rows: Sequence[Row], above: Sequence[str], below: Sequence[str], **fixed: Any
) -> dict[str, float]:
    """Returns the worst of `above` over the best of `below`, by cost model and kernel."""
    out = {}
    for label, value in (("modelled", "throughput"), ("kernel", "kernel_throughput")):
        found = select_values(rows, value, **fixed)
        out[label] = min(found[n] for n in above) / max(found[n] for n in below)
    return out


def list_cases(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Returns the (stream, queries) of the rows, in their order."""
    return list(dict.fromkeys((row["stream"], row["queries"]) for row in rows))


def by_case(rows: Sequence[Row], value: str) -> dict[tuple[str, str], dict[str, float]]:
    """Returns (stream, queries) -> algorithm -> value."""
    return {at: select_values(rows, value, stream=at[0], queries=at[1]) for at in list_cases(rows)}


def make_bar_panels(
    rows: Sequence[Row], values: Mapping[str, str]
) -> dict[str, dict[str, dict[str, float]]]:
    """Returns panels of a bar chart: values maps a series' name to a column."""
    found = {label: by_case(rows, value) for label, value in values.items()}
    return {
        f"{stream} {queries}": {label: of[stream, queries] for label, of in found.items()}
        for stream, queries in list_cases(rows)
    }
