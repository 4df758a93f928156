"""The whole service in one process."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ps2stream.cluster.local import LocalRuntime
from ps2stream.cluster.logs import Logs
from ps2stream.cluster.metrics_port import MetricsPort
from ps2stream.cluster.process import disk
from ps2stream.cluster.replanning import Replanning
from ps2stream.cluster.running import Service, place_of, ports, target
from ps2stream.cluster.shell import TICK_S
from ps2stream.cluster.topology import Topology
from ps2stream.config import Settings
from ps2stream.service.server import Server, serve, serve_privately


class LocalService(Service):
    """Everything in this process. What cannot be written ends nothing: updates and objects
    are refused until a restart."""

    def __init__(self, settings: Settings, topology: Topology) -> None:
        analysis = json.dumps(topology.plan.analysis.to_dict())
        place = place_of(settings)
        self._ledger = place.open_ledger(analysis)
        self._done = threading.Event()
        self._servers: list[Server] = []
        self._private: list[Server] = []
        self._runtime: LocalRuntime | None = None
        self._metrics: MetricsPort | None = None
        self._folder = place.folder
        self.sockets = Path(tempfile.mkdtemp(prefix="ps2s-"))
        self._replanning = Replanning(settings, self.sockets, self._note)
        try:
            logs = Logs(place)
            logs.check(topology)
            self._runtime = LocalRuntime(topology, self._ledger, logs.open)
            for edge, port in zip(self._runtime.edges, ports(settings), strict=True):
                self._servers.append(serve(edge, settings.host, port, settings.security))
            if settings.metrics_port:
                self._metrics = MetricsPort(settings.metrics_port, self.status)
            self.targets = [target(settings.host, server.port) for server in self._servers]
            for i, edge in enumerate(self._runtime.edges):
                edge.endpoints = self.targets
                if (path := self._replanning.socket(i)) is not None:
                    self._private.append(serve_privately(edge, path))
            self._replanning.start()
        except BaseException:
            self.stop()
            raise
        threading.Thread(target=self._tick, daemon=True, name="tick").start()

    def status(self) -> dict[str, Any]:
        if self._runtime is None:
            return {}
        found = self._runtime.status()
        found["sequencer-0"] |= disk(self._folder)
        for i, server in enumerate(self._servers):
            found[f"dispatcher-{i}"] |= server.status()
        return found | self._replanning.status()

    def stop(self) -> None:
        self._done.set()
        if self._metrics is not None:
            self._metrics.stop()
        self._replanning.stop()
        for server in (*self._servers, *self._private):
            server.stop(1.0)
        if self._runtime is not None:
            self._runtime.close()
        self._ledger.close()
        shutil.rmtree(self.sockets, ignore_errors=True)

    def _note(self, counters: Mapping[str, float]) -> None:
        for edge in [] if self._runtime is None else self._runtime.edges:
            edge.noted = counters

    def _tick(self) -> None:
        while not self._done.wait(TICK_S):
            if self._runtime is not None:
                self._runtime.tick()
