"""The decision record shows the machine of a plan change as the table of transitions has it."""

from __future__ import annotations

from ps2stream.routing.plan_changes import TRANSITIONS
from ps2stream.routing.plan_states import ChangeState
from scripts import plan_changes_docs


def test_the_page_is_what_the_table_gives() -> None:
    shown = plan_changes_docs.PAGE.read_text("utf-8")
    assert shown == plan_changes_docs.page()
    assert shown.count(plan_changes_docs.BEGIN) == shown.count(plan_changes_docs.END) == 1


def test_the_page_shows_every_state_and_event() -> None:
    shown = plan_changes_docs.page()
    shown = shown[shown.index(plan_changes_docs.BEGIN) : shown.index(plan_changes_docs.END)]
    assert all(f"| {state.name} | {state.value} |" in shown for state in ChangeState)
    drawn = shown.split("```")[1]
    assert all(state.name in drawn for state in ChangeState)
    assert all(event.name in drawn for _, event in TRANSITIONS)
