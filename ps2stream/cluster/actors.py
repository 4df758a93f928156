"""Ray shells: each moves bytes between its links and one machine, and holds no logic.

Ray calls an actor to wire it up, start, look at and stop it; its messages come on a
thread of their own. An exception in a machine is a bug that must not be passed over:
the shell logs it, keeps it for `status()`, and takes no further message.
"""

from __future__ import annotations

import abc
import json
import logging
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ps2stream.batch import Frame, decode
from ps2stream.cluster.edge import DispatcherEdge, counters_of, wall_clock_ms
from ps2stream.cluster.links import Links
from ps2stream.cluster.topology import Topology
from ps2stream.messages import Address, UpdateRequest
from ps2stream.security import Security
from ps2stream.store.ledger import Ledger

log = logging.getLogger("ps2stream.cluster")
TICK_S = 0.1


class Shell(abc.ABC):
    """What all four actors share: links, the thread that receives, failure, status."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.links = Links()
        self.failure = ""
        self._stopping = threading.Event()
        self._receiver = threading.Thread(target=self._receive, daemon=True, name=f"{name}-inbox")

    def bind(self, folder: Path) -> str:
        """Open the inbox in `folder`; its endpoint."""
        return self.links.bind(folder, self.name)

    def connect(self, endpoints: Mapping[Address, str]) -> None:
        """The endpoints of every actor; called once, before any message."""
        self.links.connect(endpoints)

    def start(self) -> int:
        """Take messages from now on."""
        self._receiver.start()
        return 0

    def stop(self) -> None:
        """Take no further message, once the one under way is done."""
        self._stopping.set()
        if self._receiver.is_alive():
            self._receiver.join()
        self.links.close()

    @abc.abstractmethod
    def handle(self, frames: list[Frame]) -> None:
        """Messages of one peer, in order."""

    def status(self) -> dict[str, Any]:
        return {"failure": self.failure, "cpu_seconds": time.process_time()}

    def receive(self) -> list[Frame]:
        """The next messages of one peer; none after a while without."""
        return [decode(data) for data in self.links.receive()]

    @contextmanager
    def watched(self) -> Iterator[None]:
        """An exception inside, whatever it is, ends this shell."""
        try:
            yield
        except Exception:  # noqa: BLE001
            self.failure = traceback.format_exc()
            log.critical("%s stopped: %s", self.name, self.failure)

    def _receive(self) -> None:
        while not self._stopping.is_set():
            with self.watched():
                frames = self.receive()
                if frames and not self.failure:
                    self.handle(frames)


class MachineShell(Shell):
    """A worker or a merger."""

    def __init__(self, name: str, address: Address, topology: Topology) -> None:
        super().__init__(name)
        self.machine: Any = getattr(topology, address.role)(address.index)

    def handle(self, frames: list[Frame]) -> None:
        for frame in frames:
            self.links.post(self.machine.on(frame))

    def status(self) -> dict[str, Any]:
        return super().status() | counters_of(self.machine)


class SequencerShell(Shell):
    """The sequencer: what has queued up while a commit ran goes into the next one."""

    def __init__(self, name: str, data_dir: Path, topology: Topology) -> None:
        super().__init__(name)
        self._ledger = Ledger.open(data_dir, json.dumps(topology.plan.analysis.to_dict()))
        self.machine = topology.sequencer(self._ledger)

    def start(self) -> int:
        """Replay the ledger to everyone; the LSN that they will have applied."""
        self.links.post(self.machine.start())
        super().start()
        return int(self.machine.lsn)

    def receive(self) -> list[Frame]:
        frames = data = self.links.receive()
        while data:
            data = self.links.receive(wait=False)
            frames = frames + data
        return [decode(data) for data in frames]

    def handle(self, frames: list[Frame]) -> None:
        requests = [f for f in frames if isinstance(f, UpdateRequest)]
        if requests:
            self.links.post(self.machine.append(requests))
        for frame in frames:
            if not isinstance(frame, UpdateRequest):
                self.links.post(self.machine.on(frame))

    def stop(self) -> None:
        """Commit what is queued and close the ledger."""
        super().stop()
        self._ledger.close()

    def status(self) -> dict[str, Any]:
        return super().status() | counters_of(self.machine)


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
            reservoir=topology.reservoir(index),
        )
        self._server: Any = None

    def handle(self, frames: list[Frame]) -> None:
        for frame in frames:
            self.edge.on(frame)

    def applied(self) -> int:
        """The LSN that this dispatcher's gridt has applied."""
        return int(self.edge.machine.applied)  # type: ignore[attr-defined]

    def serve(self, host: str, port: int, security: Security) -> int:
        """Open the gRPC endpoint; the port that it has. Raises when it is in use."""
        from ps2stream.service.server import serve

        self._server = serve(self.edge, host, port, security)
        threading.Thread(target=self._tick, daemon=True, name=f"{self.name}-tick").start()
        return int(self._server.port)

    def stop(self) -> None:
        """Take no new calls, let running ones finish for a moment."""
        if self._server is not None:
            self._server.stop(1.0)
        super().stop()  # a straggling handler finds the links closed

    def status(self) -> dict[str, Any]:
        return super().status() | self.edge.status()

    def tick(self) -> None:
        """Periodic work, while nothing has failed."""
        with self.watched():
            if not self.failure:
                self.edge.tick()

    def _tick(self) -> None:
        while not self._stopping.wait(TICK_S):
            self.tick()
