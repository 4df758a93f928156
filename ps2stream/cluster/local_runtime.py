"""The in-process runtime: every machine in one process, without a network between them.

It is the fastest embedded mode and the easiest to debug: a message is passed as the value that
it is, and the thread that publishes does the matching.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from ps2stream.cluster.logs import LogReporter
from ps2stream.cluster.topology import Topology
from ps2stream.dispatcher.edge import DispatcherEdge
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.observability.meter import StageMeter, matched
from ps2stream.observability.process import counters_of, wall_clock_ms
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.messages.updates import UpdateRequest
from ps2stream.protocol.ports import Log, Store
from ps2stream.store.memory import MemoryLog


class LocalRuntime:
    """All machines under one lock; `edges[i]` is the edge of dispatcher i. `open_log` opens the
    log of a dispatcher or merger."""

    def __init__(
        self,
        topology: Topology,
        store: Store,
        open_log: Callable[[Address], Log] = lambda _: MemoryLog(),
        meter: Callable[[], StageMeter] = StageMeter,
    ) -> None:
        self._lock = threading.RLock()
        self._inbox: deque[Send] = deque()
        self._is_delivering = False
        analyzer = topology.analyzer()
        frequencies = topology.frequencies(analyzer)
        epochs = {peer: store.epoch(*peer) for peer in topology.addresses()}
        self._topology = topology
        self._sequencer = topology.sequencer(store, epochs[Address("sequencer", 0)], restarts=True)
        self._controller = topology.controller(epochs[Address("controller", 0)])
        self._workers = [topology.worker(i) for i in range(topology.workers)]
        self._epochs = epochs
        self._make_meter = meter
        self._meters = {peer: meter() for peer in epochs}
        self._logs = {
            peer: open_log(peer)
            for peer in topology.addresses()
            if peer.role in ("dispatcher", "merger")
        }
        self._reporters = {peer: LogReporter(peer, log) for peer, log in self._logs.items()}
        self._mergers = [
            topology.merger(i, self._logs[Address("merger", i)]) for i in range(topology.mergers)
        ]
        self.edges: list[DispatcherEdge] = []
        for i in range(topology.dispatchers):
            address = Address("dispatcher", i)
            objects = ObjectLog(self._logs[address])
            edge = DispatcherEdge(
                topology.router(i, analyzer, epochs[address], objects),
                analyzer,
                frequencies,
                self._post_sends,
                wall_clock_ms,
                objects,
                topology.index_factory(),
                self._lock,
                topology.reservoir(i),
                wake=functools.partial(self._sync_edge, i),
                incarnation=store.identity,
                meter=self._meters[address],
                costs=topology.policy.rules.costs,
            )
            self.edges.append(edge)
        self._post_sends(self._sequencer.tick(wall_clock_ms()))

    def tick(self) -> None:
        """Does the periodic work; to be called ten times a second."""
        with self._lock:
            self._post_sends(self._sequencer.tick(wall_clock_ms()))
            self._post_sends(self._controller.tick())
            self._scale_workers()
            self._report_logs()
            for worker in self._workers:
                self._post_sends(worker.tick())
            for i, merger in enumerate(self._mergers):
                self._commit_merger(i, merger.tick(wall_clock_ms()))
            for edge in self.edges:
                edge.tick()

    def _report_logs(self) -> None:
        """Reports to the sequencer how far the logs have come, where that is due."""
        for address, reporter in self._reporters.items():
            if reporter.due:
                if address.role == "merger":
                    highest = self._mergers[address.index].highest
                else:
                    highest = self.edges[address.index].machine.offset
                self._post_sends(reporter.report(highest))

    def _scale_workers(self) -> None:
        """Runs as many workers as the plans need that are in force or requested."""
        wanted = self._sequencer.run(len(self._workers))
        if wanted != len(self._workers):
            more = range(len(self._workers), wanted)
            self._workers = self._workers[:wanted] + [self._topology.worker(i) for i in more]
            self._sequencer.run(wanted)

    def status(self) -> dict[str, Any]:
        """Returns the counters of every machine, by name (`worker-0`)."""
        with self._lock:
            machines: dict[Address, Any] = {
                Address("sequencer", 0): self._sequencer,
                Address("controller", 0): self._controller,
                **{Address("worker", i): w for i, w in enumerate(self._workers)},
                **{Address("merger", i): m for i, m in enumerate(self._mergers)},
            }
            found = {Address("dispatcher", i): e.status() for i, e in enumerate(self.edges)}
            found |= {peer: self._status_of(peer, machine) for peer, machine in machines.items()}
            common = {peer: {"up": 1, "epoch": self._epochs.get(peer, 0)} for peer in found}
            return {f"{p.role}-{p.index}": common[p] | status for p, status in found.items()}

    def _status_of(self, peer: Address, machine: object) -> dict[str, Any]:
        meter, log = self._meters.get(peer), self._logs.get(peer)
        stages = {} if meter is None else {"stages": meter.stages}
        return stages | ({} if log is None else {"log_bytes": log.bytes}) | counters_of(machine)

    def close(self) -> None:
        """Closes the logs; nothing may be called afterwards."""
        with self._lock:
            for log in self._logs.values():
                log.sync()
                log.close()

    def _post_sends(self, sends: list[Send]) -> None:
        with self._lock:
            self._inbox.extend(sends)
            if self._is_delivering:
                return
            self._is_delivering = True
            try:
                while self._inbox:
                    self._deliver_send(self._inbox.popleft())
            finally:
                self._is_delivering = False

    def _deliver_send(self, send: Send) -> None:
        to: Address = send.to
        if to.role == "dispatcher":
            self.edges[to.index].on(send.frame)
        elif to.role == "worker":
            if to.index < len(self._workers):  # otherwise it was stopped
                meter = self._meters.setdefault(to, self._make_meter())
                self._inbox.extend(matched(self._workers[to.index], send.frame, meter))
        elif to.role == "merger":
            with self._meters[to].time("merge"):
                sends = self._mergers[to.index].on(send.frame)
            self._commit_merger(to.index, sends)
        elif to.role == "controller":
            self._inbox.extend(self._controller.on(send.frame))
        elif isinstance(send.frame, UpdateRequest):
            self._inbox.extend(self._sequencer.append([send.frame]))
        else:
            self._inbox.extend(self._sequencer.on(send.frame))

    def _sync_edge(self, dispatcher: int) -> None:
        self.edges[dispatcher].sync()

    def _commit_merger(self, merger: int, sends: list[Send]) -> None:
        """Sends what a merger returned, once what it follows from is durable."""
        machine = self._mergers[merger]
        if machine.unsynced:
            with self._meters[Address("merger", merger)].time("sync"):
                machine.sync()
        self._post_sends(sends)
        while machine.busy and not self._is_delivering:
            self._post_sends(machine.on_many([]))
