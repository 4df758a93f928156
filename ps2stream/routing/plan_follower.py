"""The routes that follow from the strategy, and from each record that changes it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ps2stream.language.analyzer import Analyzer
from ps2stream.protocol.frame import F64, I64, U8, U64
from ps2stream.routing.h1 import H1
from ps2stream.routing.leaves import Leaf, Moved, holders
from ps2stream.routing.plan import RoutingPlan, hash_units
from ps2stream.routing.plan_changes import PlanState, route_of
from ps2stream.routing.replicas import ReplicatedUnit
from ps2stream.routing.unit_kernels import LEVEL_SHIFT
from ps2stream.space.space_kernels import CELL_MASK

WORLD = np.array([-180.0, -90.0, 180.0, 90.0])
_ROUNDED = 1e-9
"""Degrees: more than what is beside a line of the grid may be rounded into the cell."""


class CompiledRoutes(NamedTuple):
    """A strategy, compiled.

    Units belong to their owners by `serving`, and objects are routed by it under the number
    `route`. During a migration, `other` is the H1 of the plan that follows or that came before:
    updates go to the owners by it as well. Queries with a handle above `apart` have their owners
    by `young`.

    Batches routed under the numbers in `known` may be under way, and batches under `coming` at a
    worker that has fetched all that it will serve. `old` is the number of the plan beside which
    another one came to coexist, and the LSN at which it came: batches under this number may be
    under way only with a lower LSN. A higher one is of a service that was started anew under that
    plan, which then owns the new queries too, and this strategy does not know of it."""

    serving: H1
    route: int
    other: H1 | None = None
    young: H1 | None = None
    apart: int = 0
    begun: int = 0
    switched: bool = False
    known: frozenset[int] = frozenset()
    coming: int = 0
    old: tuple[int, int] = (0, 0)

    @property
    def workers(self) -> int:
        owners = (self.serving, self.other, self.young)
        return max(h1.workers for h1 in owners if h1 is not None)

    def serves(self, route: int, lsn: int) -> bool:
        """Returns whether a batch of this route and LSN may be under way."""
        number, below = self.old
        return route in self.known and (route != number or not below or lsn < below)

    @property
    def upto(self) -> int:
        """The highest handle that migrates."""
        return self.apart or self.begun


class GainedUnits(NamedTuple):
    """What a worker may gain. box: around its cells (west, south, east, north; degrees); term: the
    posting terms of its units, uint64[n], in order; empty if they may have any."""

    box: F64
    term: U64


class PlanFollower:
    """Follows the records of the ledger and compiles the strategy after each."""

    def __init__(self, plan: RoutingPlan, analyzer: Analyzer) -> None:
        self.strategy = PlanState(plan)
        self._first = plan
        self._analyzer = analyzer
        self._compiled: dict[int, H1] = {}

    def routes(self) -> CompiledRoutes:
        """Returns the present strategy, compiled."""
        strategy = self.strategy
        plans = (strategy.plan, strategy.following)
        numbered = {route_of(plan): plan for plan in plans if plan is not None}
        self._compiled = {
            route: self._compiled.get(route) or plan.compile(self._analyzer)
            for route, plan in numbered.items()
        }
        before = route_of(strategy.plan)
        old = self._compiled[before]
        if strategy.following is None:
            return CompiledRoutes(old, before, known=frozenset(numbered))
        after = route_of(strategy.following)
        new, both = self._compiled[after], _mix_routes(before, after)
        if strategy.switched:
            known = frozenset((before, after, both))
            begun = strategy.begun
            beside = before, strategy.apart
            return CompiledRoutes(
                new, after, old, begun=begun, switched=True, known=known, old=beside
            )
        apart = strategy.apart
        return CompiledRoutes(
            serving=old,
            route=both if apart else before,
            other=new if strategy.begun else None,
            young=new if apart else None,
            apart=apart,
            begun=strategy.begun,
            known=frozenset((before, both)),
            coming=after,
            old=(before, apart),
        )

    def gained(self, worker: int) -> GainedUnits | None:
        """Returns what the following plan may assign to this worker that the present one does
        not; None for nothing."""
        plan, follow = self.strategy.plan, self.strategy.following
        if follow is None:
            return None
        if (box := _find_gains(plan, follow, worker)) is None:
            return None
        terms = _list_gained_terms(plan, follow, worker)
        return GainedUnits(box, np.unique(hash_units(self._analyzer, terms)))

    def has_lost(self, worker: int, before: PlanState) -> bool:
        """Returns whether a worker that holds what both plans of `before` assign to it may hold
        anything that the present plan, one of them, does not."""
        plan, ended = self.strategy.plan, before.plan
        if before.following is not None and _is_same_plan(plan, ended):
            ended = before.following
        return _find_gains(plan, ended, worker) is not None

    def reset(self) -> CompiledRoutes:
        """Goes back to the first plan; the state that is received next says what changed."""
        self.strategy = PlanState(self._first)
        return self.routes()

    def take(self, record: U8, lsn: int) -> CompiledRoutes:
        """Returns the routes after a record with this LSN."""
        self.strategy = self.strategy.after(record, lsn)
        return self.routes()


def _is_same_plan(one: RoutingPlan, other: RoutingPlan) -> bool:
    return one is other or (one.version, route_of(one)) == (other.version, route_of(other))


def _find_gains(plan: RoutingPlan, follow: RoutingPlan, worker: int) -> F64 | None:
    """Returns a box (west, south, east, north; degrees) around all cells of which `follow` may
    assign units to this worker that `plan` does not; None if there are none."""
    if follow.workers != plan.workers:  # owners on the coarse levels change
        return WORLD
    return changed_box(plan, follow, worker)


def changed_box(plan: RoutingPlan, follow: RoutingPlan, worker: int) -> F64 | None:
    """Returns a box around the cells whose leaf differs in `follow` and can assign a term to
    `worker`; None if there are none."""
    cells = _find_changed_cells(plan, follow, worker)
    if (gained := _find_replicated_cells(plan, follow, worker)) is None:
        return WORLD
    cells = np.r_[cells, gained]
    if not len(cells):
        return None
    grid = plan.grid
    row, column = cells // grid.columns(), cells % grid.columns()
    beyond = np.array([-_ROUNDED, _ROUNDED])
    west, east = beyond + grid.find_meridians(np.array([column.min(), column.max() + 1]))
    south, north = beyond + grid.find_parallels(np.array([row.min(), row.max() + 1]))
    south, north = max(south, -90.0), min(north, 90.0)
    if west <= -180 or east >= 180 or south <= -90 or north >= 90:
        west, east = -180, 180  # 180 is -180, and a pole has every longitude
    return np.array([west, south, east, north], np.float64)


def _find_changed_cells(plan: RoutingPlan, follow: RoutingPlan, worker: int) -> I64:
    """Returns the base-level cells whose leaf differs in `follow` and can assign a term to
    `worker`, int64[n]."""
    mine = np.array([worker in named for named in holders(follow.leaves)])
    n = len(follow.leaves)
    pair = plan.cells.astype(np.int64) * n + follow.cells
    run = np.flatnonzero(np.r_[True, pair[1:] != pair[:-1]])  # far fewer than cells
    pairs, which = np.unique(pair[run], return_inverse=True)
    other = np.array([not _is_same_leaf(plan.leaves, p // n, follow.leaves, p % n) for p in pairs])
    there = np.repeat(other[which], np.diff(run, append=len(pair)))
    return np.flatnonzero(there & mine[follow.cells])


def _find_replicated_cells(plan: RoutingPlan, follow: RoutingPlan, worker: int) -> I64 | None:
    """Returns base-level cells around all units that `follow` may give this worker because their
    replicas change: the corners of coarser cells, int64[n]; None if they may be anywhere."""
    cells: list[int] = []
    for cell in {cell for cell, _ in _list_gained_replicas(plan, follow, worker)}:
        if cell is None:
            return None
        level = cell >> LEVEL_SHIFT
        columns = plan.grid.columns(level)
        row, column = divmod(cell & CELL_MASK, columns)
        tall, wide = plan.grid.rows() // plan.grid.rows(level), plan.grid.columns() // columns
        first = row * tall * plan.grid.columns() + column * wide
        cells += [first, first + (tall - 1) * plan.grid.columns() + wide - 1]
    return np.array(cells, np.int64)


def _list_gained_replicas(
    plan: RoutingPlan, follow: RoutingPlan, worker: int
) -> set[tuple[int | None, str | None]]:
    """Returns the cells and terms of the units that `follow` may give this worker because it
    replicates or shards them to it, or no longer does so to others."""
    before, after = ({(u.cell, u.term): u for u in p.replicas} for p in (plan, follow))
    gained = {
        key for key, unit in after.items()
        if worker in unit.workers and not _has_all(before.get(key), worker, unit)
    }  # fmt: skip
    ended = {
        key for key in before.keys() - after.keys()
        if worker not in before[key].workers or before[key].sharded
    }  # fmt: skip
    return gained | ended


def _has_all(before: ReplicatedUnit | None, worker: int, after: ReplicatedUnit) -> bool:
    """Returns whether the worker has by `before` all that it has by `after`, which may be the same
    unit. Workers that join take from those that stay, which gain only what others leave."""
    if before is None or worker not in before.workers:
        return False
    joined = after.sharded and {*before.workers} <= {*after.workers}
    return not before.sharded or joined


def _list_gained_terms(plan: RoutingPlan, follow: RoutingPlan, worker: int) -> list[str]:
    """Returns the posting terms of all units that `follow` may give this worker; an empty list if
    they may have any."""
    if follow.workers != plan.workers or len(_find_changed_cells(plan, follow, worker)):
        return []
    terms = [term for _, term in _list_gained_replicas(plan, follow, worker)]
    named = [term for term in terms if term is not None]
    return named if len(named) == len(terms) else []


def _is_same_leaf(left: Sequence[Leaf], a: int, right: Sequence[Leaf], b: int) -> bool:
    """Returns whether leaf a of `left` assigns terms exactly as leaf b of `right`."""
    one, other = left[a], right[b]
    if isinstance(one, Moved) and isinstance(other, Moved):
        below = _is_same_leaf(left, one.base, right, other.base)
        return below and (one.to, one.terms) == (other.to, other.terms)
    return one == other


def _mix_routes(before: int, after: int) -> int:
    """Returns the route of two plans that coexist, from their own."""
    raw = hashlib.blake2b(b"%d.%d" % (before, after), digest_size=7).digest()
    return int.from_bytes(raw, "big")
