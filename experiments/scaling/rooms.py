"""What the rooms take for a batch: the real machines, wired by hand, under a real stream.

The machines of one dispatcher, one merger, one sequencer and some workers handle publications and
updates in this process (machine_chain.py). Of each batch the CPU time of each kind of message at
each of its ends is charged, and messages, rows and bytes are counted. What sockets, gRPC and
threads cost is not in it.
"""

from __future__ import annotations

import dataclasses
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from ps2stream.benchmarks.kept import open_fresh_place
from ps2stream.benchmarks.machine_chain import MachineChain, MessageSteps
from ps2stream.benchmarks.publisher import LOAD_ROWS
from ps2stream.benchmarks.step_clock import StepClock, watch_all
from ps2stream.benchmarks.steps import UPDATES, StepwiseService
from ps2stream.benchmarks.workload import Workload
from ps2stream.cluster.topology import Topology
from ps2stream.cluster.warm import warm
from ps2stream.dispatcher.router import RouterMachine
from ps2stream.experiments.scaling.kinds import (
    DISPATCHER,
    KINDS,
    MERGER,
    SEQUENCER,
    find_kind,
    find_sender,
)
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.frame import I64, Frame
from ps2stream.routing.plan import RoutingPlan

ROUTE, PUBLISH, UPDATE = "route", "publish", "update"
_STEPS = {
    "read_and_check": (PUBLISH, DISPATCHER),
    ROUTE: (ROUTE, DISPATCHER),
    "read_and_compile": (UPDATE, DISPATCHER),
    "relay": ("StreamDelivery", DISPATCHER),
    "credit": ("StreamCredit", DISPATCHER),
    "sync_match_log": ("MatchRelease", MERGER),
    "commit_to_ledger": ("UpdateRequest", SEQUENCER),
}
"""The steps that are no message, and what they are charged to; answers and syncs go with what is
answered and synced."""
WARMING = 3  # batches before the first that is measured
Key = tuple[str, str]
"""What takes time: a kind of message, or a step of a dispatcher, and the role that does it."""


class Flow(NamedTuple):
    """Messages of one kind in a batch, with their rows and bytes; of a step, how often, and how
    many rows."""

    messages: float
    rows: float
    bytes: float

    def add(self, messages: float, rows: float, size: float) -> Flow:
        """Returns the flow with more."""
        return Flow(self.messages + messages, self.rows + rows, self.bytes + size)


@dataclasses.dataclass(frozen=True)
class RoomSample:
    """What a batch took on average: flows by kind, CPU microseconds by what and who, and the
    postings that its objects met."""

    workers: int
    objects: int
    flows: Mapping[str, Flow]
    cpu_us: Mapping[Key, float]
    candidates: float = 0.0


class RoomSizes(NamedTuple):
    """Bytes in memory for each live query: of a dispatcher's H1 and H2, of all workers together,
    and of the sequencer's registry; bytes of the logs for each object and match; CPU microseconds
    in which a sequencer that starts reads a live query from its ledger."""

    queries: int
    units: int
    dispatcher: float
    worker: float
    sequencer: float
    object_log: float
    match_log: float
    replay_us: float


class _FlowCounter:
    """Names the steps of messages, and counts what flows."""

    def __init__(self) -> None:
        self.flows: defaultdict[str, Flow] = defaultdict(lambda: Flow(0, 0, 0))

    def name(self, to: Address, kind: type[Frame]) -> MessageSteps:
        """Returns the steps of a message: what the sender does, and twice what the receiver
        does."""
        name = find_kind(to, kind)
        ends = f"{name}@{find_sender(to, kind)}", f"{name}@{to.role}"
        return MessageSteps(ends[0], ends[1], ends[1])

    def observe(self, to: Address, frames: Sequence[Frame], encoded: Sequence[bytes]) -> None:
        """Counts the frames of a message."""
        for frame, data in zip(frames, encoded, strict=True):
            name = find_kind(to, type(frame))
            counts = [KINDS[kind].count_rows for kind in type(frame).__mro__ if kind in KINDS]
            rows = counts[0](frame) if counts and counts[0] is not None else 0
            self.flows[name] = self.flows[name].add(1, rows, len(data))

    def take(self) -> dict[str, Flow]:
        """Returns the flows since the last call."""
        found = dict(self.flows)
        self.flows.clear()
        return found


def _charge(step: str) -> Key | None:
    """Returns what a step is charged to; None: to what the batch is."""
    if step in _STEPS:
        return _STEPS[step]
    name, _, role = step.partition("@")
    return (name, role) if role else None


