"""The input and the output of a partitioning algorithm: the one interface of all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner.load import Kind, lower_bound, worker_loads
from ps2stream.planner.statistics import I32, REST_TERMS, Statistics
from ps2stream.protocol.frame import U32
from ps2stream.routing.costs import Costs, balance
from ps2stream.routing.plan import Leaf, RoutingPlan, Space, Text, hash_units
from ps2stream.routing.unit_kernels import FIRST_GROUP
from ps2stream.space.kdt_tree import Kdt


@dataclasses.dataclass(frozen=True)
class PartitionOptions:
    """The options of a partitioning algorithm. delta, eps, sigma, theta as in Algorithm 1
    (algorithms.md 1.4, 1.11); theta 0 stands for 16 leaves per worker. `progress` receives a line
    about each step."""

    costs: Costs = dataclasses.field(default_factory=Costs)
    load: Kind = "cells"
    delta: float = 0.5
    eps: float = 0.02
    sigma: float = 1.2
    theta: int = 0
    seed: int = 1
    progress: Callable[[str], None] = lambda what: None

    def leaves(self, workers: int) -> int:
        """Returns theta, the limit on the leaves."""
        return self.theta or 16 * workers


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
    """The outcome of a partitioning algorithm. cells: the leaf number of each base-level cell of
    the grid, uint32[rows * columns]; tree: where lines divided space; warnings: what could not be
    met; phases: which phases of Algorithm 1 acted (planner/phases.py), empty for others."""

    leaves: tuple[Leaf, ...]
    cells: U32
    tree: Kdt | None = None
    warnings: tuple[str, ...] = ()
    phases: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class PartitionAlgorithm(Protocol):
    """An algorithm that divides space and terms among workers 0..workers - 1."""

    def __call__(self, stats: Statistics, workers: int, options: PartitionOptions) -> Partition:
        """Returns a partition in which every cell of the grid and every term of every cell has
        one owner. Raises PlanError if the sample does not allow what the algorithm needs."""


def idle(owner: Iterable[int], workers: int) -> tuple[str, ...]:
    """Returns a warning if some workers own nothing."""
    none = workers - len(set(owner))
    return (f"{none} of {workers} workers have no load",) if none else ()


def to_plan(
    partition: Partition, stats: Statistics, workers: int, analysis: Analysis,
    frequencies: Mapping[str, int],
) -> RoutingPlan:  # fmt: skip
    """Returns the plan that compiles to the gridt of this partition; the terms that a rest stands
    for (planner/rest.py) go by hash."""
    leaves = partition.leaves
    if stats.summed is not None:
        leaves = tuple(map(_forget_rest, leaves))
    return RoutingPlan(workers, analysis, stats.grid, leaves, partition.cells, frequencies)


def _forget_rest(leaf: Leaf) -> Leaf:
    if not isinstance(leaf, Text):
        return leaf
    return Text(leaf.workers, {t: w for t, w in leaf.terms.items() if t not in REST_TERMS})


def owners(partition: Partition, stats: Statistics, workers: int, analyzer: Analyzer) -> I32:
    """Returns the worker that the gridt of this partition gives each unit, int32[u]."""
    plan = to_plan(partition, stats, workers, analyzer.analysis, {})
    return plan_holders(plan, stats, analyzer)[0]


def plan_holders(
    plan: RoutingPlan, stats: Statistics, analyzer: Analyzer
) -> tuple[I32, list[tuple[int, ...]]]:
    """Returns the same for a plan on the grid of `stats`, and its groups of workers: the owner of a
    replicated unit is the number of workers plus that of its group."""
    h1 = plan.compile(analyzer)
    hashes = hash_units(analyzer, stats.terms)
    cell = stats.cell[stats.unit_cell()].astype(np.uint32)
    holder = h1.holders(cell, hashes[stats.term]).astype(np.int32)
    grouped = holder >= FIRST_GROUP
    holder[grouped] += plan.workers - FIRST_GROUP
    return holder, [h1.groups.list_members(FIRST_GROUP + g) for g in range(len(h1.groups))]


def predicted(
    partition: Partition,
    stats: Statistics,
    workers: int,
    options: PartitionOptions,
    analyzer: Analyzer,
) -> dict[str, Any]:
    """Returns what the cost model predicts for a partition; JSON-able. loads and balance are of
    the load that was planned with; slowest_over_bound is by cells, for which alone there is a
    bound."""
    owner = owners(partition, stats, workers, analyzer)
    loads = worker_loads(stats, owner, workers, options.costs, options.load)
    slowest = float(worker_loads(stats, owner, workers, options.costs).max())
    bound = lower_bound(stats, workers, options.costs)
    return {
        "load": options.load,
        "costs": dataclasses.asdict(options.costs),
        "loads": loads.tolist(),
        "balance": balance(loads),
        "slowest_over_bound": slowest / bound if bound else 1.0,
        "leaves": len(partition.leaves),
        "text_leaves": sum(not isinstance(leaf, Space) for leaf in partition.leaves),
        "warnings": list(partition.warnings),
    }
