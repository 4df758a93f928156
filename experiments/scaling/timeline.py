"""Time in a service of many hosts: a discrete-event simulation of batches, from their publication
to the delivery of their matches.

Each actor handles one thing after the other and takes what was measured for it. Publications join
as in the intake of dispatchers, a batch is released to mergers when all workers have answered or
5 ms after the first, mergers sync once for all that waits, and as many batches are open as are
allowed. On one host the actors also share its processors.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ps2stream.experiments.scaling.actors import BusyActor, DispatcherModel, MergerModel
from ps2stream.experiments.scaling.costs import Flows, ServiceCosts
from ps2stream.experiments.scaling.flows import (
    PUBLICATION,
    Deployment,
    Design,
    choose_commits,
    flow_updates,
    price_flows,
)
from ps2stream.experiments.scaling.kinds import DISPATCHER, MERGER, ROLES, SEQUENCER, WORKER
from ps2stream.experiments.scaling.prices import Share, StepPrices
from ps2stream.experiments.scaling.rooms import UPDATE, Flow


class Timing(NamedTuple):
    """How a simulation goes. objects: a second, that arrive by chance; 0: each dispatcher has a
    client with `window` publications under way. cores: that all actors share; 0: each has its own.
    way_us: of a message between hosts; bandwidth: bytes a microsecond; publication: its objects."""

    objects: float
    seconds: float
    seed: int = 1
    cores: int = 0
    window: int = 8
    way_us: float = 100.0
    bandwidth: float = 1_250.0
    publication: int = PUBLICATION
    dead: frozenset[int] = frozenset()
    """Workers that never answer."""


@dataclasses.dataclass
class TimelineResult:
    """What happened. latency_ms: of publications whose matches were delivered; cpu_s: by role;
    messages: between actors, by kind; batch: objects of a batch, on average; releases: parts of a
    batch that a merger got."""

    seconds: float
    objects: int
    latency_ms: np.ndarray[Any, np.dtype[np.float64]]
    cpu_s: dict[str, float]
    messages: dict[str, int]
    bytes: float
    batches: int
    releases: float

    @property
    def batch(self) -> float:
        """The objects of a batch."""
        return self.objects / max(self.batches, 1)


class Timeline:
    """A service in simulated time, in microseconds."""

    def __init__(
        self, costs: ServiceCosts, deployment: Deployment, design: Design, timing: Timing
    ) -> None:
        self.costs, self.deployment, self.design, self.timing = costs, deployment, design, timing
        self.random = random.Random(timing.seed)
        self.now = 0.0
        self.cpu_us: defaultdict[str, float] = defaultdict(float)
        self.latency: list[float] = []
        self.batches = self.releases = self.hits = self.accepted = 0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._ticket = itertools.count()
        self._cores, self._updated = timing.cores, 0.0
        self._ready: deque[BusyActor] = deque()
        self._messages: Counter[str] = Counter()
        self._rows: Counter[str] = Counter()
        self.prices = StepPrices(
            costs, deployment, timing.publication, timing.way_us, timing.bandwidth
        )
        self.publish_us = self.prices.price_publish()
        shape = deployment.shape
        self.pairs_per_candidate = deployment.pairs / max(shape.candidates, 1e-9)
        self._batches = {
            size: [list(zip(np.flatnonzero(b.objects).tolist(), b.objects[b.objects > 0].tolist(),
                            b.candidates[b.objects > 0].tolist(), strict=True)) for b in found]
            for size, found in shape.batches.items()
        }  # fmt: skip
        self.workers = [BusyActor(self, WORKER) for _ in range(deployment.workers)]
        self.mergers = [MergerModel(self) for _ in range(deployment.mergers)]
        self.sequencer = BusyActor(self, SEQUENCER)
        self.clients = BusyActor(self, "clients")
        self.dispatchers = [DispatcherModel(self, i) for i in range(deployment.dispatchers)]

    def run(self) -> TimelineResult:
        """Runs for the seconds of the timing; the first fifth is not counted."""
        timing, end = self.timing, self.timing.seconds * 1e6
        for dispatcher in self.dispatchers:
            for _ in range(1 if timing.objects else timing.window):
                self.at(self.random.random() * 1_000, self.arrive, dispatcher)
        self.at(self.costs.sync_us, self._update, 0)
        self._run_until(end / 5)
        before, cpu, messages = self.accepted, self.cpu_us.copy(), Counter(self._messages)
        batches, releases, hits = self.batches, self.releases, self.hits
        size = self._count_bytes()
        self.latency.clear()
        self._run_until(end)
        whole = max(self.hits - hits, 1)
        return TimelineResult(
            end * 0.8e-6, self.accepted - before, np.array(self.latency),
            {role: (self.cpu_us[role] - cpu[role]) / 1e6 for role in ROLES},
            {kind: n - messages[kind] for kind, n in self._messages.items()},
            self._count_bytes() - size, self.batches - batches,
            (self.releases - releases) / whole,
        )  # fmt: skip

    # --- time ---------------------------------------------------------------

    def at(self, when: float, action: Callable[..., None], *args: Any) -> None:
        """Has something done at a time."""
        heapq.heappush(self._events, (when, next(self._ticket), action, args))

    def want_core(self, actor: BusyActor) -> None:
        """Lets an actor run, as soon as a core is free."""
        if not self.timing.cores:
            actor.run()
        elif self._cores:
            self._cores -= 1
            actor.run()
        else:
            self._ready.append(actor)

    def free_core(self) -> None:
        """Gives a core to whoever waits longest."""
        if not self.timing.cores:
            return
        if self._ready:
            self._ready.popleft().run()
        else:
            self._cores += 1

    def arrive(self, dispatcher: DispatcherModel) -> None:
        """A publication arrives; by chance, or when the client may send another."""
        if self.timing.cores:
            cost = self.costs.clients_us * self.timing.publication
            self.clients.add(cost, dispatcher.publish)
        else:
            dispatcher.publish()
        if (rate := self.timing.objects) > 0:
            self.accepted += self.timing.publication
            mean = 1e6 * self.timing.publication * len(self.dispatchers) / rate
            self.at(self.now + self.random.expovariate(1 / mean), self.arrive, dispatcher)

    def _run_until(self, end: float) -> None:
        while self._events and self._events[0][0] <= end:
            self.now, _, action, args = heapq.heappop(self._events)
            action(*args)
        self.now = end

    def _update(self, before: int) -> None:
        """Has the updates since the last commit decided and applied, and the next come as often as
        sequencers commit."""
        accepted, pause = self.accepted, self.costs.sync_us
        updates = (accepted - before) * self.design.updates
        if updates >= self.design.request:
            flows = flow_updates(self.deployment, self.design, updates, 1.0)
            for kind, flow in flows.items():
                if flow.messages and kind != UPDATE:
                    self._messages[kind] += round(flow.messages)
                    self._rows[kind] += round(flow.rows)
            self._apply_updates(flows, price_flows(self.costs, flows, 0.0))
            rate = updates * 1e6 / max(self.now - self._updated, 1.0)
            pause = 1e6 / choose_commits(self.costs, self.deployment, self.design, rate)
            self._updated = self.now
        else:
            accepted = before
        self.at(self.now + pause, self._update, accepted)

    def _apply_updates(self, flows: Flows, spent: Mapping[str, float]) -> None:
        everybody = {
            SEQUENCER: [self.sequencer],
            DISPATCHER: [each.actor for each in self.dispatchers],
            WORKER: self.workers,
            MERGER: [each.actor for each in self.mergers],
        }
        kinds = {WORKER: "WorkerUpdates", MERGER: "MergerQueries"}
        for role, actors in everybody.items():
            count, cost = len(actors), spent[role]
            if role in kinds:
                count = min(max(round(flows[kinds[role]].messages), 1), count)
            if role == SEQUENCER:
                cost /= self.design.shards
            for actor in self.random.sample(actors, count):
                actor.add(cost / count, _do_nothing)

    def post(self, kind: str, rows: float) -> None:
        """Counts a message between actors."""
        self._messages[kind] += 1
        self._rows[kind] += round(rows)

    def _count_bytes(self) -> float:
        return sum(
            self.costs.size(kind, Flow(n, self._rows[kind], 0))
            for kind, n in self._messages.items()
        )

    def draw_shares(self, objects: int, home: int) -> list[Share]:
        """Returns (worker, copies, candidates) of a batch, as a real one of about its size was
        routed; in a world of several regions each has its part, or one has all."""
        at = self.deployment
        regions = max(round(at.regions), 1)
        chosen = [home % regions] if self.design.local else range(regions)
        each = objects / len(chosen)
        size = min(self._batches, key=lambda n: abs(np.log(n / max(each, 1))))
        out: list[Share] = []
        for region in chosen:
            shares = self.random.choice(self._batches[size])
            times = each / size
            first = region * at.shape.workers
            out += [
                (first + w, copies * times, candidates * times)
                for w, copies, candidates in _thin(shares, times, self.random)
                if first + w < at.workers
            ]
        return out


def _do_nothing() -> None:
    """Follows from an update, on whose applying nothing waits."""


def _thin(shares: list[Share], times: float, chance: random.Random) -> list[Share]:
    """Returns the shares of a batch that is smaller by `times`: a worker of few objects may get
    none, and then those that get some get more."""
    if times >= 1:
        return shares
    out = []
    for worker, copies, candidates in shares:
        kept = 1 - (1 - times) ** copies
        if chance.random() < kept:
            out.append((worker, copies / kept, candidates / kept))
    return out
