"""A seeded scheduler that owns the network: the real machines, random delays.

Every ordered pair of machines has one FIFO link, as Ray actors have. A step takes
the head of a random link, as bytes; in half of the runs links have a rank that holds
for a while, so that some starve until all others are empty. The sequencer commits when
it likes, so several requests share a commit. Nothing is lost here; crashes are restarts
of everything.
"""

from __future__ import annotations

import functools
import random
from collections import defaultdict, deque
from concurrent.futures import Future
from dataclasses import dataclass, field

from ps2stream.cluster.topology import Topology
from ps2stream.dispatcher.gateway import DeliverStream
from ps2stream.merger.machine import MergerMachine
from ps2stream.observability.meter import StageMeter
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import Frame, decode
from ps2stream.protocol.messages.updates import UpdateRequest
from ps2stream.protocol.ports import Store
from ps2stream.store.memory import MemoryLog
from ps2stream.v1 import delivery_pb2
from ps2stream.workers.machine import WorkerMachine
from tests.support.edges import LoneEdge

SEQUENCER = Address("sequencer", 0)


@dataclass
class Mailbox:
    """One subscriber: reads its stream, keeps (query id, object id) in order of arrival."""

    pairs: list[tuple[str, str]] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    seqs: list[int] = field(default_factory=list)
    gaps: int = 0
    stream: DeliverStream | None = None

    def attached(self, future: Future[DeliverStream]) -> None:
        self.stream = future.result()

    def __call__(self, data: bytes | Exception) -> None:
        if isinstance(data, Exception):
            return
        batch = delivery_pb2.DeliverResponse.FromString(data).batch
        self.names.update(zip(batch.new_handles, batch.new_query_ids, strict=True))
        self.gaps += batch.gap.count
        for i, (handle, row) in enumerate(zip(batch.pair_handles, batch.pair_objects, strict=True)):
            self.pairs.append((self.names[handle], batch.object_ids[row]))
            self.seqs.append(batch.session_seq + i)
        if self.stream is not None:
            last = batch.session_seq + len(batch.pair_handles) - 1
            self.stream.credit(1, len(data), last)


class Sim:
    """All machines of a topology, one store, one random order of events."""

    def __init__(
        self, topology: Topology, store: Store, rng: random.Random, logs: dict[Address, MemoryLog]
    ) -> None:
        self.rng = rng
        self.links: dict[tuple[Address, Address], deque[bytes]] = defaultdict(deque)
        self.ranked = rng.random() < 0.5
        self.rank: dict[tuple[Address, Address], float] = defaultdict(rng.random)
        self.now_ms = 1_700_000_000_000
        self.analyzer = topology.analyzer()
        self.frequencies = topology.frequencies(self.analyzer)
        epochs = {peer: store.epoch(*peer) for peer in topology.addresses()}
        for peer in topology.addresses():
            logs.setdefault(peer, MemoryLog())
        self.sequencer = topology.sequencer(store, epochs[SEQUENCER])
        self.pending: list[UpdateRequest] = []
        self.machines: dict[Address, WorkerMachine | MergerMachine] = {
            **{Address("worker", i): topology.worker(i) for i in range(topology.workers)},
            **{
                Address("merger", i): topology.merger(i, logs[Address("merger", i)])
                for i in range(topology.mergers)
            },
        }
        self.edges: list[LoneEdge] = []
        for i in range(topology.dispatchers):
            address = Address("dispatcher", i)
            log, post = logs[address], functools.partial(self.post, address)
            machine = topology.dispatcher(i, epochs[address], log, StageMeter())
            self.edges.append(LoneEdge(machine, log, post, topology=topology))
        self.post(SEQUENCER, self.sequencer.tick())

    def post(self, source: Address, sends: list[Send]) -> None:
        for to, frame in sends:
            self.links[source, to].append(frame.encode())

    def step(self) -> bool:
        """One random event; False when nothing is under way."""
        self.now_ms += self.rng.randrange(3)
        ready = [link for link, queue in self.links.items() if queue]
        if self.pending and (not ready or self.rng.random() < 0.2):
            batch, self.pending = self.pending, []
            self.post(SEQUENCER, self.sequencer.append(batch))
            return True
        if not ready:
            return False
        link = max(ready, key=self.rank.__getitem__) if self.ranked else self.rng.choice(ready)
        if self.rng.random() < 0.01:
            self.rank.clear()
        frame = decode(self.links[link].popleft())
        to = link[1]
        if to.role == "dispatcher":
            self.edges[to.index].on(frame)
        elif to != SEQUENCER:
            self.hand_over(to, frame)
        elif isinstance(frame, UpdateRequest):
            self.pending.append(frame)
        else:
            self.post(to, self.sequencer.on(frame))
        if self.rng.random() < 0.05:
            self.rng.choice(self.edges).tick()
        return True

    def hand_over(self, to: Address, frame: Frame) -> None:
        """A merger's answers leave once its log is synced."""
        machine = self.machines[to]
        sends = machine.on(frame)
        if isinstance(machine, MergerMachine):
            while machine.busy:
                sends += machine.on_many([])
            machine.sync()
        self.post(to, sends)

    def settle(self, limit: int = 200_000) -> None:
        """Run until nothing is under way."""
        for _ in range(limit):
            if not self.step():
                return
        raise AssertionError("the machines never come to rest")
