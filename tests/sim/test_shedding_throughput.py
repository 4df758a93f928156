"""Shedding under overload, where work takes time: more is accepted, what is durable is whole."""

from __future__ import annotations

from ps2stream.errors import ResourceExhausted
from ps2stream.multicast.capping import SheddingRank
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.rows import ObjectRows
from tests.sim.timed import RETRY_MS, ROWS, WINDOW, TimedSim

WARM_MS, END_MS = 20_000.0, 30_000.0
WORKERS, ROW_US, IN_FLIGHT = 8, 100.0, 4


class CrowdedSim(TimedSim):
    """Every object has the words of all workers, and is published at level ACCEPTED."""

    def __init__(self, shed: SheddingRank | None) -> None:
        super().__init__(5, ROW_US, WORKERS, max_in_flight=IN_FLIGHT, shed=shed)

    def _objects(self, word: str) -> ObjectRows:
        plain = super()._objects(word)
        text = strings_to_column([" ".join(f"word{i}" for i in range(WORKERS))] * ROWS)
        terms = self.analyzer.analyse(*text)
        return ObjectRows(plain.id_off, plain.id, plain.time, plain.lon, plain.lat, *text, *terms)

    def publish_all(self) -> None:
        while self._open < WINDOW:
            future = self.edges[0].publish(self._batches[0], 0.0, False)
            if future.done() and isinstance(future.exception(), ResourceExhausted):
                self._at(self.now + RETRY_MS, self.publish_all)
                return
            self._open += 1
            future.add_done_callback(self._answered)


def measure(shed: SheddingRank | None) -> tuple[float, float, dict[str, int]]:
    """Returns (objects accepted a second, copies matched for each, counters)."""
    sim = CrowdedSim(shed)
    sim.publish_all()
    sim.run(WARM_MS)
    accepted, matched = sim.accepted, sim.matched.total()
    sim.run(END_MS)
    shedding = sim.edges[0].machine.router.shedding
    rate = (sim.accepted - accepted) / (END_MS - WARM_MS) * 1e3
    return rate, (sim.matched.total() - matched) / (sim.accepted - accepted), shedding.counters


def test_a_full_service_accepts_more_if_it_sheds() -> None:
    whole, copies, nothing = measure(None)
    assert set(nothing.values()) == {0}
    assert copies > WORKERS - 0.5
    capped, fewer, counters = measure("consensus")
    assert counters["capped_objects"] > 0
    assert fewer < 0.6 * copies
    assert capped > 1.5 * whole
