"""Whoever dies at whatever step of a move: nothing is lost, nothing comes twice, it ends."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
from collections import Counter, deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest import mock

import pytest

from ps2stream.planner.adjust import phase_one
from ps2stream.planner.adjust.phase_one import PhaseOne
from ps2stream.protocol.addresses import Send
from ps2stream.routing.plan_changes import step_of
from ps2stream.routing.plan_states import PlanStep
from ps2stream.sequencer.machine import SequencerMachine
from ps2stream.space.grid import Grid
from tests.sim import hostile
from tests.sim.moving import CLIENTS, a_seed, choose_combinations, worlds_of
from tests.sim.run import play, run
from tests.sim.scenario import Event, Scenario, scenario
from tests.support.shortening import IS_SHORT, choose_first

pytestmark = pytest.mark.takes_turns

STEPS = {
    False: (PlanStep.BEGIN, PlanStep.SWITCH, PlanStep.FINISH),
    True: (PlanStep.APART, PlanStep.UNITE, PlanStep.SWITCH),
}


def with_a_move(seed: int, apart: bool) -> Scenario:
    """Clients alone, no faults; and a move to other plans and numbers of workers, that finds
    queries and objects before, amid and after it."""
    script = scenario(seed)
    rng = random.Random(seed)
    plans = [hostile.some_plan(rng, Grid(4, 3, max_cells=4)) for _ in range(2)]
    most = max(plan.workers for plan in plans)
    topology = dataclasses.replace(
        script.topology, plan=plans[0], dispatchers=2, mergers=1, most_workers=most
    )
    events = [e for e in script.events if e.what in CLIENTS]
    events.append(Event(script.peace // 4, "move", (0, plans[1], 300 * apart, apart)))
    events.sort(key=lambda event: event.at)
    return script._replace(topology=topology, plans=tuple(plans), events=tuple(events))


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("role", ["dispatcher", "worker", "merger", "sequencer"])
def test_a_death_at_every_step(role: str, apart: bool) -> None:
    moved = 0
    script = with_a_move(a_seed(), apart)
    count = {"dispatcher": 2, "worker": script.topology.most_workers}.get(role, 1)
    deaths = [(0, 0), (0, 40)] if count == 1 else [(i, 40 * (i % 2)) for i in range(count)]
    played = choose_combinations(STEPS[apart], deaths)
    for step, (index, delay) in played:
        violations, steps = killed(script, step, role, index, delay)
        assert not violations, (step, delay, index)
        moved += PlanStep.FINISH in steps
    assert moved > min(5, len(played) - 1)


@pytest.mark.parametrize(
    ("bug", "figure", "first"),
    [
        ("", "", 1000),
        ("part_of_what_moves_is_not_loaded", "missing", 1001),
        ("updates_go_to_the_present_owner_alone", "missing", 1008),
        ("old_owners_keep_what_they_had", "surplus", 1000),
    ],
)
def test_what_a_move_loses_or_leaves_behind_is_counted(bug: str, figure: str, first: int) -> None:
    """Each bug in the first seed that shows it; should a change of the code shift it, others are
    tried."""
    found = Counter[str]()
    several = choose_first(range(first, first + 8), 3)
    for seed in (first, *range(1000, 1100)) if bug else several:
        worlds: list[Any] = []
        with worlds_of(worlds):
            run(seed, bug)
        for move in worlds[0].moves():
            found["counted"] += "missing" in move
            found.update({name: move.get(name, 0) for name in ("missing", "surplus")})
        if found[figure]:
            break
    assert found["counted"] > 1 or bug
    wrong = {name for name in ("missing", "surplus") if found[name]}
    assert figure in wrong if bug else not wrong


def killed(
    script: Scenario,
    step: PlanStep,
    role: str,
    index: int,
    delay: int,
    armed: Callable[[], bool] = lambda: True,
) -> tuple[list[str], list[PlanStep]]:
    """Play it, with a kill so many ms after that step is first in the ledger once `armed`."""
    worlds: list[Any] = []
    steps: list[PlanStep] = []
    left = [role]
    record = SequencerMachine._record_plan_change

    def written(self: SequencerMachine, data: Any, owner: int) -> list[Send]:
        out = record(self, data, owner)
        steps.append(step_of(data))
        if left and steps[-1] == step and armed():
            worlds[0].clock.after(delay, worlds[0].crash_one, left.pop(), index, False)
        return out

    with (
        worlds_of(worlds),
        mock.patch.object(SequencerMachine, "_record_plan_change", written),
    ):
        found = play(script)
    return found.violations, steps


@pytest.mark.every_turn
def test_a_restart_after_a_move_goes_on_from_the_snapshots() -> None:
    script = with_a_move(a_seed(), False)
    topology = dataclasses.replace(script.topology, snapshot_s=0.1)
    late = [Event(script.peace * n // 8, "crash_all", (False, 1, -1)) for n in (5, 7)]
    events = sorted((*script.events, *late), key=lambda event: event.at)
    found = play(script._replace(topology=topology, events=tuple(events)))
    assert not found.violations
    assert found.events["resumed"] >= topology.most_workers


def test_the_controller_splits_cells_among_faults() -> None:
    """Seeds in which cells become too hot to move."""
    splits = 0
    seeds = choose_first((1060, 1162, 1095, 1006), 2)
    for seed in seeds:
        found = run(seed)
        assert not found.violations, seed
        splits += found.events["splits"]
    assert splits >= len(seeds)


@pytest.mark.parametrize(("change", "first"), [("merge", 1068), ("split", 1347)])
def test_a_death_amid_a_change_of_phase_one(change: str, first: int) -> None:
    """Whoever dies after the controller has joined or divided parts, among other faults; should a
    change of the code shift the seed in which it does, others are tried. Joining pays in one
    schedule of some hundreds, so it is taken to pay wherever the load allows it."""
    propose = getattr(PhaseOne, change)
    pays = mock.patch.object(phase_one, "saving", return_value=-1.0)
    forced: AbstractContextManager[Any] = pays if change == "merge" else nullcontext()
    ended = Counter[str]()
    roles = ("controller", "sequencer", "dispatcher", "worker", "merger")
    deaths = choose_combinations((PlanStep.BEGIN, PlanStep.SWITCH), roles)
    seeds, left = iter((first, *range(1000, 1200))), deque[tuple[PlanStep, str]]()
    while left or min(ended[role] for role in roles) == 0:
        if not left:
            seed = next(seeds)
            left.extend(deaths)
        step, role = left.popleft()
        made: list[object] = []

        def noted(self: PhaseOne, *given: Any, made: list[object] = made) -> object:
            found = propose(self, *given)
            made.extend([found] * (found is not None))
            return found

        with mock.patch.object(PhaseOne, change, noted), forced:
            proposed = functools.partial(bool, made)
            violations, steps = killed(scenario(seed, is_plain=True), step, role, 0, 0, proposed)
        assert not violations, (seed, step, role)
        ended[role] += bool(made) and PlanStep.FINISH in steps
        if not made:
            left.clear()


def test_the_controller_ends_the_old_plan_among_faults() -> None:
    """Where two plans coexist that nobody else unites."""
    moves = ((seed, e) for seed in itertools.count(1000) for e in scenario(seed).events)
    alone = (seed for seed, e in moves if e.what == "move" and e.args[2] < 0)
    sunsets = 0
    for seed in itertools.islice(alone, 2 if IS_SHORT else 6):
        found = run(seed)
        assert not found.violations, seed
        sunsets += found.events["sunsets"]
    assert sunsets > 1  # of the first two
