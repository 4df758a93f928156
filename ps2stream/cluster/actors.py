"""Ray shells: each moves bytes between Ray and one machine, and holds no logic.

Plain synchronous actors without retries keep the order of each caller. Messages
are frames in `bytes`; one call carries all that an event sends to one peer. Matches
flow at hundreds of messages a second, so calls return nothing (`num_returns=0`).
An exception in a machine is a bug that must not be passed over: the shell logs it,
keeps it for `status()`, and takes no further message.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ps2stream.batch import Frame, decode
from ps2stream.cluster.edge import DispatcherEdge, counters_of, wall_clock_ms
from ps2stream.cluster.topology import Topology
from ps2stream.messages import Address, Send, UpdateRequest
from ps2stream.store.ledger import Ledger

log = logging.getLogger("ps2stream.cluster")
Peers = dict[Address, Any]
TICK_S = 0.1


class Links:
    """Actor handles by address, and the one way to send."""

    def __init__(self) -> None:
        self._calls: dict[Address, Any] = {}

    def connect(self, peers: Peers) -> None:
        self._calls = {a: h.on.options(num_returns=0) for a, h in peers.items()}

    def post(self, sends: list[Send]) -> None:
        """Encode and send; what goes to one peer travels in one call."""
        by_peer: dict[Address, list[bytes]] = {}
        for to, frame in sends:
            by_peer.setdefault(to, []).append(frame.encode())
        for to, frames in by_peer.items():
            self._calls[to].remote(*frames)


class Shell:
    """What all four actors share: links, failure, status."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.links = Links()
        self.failure = ""

    def connect(self, peers: Peers) -> None:
        """Handles of every actor; called once before any message."""
        self.links.connect(peers)

    def guard(self, work: Callable[[], None]) -> None:
        """Run one event; after a bug this shell refuses all further ones."""
        if self.failure:
            return
        try:
            work()
        except Exception:  # noqa: BLE001 - whatever it is, it ends this shell
            self.failure = traceback.format_exc()
            log.critical("%s stopped: %s", self.name, self.failure)

    def status(self) -> dict[str, Any]:
        return {"failure": self.failure, "cpu_seconds": time.process_time()}


class MachineShell(Shell):
    """A worker or a merger."""

    def __init__(self, name: str, address: Address, topology: Topology) -> None:
        super().__init__(name)
        self.machine: Any = getattr(topology, address.role)(address.index)

    def on(self, *frames: bytes) -> None:
        """Messages of one peer, in order."""

        def work() -> None:
            for data in frames:
                self.links.post(self.machine.on(decode(data)))

        self.guard(work)

    def status(self) -> dict[str, Any]:
        return super().status() | counters_of(self.machine)


class SequencerShell(Shell):
    """The sequencer: what has queued up while a commit ran goes into the next one."""

    def __init__(self, name: str, data_dir: Path, topology: Topology) -> None:
        super().__init__(name)
        self._ledger = Ledger.open(data_dir, json.dumps(topology.plan.analysis.to_dict()))
        self.machine = topology.sequencer(self._ledger)
        self._inbox: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True, name=name)

    def start(self) -> int:
        """Replay the ledger to everyone; the LSN that they will have applied."""
        self.guard(lambda: self.links.post(self.machine.start()))
        self._thread.start()
        return int(self.machine.lsn)

    def on(self, *frames: bytes) -> None:
        for data in frames:
            self._inbox.put(decode(data))

    def stop(self) -> None:
        """Commit what is queued and close the ledger."""
        self._inbox.put(None)
        if self._thread.is_alive():
            self._thread.join()
        self._ledger.close()

    def status(self) -> dict[str, Any]:
        return super().status() | counters_of(self.machine)

    def _run(self) -> None:
        for events in self._drains():
            self.guard(lambda events=events: self._handle(events))  # type: ignore[misc]

    def _drains(self) -> Iterator[list[Frame]]:
        while True:
            event = self._inbox.get()
            events: list[Frame] = []
            while event is not None:
                events.append(event)
                try:
                    event = self._inbox.get_nowait()
                except queue.Empty:
                    break
            if events:
                yield events
            if event is None:
                return

    def _handle(self, events: list[Frame]) -> None:
        requests = [e for e in events if isinstance(e, UpdateRequest)]
        if requests:
            self.links.post(self.machine.append(requests))
        for event in events:
            if not isinstance(event, UpdateRequest):
                self.links.post(self.machine.on(event))


class DispatcherShell(Shell):
    """A dispatcher: its router machine behind the edge, and the gRPC server."""

    def __init__(self, name: str, index: int, topology: Topology) -> None:
        super().__init__(name)
        analyzer = topology.analyzer()
        self.edge = DispatcherEdge(
            topology.router(index, analyzer),
            analyzer,
            topology.frequencies(analyzer),
            self.links.post,
            wall_clock_ms,
        )
        self._server: Any = None
        self._ticking = threading.Event()

    def on(self, *frames: bytes) -> None:
        def work() -> None:
            for data in frames:
                self.edge.on(decode(data))

        self.guard(work)

    def applied(self) -> int:
        """The LSN that this dispatcher's gridt has applied."""
        return int(self.edge.machine.applied)  # type: ignore[attr-defined]

    def serve(self, host: str, port: int) -> int:
        """Open the gRPC endpoint; the port that it has. Raises when it is in use."""
        from ps2stream.service.server import serve

        self._server = serve(self.edge, host, port)
        threading.Thread(target=self._tick, daemon=True, name=f"{self.name}-tick").start()
        return int(self._server.port)

    def stop(self) -> None:
        """Take no new calls, let running ones finish for a moment."""
        self._ticking.set()
        if self._server is not None:
            self._server.stop(1.0)

    def status(self) -> dict[str, Any]:
        return super().status() | self.edge.status()

    def _tick(self) -> None:
        while not self._ticking.wait(TICK_S):
            self.guard(self.edge.tick)
