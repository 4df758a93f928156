"""The runtime `local`: the whole service in one process."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from ps2stream.cluster.archived_log import ArchivedLog
from ps2stream.cluster.census_rounds import CensusRounds
from ps2stream.cluster.dispatcher_edge import DispatcherEdge
from ps2stream.cluster.intervals import JOIN_S
from ps2stream.cluster.local_runtime import LocalRuntime
from ps2stream.cluster.log_pairing import make_log, pair_logs
from ps2stream.cluster.logs import ServiceLogs
from ps2stream.cluster.private_folder import PrivateFolder
from ps2stream.cluster.replanning import PeriodicReplanning
from ps2stream.cluster.running_service import (
    RunningService,
    check_port,
    find_port,
    place_of,
    target,
)
from ps2stream.cluster.topology import Topology
from ps2stream.config import Settings
from ps2stream.errors import Ps2StreamError
from ps2stream.observability.metrics_port import MetricsPort
from ps2stream.observability.process import disk
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.ports import Log
from ps2stream.protocol.ticks import TICK_S
from ps2stream.service.server import GrpcServer, serve, serve_privately
from ps2stream.store.places import describe_promises

log = logging.getLogger("ps2stream.cluster")


class LocalService(RunningService):
    """A service within this process. A failed write does not end it: updates and objects are
    refused until a restart."""

    def __init__(self, settings: Settings, topology: Topology, accept_loss: bool = False) -> None:
        analysis = json.dumps(topology.plan.analysis.to_dict())
        place = place_of(settings)
        self._promises = describe_promises(place)
        self._ledger = place.open_ledger(analysis)
        self._settings = settings
        self._topology = topology
        self._archived: dict[str, ArchivedLog] = {}
        self._done = threading.Event()
        self._ticking = threading.Thread(target=self._run_ticks, daemon=True, name="tick")
        self._unopened = ""  # why a dispatcher that joined has no endpoint yet
        self._servers: list[GrpcServer] = []
        self._private: list[GrpcServer] = []
        self._served: list[DispatcherEdge] = []  # by `_servers`
        self._runtime: LocalRuntime | None = None
        self._metrics: MetricsPort | None = None
        self._place = place
        self._private_folder = PrivateFolder(holds_sockets=True)
        self.sockets = self._private_folder.path
        self._replanning = PeriodicReplanning(settings, self.sockets, self._note_parts)
        self._census = CensusRounds(self.status, self._note_parts)
        try:
            self._logs = ServiceLogs(place)
            pair_logs(self._logs, self._ledger, topology, accept_loss)
            self._runtime = LocalRuntime(
                topology, self._ledger, self._open_log, make_log=self._make_log
            )
            for edge in self._runtime.edges:
                self._open_endpoint(edge)
            if settings.metrics_port:
                self._metrics = MetricsPort(settings.metrics_port, self.status)
            self._list_endpoints()
            self._replanning.start()
            self._census.start()
        except BaseException:
            self.stop()
            raise
        self._ticking.start()

    def status(self) -> dict[str, Any]:
        if (runtime := self._runtime) is None:
            return {}
        found = runtime.status()
        found["sequencer-0"] |= disk(self._place.folder) | self._promises
        running = {name: part for name, part in found.items() if name.startswith("dispatcher")}
        for i, server in enumerate(self._servers[: len(running)]):
            running[f"dispatcher-{i}"] |= server.status()
        for name, part in running.items():
            if (archived := self._archived.get(name)) is not None:
                part |= archived.status()
        return found | self._replanning.status()

    def _open_log(self, address: Address) -> Log:
        log, limits = self._logs.open(address), self._topology.archive
        if limits is None or address.role != "dispatcher":
            return log
        identity = self._logs.describe_log(address, self._ledger.identity)
        archived = ArchivedLog.follow(log, limits, address, identity)
        self._archived[f"dispatcher-{address.index}"] = archived
        return archived

    def _make_log(self, owner: Address) -> None:
        if owner.role == "dispatcher":
            check_port(self._settings, owner.index)
        make_log(self._logs, self._ledger, owner)

    def _open_endpoint(self, edge: DispatcherEdge) -> None:
        index, settings = len(self._servers), self._settings
        port = find_port(settings, index)
        self._servers.append(serve(edge, settings.host, port, settings.security))
        self._served.append(edge)
        if (path := self._replanning.socket(index)) is not None:
            self._private.append(serve_privately(edge, path))

    def _close_endpoint(self) -> None:
        """Closes the endpoint of the last dispatcher, which has left."""
        self._served.pop()
        self._replanning.forget(len(self._served))
        servers = [self._servers.pop(), *self._private[len(self._servers) :]]
        del self._private[len(self._servers) :]
        self._list_endpoints()
        for server in servers:
            server.stop(1.0)

    def _list_endpoints(self) -> None:
        """Lets all dispatchers know where clients reach them."""
        self.targets = [target(self._settings.host, server.port) for server in self._servers]
        for edge in self._runtime.edges if self._runtime is not None else ():
            edge.endpoints = self.targets

    def _open_endpoints(self, edges: Sequence[DispatcherEdge]) -> None:
        """Opens the endpoints of dispatchers that have joined, and closes those of dispatchers that
        have left; a port may be in use for now."""
        served, edges = self._served, list(edges)
        while served and (len(served) > len(edges) or served[-1] is not edges[len(served) - 1]):
            self._close_endpoint()
        for edge in edges[len(self._servers) :]:
            if not edge.machine.router.ready:
                return
            try:
                self._open_endpoint(edge)
            except Ps2StreamError as error:
                if str(error) != self._unopened:
                    self._unopened = str(error)
                    index = len(self._servers)
                    log.warning("dispatcher-%d has no endpoint; retrying: %s", index, error)
                return
            self._list_endpoints()

    def stop(self) -> None:
        self._done.set()
        if self._ticking.is_alive():
            self._ticking.join(JOIN_S)
        if self._metrics is not None:
            self._metrics.stop()
        self._census.stop()
        self._replanning.stop()
        with ExitStack() as ends:  # all of them, also after one that fails
            ends.callback(self._private_folder.remove)
            ends.callback(self._ledger.close)
            if (runtime := self._runtime) is not None:
                self._runtime = None
                ends.callback(runtime.close)
            for server in (*self._servers, *self._private):
                server.stop(1.0)

    def _note_parts(self, parts: Mapping[str, Any]) -> None:
        if (runtime := self._runtime) is not None:
            for edge in runtime.edges:
                edge.note(parts)

    def _run_ticks(self) -> None:
        while not self._done.wait(TICK_S):
            if (runtime := self._runtime) is not None:
                runtime.tick()
                self._open_endpoints(runtime.edges)
