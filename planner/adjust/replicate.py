"""Replication and sharding of hot units as one pure function (algorithms.md 5.2, 6.3).

What the stream meets most is known within a second, as shares of its objects, from the dispatchers'
counters. Where a worker is overloaded, its units are taken from the hottest down: one that is hot
for a worker by itself is replicated, to as many workers as CHK says or more if these do not
suffice; smaller ones migrate, each to the worker with the least to do. So what jumped to one place
or one word is spread over all who are idle in one plan change.

A unit is hot above theta, half of a worker's equal share of the load. FISH has a quarter; at many
workers that made single tuples hot (docs/experiments.md), and here a unit costs its queries at each
worker, so that those that can migrate should.

A unit is sharded instead where its queries are the burden, not its objects (`has_many_queries`).
Each of d workers then has a part of the queries, and gets all objects. So a copy of an object of it
counts as a dth part of one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Collection, Sequence

import numpy as np

from ps2stream.keyed.plain_ring import list_clockwise
from ps2stream.planner.adjust.adjustment import LoadAdjustment, PartMove
from ps2stream.planner.adjust.apply import apply
from ps2stream.protocol.frame import F64
from ps2stream.routing.costs import Costs
from ps2stream.routing.leaves import holders
from ps2stream.routing.plan import RoutingPlan
from ps2stream.routing.replicas import MAX_REPLICATED, ReplicatedUnit

UnitKey = tuple[int | None, str | None]
"""The cell and the term of a replicated unit."""
RING_SEED = 0x5053
WHOLE_BATCHES = 2.0
"""How many times what chance does to single objects the scatter must be to count: the batches of a
moment are few, so that their scatter is itself a matter of chance."""


@dataclasses.dataclass(frozen=True, slots=True)
class ReplicationRules:
    """The settings of replication.

    balance: most over mean of the workers' copies, above which something is done, beyond `certain`
    standard deviations of what chance does to few objects; aim: what is then aimed at; theta: of a
    worker's equal share, above which a unit is replicated; word: the same of a word, which cannot
    migrate from all cells at once; cool: the part of theta below which a unit is not hot any more;
    most: changes at once; least_rate: objects a second below which nothing is done, for then
    nobody waits; busy: of the time, for which a worker must match before the plan changes while
    publications wait; cool_s: seconds after which a unit that is not hot is replicated no longer;
    memory: of a worker's equal share of all postings, above which a unit is sharded; costs: of
    Definition 1.
    """

    balance: float = 1.25
    certain: float = 4.0
    aim: float = 1.1
    theta: float = 0.5
    word: float = 0.125
    cool: float = 0.5
    most: int = 256
    least_rate: float = 100.0
    cool_s: float = 20.0
    busy: float = 0.3
    memory: float = 1.0
    costs: Costs = dataclasses.field(default_factory=Costs)


@dataclasses.dataclass(frozen=True, slots=True)
class HotUnit:
    """A unit that much of the stream meets: a base-level cell, or a word with the worker that owns
    it in most places. share: of the objects that meet it. postings: its part of all postings, 0
    where that is not known."""

    cell: int | None
    term: str | None
    share: float
    owner: int = 0
    postings: float = 0.0

    @property
    def key(self) -> UnitKey:
        return self.cell, self.term


@dataclasses.dataclass(frozen=True, slots=True)
class StreamShares:
    """What the dispatchers saw of the stream in the last moment.

    units: the hottest first. sent: of each object the copies that each worker got, float64[w].
    objects: how many they saw; rate: in a second; updates: postings inserted or deleted in a
    second. scatter: the standard deviation of `sent` by what single batches brought, float64[w],
    None for none: objects of a replicated unit go to one worker by whole batches. busy: the part of
    the time for which the worker matched that did most; crowded: whether publications had to wait.
    """

    units: tuple[HotUnit, ...]
    sent: F64
    objects: int
    rate: float
    updates: float = 0.0
    scatter: F64 | None = None
    busy: float = 0.0
    crowded: bool = False

    @property
    def loads(self) -> F64:
        """The copies that each worker got as a multiple of the mean, float64[w]; ones for none."""
        total = float(self.sent.sum())
        return self.sent * len(self.sent) / total if total > 0 else np.ones(len(self.sent))

    @property
    def balance(self) -> float:
        """The most loaded worker's load over the mean."""
        return float(self.loads.max(initial=1.0))

    @property
    def noise(self) -> float:
        """The standard deviation of the most loaded worker's load over the mean, where objects come
        by chance, or batches do."""
        total = float(self.sent.sum())
        if not (self.objects and total > 0):
            return math.inf
        chance = math.sqrt(len(self.sent) / (self.objects * total))
        if self.scatter is None:
            return chance
        scatter = self.find_weight(float(self.scatter[int(self.sent.argmax())]))
        return scatter if scatter > WHOLE_BATCHES * chance else chance

    @property
    def unit_shares(self) -> dict[UnitKey, float]:
        """The share of each unit; of a word, where it is met most under one owner."""
        shares: dict[UnitKey, float] = {}
        for unit in self.units:
            shares[unit.key] = max(shares.get(unit.key, 0.0), unit.share)
        return shares

    def find_weight(self, share: float) -> float:
        """Returns the load, as a multiple of the mean, of a copy of this share of the objects."""
        total = float(self.sent.sum())
        return share * len(self.sent) / total if total > 0 else 0.0


