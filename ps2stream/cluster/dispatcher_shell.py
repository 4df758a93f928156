"""The shell of a dispatcher: its machine behind the edge, and the gRPC server."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ps2stream.cluster.allocator import MemoryReturn, bound_heaps
from ps2stream.cluster.logs import LogReporter, ServiceLogs
from ps2stream.cluster.shell import ActorShell
from ps2stream.cluster.topology import Topology
from ps2stream.dispatcher.edge import DispatcherEdge
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.observability.process import wall_clock_ms
from ps2stream.observability.traces import NO_TRACES, TraceSampling
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.frame import Frame
from ps2stream.security import PortSecurity

if TYPE_CHECKING:
    from ps2stream.service.server import GrpcServer


LOOK_S = 2.0
"""Time between two checks whether to return memory to the system."""


class DispatcherShell(ActorShell):
    """The shell of a dispatcher."""

    def __init__(
        self, address: Address, epoch: int, topology: Topology, logs: ServiceLogs, identity: int
    ) -> None:
        super().__init__(address, epoch)
        bound_heaps()
        analyzer = topology.analyzer()
        self._log = logs.open(address)
        objects = ObjectLog(self._log)
        self._unsynced = threading.Event()
        self.edge = DispatcherEdge(
            topology.router(address.index, analyzer, epoch, objects),
            analyzer,
            topology.frequencies(analyzer),
            self.post,
            wall_clock_ms,
            objects,
            topology.index_factory(),
            reservoir=topology.reservoir(address.index),
            wake=self._unsynced.set,
            lapsed=lambda: self.lapsed,
            incarnation=identity,
            meter=self.meter,
            costs=topology.policy.rules.costs,
        )
        self._reporter = LogReporter(address, self._log)
        self._servers: list[GrpcServer] = []

    def handle(self, frames: list[Frame]) -> None:
        for frame in frames:
            self.edge.on(frame)

    def joined(self, peer: Address) -> None:
        self.edge.joined(peer)

    def tick(self) -> None:
        self.edge.tick()
        if self._reporter.due:
            self.edge.send(self._reporter.report(self.edge.machine.offset))

    def start(
        self, exits: bool = False, metrics_s: float = 0.0, tracing: TraceSampling = NO_TRACES
    ) -> None:
        super().start(exits, metrics_s, tracing)
        threading.Thread(target=self._sync_objects, daemon=True, name=f"{self.name}-log").start()

    def ready(self) -> bool:
        """Returns whether the dispatcher has caught up with the ledger and may serve."""
        return self.edge.machine.ready

    def serve(
        self, host: str, port: int, security: PortSecurity, private: Path | None = None
    ) -> int:
        """Opens the gRPC endpoint and returns its port. Raises when it is in use. `private` is
        the path of a second endpoint, a Unix socket."""
        from ps2stream.service.server import serve, serve_privately

        self._servers.append(serve(self.edge, host, port, security))
        if private is not None:
            self._servers.append(serve_privately(self.edge, private))
        return self._servers[0].port

    def note(self, parts: Mapping[str, Any]) -> None:
        """Adds these parts to what `status` returns."""
        self.edge.note(parts)

    def locate(self, endpoints: Sequence[str]) -> None:
        """Sets where clients reach the dispatchers, HOST:PORT by index."""
        self.edge.endpoints = endpoints

    def stop(self) -> None:
        """Accepts no new calls, and lets running ones finish for a moment."""
        for server in self._servers:
            server.stop(1.0)
        super().stop()  # a straggling handler finds the links closed
        self._unsynced.set()

    def status(self) -> dict[str, Any]:
        of_server = self._servers[0].status() if self._servers else {}
        return super().status() | self.edge.status() | of_server

    def _sync_objects(self) -> None:
        memory, look_at = MemoryReturn(), 0.0
        while not self._stopping.is_set():
            due = self._unsynced.wait(LOOK_S)
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + LOOK_S
                memory.look(self._log.end)
            if due:
                self._unsynced.clear()
                with self.watched():
                    self.edge.sync()
        self._log.close()