class RoomBench:
    """The machines under the stream of a workload, with some of its queries live. `plan`: whose
    workers they are."""

    def __init__(self, load: Workload, plan: RoutingPlan, batch: int) -> None:
        self.load, self.plan, self.batch = load, plan, batch

    def measure(self, batches: int, updates: int, met: I64) -> tuple[list[RoomSample], RoomSizes]:
        """Returns what batches of objects and of updates took, and the sizes of what is kept.
        met: the postings that all posts before each meet, int64[posts + 1]."""
        topology = Topology(self.plan)
        warm(topology)
        clock, counter = StepClock(), _FlowCounter()
        with open_fresh_place(None, None) as place:
            chain = MachineChain(topology, place, clock, counter.name, counter.observe)
            with watch_all(
                clock,
                [
                    (RouterMachine, "publish", ROUTE),
                    (type(chain.store), "commit", "commit_to_ledger"),
                ],
            ):
                service = StepwiseService(self.load, chain, clock, self.batch)
                samples = self._run(service, clock, counter, batches, updates, met)
            sizes = self._measure_sizes(chain, service)
            wrong = service.verify(self.load)
            chain.close()
        if wrong["wrong"]:
            raise RuntimeError(f"{wrong['wrong']} matches differ from brute force")
        return samples, sizes

    def _run(
        self, service: StepwiseService, clock: StepClock, counter: _FlowCounter, batches: int,
        updates: int, met: I64,
    ) -> list[RoomSample]:  # fmt: skip
        loaded = self._count_load(service, clock, counter)
        requests = len(self.load.posts.lon) // self.batch
        objects: list[tuple[dict[str, Flow], dict[Key, float]]] = []
        changes: list[tuple[dict[str, Flow], dict[Key, float]]] = []
        candidates: list[float] = []
        for number in range(WARMING + batches):
            clock.take()
            counter.take()
            matches = service.matches
            service.publish()
            flows = counter.take()
            first = number % requests * self.batch
            pairs = service.matches - matches
            if "StreamDelivery" in flows:
                flows["StreamDelivery"] = flows["StreamDelivery"]._replace(rows=pairs)
            flows |= {PUBLISH: Flow(1, self.batch, 0), ROUTE: Flow(1, self.batch, 0)}
            taken = _charge_costs(clock, PUBLISH)
            if number < updates:
                service.update()
                given = counter.take()
                for name in ("UpdateRequest", "LedgerBatch", "UpdateDecision"):
                    if name in given:
                        given[name] = given[name]._replace(rows=UPDATES)
                given[UPDATE] = Flow(2, UPDATES, 0)
                changes.append((given, _charge_costs(clock, UPDATE)))
            service.tick()
            if number >= WARMING:
                objects.append((flows, taken))
                candidates.append(float(met[first + self.batch] - met[first]))
        self._published = (WARMING + batches) * self.batch
        found = _average(objects, self.plan.workers, self.batch)
        return [
            dataclasses.replace(found, candidates=float(np.mean(candidates))),
            _average(changes[1:] or changes, self.plan.workers, 0),
            loaded,
        ]

    def _count_load(
        self, service: StepwiseService, clock: StepClock, counter: _FlowCounter
    ) -> RoomSample:
        """Returns what the first queries took, which came in requests of LOAD_ROWS: the other size
        of updates."""
        flows, live = counter.take(), self.load.start
        for name in ("UpdateRequest", "LedgerBatch", "UpdateDecision"):
            flows[name] = flows[name]._replace(rows=live)
        flows[UPDATE] = Flow(-(-live // LOAD_ROWS), live, 0)
        return RoomSample(self.plan.workers, 0, flows, _charge_costs(clock, UPDATE))

    def _measure_sizes(self, chain: MachineChain, service: StepwiseService) -> RoomSizes:
        live = chain.sequencer.live
        kept = chain.log_bytes()
        began = time.process_time()
        epoch = chain.store.epoch(SEQUENCER, 0)
        Topology(self.plan).sequencer(chain.store, epoch, restarts=True)
        replay_us = 1e6 * (time.process_time() - began) / live
        return RoomSizes(
            live, len(chain.router.gridt), chain.router.gridt.bytes / live,
            sum(worker.stats().bytes for worker in chain.workers) / live,
            chain.sequencer.bytes / live,
            kept[DISPATCHER] / self._published, kept[MERGER] / max(service.matches, 1),
            replay_us,
        )  # fmt: skip


def _charge_costs(clock: StepClock, otherwise: str) -> dict[Key, float]:
    """Returns the CPU microseconds since the last call, by what and who."""
    found: defaultdict[Key, float] = defaultdict(float)
    for step, cost in clock.take().items():
        found[_charge(step) or (otherwise, DISPATCHER)] += cost.cpu_ns / 1e3
    return dict(found)


def _average(
    batches: Sequence[tuple[Mapping[str, Flow], Mapping[Key, float]]], workers: int, objects: int
) -> RoomSample:
    """Returns the mean of the flows and the median of the times."""
    names = sorted({name for flows, _ in batches for name in flows})
    keys = sorted({key for _, spent in batches for key in spent})
    none, n = Flow(0, 0, 0), len(batches)
    flows = {
        name: Flow(*(sum(column) / n for column in
                     zip(*(flows.get(name, none) for flows, _ in batches), strict=True)))
        for name in names
    }  # fmt: skip
    spent = {key: median(took.get(key, 0.0) for _, took in batches) for key in keys}
    return RoomSample(workers, objects, flows, spent)