def is_unbalanced(stream: StreamShares, rules: ReplicationRules) -> bool:
    """Returns whether some worker certainly has too much."""
    is_busy = stream.rate >= rules.least_rate
    return is_busy and stream.balance > rules.balance + rules.certain * stream.noise


def is_held(stream: StreamShares, rules: ReplicationRules) -> bool:
    """Returns whether no change of the plan would pay now: publications wait, but not for a worker.

    While they wait, what a plan change costs is taken from them. It pays off where one worker holds
    all up. Such a worker is on a processor all the time, and for half of this time and more it
    matches. Where the dispatchers or the processors of the host are the limit, another division of
    the workers' part brings nothing.
    """
    return stream.crowded and stream.busy < rules.busy


def has_many_queries(
    unit: HotUnit, stream: StreamShares, workers: int, rules: ReplicationRules
) -> bool:
    """Returns whether the queries of a unit, not its objects, are the burden.

    With costs c1 to c4 of Definition 1, R objects a second that check k postings each, and U
    inserts and deletes a second, d replicas take R (c2 + k c1) + d U c in a second, and d shards
    d R c2 + R k c1 + U c. So shards take less if U c > R c2, whatever d is. They are also right
    where the queries are more than one worker's part of all, as each replica has to hold them.
    """
    costs = rules.costs
    updates = unit.postings * stream.updates * (costs.c3 + costs.c4) / 2
    objects = unit.share * stream.rate * costs.c2
    return unit.postings > rules.memory / workers or updates > objects


def discount_shards(plan: RoutingPlan, stream: StreamShares) -> StreamShares:
    """Returns the stream with a copy of an object that met a sharded unit counted as the part of
    one that its worker's queries are."""
    sent, shares = stream.sent.copy(), stream.unit_shares
    for unit in plan.replicas:
        if unit.sharded:
            share = shares.get((unit.cell, unit.term), 0.0)
            sent[[*unit.workers]] -= share * (1 - 1 / len(unit.workers))
    return dataclasses.replace(stream, sent=np.maximum(sent, 0.0))


def list_cool_units(
    plan: RoutingPlan, stream: StreamShares, rules: ReplicationRules
) -> set[UnitKey]:
    """Returns the replicated units that are not hot any more."""
    hot = stream.unit_shares
    return {
        (unit.cell, unit.term)
        for unit in plan.replicas
        if stream.find_weight(hot.get((unit.cell, unit.term), 0.0))
        < rules.cool * (rules.theta if unit.term is None else rules.word)
    }


def replicate(
    plan: RoutingPlan,
    stream: StreamShares,
    rules: ReplicationRules,
    cool: Collection[UnitKey] = (),
) -> RoutingPlan | None:
    """Returns the plan that spreads what is hot, derived from `plan`, and in which the units of
    `cool` are replicated no longer; None if the plan is good as it is."""
    work = _ReplicationRun(plan, stream, rules, cool)
    if is_unbalanced(stream, rules):
        for unit in stream.units:
            if len(work.changed) + len(work.moves) >= rules.most or work.is_balanced:
                break
            work.spread(unit)
    return work.make_plan()


def chk_degree(share: float, top: float, workers: int) -> int:
    """Returns the number of workers of a hot key by CHK (FISH, Algorithm 2), at least 2: half as
    many for each halving of its frequency. share, top: of this key and of the hottest one."""
    return max(workers >> max(math.floor(math.log2(top / share)), 0), min(2, workers))


