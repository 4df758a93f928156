"""The error of a plan change tells its story."""

from __future__ import annotations

import pickle

from ps2stream.errors import PlanError
from ps2stream.routing.plan_states import (
    ChangeState,
    InvalidTransition,
    PlanSignal,
    PlanStep,
    TransitionTaken,
)

STORY = (
    TransitionTaken(ChangeState.NONE, PlanStep.BEGIN, ChangeState.TRANSFERRING, 7),
    TransitionTaken(ChangeState.TRANSFERRING, PlanSignal.ALL_HOLD, ChangeState.READY, 7),
)


def test_the_error_says_what_was_before() -> None:
    error = InvalidTransition(ChangeState.READY, PlanStep.FINISH, 9, STORY)
    assert isinstance(error, PlanError)
    assert str(error) == (
        "strategy: finish does not follow here: at LSN 9 the state is READY; before: "
        "BEGIN at LSN 7: NONE -> TRANSFERRING; "
        "ALL_HOLD after LSN 7: TRANSFERRING -> READY"
    )
    assert str(InvalidTransition(ChangeState.NONE, PlanStep.SWITCH, 1)).endswith(": nothing")


def test_the_error_reaches_another_process_whole() -> None:
    error = InvalidTransition(ChangeState.READY, PlanStep.FINISH, 9, STORY)
    again = pickle.loads(pickle.dumps(error))
    assert (again.state, again.event, again.lsn, again.story) == (
        ChangeState.READY,
        PlanStep.FINISH,
        9,
        STORY,
    )
    assert str(again) == str(error)


def test_the_values_of_states_and_signals_say_what_they_mean() -> None:
    """No two of a kind are alike, or one would be an alias of the other."""
    assert len(ChangeState) == 10
    assert len(PlanSignal) == 3
