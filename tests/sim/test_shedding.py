"""Load that is shed: only what may be is lost, only while every session receives a notice that
covers it, and nothing is doubled or wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest

from ps2stream.dispatcher import machine, shedding
from ps2stream.dispatcher.publications import PublicationPipeline
from ps2stream.dispatcher.shedding import LoadShedding
from ps2stream.multicast.capping import RANKS
from ps2stream.multicast.capping_kernels import SAMPLED
from tests.sim.run import Result, play
from tests.sim.scenario import Event, Scenario, scenario
from tests.support.shortening import choose_first

OVERLOADED, IDLE = 20, 12  # steps
SEEDS = choose_first(range(3_000, 3_006), 4)


def under_overload(seed: int) -> Scenario:
    """Load is shed by either rank, and more is published at the lower levels."""
    script, rng = scenario(seed), random.Random(f"{seed} levels")

    def lower(event: Event) -> Event:
        if event.what != "publish":
            return event
        where, _, objects = event.args
        level = rng.choices(["DURABLE", "ACCEPTED", "NONE"], [3, 6, 1])[0]
        return event._replace(args=(where, level, objects))

    values = {f: getattr(script.topology, f) for f in script.topology.__dataclass_fields__}
    topology = type(script.topology)(**values | {"shed": RANKS[seed % 2]})
    return script._replace(topology=topology, events=tuple(map(lower, script.events)))


@contextmanager
def soon_overloaded() -> Iterator[list[int]]:
    """Steps are five a second, each dispatcher is full for some of them and idle for others, and
    few workers are many. Yields the objects of each notice."""
    found: list[int] = []
    take_notice = LoadShedding.take_notice

    def count_notice(self: LoadShedding, *args: Any) -> Any:
        notice = take_notice(self, *args)
        found.append(int(notice.shed[4]))
        return notice

    def be_full(self: Any) -> float:
        self.steps = getattr(self, "steps", -1) + 1
        return float(self.steps % (OVERLOADED + IDLE) < OVERLOADED)

    def allow_few(level: int) -> float:
        return max(1.0, 2.5 - level / 2) if level else np.inf

    with (
        mock.patch.object(machine, "TICKS_PER_S", 2),
        mock.patch.object(PublicationPipeline, "fullness", property(be_full)),
        mock.patch.object(shedding, "targets_at", allow_few),
        mock.patch.object(shedding, "SAMPLED_PART", 0.25),
        mock.patch.object(shedding, "NOTICE_STEPS", 3),
        mock.patch.object(LoadShedding, "take_notice", count_notice),
    ):
        yield found


def shed(seed: int) -> Result:
    return play(under_overload(seed))


@pytest.mark.takes_turns(0)
def test_what_is_lost_was_shed_and_every_session_received_notice() -> None:
    with soon_overloaded() as notices:
        failed = {seed: found for seed in SEEDS if (found := shed(seed).violations)}
    assert failed == {}
    assert len(notices) > 2
    assert sum(notices) > 5


def test_durable_objects_that_are_shed_are_found() -> None:
    """The deliberate bug: all objects of a batch may be shed."""

    def find_all(self: Any, taken: Any) -> Any:
        rows = sum(len(waiting.rows) for waiting in taken)
        return np.ones(rows, np.bool_) if self._router.shedding.level else None

    with soon_overloaded(), mock.patch.object(PublicationPipeline, "_find_sheddable", find_all):
        assert any(shed(seed).violations for seed in SEEDS)


@pytest.mark.takes_turns(1)
def test_a_loss_without_a_notice_is_found() -> None:
    """The deliberate bug: nothing is announced."""
    with soon_overloaded(), mock.patch.object(LoadShedding, "has_notice", False):
        assert any(shed(seed).violations for seed in SEEDS)


@pytest.mark.takes_turns(2)
def test_sampled_objects_that_are_shed_are_found() -> None:
    """The deliberate bug: the sample is shed, too."""
    prepare = LoadShedding.prepare

    def shed_all(self: LoadShedding, *args: Any) -> Any:
        columns = prepare(self, *args)
        columns.state[columns.state == SAMPLED] = 1
        return columns

    note_routed = LoadShedding.note_routed

    def note_as_sampled(self: LoadShedding, batch: int, rows: Any, columns: Any) -> None:
        note_routed(self, batch, rows, columns)
        everything = np.arange(len(rows))
        self._samples[batch] = shedding.SampledRows(everything, columns.cut)

    with (
        soon_overloaded(),
        mock.patch.object(LoadShedding, "prepare", shed_all),
        mock.patch.object(LoadShedding, "note_routed", note_as_sampled),
    ):
        assert any(shed(seed).violations for seed in SEEDS)