class _ReplicationRun:
    """The state of one decision. loads: of each worker, predicted with what is decided so far, as
    multiples of the mean."""

    def __init__(
        self,
        plan: RoutingPlan,
        stream: StreamShares,
        rules: ReplicationRules,
        cool: Collection[UnitKey],
    ) -> None:
        self._plan, self._stream, self._rules = plan, stream, rules
        self._groups = {(u.cell, u.term): u for u in plan.replicas if (u.cell, u.term) not in cool}
        self._held = holders(plan.leaves)
        self._cold = bool(cool)
        self._top = max((unit.share for unit in stream.units), default=0.0)
        self.loads = stream.loads.copy()
        self.changed: set[UnitKey] = set()
        self.moves: list[PartMove] = []

    @property
    def is_balanced(self) -> bool:
        """Returns whether no worker is predicted to have too much."""
        return float(self.loads.max()) <= self._rules.aim

    def spread(self, unit: HotUnit) -> None:
        """Gives a unit of an overloaded worker more workers, or another one if it is small."""
        group = self._groups.get(unit.key)
        owned = self._find_owners(unit)
        now = owned if group is None else group.workers
        if not now or len(self._groups) >= MAX_REPLICATED:
            return
        source = max(now, key=lambda w: self.loads[w])
        weight = self._stream.find_weight(unit.share)
        if self.loads[source] <= self._rules.aim or unit.key in self.changed:
            return
        theta = self._rules.theta if unit.term is None else self._rules.word
        if group is not None or weight >= theta:
            degree = chk_degree(unit.share, self._top, self._plan.workers)
            several = 0 if group is None else 2 * len(group.workers)
            self._replicate(unit, now, weight, max(degree, several))
        elif unit.cell is not None and len(owned) == 1:
            self._migrate(unit.cell, source, weight)

    def _find_owners(self, unit: HotUnit) -> tuple[int, ...]:
        """Returns the workers that own something of a unit by the leaves; none of a word that is
        met in replicated cells, where a group owns it."""
        if unit.cell is None:
            return (unit.owner,) if unit.owner < self._plan.workers else ()
        return self._held[int(self._plan.cells[unit.cell])]

    def _replicate(self, unit: HotUnit, now: tuple[int, ...], weight: float, degree: int) -> None:
        """Replicates or shards a unit to the workers that have it and the next ones of the ring,
        until the load that it brings leaves none of them with too much. It stays what it is when it
        gets more."""
        ring = _list_ring(unit.key, self._plan.workers)
        order = list(dict.fromkeys((*now, *ring)))
        rest = self.loads.copy()
        rest[list(now)] -= weight / len(now)
        workers, before = self._plan.workers, self._groups.get(unit.key)
        if before is None:
            sharded = has_many_queries(unit, self._stream, workers, self._rules)
        else:
            sharded = before.sharded
        if sharded:  # no worker has more than its part of all queries
            degree = max(degree, math.ceil(min(unit.postings, 1.0) * workers))
        while True:
            members = order[: max(degree, len(now), 2)]
            filled = rest[members] + weight / len(members)
            filled = filled if sharded else fill_up(rest[members], weight)
            if float(filled.max()) <= self._rules.aim or len(members) == len(order):
                break
            degree = len(members) + 1
        if len(members) <= len(now) and unit.key in self._groups:
            return
        rest[members] = filled
        self.loads = rest
        self._groups[unit.key] = ReplicatedUnit(*unit.key, tuple(members), sharded)
        self.changed.add(unit.key)

    def _migrate(self, cell: int, source: int, weight: float) -> None:
        """Moves a cell from its only owner to the worker with the least to do, if that helps."""
        target = int(self.loads.argmin())
        if weight <= 0 or self.loads[target] + weight >= self.loads[source]:
            return
        self.loads[source] -= weight
        self.loads[target] += weight
        self.moves.append(PartMove(cell, source, target, 0, weight))
        self.changed.add((cell, None))

    def make_plan(self) -> RoutingPlan | None:
        """Returns the plan with what was decided; None if that is nothing."""
        if not (self.changed or self._cold):
            return None
        plan = self._plan
        kept = tuple(self._groups.values())
        after = apply(plan, LoadAdjustment(plan.version, tuple(self.moves), (), ()))
        return dataclasses.replace(after, replicas=kept)


def fill_up(loads: F64, weight: float) -> F64:
    """Returns the loads, float64[n], after `weight` was added where there is least, as waiting
    times divide it."""
    order = np.argsort(loads, kind="stable")
    rising = loads[order]
    for n in range(1, len(rising) + 1):
        level = (float(rising[:n].sum()) + weight) / n
        if n == len(rising) or level <= rising[n]:
            break
    return np.maximum(loads, level)


def _list_ring(key: UnitKey, workers: int) -> Sequence[int]:
    """Returns all workers in the order of the ring from a unit on."""
    raw = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return list_clockwise(int.from_bytes(raw, "big"), workers, RING_SEED)
