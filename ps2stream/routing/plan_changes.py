"""The strategy: the present plan, which says who owns which unit, and the plan that follows it.

It changes by records of the ledger, each with an LSN of its own, so that every actor changes at
the same place of the total order (contract.md 3, docs/decisions/0009):

- BEGIN has the owners by the following plan fetch the queries that they will serve.
- SWITCH routes objects by the following plan.
- FINISH lets the old owners drop these queries.
- ABORT lets the new owners drop them.
- APART lets two plans coexist (section V-B of PS2Stream): queries inserted after it belong to the
  following plan alone, earlier ones to the old plan, and objects go to the owners by both.
- UNITE begins to migrate the queries that are left with the old plan.
- SET is the whole strategy.
- CHECKED reports what was found at the end of a migration, and changes nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ps2stream.errors import PlanError
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.protocol.frame import F64, U8
from ps2stream.routing.h1 import H1
from ps2stream.routing.leaves import Leaf, Moved, holders
from ps2stream.routing.plan import RoutingPlan

Figures = Mapping[str, int]
"""The figures of a migration, by name; they are kept with its records and change nothing."""
NO_FIGURES: Figures = MappingProxyType({})


class PlanStep(StrEnum):
    """The kinds of records of a plan change."""

    BEGIN = "begin"
    SWITCH = "switch"
    FINISH = "finish"
    ABORT = "abort"
    APART = "apart"
    UNITE = "unite"
    CHECKED = "checked"
    SET = "set"


@dataclasses.dataclass(frozen=True)
class PlanState:
    """The present plan, the following plan, and the LSNs of the steps of the change so far.

    Units belong to their owners by `plan`; they migrate to their owners by `following` from the
    LSN `begun` on, and objects are routed by it from the LSN `switched` on. Unless `apart` is 0,
    queries with a higher handle belong to `following` from their insert on, and objects go to
    the owners by both. An LSN of 0 means that the step was not taken."""

    plan: RoutingPlan
    following: RoutingPlan | None = None
    begun: int = 0
    switched: int = 0
    apart: int = 0

    @property
    def serving(self) -> RoutingPlan:
        """The plan that objects are routed by."""
        return self.following if self.following is not None and self.switched else self.plan

    @property
    def workers(self) -> int:
        """The number of workers that own units or may still be sent objects."""
        follow = self.following
        return self.plan.workers if follow is None else max(self.plan.workers, follow.workers)

    def after(self, record: U8, lsn: int) -> PlanState:
        """Returns the strategy after a record. Raises PlanError if the record does not fit."""
        data, plan, follow = _read_record(record.tobytes(), self.plan)
        step = PlanStep(data["step"])
        if step is PlanStep.SET and plan is not None:
            return PlanState(plan, follow, data["begun"], data["switched"], data["apart"])
        if step not in self.steps:
            raise PlanError(f"strategy: the step {step} cannot follow now")
        if step is PlanStep.CHECKED:
            return self
        if step in (PlanStep.BEGIN, PlanStep.APART):
            begins = step is PlanStep.BEGIN
            return PlanState(self.plan, plan, lsn * begins, apart=lsn * (not begins))
        if step is PlanStep.UNITE:
            return dataclasses.replace(self, begun=lsn)
        if step is PlanStep.SWITCH:
            return dataclasses.replace(self, switched=lsn)
        return PlanState(self.serving)

    @property
    def steps(self) -> frozenset[PlanStep]:
        """The steps that may follow."""
        if self.following is None:
            return frozenset((PlanStep.BEGIN, PlanStep.APART, PlanStep.CHECKED))
        if self.switched:
            return frozenset((PlanStep.FINISH,))
        if self.apart:
            return frozenset((PlanStep.SWITCH if self.begun else PlanStep.UNITE,))
        return frozenset((PlanStep.SWITCH, PlanStep.ABORT))

    @property
    def occupied(self) -> str:
        """The reason why no other plan may follow now; empty if one may."""
        if self.following is None:
            return ""
        version = self.following.version
        if self.begun:
            return f"a plan change to version {version} is under way"
        return f"plan version {version} coexists with version {self.plan.version}"

    def record(self) -> U8:
        """Returns the record that sets this strategy, whatever the one before it."""
        return _make_set_record(self)

    def begin(self, plan: RoutingPlan, apart: bool = False, figures: Figures = NO_FIGURES) -> U8:
        """Returns the record that begins the migration to `plan` or, with `apart`, lets it
        coexist."""
        step = PlanStep.APART if apart else PlanStep.BEGIN
        return _pack_record(step=step, plan=_plan_to_dict(plan, self.plan), figures=dict(figures))


@functools.lru_cache(maxsize=4)
def _make_set_record(strategy: PlanState) -> U8:
    follow = strategy.following
    return _pack_record(
        step=PlanStep.SET,
        plan=_plan_to_dict(strategy.plan, None),
        following=None if follow is None else _plan_to_dict(follow, None),
        begun=strategy.begun,
        switched=strategy.switched,
        apart=strategy.apart,
    )


def strategy_of(record: U8, analysis: Analysis) -> PlanState:
    """Reads the strategy of a SET record. Raises PlanError."""
    data = _unpack_record(record.tobytes())
    follow = data["following"]
    return PlanState(
        RoutingPlan.from_dict(data["plan"], analysis),
        None if follow is None else RoutingPlan.from_dict(follow, analysis),
        data["begun"],
        data["switched"],
        data["apart"],
    )


def step_record(step: PlanStep, figures: Figures = NO_FIGURES) -> U8:
    """Returns the record of a step that names no plan."""
    return _pack_record(step=step, figures=dict(figures))


def figures_of(record: U8) -> dict[str, int]:
    """Returns the figures that were measured of the migration until this record."""
    return dict(_unpack_record(record.tobytes()).get("figures", {}))


def step_of(record: U8) -> PlanStep:
    """Returns the step of a record."""
    return PlanStep(_unpack_record(record.tobytes())["step"])


def versions(record: U8) -> tuple[int, int, bool]:
    """Returns, of a SET record, the versions of the plan and of the following one (0 for none),
    and whether they coexist without a migration so far."""
    data = _unpack_record(record.tobytes())
    follow = data["following"]
    coexist = follow is not None and bool(data["apart"]) and not data["begun"]
    return data["plan"]["version"], 0 if follow is None else follow["version"], coexist


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

    def gained(self, worker: int) -> F64 | None:
        """Returns a box (west, south, east, north; degrees) around all cells of which the
        following plan may assign units to this worker that the present one does not; None if
        there are none."""
        plan, follow = self.strategy.plan, self.strategy.following
        if follow is None:
            return None
        if follow.workers != plan.workers:  # owners on the coarse levels change
            return np.array([-180.0, -90.0, 180.0, 90.0])
        return changed_box(plan, follow, worker)

    def reset(self) -> CompiledRoutes:
        """Goes back to the first plan; the state that is received next says what changed."""
        self.strategy = PlanState(self._first)
        return self.routes()

    def take(self, record: U8, lsn: int) -> CompiledRoutes:
        """Returns the routes after a record with this LSN."""
        self.strategy = self.strategy.after(record, lsn)
        return self.routes()


def changed_box(plan: RoutingPlan, follow: RoutingPlan, worker: int) -> F64 | None:
    """Returns a box around the cells whose leaf differs in `follow` and can assign a term to
    `worker`; None if there are none."""
    mine = np.array([worker in named for named in holders(follow.leaves)])
    n = len(follow.leaves)
    pair = plan.cells.astype(np.int64) * n + follow.cells
    run = np.flatnonzero(np.r_[True, pair[1:] != pair[:-1]])  # far fewer than cells
    pairs, which = np.unique(pair[run], return_inverse=True)
    other = np.array([not _is_same_leaf(plan.leaves, p // n, follow.leaves, p % n) for p in pairs])
    there = np.repeat(other[which], np.diff(run, append=len(pair)))
    cells = np.flatnonzero(there & mine[follow.cells])
    if not len(cells):
        return None
    columns, rows = plan.grid.columns(), plan.grid.rows()
    row, column = cells // columns, cells % columns
    west, east = (360 * edge / columns - 180 for edge in (column.min(), column.max() + 1))
    south, north = (180 * edge / rows - 90 for edge in (row.min(), row.max() + 1))
    if west <= -180 or east >= 180 or south <= -90 or north >= 90:
        west, east = -180, 180  # 180 is -180, and a pole has every longitude
    return np.array([west, south, east, north], np.float64)


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


def _plan_to_dict(plan: RoutingPlan, base: RoutingPlan | None) -> dict[str, Any]:
    """Returns the plan as a dict, without the frequencies if `base` has the same: they are
    many."""
    body = plan.to_dict()
    body.pop("made", None)
    if base is not None and plan.frequencies == base.frequencies:
        del body["frequencies"]
    return body


def _plan_from_dict(body: dict[str, Any], analysis: Analysis, base: RoutingPlan) -> RoutingPlan:
    complete = "frequencies" in body
    plan = RoutingPlan.from_dict(body, analysis)
    return plan if complete else dataclasses.replace(plan, frequencies=base.frequencies)


@functools.lru_cache(maxsize=8)
def _read_record(
    record: bytes, base: RoutingPlan
) -> tuple[dict[str, Any], RoutingPlan | None, RoutingPlan | None]:
    """Reads a record and the plans in it. Actors in one process share the result, so that it is
    read once."""
    data = _unpack_record(record)
    bodies = data.get("plan"), data.get("following")
    plan, follow = (None if b is None else _plan_from_dict(b, base.analysis, base) for b in bodies)
    return data, plan, follow


@functools.lru_cache(maxsize=16)
def route_of(plan: RoutingPlan) -> int:
    """Returns plan.route from a cache, since it takes long to compute."""
    return plan.route


def _pack_record(**data: Any) -> U8:
    return np.frombuffer(zlib.compress(json.dumps(data).encode(), 1), np.uint8)


@functools.lru_cache(maxsize=4)
def _unpack_record(record: bytes) -> dict[str, Any]:
    try:
        data: dict[str, Any] = json.loads(zlib.decompress(record))
    except (zlib.error, ValueError) as error:
        raise PlanError(f"strategy: a record cannot be read: {error}") from error
    return data
