"""Throughput under the simulator in which work takes time: queues are not taken for losses."""

from __future__ import annotations

import os
import random

import pytest

from ps2stream.protocol.addresses import Address
from ps2stream.protocol.frame import Frame
from ps2stream.protocol.messages.objects import (
    MatchBatch,
    MatchRelease,
    ReleasesKept,
    RoutedObjects,
)
from tests.sim.timed import ROWS, TimedSim

WARM_MS, END_MS = 22_000.0, 40_000.0
RUNS = int(os.environ.get("PS2STREAM_THROUGHPUT_RUNS", "3"))


class Hiccup:
    """Makes one actor stop once, for `ms`, at the first message after `at` ms."""

    def __init__(self, who: Address, at: float, ms: float) -> None:
        self.who, self.at, self.ms = who, at, ms
        self.sim: TimedSim | None = None

    def __call__(self, to: Address, frame: Frame) -> float | None:
        if self.sim is None or to != self.who or self.sim.now < self.at:
            return 0.0
        ms, self.ms = self.ms, 0.0
        return ms


def saturated(sim: TimedSim) -> tuple[float, float]:
    """Returns (objects matched a second, of them copies as a part) once all has settled."""
    sim.publish_all()
    sim.run(WARM_MS)
    matched, accepted = sim.matched.total(), sim.accepted
    sim.run(END_MS)
    matched, accepted = sim.matched.total() - matched, sim.accepted - accepted
    return matched / (END_MS - WARM_MS) * 1e3, 1 - accepted / matched


@pytest.mark.parametrize("seed", range(0, 5 * RUNS, 5))
def test_a_full_service_recovers_from_a_hiccup(seed: int) -> None:
    """A batch that is old because it stands in a queue is not sent again: copies would make the
    queue longer, and the service would do little but copies from then on."""
    rng = random.Random(seed)
    workers, row_us = 1 + seed % 3, rng.choice([9.0, 30.0, 60.0])
    who = Address("worker", rng.randrange(workers))
    who = rng.choice([who, Address("merger", 0), Address("dispatcher", 0)])
    hiccup = Hiccup(who, rng.uniform(3_000, 9_000), rng.choice([300.0, 4_000.0, 9_000.0]))
    in_flight = rng.choice([16, 64])
    sim = TimedSim(seed, row_us, workers, 1 + seed % 2, in_flight, hiccup)
    hiccup.sim = sim
    rate, copies = saturated(sim)
    # One worker is the bottleneck where the words of batches are drawn at random.
    assert rate >= 0.8 * min(1e6 / row_us, 90_000), (who, hiccup)
    assert copies <= 0.15


@pytest.mark.parametrize("kind", [RoutedObjects, MatchBatch, MatchRelease, ReleasesKept])
def test_a_lost_message_is_sent_again_soon_and_nothing_else_is(kind: type[Frame]) -> None:
    lost: list[Frame] = []

    def lose(to: Address, frame: Frame) -> float | None:
        if isinstance(frame, kind) and sim is not None and sim.now > 5_000 and not lost:
            lost.append(frame)
            return None
        return 0.0

    sim: TimedSim | None = None
    sim = TimedSim(1, 30.0, max_in_flight=16, delay_ms=lose)
    sim.publish_all()
    sim.run(5_500)
    assert len(lost) == 1
    sim.run(10_000)
    assert sim.edges[0].router.oldest > sim.accepted / 2  # nothing old is open
    sim.publishing = False
    sim.run(30_000)
    machine = sim.edges[0].router
    assert machine.in_flight == 0
    assert sim.matched.total() - sim.accepted <= 8 * ROWS  # one joined batch


def test_all_that_was_under_way_is_lost_and_comes_again() -> None:
    """Nothing is published meanwhile that would show the loss."""

    def lose(to: Address, frame: Frame) -> float | None:
        inside = sim is not None and 5_000 < sim.now < 5_400
        return None if inside and isinstance(frame, RoutedObjects | MatchBatch) else 0.0

    sim: TimedSim | None = None
    sim = TimedSim(1, 30.0, max_in_flight=16, delay_ms=lose)
    sim.publish_all()
    sim.run(5_300)
    sim.publishing = False
    sim.run(6_000)
    assert sim.edges[0].router.in_flight > 0
    sim.run(40_000)
    assert sim.edges[0].router.in_flight == 0
