"""The shell of a dispatcher: its machine, its log, and the gRPC server.

The machine lives on the event loop that moves the messages of gRPC. Messages of clients and of
peers come there and are handled there, so that none is handed from thread to thread; only the sync
of the log has a thread of its own.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ps2stream.cluster.allocator import MemoryReturn, bound_heaps
from ps2stream.cluster.archived_log import ArchivedLog
from ps2stream.cluster.dispatcher_driver import DispatcherDriver, replaced
from ps2stream.cluster.dispatcher_edge import DispatcherEdge
from ps2stream.cluster.intervals import JOIN_S, MEMORY_S
from ps2stream.cluster.later_trims import TrimmedLater
from ps2stream.cluster.logs import LogReporter, ServiceLogs
from ps2stream.cluster.loop_events import LoopEvents
from ps2stream.cluster.shell import ActorShell
from ps2stream.cluster.topology import Topology
from ps2stream.dispatcher.events import (
    AnswersDue,
    Event,
    LogSynced,
    PeerJoined,
    PeerLost,
    StopBegun,
    TickPassed,
)
from ps2stream.observability.traces import NO_TRACES, TraceSampling
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.frame import Frame
from ps2stream.protocol.ticks import TICK_S
from ps2stream.security import PortSecurity
from ps2stream.service.service_loop import service_loop

if TYPE_CHECKING:
    from ps2stream.service.server import GrpcServer


class DispatcherShell(ActorShell):
    """The shell of a dispatcher."""

    def __init__(
        self, address: Address, epoch: int, topology: Topology, logs: ServiceLogs, identity: int
    ) -> None:
        super().__init__(address, epoch)
        bound_heaps()
        kept = logs.open(address)
        if topology.archive is None:
            self._log = TrimmedLater(kept)
        else:
            name = logs.describe_log(address, identity)
            self._log = ArchivedLog.follow(kept, topology.archive, address, name)
        self._unsynced = threading.Event()
        machine = topology.dispatcher(address.index, epoch, self._log, self.meter)
        self._router = machine.router
        self._driver = DispatcherDriver(
            machine, self._log, self.post, self._unsynced.set, lambda: self.lapsed
        )
        self._loop = service_loop()
        self._events: LoopEvents[Event] = LoopEvents(self._handle_events, self._loop)
        self.edge = DispatcherEdge(machine, topology, identity, self._events.put)
        self.edge.never_blocks = True
        self._reporter = LogReporter(address, self._log)
        self._servers: list[GrpcServer] = []
        self._answers_due = math.inf  # when the machine was last to be informed of AnswersDue
        self._syncing = threading.Thread(
            target=self._sync_objects, daemon=True, name=f"{self.name}-log"
        )

    def handle(self, frames: list[Frame]) -> None:
        self._events.put(*frames)

    def start_receiving(self) -> None:
        self._loop.post(self._watch_inbox)

    def end_receiving(self) -> None:
        self._loop.run(self._unwatch_inbox())

    def wake_receiver(self) -> None:
        self._loop.post(self._take_turns)

    def _watch_inbox(self) -> None:
        self._loop.watch(self.links.fileno(), self._take_turns)
        self._tick_later()

    async def _unwatch_inbox(self) -> None:
        self._loop.unwatch(self.links.fileno())

    def _tick_later(self) -> None:
        if not self._stopping.is_set():
            self._loop.call_later(TICK_S, self._tick_later)
            self._take_turns(surely=True)

    def _take_turns(self, surely: bool = False) -> None:
        """Takes one turn, and another one soon if messages are left. `surely`: looks for peers that
        are gone, whether or not the descriptor shows any."""
        if not self._stopping.is_set():
            with self.watched():
                self.links.find_gone(surely)
                if self.take_turn(0):
                    self._loop.post(self._take_turns)

    def _wait_for_answers(self) -> None:
        """Has the machine informed when answers have waited long enough for slower workers."""
        due = self._driver.machine.answers_due
        if due not in (math.inf, self._answers_due):
            self._answers_due = due
            self._loop.call_later(max(due - time.monotonic(), 0.0), self._release_answers)

    def _release_answers(self) -> None:
        if self._driver.answers_are_due:
            self._events.put(AnswersDue())

    def joined(self, peer: Address) -> None:
        self._events.put(PeerJoined(peer))

    def lost(self, peer: Address) -> None:
        self._events.put(PeerLost(peer))

    def tick(self) -> None:
        self._events.put(TickPassed())
        if self._reporter.due:
            self.post(self._reporter.report(self._router.offset))

    def sync(self) -> None:
        """Makes durable what was accepted. Raises Unavailable, for good: this incarnation must
        end."""
        self._events.put(LogSynced(self._sync_log()))

    def _sync_log(self) -> int:
        """Makes durable what was accepted; returns the position up to which it is."""
        with self.meter.time("sync"):
            return self._log.sync()

    def _note_synced(self, end: int) -> None:
        """Has what was synced answered, after what peers have sent meanwhile: matches have a longer
        way to go than answers."""
        self._take_turns()
        self._events.put(LogSynced(end))

    def start(
        self, exits: bool = False, metrics_s: float = 0.0, tracing: TraceSampling = NO_TRACES
    ) -> None:
        super().start(exits, metrics_s, tracing)
        self._syncing.start()

    def ready(self) -> bool:
        """Returns whether the dispatcher has caught up with the ledger and may serve."""
        return self._router.ready

    def serve(
        self, host: str, port: int, security: PortSecurity, private: Path | None = None
    ) -> int:
        """Opens the gRPC endpoint and returns its port. Raises when it is in use. `private` is
        the path of a second endpoint, a Unix socket."""
        from ps2stream.service.server import serve, serve_privately

        self.edge.analyzer.prepare()
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
        """Accepts no new calls, and lets running ones finish for a moment. Then its log tells how
        far objects are complete, unless what keeps the log does not answer for JOIN_S: a service
        that starts without this dispatcher asks for that."""
        for server in self._servers:
            server.stop(1.0)
        super().stop()  # a straggling handler finds the links closed
        self._events.finish(StopBegun())
        self._unsynced.set()
        if self._syncing.is_alive():
            self._syncing.join(JOIN_S)

    def status(self) -> dict[str, Any]:
        of_server = self._servers[0].status() if self._servers else {}
        of_archive = self._log.status() if isinstance(self._log, ArchivedLog) else {}
        return super().status() | self.edge.status() | of_server | of_archive

    def _handle_events(self, events: list[Event]) -> bool:
        if not self.failure:
            with self.watched():
                is_busy = self._driver.handle(events)
                self._wait_for_answers()
                return is_busy
        for event in events:  # nobody answers any more
            if (call := getattr(event, "call", None)) is not None and not call.done():
                call.set_exception(replaced())
        return False

    def _sync_objects(self) -> None:
        memory, look_at = MemoryReturn(), 0.0
        while not self._stopping.is_set():
            due = self._unsynced.wait(MEMORY_S)
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + MEMORY_S
                memory.look(self._log.end)
            if due:
                self._unsynced.clear()
                with self.watched():
                    self._loop.post(self._note_synced, self._sync_log())
        with self.watched():
            self._log.sync()
        self._log.close()
