"""A simulator in which work takes time: the real machines, each busy for as long as what it
handles costs, over links that keep their order.

The scheduler's other simulators find wrong answers; this one finds lost throughput. One client
publishes as fast as it is answered, with `WINDOW` batches under way.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np

from ps2stream.cluster.topology import Topology
from ps2stream.errors import ResourceExhausted
from ps2stream.language.analyzer import Analysis
from ps2stream.language.expression import compile_column
from ps2stream.language.query_rows import build_rows
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import Frame, decode, strings_to_column
from ps2stream.protocol.messages.objects import RoutedObjects
from ps2stream.protocol.rows import ObjectRows
from ps2stream.routing.plan import text_plan
from ps2stream.space.grid import Grid
from ps2stream.space.regions import World
from ps2stream.store.memory import MemoryStore
from tests.sim.scheduler import SEQUENCER, Sim

LINK_MS, MESSAGE_MS, TICK_MS, RETRY_MS = 0.2, 0.3, 100.0, 5.0
WINDOW, ROWS = 8, 1024
DISPATCHER = Address("dispatcher", 0)


class TimedSim(Sim):
    """One dispatcher, `workers` workers and `mergers` mergers. A worker takes `row_us` for each
    object; `delay_ms(to, frame)` is what else a message costs, None where it is lost."""

    def __init__(
        self,
        seed: int,
        row_us: float,
        workers: int = 1,
        mergers: int = 1,
        max_in_flight: int = 16,
        delay_ms: Callable[[Address, Frame], float | None] = lambda to, frame: 0.0,
    ) -> None:
        self.now = 0.0
        self.accepted = 0
        self.matched: Counter[int] = Counter()  # objects, copies too, by worker
        self.publishing = True
        self._row_us, self._delay_ms = row_us, delay_ms
        self._open = 0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._ticket = itertools.count()
        self._inboxes: dict[Address, deque[bytes]] = {}
        self._busy: set[Address] = set()
        self._due: set[Address] = set()  # whose tick waits until a message is done
        words = [f"word{i}" for i in range(workers)]
        plan = text_plan(Analysis(salt=7), Grid(3, 2), workers, {w: i for i, w in enumerate(words)})
        topology = Topology(plan, mergers=mergers, max_in_flight=max_in_flight)
        rng = random.Random(seed)
        super().__init__(topology, MemoryStore(), rng, {})
        for address in (SEQUENCER, DISPATCHER, *self.machines):
            self._at(self.now + rng.random() * TICK_MS, self._tick, address)
        compiled = compile_column(*strings_to_column(words), self.analyzer, self.frequencies)
        rows = build_rows(strings_to_column(words), compiled, [World()] * workers)
        self.edges[0].update(rows, words, [""] * workers)
        self.run(2_000.0)
        self._batches = [self._objects(word) for word in words]

    def run(self, until: float) -> None:
        """Runs to this time, in ms since the start."""
        while self._events and self._events[0][0] <= until:
            self.now, _, action, args = heapq.heappop(self._events)
            action(*args)
        self.now = until

    def publish_all(self) -> None:
        """Keeps WINDOW publications under way, while `publishing`."""
        while self.publishing and self._open < WINDOW:
            word = self.rng.randrange(len(self._batches))
            future = self.edges[0].publish(self._batches[word])
            if future.done() and isinstance(future.exception(), ResourceExhausted):
                self._at(self.now + RETRY_MS, self.publish_all)
                return
            self._open += 1
            future.add_done_callback(self._answered)

    def post(self, source: Address, sends: list[Send]) -> None:
        for to, frame in sends:
            if to.role != "controller":
                self._at(self.now + LINK_MS, self._arrive, to, frame.encode())

    def _objects(self, word: str) -> ObjectRows:
        ids, text = strings_to_column([word] * ROWS), strings_to_column([word] * ROWS)
        place = np.zeros(ROWS)
        terms = self.analyzer.analyse(*text)
        return ObjectRows(*ids, np.zeros(ROWS, np.int64), place, place, *text, *terms)

    def _answered(self, future: Future[Any]) -> None:
        future.result()
        self._open -= 1
        self.accepted += ROWS
        self._at(self.now + LINK_MS, self.publish_all)

    def _at(self, when: float, action: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self._events, (when, next(self._ticket), action, args))

    def _arrive(self, to: Address, data: bytes) -> None:
        self._inboxes.setdefault(to, deque()).append(data)
        self._begin(to)

    def _begin(self, to: Address) -> None:
        inbox = self._inboxes.get(to)
        if inbox and to not in self._busy:
            frame = decode(inbox.popleft())
            cost = self._delay_ms(to, frame)
            if cost is None:
                self._begin(to)
                return
            if isinstance(frame, RoutedObjects):
                cost += len(frame.row) * self._row_us / 1e3
                self.matched[to.index] += len(frame.row)
            self._busy.add(to)
            self._at(self.now + MESSAGE_MS + cost, self._finish, to, frame)

    def _finish(self, to: Address, frame: Frame) -> None:
        if to == DISPATCHER:
            self.edges[0].on(frame)
        elif to == SEQUENCER:
            self.post(to, self.sequencer.on(frame))
        else:
            self.hand_over(to, frame)
        self._busy.discard(to)
        if to in self._due:
            self._due.discard(to)
            self._tick(to)
        self._begin(to)

    def _tick(self, of: Address) -> None:
        if of in self._busy:
            self._due.add(of)
            return
        if of == DISPATCHER:
            self.edges[0].tick()
        elif of == SEQUENCER:
            self.post(of, self.sequencer.tick(int(self.now)))
        elif of.role == "worker":
            self.post(of, self.machines[of].tick())  # type: ignore[call-arg]
        else:
            sends = self.machines[of].tick(int(self.now) + 1)  # type: ignore[call-arg]
            self.machines[of].sync()  # type: ignore[union-attr]
            self.post(of, sends)
        self._at(self.now + TICK_MS, self._tick, of)
