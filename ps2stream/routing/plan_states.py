"""The states of a plan change, its events, and the error when an event cannot follow.

The table of transitions is `TRANSITIONS` in plan_changes.py.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Any, NamedTuple

from ps2stream.errors import PlanError


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


class PlanSignal(Enum):
    """What the sequencer alone learns of a plan change, by the reports of all actors."""

    ALL_HOLD = "every worker has reported that it holds all queries that it gains"
    ALL_PASSED = "the watermarks of all dispatchers have passed SWITCH"
    ALL_COUNTED = "every actor has counted its postings, or was waited for long enough"


ChangeEvent = PlanStep | PlanSignal
"""What may happen to a plan change: a record of the ledger or a signal."""


class ChangeState(Enum):
    """The states of a plan change."""

    NONE = "one plan; no change is under way"
    TRANSFERRING = (
        "workers fetch the queries that they gain; updates go to the owners by both plans"
    )
    READY = "every worker holds what it gains: SWITCH is due"
    COEXISTING = (
        "new queries belong to the following plan, earlier ones to the present one; objects go to "
        "the owners by both"
    )
    UNITING = "workers fetch the queries that are left with the present plan"
    READY_TO_UNITE = "every worker holds these: SWITCH is due"
    RETIRING = (
        "objects are routed by the following plan; batches that were routed by the present one "
        "may be under way"
    )
    RETIRED = "no such batch is under way: FINISH is due"
    CHECKING = "one plan again; workers and dispatchers count postings as of the end of the change"
    COUNTED = "the counts can be compared: CHECKED is due"


class TransitionTaken(NamedTuple):
    """A transition of the past; `lsn` is that of the record, or of the last one before a signal."""

    state: ChangeState
    event: ChangeEvent
    target: ChangeState
    lsn: int

    def __str__(self) -> str:
        at = "after" if isinstance(self.event, PlanSignal) else "at"
        return f"{self.event.name} {at} LSN {self.lsn}: {self.state.name} -> {self.target.name}"


class InvalidTransition(PlanError):
    """An event of a plan change cannot follow in this state. `story` has the last transitions."""

    def __init__(
        self,
        state: ChangeState,
        event: ChangeEvent,
        lsn: int,
        story: tuple[TransitionTaken, ...] = (),
    ) -> None:
        self.state = state
        self.event = event
        self.lsn = lsn
        self.story = story
        super().__init__(
            f"strategy: {event.name.lower()} does not follow here: at LSN {lsn} the state is "
            f"{state.name}; before: {'; '.join(map(str, story)) or 'nothing'}"
        )

    def __reduce__(self) -> tuple[type[InvalidTransition], tuple[Any, ...]]:
        return type(self), (self.state, self.event, self.lsn, self.story)
