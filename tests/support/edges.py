"""A dispatcher's edge with its machine, queue and driver, alone in a test or a simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ps2stream.cluster.dispatcher_driver import DispatcherDriver
from ps2stream.cluster.dispatcher_edge import DispatcherEdge
from ps2stream.cluster.event_queue import EventQueue
from ps2stream.cluster.topology import Topology
from ps2stream.dispatcher.events import Event, LogSynced, PeerJoined, TickPassed
from ps2stream.dispatcher.machine import DispatcherMachine
from ps2stream.language.analyzer import Analysis
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import Frame
from ps2stream.protocol.ports import Log
from ps2stream.routing.plan import text_plan
from ps2stream.space.grid import Grid

TOPOLOGY = Topology(text_plan(Analysis(salt=1), Grid(0, 0), 1, {}))


class LoneEdge(DispatcherEdge):
    """An edge around `machine`; `sync` is called where its log is to be synced, or `wake`."""

    def __init__(
        self,
        machine: DispatcherMachine,
        log: Log,
        post: Callable[[list[Send]], None],
        wake: Callable[[], None] | None = None,
        lapsed: Callable[[], bool] = lambda: False,
        topology: Topology = TOPOLOGY,
    ) -> None:
        self.log = log
        driver = DispatcherDriver(machine, log, post, wake or self.sync, lapsed)
        self.events: EventQueue[Event] = EventQueue(driver.handle)
        super().__init__(machine, topology, 0, self.events.put)
        self.router: Any = machine.router
        self.streams = machine.streams

    def on(self, *frames: Frame) -> None:
        self.events.put(*frames)

    def joined(self, peer: Address) -> None:
        self.events.put(PeerJoined(peer))

    def tick(self) -> None:
        self.events.put(TickPassed())

    def sync(self) -> None:
        self.events.put(LogSynced(self.log.sync()))
