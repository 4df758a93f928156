"""Sessions that move between mergers, whoever dies at whatever step: nothing is lost, nothing comes
twice, and it ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from ps2stream.merger.journal import MatchJournal
from ps2stream.merger.records import ArrivedRecord, LeftRecord, TakenOverRecord
from ps2stream.protocol.frame import Frame
from ps2stream.sequencer.machine import SequencerMachine
from tests.sim.moving import CLIENTS, a_seed, choose_combinations, worlds_of
from tests.sim.run import play
from tests.sim.scenario import Event, Scenario, scenario

RECORDED = "a table in the ledger"
STEPS = (RECORDED, TakenOverRecord, ArrivedRecord, LeftRecord)
SCALES = (3, 1, 2)
"""The numbers of mergers that are requested, one after the other."""


def with_scales(seed: int, mergers: int = 1, faults: bool = False) -> Scenario:
    """Clients, and faults if wanted; and sessions that move to other numbers of mergers, amid what
    they do."""
    script = scenario(seed)
    topology = dataclasses.replace(
        script.topology, dispatchers=2, mergers=mergers, most_mergers=max(SCALES)
    )
    events = [e for e in script.events if faults or e.what in CLIENTS]
    for n, wanted in enumerate(SCALES, 1):
        events.append(Event(script.peace * n // 5, "scale_mergers", (n % 2, wanted)))
    events.sort(key=lambda event: event.at)
    return script._replace(topology=topology, events=tuple(events))


def killed(
    script: Scenario, step: object, which: int, role: str, index: int, delay: int, power: bool
) -> tuple[list[str], int]:
    """Plays it, with a death so many ms after step number `which` of this kind. Returns what is
    wrong, and how many steps there were."""
    worlds: list[Any] = []
    seen = 0

    def note() -> None:
        nonlocal seen
        if seen == which:
            clock = worlds[0].clock
            clock.after(delay, worlds[0].crash_one, role, index, power)
        seen += 1

    append: Callable[..., Any] = MatchJournal.append
    commit: Callable[..., Any] = SequencerMachine._record_change

    def appended(self: MatchJournal, frame: Frame, lasting: bool = True) -> int | None:
        found = append(self, frame, lasting)
        if type(frame) is step and found is not None:
            note()
        return found  # type: ignore[no-any-return]

    def committed(self: SequencerMachine, plans: Any, sessions: Any, owner: int) -> Any:
        found = commit(self, plans, sessions, owner)
        if step == RECORDED and len(sessions):
            note()
        return found

    with (
        worlds_of(worlds),
        mock.patch.object(MatchJournal, "append", appended),
        mock.patch.object(SequencerMachine, "_record_change", committed),
    ):
        found = play(script)
    wrong = list(found.violations)
    if found.events["scaled"] != len(SCALES):
        wrong.append(f"only {found.events['scaled']} changes of the number of mergers")
    return wrong, seen


@pytest.mark.takes_turns
@pytest.mark.parametrize("step", STEPS, ids=["recorded", "numbers", "arrived", "left"])
@pytest.mark.parametrize("role", ["dispatcher", "worker", "merger", "sequencer"])
def test_a_death_at_every_step(role: str, step: object) -> None:
    script = with_scales(a_seed())
    died = 0
    count = {"dispatcher": 2, "merger": max(SCALES)}.get(role, 1)
    unreached: set[int] = set()
    deaths = choose_combinations((0, 1, 2, 4), range(count), (0, 30), share=3)
    for which, index, delay in deaths:
        if which in unreached:
            continue  # nobody would die, and the play be the same
        wrong, seen = killed(script, step, which, role, index, delay, power=delay > 0)
        assert not wrong, (which, index, delay)
        if seen > which:
            died += 1
        else:
            unreached.add(which)
    assert died > min(2, len(deaths) // 2)
