"""The strategy: the present plan, which says who owns which unit, and the plan that follows it.

It changes by records of the ledger, each with an LSN of its own, so that every actor changes at
the same place of the total order (contract.md 3, docs/decisions/0009). `TRANSITIONS` is the
machine of a plan change: the states, and what each event makes of them. Two kinds of records are
beside it: SET is the whole strategy, whatever the one before it, and CHECKED reports what was
found at the end of a migration, and changes no plan.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ps2stream.errors import PlanError
from ps2stream.language.analyzer import Analysis
from ps2stream.protocol.frame import U8
from ps2stream.routing.plan import RoutingPlan
from ps2stream.routing.plan_states import (
    ChangeEvent,
    ChangeState,
    InvalidTransition,
    PlanSignal,
    PlanStep,
    TransitionTaken,
)

Figures = Mapping[str, int]
"""The figures of a migration, by name; they are kept with its records and change nothing."""
NO_FIGURES: Figures = MappingProxyType({})
STORY = 16
"""Transitions that a strategy remembers, for the error when an event cannot follow."""


@dataclasses.dataclass(frozen=True)
class PlanState:
    """The present plan, the following plan, and the LSNs of the steps of the change so far.

    Units belong to their owners by `plan`; they migrate to their owners by `following` from the
    LSN `begun` on, and objects are routed by it from the LSN `switched` on. Unless `apart` is 0,
    queries with a higher handle belong to `following` from their insert on, and objects go to
    the owners by both. An LSN of 0 means that the step was not taken. `state` follows from them
    and from the signals; `story` has the last transitions."""

    plan: RoutingPlan
    following: RoutingPlan | None = None
    begun: int = 0
    switched: int = 0
    apart: int = 0
    state: ChangeState = ChangeState.NONE
    story: tuple[TransitionTaken, ...] = dataclasses.field(default=(), compare=False, repr=False)

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
        if step is not PlanStep.SET or plan is None:
            return self.handle(step, lsn, plan)
        restored = _restore_state(data, plan, follow)
        return restored._continue_story(self, step, restored.state, lsn)

    def signal(self, signal: PlanSignal) -> PlanState:
        """Returns the strategy after a signal. Raises InvalidTransition."""
        return self.handle(signal, self.story[-1].lsn if self.story else 0)

    def handle(
        self, event: ChangeEvent, lsn: int, following: RoutingPlan | None = None
    ) -> PlanState:
        """Returns the strategy after an event, as the table has it. Raises InvalidTransition."""
        transition = TRANSITIONS.get((self.state, event))
        if transition is None:
            raise InvalidTransition(self.state, event, lsn, self.story)
        after = transition.action(self, lsn, following)
        return after._continue_story(self, event, transition.target, lsn)

    def _continue_story(
        self, before: PlanState, event: ChangeEvent, target: ChangeState, lsn: int
    ) -> PlanState:
        """Returns this strategy in the state `target`, with the story of the one before."""
        taken = TransitionTaken(before.state, event, target, lsn)
        return dataclasses.replace(self, state=target, story=(*before.story, taken)[-STORY:])

    @property
    def steps(self) -> frozenset[PlanStep]:
        """The steps that may follow."""
        events = (event for state, event in TRANSITIONS if state is self.state)
        return frozenset(event for event in events if isinstance(event, PlanStep))

    @property
    def occupied(self) -> str:
        """The reason why no other plan may follow now; empty if one may."""
        if self.following is None:
            return ""
        version = self.following.version
        if self.state is ChangeState.COEXISTING:
            return f"plan version {version} coexists with version {self.plan.version}"
        return f"a plan change to version {version} is under way"

    def record(self) -> U8:
        """Returns the record that sets this strategy, whatever the one before it."""
        return _make_set_record(self)

    def begin(self, plan: RoutingPlan, apart: bool = False, figures: Figures = NO_FIGURES) -> U8:
        """Returns the record that begins the migration to `plan` or, with `apart`, lets it
        coexist."""
        step = PlanStep.APART if apart else PlanStep.BEGIN
        return _pack_record(step=step, plan=_plan_to_dict(plan, self.plan), figures=dict(figures))


def _begin_migration(change: PlanState, lsn: int, following: RoutingPlan | None) -> PlanState:
    """Has the owners by the following plan fetch the queries that they will serve."""
    return PlanState(change.plan, following, begun=lsn)


def _let_plans_coexist(change: PlanState, lsn: int, following: RoutingPlan | None) -> PlanState:
    """Gives the following plan the queries inserted from now on, and none of the earlier ones
    (section V-B of PS2Stream)."""
    return PlanState(change.plan, following, apart=lsn)


def _unite_plans(change: PlanState, lsn: int, following: RoutingPlan | None) -> PlanState:
    """Begins to migrate the queries that are left with the present plan."""
    return dataclasses.replace(change, begun=lsn)


def _switch_routes(change: PlanState, lsn: int, following: RoutingPlan | None) -> PlanState:
    """Routes objects by the following plan."""
    return dataclasses.replace(change, switched=lsn)


def _finish_change(change: PlanState, lsn: int, following: RoutingPlan | None) -> PlanState:
    """Makes the following plan the present one; its old owners drop the queries that they lost."""
    return PlanState(change.serving)


def _abort_change(change: PlanState, lsn: int, following: RoutingPlan | None) -> PlanState:
    """Keeps the present plan; the owners by the other one drop what they fetched."""
    return PlanState(change.plan)


def _keep_plans(change: PlanState, lsn: int, following: RoutingPlan | None) -> PlanState:
    """Changes no plan."""
    return change


class PlanTransition(NamedTuple):
    """A row of the table: the state that follows, and the function that makes the strategy of it
    from the one before, the LSN, and the plan in the record."""

    target: ChangeState
    action: Callable[[PlanState, int, RoutingPlan | None], PlanState]


_BEGIN = PlanTransition(ChangeState.TRANSFERRING, _begin_migration)
_APART = PlanTransition(ChangeState.COEXISTING, _let_plans_coexist)
_UNITE = PlanTransition(ChangeState.UNITING, _unite_plans)
_SWITCH = PlanTransition(ChangeState.RETIRING, _switch_routes)
_FINISH = PlanTransition(ChangeState.CHECKING, _finish_change)
_ABORT = PlanTransition(ChangeState.CHECKING, _abort_change)
_CHECKED = PlanTransition(ChangeState.NONE, _keep_plans)

TRANSITIONS: Mapping[tuple[ChangeState, ChangeEvent], PlanTransition] = MappingProxyType(
    {
        (ChangeState.NONE, PlanStep.BEGIN): _BEGIN,
        (ChangeState.NONE, PlanStep.APART): _APART,
        (ChangeState.NONE, PlanStep.CHECKED): _CHECKED,
        (ChangeState.TRANSFERRING, PlanSignal.ALL_HOLD): PlanTransition(
            ChangeState.READY, _keep_plans
        ),
        (ChangeState.TRANSFERRING, PlanStep.SWITCH): _SWITCH,
        (ChangeState.TRANSFERRING, PlanStep.ABORT): _ABORT,
        (ChangeState.READY, PlanStep.SWITCH): _SWITCH,
        (ChangeState.READY, PlanStep.ABORT): _ABORT,
        (ChangeState.COEXISTING, PlanStep.UNITE): _UNITE,
        (ChangeState.UNITING, PlanSignal.ALL_HOLD): PlanTransition(
            ChangeState.READY_TO_UNITE, _keep_plans
        ),
        (ChangeState.UNITING, PlanStep.SWITCH): _SWITCH,
        (ChangeState.READY_TO_UNITE, PlanStep.SWITCH): _SWITCH,
        (ChangeState.RETIRING, PlanSignal.ALL_PASSED): PlanTransition(
            ChangeState.RETIRED, _keep_plans
        ),
        (ChangeState.RETIRING, PlanStep.FINISH): _FINISH,
        (ChangeState.RETIRED, PlanStep.FINISH): _FINISH,
        (ChangeState.CHECKING, PlanSignal.ALL_COUNTED): PlanTransition(
            ChangeState.COUNTED, _keep_plans
        ),
        (ChangeState.CHECKING, PlanStep.BEGIN): _BEGIN,
        (ChangeState.CHECKING, PlanStep.APART): _APART,
        (ChangeState.CHECKING, PlanStep.CHECKED): _CHECKED,
        (ChangeState.COUNTED, PlanStep.BEGIN): _BEGIN,
        (ChangeState.COUNTED, PlanStep.APART): _APART,
        (ChangeState.COUNTED, PlanStep.CHECKED): _CHECKED,
    }
)
"""The machine of a plan change. Signals reach the sequencer alone: for all other actors, and where
the ledger is read again, each record follows without the signal before it."""


def _find_state(followed: bool, begun: int, switched: int, apart: int) -> ChangeState:
    """Returns the state after the steps with these LSNs, without any signal since; `followed`
    says that there is a following plan."""
    if not followed:
        return ChangeState.NONE
    if switched:
        return ChangeState.RETIRING
    if not apart:
        return ChangeState.TRANSFERRING
    return ChangeState.UNITING if begun else ChangeState.COEXISTING


def _restore_state(
    data: dict[str, Any], plan: RoutingPlan, following: RoutingPlan | None
) -> PlanState:
    """Returns the strategy of a SET record with these plans."""
    lsns = data["begun"], data["switched"], data["apart"]
    return PlanState(plan, following, *lsns, _find_state(following is not None, *lsns))


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
    return _restore_state(
        data,
        RoutingPlan.from_dict(data["plan"], analysis),
        None if follow is None else RoutingPlan.from_dict(follow, analysis),
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
    state = _find_state(follow is not None, data["begun"], data["switched"], data["apart"])
    version = 0 if follow is None else follow["version"]
    return data["plan"]["version"], version, state is ChangeState.COEXISTING


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


def is_equal_plan(one: RoutingPlan, other: RoutingPlan) -> bool:
    """Returns whether two plans give every unit to the same owner, and new queries the same
    frequencies."""
    return route_of(one) == route_of(other) and one.frequencies == other.frequencies


def find_base_problem(plan: RoutingPlan, present: RoutingPlan) -> str:
    """Returns why a plan cannot follow the present one, if it was made from another, and how to
    make it from this one; else the empty string."""
    if plan.base_version == present.version:
        return ""
    return (
        f"plan: derived from version {plan.base_version}; the current one is {present.version}. "
        "Make it again from that one: `ps2stream plan --from-service SERVER`; or, from files, "
        "`ps2stream plan current -o now.json` and then `ps2stream plan --base now.json`"
    )


def _pack_record(**data: Any) -> U8:
    return np.frombuffer(zlib.compress(json.dumps(data).encode(), 1), np.uint8)


@functools.lru_cache(maxsize=4)
def _unpack_record(record: bytes) -> dict[str, Any]:
    try:
        data: dict[str, Any] = json.loads(zlib.decompress(record))
    except (zlib.error, ValueError) as error:
        raise PlanError(f"strategy: a record cannot be read: {error}") from error
    return data
