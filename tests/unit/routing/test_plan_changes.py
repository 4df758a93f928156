"""Records of the ledger that change the plan: what they make of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from ps2stream.errors import PlanError
from ps2stream.routing.plan import RoutingPlan, Space
from ps2stream.routing.plan_changes import (
    STORY,
    TRANSITIONS,
    PlanState,
    step_of,
    step_record,
    strategy_of,
    versions,
)
from ps2stream.routing.plan_states import (
    ChangeEvent,
    ChangeState,
    InvalidTransition,
    PlanSignal,
    PlanStep,
)
from ps2stream.space.grid import Grid
from tests.sim.hostile import ANALYSIS

GRID = Grid(3, 2)


CELLS = np.arange(32, dtype=np.uint32) % 8 // 4


def plan(
    workers: int = 2, version: int = 1, frequencies: Mapping[str, int] | None = None
) -> RoutingPlan:
    leaves = Space(0), Space(workers - 1)
    many = frequencies or {}
    return RoutingPlan(workers, ANALYSIS, GRID, leaves, CELLS, many, version, version - 1)


def test_the_steps_of_a_move() -> None:
    old, new = plan(2), plan(3, 2)
    begun = PlanState(old).after(PlanState(old).begin(new), 7)
    assert (begun.plan.version, begun.following.version, begun.begun) == (1, 2, 7)  # type: ignore[union-attr]
    assert (begun.serving.version, begun.workers) == (1, 3)
    switched = begun.after(step_record(PlanStep.SWITCH), 9)
    assert (switched.serving.version, switched.switched) == (2, 9)
    done = switched.after(step_record(PlanStep.FINISH), 12)
    assert (done.plan.version, done.following, done.workers) == (2, None, 3)
    aborted = begun.after(step_record(PlanStep.ABORT), 8)
    assert aborted == PlanState(begun.plan, state=ChangeState.CHECKING)
    for strategy in (begun, switched, done):
        again = PlanState(plan(1)).after(strategy.record(), 20)
        assert again.serving.route == strategy.serving.route
        assert (again.begun, again.switched) == (strategy.begun, strategy.switched)


@pytest.mark.parametrize("step", [PlanStep.SWITCH, PlanStep.FINISH, PlanStep.ABORT])
def test_a_step_that_does_not_follow_is_refused(step: PlanStep) -> None:
    assert step_of(step_record(step)) == step
    with pytest.raises(PlanError, match="does not follow here"):
        PlanState(plan()).after(step_record(step), 3)


def test_what_cannot_be_taken_back_is_not() -> None:
    begun = PlanState(plan()).after(PlanState(plan()).begin(plan(3, 2)), 1)
    with pytest.raises(PlanError, match="does not follow here"):
        begun.after(step_record(PlanStep.FINISH), 2)
    with pytest.raises(PlanError, match="does not follow here"):
        begun.after(begun.begin(plan(1, 2)), 2)
    with pytest.raises(PlanError, match="does not follow here"):
        begun.after(step_record(PlanStep.SWITCH), 2).after(step_record(PlanStep.ABORT), 3)
    with pytest.raises(PlanError, match="cannot be read"):
        begun.after(np.frombuffer(b"nonsense", np.uint8), 2)


def test_frequencies_travel_only_where_they_changed() -> None:
    base = plan(frequencies={f"t{i}": i for i in range(1000)})
    same = PlanState(base).begin(plan(3, 2, frequencies=dict(base.frequencies)))
    other = PlanState(base).begin(plan(3, 2, frequencies={"t": 1}))
    assert len(same) < 1000 < len(PlanState(base).record())
    assert PlanState(base).after(same, 1).following.frequencies == base.frequencies  # type: ignore[union-attr]
    assert PlanState(base).after(other, 1).following.frequencies == {"t": 1}  # type: ignore[union-attr]


EVENTS = [event for event in (*PlanStep, *PlanSignal) if event is not PlanStep.SET]
OLD, NEW = plan(2), plan(3, 2)


def follow(change: PlanState, event: ChangeEvent, lsn: int) -> PlanState:
    """Take an event as an actor does: a record of the ledger, or a signal."""
    if isinstance(event, PlanSignal):
        return change.signal(event)
    if event in (PlanStep.BEGIN, PlanStep.APART):
        return change.after(change.begin(NEW, apart=event is PlanStep.APART), lsn)
    return change.after(change.record() if event is PlanStep.SET else step_record(event), lsn)


def reached() -> dict[ChangeState, PlanState]:
    """Every state that the table leads to from one plan, by a shortest way."""
    found = {ChangeState.NONE: PlanState(OLD)}
    queue = [*found.values()]
    for change in queue:
        for (state, event), transition in TRANSITIONS.items():
            if state is change.state and transition.target not in found:
                found[transition.target] = follow(change, event, 10 * len(change.story) + 10)
                queue.append(found[transition.target])
    return found


REACHED = reached()


def test_every_state_is_reached_and_left() -> None:
    assert set(REACHED) == set(ChangeState)
    assert {state for state, _ in TRANSITIONS} == set(ChangeState)
    assert {event for _, event in TRANSITIONS} == set(EVENTS)


@pytest.mark.parametrize("state", ChangeState, ids=lambda state: state.name)
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.name)
def test_every_pair_leads_where_the_table_says_or_is_refused(
    state: ChangeState, event: ChangeEvent
) -> None:
    before = REACHED[state]
    assert before.state is state
    transition = TRANSITIONS.get((state, event))
    if transition is None:
        with pytest.raises(InvalidTransition, match="does not follow here") as caught:
            follow(before, event, 99)
        error = caught.value
        assert (error.state, error.event, error.story) == (state, event, before.story)
        assert all(str(taken) in str(error) for taken in before.story)
        return
    after = follow(before, event, 99)
    assert after.state is transition.target
    lsn = before.story[-1].lsn if isinstance(event, PlanSignal) and before.story else 99
    assert after.story == (*before.story, (state, event, transition.target, lsn))


@pytest.mark.parametrize("state", ChangeState, ids=lambda state: state.name)
def test_what_may_follow_depends_on_the_plans_and_lsns_alone(state: ChangeState) -> None:
    """Signals add nothing to it: an actor that receives none takes the same records."""
    change = REACHED[state]
    if change.following is None:
        steps = {PlanStep.BEGIN, PlanStep.APART, PlanStep.CHECKED}
    elif change.switched:
        steps = {PlanStep.FINISH}
    elif change.apart:
        steps = {PlanStep.SWITCH if change.begun else PlanStep.UNITE}
    else:
        steps = {PlanStep.SWITCH, PlanStep.ABORT}
    assert change.steps == steps


@pytest.mark.parametrize("state", ChangeState, ids=lambda state: state.name)
def test_a_state_that_is_read_waits_for_its_signal_again(state: ChangeState) -> None:
    change = REACHED[state]
    again = strategy_of(change.record(), ANALYSIS)
    taken = PlanState(OLD).after(change.record(), 99)
    for read in (again, taken):
        assert (read.begun, read.switched, read.apart) == (
            change.begun,
            change.switched,
            change.apart,
        )
        assert read.serving.version == change.serving.version
    assert taken.state is again.state
    assert taken.story == ((ChangeState.NONE, PlanStep.SET, taken.state, 99),)
    unsignalled = {
        ChangeState.READY: ChangeState.TRANSFERRING,
        ChangeState.READY_TO_UNITE: ChangeState.UNITING,
        ChangeState.RETIRED: ChangeState.RETIRING,
        ChangeState.CHECKING: ChangeState.NONE,
        ChangeState.COUNTED: ChangeState.NONE,
    }
    assert again.state is unsignalled.get(state, state)
    coexist = state is ChangeState.COEXISTING
    assert versions(change.record())[2] == coexist


def test_the_story_has_the_last_transitions() -> None:
    change = PlanState(OLD)
    for lsn in range(100):
        change = change.after(step_record(PlanStep.CHECKED), lsn)
    assert [taken.lsn for taken in change.story] == [*range(100 - STORY, 100)]
