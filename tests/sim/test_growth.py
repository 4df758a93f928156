"""Dispatchers that join or leave, whoever dies at whatever step: nothing is lost, nothing comes
twice, and it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.dispatcher.window_moves import WindowMoves
from ps2stream.sequencer.machine import SequencerMachine
from tests.sim.moving import with_changes, worlds_of
from tests.sim.run import play
from tests.sim.scenario import GROWN, SHRUNK, Scenario, scenario
from tests.support.shortening import choose_first

STEPS = ("recorded", "asked", "arrived")
GROWTHS = (1, 2, 4)
"""The numbers of dispatchers: the first one, and those that are requested, one after the other."""
SHRINKS = (4, 2, 1, 3)


def killed(
    script: Scenario, step: str, which: int, role: str, index: int, delay: int
) -> tuple[list[str], int]:
    """Plays it, with a death so many ms after step number `which` of this kind. Returns what is
    wrong, and how many steps there were."""
    worlds: list[Any] = []
    seen = 0

    def note() -> None:
        nonlocal seen
        if seen == which:
            worlds[0].clock.after(delay, worlds[0].crash_one, role, index, delay > 0)
        seen += 1

    def noting(name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def noted(self: object, *args: Any) -> Any:
            found = inner(self, *args)
            if name == step and (name != "recorded" or len(args[1])):
                note()
            return found

        return noted

    record = noting("recorded", SequencerMachine._record_change)
    with (
        worlds_of(worlds),
        mock.patch.object(SequencerMachine, "_record_change", record),
        mock.patch.object(WindowMoves, "answer", noting("asked", WindowMoves.answer)),
        mock.patch.object(WindowMoves, "receive", noting("arrived", WindowMoves.receive)),
        mock.patch.object(ObjectLog, "note_departure", noting("emptied", ObjectLog.note_departure)),
    ):
        found = play(script)
    wrong = list(found.violations)
    if found.events["scaled"] != sum(e.what == "scale_dispatchers" for e in script.events):
        wrong.append(f"only {found.events['scaled']} changes of the number of dispatchers")
    return wrong, seen


DEATHS = choose_first(((0, 0), (1, 30), (2, 0)), 1)
"""At which of the times that a step is taken somebody dies, and how many ms after it."""


@pytest.mark.takes_turns
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("role", ["dispatcher", "worker", "merger", "sequencer"])
def test_a_death_at_every_step(role: str, step: str) -> None:
    script = with_changes(GROWN + 1, GROWTHS)
    died = 0
    for index in range(3 if role == "dispatcher" else 1):
        for which, delay in DEATHS:
            wrong, seen = killed(script, step, which, role, index, delay)
            assert not wrong, (which, index, delay)
            died += seen > which
    assert died


@pytest.mark.takes_turns
@pytest.mark.parametrize("step", [*STEPS, "emptied"])
@pytest.mark.parametrize("role", ["dispatcher", "worker", "merger", "sequencer"])
def test_a_death_at_every_step_of_a_departure(role: str, step: str) -> None:
    script = with_changes(GROWN + 1, SHRINKS)
    died = 0
    for index in (0, 3) if role == "dispatcher" else (0,):
        for which, delay in DEATHS:
            wrong, seen = killed(script, step, which, role, index, delay)
            assert not wrong, (which, index, delay)
            died += seen > which
    assert died


@pytest.mark.parametrize("seed", choose_first([SHRUNK + n for n in (0, 32, 2, 30)], 2))
def test_departures_among_all_other_faults(seed: int) -> None:
    found = play(scenario(seed))
    assert not found.violations
    assert found.events["scaled"]


@pytest.mark.parametrize("seed", choose_first([GROWN + n for n in (1, 0, 2, 3)], 2))
def test_growth_among_all_other_faults(seed: int) -> None:
    found = play(scenario(seed))
    assert not found.violations
    assert found.events["scaled"]
