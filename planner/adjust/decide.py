"""Local load adjustment as one pure function (algorithms.md 1.8).

When the most loaded worker has more than sigma times the load of the least loaded one, parts
migrate from the first to the second: first those that lower the total load (Phase I), then, if
sigma is still exceeded, units that make up half the gap for the fewest bytes (Phase II), or
nearly all but those that are too heavy for it. If several pairs are allowed, the next pair is the
two extremes of the loads predicted so far. No part moves twice.

By Definition 3 a split lowers the total load of nearly every cell. Counted by the checks that an
index with one list per term really makes, it lowers none (1.11), and it is worth its copies only
for a part that is too hot to move whole: under the load by cells no other part is split.

A move of 2 tau would only exchange the two workers, period after period. Therefore a pair is left
as it is unless the slower of the two gains `GAIN` of the gap.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ps2stream.planner.adjust.adjustment import LoadAdjustment, PartMove
from ps2stream.planner.adjust.algorithms import SELECTIONS
from ps2stream.planner.adjust.phase_one import GAIN, PhaseOne
from ps2stream.planner.adjust.selection import select
from ps2stream.planner.adjust.units import PartLoads
from ps2stream.planner.load import Kind
from ps2stream.planner.statistics import Statistics
from ps2stream.protocol.frame import I64, U32
from ps2stream.routing.costs import Costs, balance
from ps2stream.routing.leaves import holders
from ps2stream.routing.plan import RoutingPlan


@dataclasses.dataclass(frozen=True, slots=True)
class Rules:
    """The settings of local load adjustment.

    sigma: the balance to reach. load: "cells" splits only parts that are too hot to move,
    "definition1" may split all. algorithm: a name in SELECTIONS. hottest: p, the number of parts
    that Phase I examines. pairs: the pairs of workers that may be adjusted at once. seed: the
    seed of `ra`.
    """

    costs: Costs = dataclasses.field(default_factory=Costs)
    load: Kind = "cells"
    sigma: float = 1.3
    algorithm: str = "gr+"
    hottest: int = 10
    pairs: int = 1
    seed: int = 0


def decide(
    units: PartLoads, plan: RoutingPlan, rules: Rules, stats: Statistics | None = None
) -> LoadAdjustment:
    """Returns the adjustment that this plan needs. It has no moves if the plan is balanced or
    nothing helps; its `balance_after` tells these cases apart. stats: a recent sample on the
    plan's grid, of any size, whose terms Phase I divides; without it Phase I is skipped.

    Parts that the plan does not give to the worker who reports them, because it still serves the
    last objects of an earlier plan, count as load and stay. So do all parts of a replicated cell,
    which do not follow the leaves. Equal arguments give equal adjustments. Raises ValueError for a
    worker that the plan does not have, and for statistics of another grid.
    """
    if len(units) and not 0 <= units.worker.min() <= units.worker.max() < plan.workers:
        raise ValueError(
            f"the loads name worker {units.worker.max()}, but the plan has {plan.workers} workers"
        )
    work = _AdjustmentRun(units, plan, rules, stats)
    for seed in range(rules.seed, rules.seed + rules.pairs):
        if balance(work.loads) <= rules.sigma or not work.adjust(seed):
            break
    return LoadAdjustment(
        plan.version,
        tuple(work.moves),
        tuple(units.loads(plan.workers, rules.costs).tolist()),
        tuple(work.loads.tolist()),
        tuple(work.taus),
    )


def divisible(units: PartLoads, plan: RoutingPlan, rules: Rules) -> U32:
    """Returns the cells that Phase I would examine, uint32[c] ascending: those for which `decide`
    needs statistics. It returns none if the plan is balanced or if what is too much can move
    whole."""
    work = _AdjustmentRun(units, plan, rules, None)
    found: set[int] = set()
    if balance(work.loads) > rules.sigma:
        falling = np.argsort(-work.loads, kind="stable").tolist()
        for source, target in zip(falling[: rules.pairs], falling[::-1], strict=False):
            hot = work.hottest(source) if work.loads[source] > work.loads[target] else []
            found |= {
                int(units.cell[unit])
                for unit in hot
                if work.other(unit, target) is not None or work.too_hot(unit, target)
            }
    return np.array(sorted(found), np.uint32)


class _AdjustmentRun:
    """The state of one decision.

    loads: the load of each worker, predicted with the moves so far. free: the parts that may
    still move. held: which workers a leaf can give terms to, bool[leaves, workers]. leaf: the
    leaf of each part.
    """

    def __init__(
        self, units: PartLoads, plan: RoutingPlan, rules: Rules, stats: Statistics | None
    ) -> None:
        self.units, self.rules = units, rules
        self.load = units.load(rules.costs)
        self.loads = units.loads(plan.workers, rules.costs)
        self.moves: list[PartMove] = []
        self.taus: list[float] = []
        held = np.zeros((len(plan.leaves), plan.workers), np.bool_)
        for number, workers in enumerate(holders(plan.leaves)):
            held[number, list(workers)] = True
        self.leaf = np.zeros(len(units), np.int64)
        self.leaf[units.movable] = plan.cells[units.cell[units.movable]]
        replicated = [u.cell for u in plan.replicas if u.cell is not None and u.term is None]
        self.free = units.movable & held[self.leaf, units.worker]
        self.free &= ~np.isin(units.cell, np.array(replicated, np.uint32))
        self.held = held
        self.plan, self.stats = plan, stats
        self.phase_one: PhaseOne | None = None

    def adjust(self, seed: int) -> bool:
        """Adjusts one pair of workers; returns whether anything moves."""
        source, target = int(np.argmax(self.loads)), int(np.argmin(self.loads))
        before = len(self.moves)
        if self.phase_one is None and self.stats is not None:
            self.phase_one = PhaseOne(self.units, self.plan, self.stats, self.rules.costs)
        if self.phase_one is not None:
            for unit in self.hottest(source):
                if balance(self.loads) <= self.rules.sigma:
                    break
                self._split_or_merge(self.phase_one, unit, target)
        if balance(self.loads) > self.rules.sigma and self.loads[source] > self.loads[target]:
            self._migrate_units(source, target, seed)
        return len(self.moves) > before

    def hottest(self, worker: int) -> list[int]:
        """Returns the parts of a worker that Phase I examines, hottest first."""
        mine = self._find_free_parts(worker)
        order = np.argsort(-self.load[mine], kind="stable")
        return list(map(int, mine[order[: self.rules.hottest]]))

    def _find_free_parts(self, worker: int) -> I64:
        return np.flatnonzero(self.free & (self.units.worker == worker) & (self.load > 0))

    def _split_or_merge(self, phase_one: PhaseOne, unit: int, target: int) -> None:
        """Splits or merges a part if that pays."""
        other, change = self.other(unit, target), None
        if other is not None:
            change = phase_one.merge(unit, other, self.loads)
        if change is None and self.too_hot(unit, target):
            change = phase_one.split(unit, target, self.loads)
        if change is not None:
            self.moves.append(change.move)
            self.loads[change.move.source], self.loads[target] = change.source, change.target
            self.free[[unit] if other is None else [unit, other]] = False

    def other(self, unit: int, target: int) -> int | None:
        """Returns the part of the same cell that the target owns, or None."""
        if not self.held[self.leaf[unit], target]:
            return None
        units = self.units
        same = self.free & (units.cell == units.cell[unit]) & (units.worker == target)
        return int(np.argmax(same)) if same.any() else None

    def too_hot(self, unit: int, target: int) -> bool:
        """Returns whether moving the part whole would only exchange the two workers. By
        Definition 1 a part is always split, unless its cell is already divided between them."""
        if self.rules.load == "definition1" and not self.held[self.leaf[unit], target]:
            return True
        gap = self.loads[self.units.worker[unit]] - self.loads[target]
        return bool(self.load[unit] > (1 - GAIN) * gap)

    def _migrate_units(self, source: int, target: int, seed: int) -> None:
        """Moves units that make up half the gap, for the fewest bytes (Phase II)."""
        tau = float(self.loads[source] - self.loads[target]) / 2
        self.taus.append(tau)
        mine = self._find_free_parts(source)
        for unit in mine[self._choose_units(mine, tau, seed)].tolist():
            moved = float(self.load[unit])
            self.moves.append(
                PartMove(
                    cell=int(self.units.cell[unit]),
                    source=source,
                    target=target,
                    bytes=int(self.units.bytes[unit]),
                    load=moved,
                    kind="merge" if self.held[self.leaf[unit], target] else "migrate",
                )
            )
            self.loads[source] -= moved
            self.loads[target] += moved
            self.free[unit] = False

    def _choose_units(self, mine: I64, tau: float, seed: int) -> I64:
        """Returns which of the parts `mine` migrate, by their places in it, int64[k]. Their loads
        are at least tau and less than the gap together; none migrate if that gains nothing.

        Where the parts lighter than tau do not reach it together, a set that does has a part so
        heavy that the target may become nearly as slow as the source was. Then nearly all lighter
        ones go instead, with less than tau, if their load is nearer to it."""
        algorithm = SELECTIONS[self.rules.algorithm]
        load, size = self.load[mine], self.units.bytes[mine]
        most = (1 - GAIN) * 2 * tau
        offered = np.flatnonzero(load <= most)
        chosen = select(algorithm, load[offered], size[offered], tau, seed)
        chosen = np.zeros(0, np.int64) if chosen is None else offered[chosen]
        moved = float(load[chosen].sum())
        if moved > most:
            chosen, moved = chosen[:0], 0.0
        lighter = np.flatnonzero(load < tau)
        rest = float(load[lighter].sum())
        if 2 * GAIN * tau <= rest < tau and tau - rest < abs(tau - moved):
            # The last of the load takes the most bytes: many parts have hardly any.
            some = select(algorithm, load[lighter], size[lighter], (1 - GAIN) * rest, seed)
            chosen = lighter if some is None else lighter[some]
        return chosen
