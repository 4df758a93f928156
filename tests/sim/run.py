"""One seed, from its schedule to its judgement."""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from ps2stream.cluster import snapshots
from ps2stream.dispatcher import object_log, producers, retro_queue, valid_log, valid_objects
from ps2stream.sequencer import feed, log_compaction, plan_changes
from ps2stream.workers.radix import arrays as radix_arrays
from tests.history.record import Recorder
from tests.sim.bugs import planted
from tests.sim.judge import Judge
from tests.sim.process import patched
from tests.sim.repeats import WINDOW
from tests.sim.scenario import UNCONTROLLED, Event, Scenario, scenario
from tests.sim.world import World


class Result(NamedTuple):
    """violations: none for a good run; story: (ms, what happened); events: what was tried."""

    seed: int
    violations: list[str]
    story: list[tuple[int, str]]
    ms: int
    messages: int
    pairs: int
    events: dict[str, int]


def run(seed: int, bug: str = "", history: Path | None = None) -> Result:
    """Play the schedule of a seed, with the deliberate bug of this name or without. `history`:
    where what clients did and received is written, of seeds below UNCONTROLLED."""
    return play(scenario(seed), bug=bug, history=history)


def play(
    script: Scenario,
    events: Sequence[Event] | None = None,
    bug: str = "",
    history: Path | None = None,
) -> Result:
    """Play a schedule, or these of its events."""
    assert history is None or script.seed < UNCONTROLLED, "the history would lack some calls"
    events = script.events if events is None else events
    world = World(str(script.seed), script.topology, script.plans)
    recorder = Recorder(history, clock=lambda: world.clock.now * 1_000_000)
    world.recorder = recorder
    with (
        recorder,
        mock.patch.object(feed, "FEED_ROWS", script.feed_rows),
        mock.patch.object(plan_changes, "TRANSFER_ROWS", script.feed_rows),
        mock.patch.multiple(
            log_compaction,
            STEP_ROWS=script.feed_rows,
            KEPT_TICKS=1 + script.feed_rows % 5,
            KEPT_ROWS=0,
            WORTH=1,
            DEAD_PER_LIVE=0,
        ),
        mock.patch.object(snapshots, "WORTH", 1),
        mock.patch.object(producers, "PRODUCER_WINDOW", WINDOW),
        mock.patch.object(object_log, "WINDOWS_BYTES", 600),
        mock.patch.object(valid_log, "REWRITE_BYTES", 600),
        mock.patch.object(valid_log, "PIECE_BYTES", 200),
        mock.patch.object(valid_objects, "CHUNK_ROWS", 4),
        mock.patch.object(retro_queue, "TOGETHER", 2),
        mock.patch.object(radix_arrays, "SAMPLED", 1 + 15 * (script.seed % 2)),
        mock.patch.object(radix_arrays, "DIVIDED", script.seed % 3),
        patched(world.clock, world.network),
        planted(bug),
    ):
        logging.disable(logging.CRITICAL)
        try:
            _go(world, events, script.peace)
        except Exception as error:  # noqa: BLE001
            world.tell(traceback.format_exc())
            world.wrong(f"{type(error).__name__}: {error}")
        finally:
            logging.disable(logging.NOTSET)
    pairs = sum(len(box.pairs) for box in world.boxes.values())
    tried = Counter(event.what for event in events)
    tried["resumed"] += world.resumed
    tried["scaled"] += world.scaled
    tried["departed"] += world.departed
    tried["retro"] += sum(
        thing.lsn < pair.handle
        for box in world.boxes.values()
        for pair in box.pairs.values()
        if (thing := world.things.get(pair.object_id)) is not None
    )
    tried["dropped"] += sum(len(box.unknown) for box in world.boxes.values())
    tried["measured"] += sum(c.counters.periods for c in world.controllers)
    tried["sunsets"] += sum(c.counters.sunsets for c in world.controllers)
    for name in ("adjustments", "splits", "merges", "hot_changes"):
        tried[name] += sum(getattr(c.counters, name) for c in world.controllers)
    return Result(
        script.seed, world.violations, world.story, world.clock.now, world.network.sent, pairs,
        dict(tried),
    )  # fmt: skip


def _go(world: World, events: Sequence[Event], peace: int) -> None:
    world.begin()
    world.act(events)
    world.clock.run(peace)
    world.peace()
    if not world.rest():
        world.wrong(f"no rest: {world.busy}")
    world.recorder.settle()
    if not world.violations:
        Judge(world).judge()
