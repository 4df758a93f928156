"""The service as Ray actors, one a machine, on one host or several; a supervisor replaces what
dies (docs/decisions/0006)."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ps2stream.cluster import ray_environment
from ps2stream.cluster.actors import (
    ControllerShell,
    MergerShell,
    SequencerShell,
    WorkerShell,
)
from ps2stream.cluster.front import DispatcherShell
from ps2stream.cluster.home import here
from ps2stream.cluster.log_lines import Receiver
from ps2stream.cluster.logs import Logs
from ps2stream.cluster.manning import Manning
from ps2stream.cluster.ray_instance import NAMESPACE, RayInstance
from ps2stream.cluster.replanning import Replanning
from ps2stream.cluster.running import Service, place_of, ports, target
from ps2stream.cluster.shell import Incarnation
from ps2stream.cluster.snapshots import Policy
from ps2stream.cluster.supervisor import Supervisor
from ps2stream.cluster.topology import Topology
from ps2stream.cluster.traces import tracing_of
from ps2stream.config import Settings
from ps2stream.errors import Unavailable
from ps2stream.messages import Address

log = logging.getLogger("ps2stream.cluster")
READY_S = 300.0
BIND_S = 120.0
STOP_S = 10.0
STOP_ORDER = ("controller", "dispatcher", "sequencer", "worker", "merger")
SEQUENCER = Address("sequencer", 0)


class RayService(Service):
    """See the module."""

    def __init__(self, settings: Settings, topology: Topology, stopping: threading.Event) -> None:
        self._place = place_of(settings)
        self._instance = RayInstance(settings)
        self._ray = self._instance.ray
        self._placement = self._instance.placement
        self._settings = settings
        self._topology = topology
        self._logs = Logs(self._place)
        self._sockets = Path(tempfile.mkdtemp(prefix="ps2s-"))
        self._said = Receiver(self._sockets)
        self._tracing = tracing_of(settings)
        self._lock = threading.RLock()  # over the two tables
        self._actors: dict[Address, Any] = {}
        self._peers: dict[Address, Incarnation] = {}
        self._ports = dict(enumerate(ports(settings)))
        self._targets: dict[int, str] = {}
        self._supervisor: Supervisor | None = None
        self._manning: Manning | None = None
        self._replanning = Replanning(settings, self._sockets, self._note)
        self._replaced = 0
        self._kept = False
        try:
            self._logs.check(topology)
            self._start(stopping)
            if settings.database_url is None:
                ray_environment.keep(settings.data_dir, os.environ)  # the directory is now ours
                self._kept = True
        except BaseException:
            self.stop()
            raise

    def status(self) -> dict[str, Any]:
        """Counters of every actor; `failure` of one that does not answer says so."""
        with self._lock:
            calls = {address: actor.status.remote() for address, actor in self._actors.items()}
        found: dict[str, Any] = {}
        for address, call in calls.items():
            name = f"{address.role}-{address.index}"
            try:
                found[name] = self._ray.get(call, timeout=10)
            except self._ray.exceptions.RayError as error:
                found[name] = {"failure": f"{type(error).__name__}: does not answer"}
        return found | self._replanning.status()

    def stop(self) -> None:
        ray = self._ray
        self._replanning.stop()
        if self._manning is not None:
            self._manning.stop()
        if self._supervisor is not None:
            self._supervisor.stop()
        if self._kept:
            ray_environment.forget(self._settings.data_dir)
        actors = list(self._actors.items())
        for role in STOP_ORDER:
            mine = [(address, actor) for address, actor in actors if address.role == role]
            for address, actor, call in [(*each, each[1].stop.remote()) for each in mine]:
                try:
                    ray.get(call, timeout=STOP_S)
                except ray.exceptions.RayError as error:
                    log.warning("%s-%d did not stop cleanly: %s", *address, error)
                ray.kill(actor)
        self._actors = {}
        self._said.stop()
        shutil.rmtree(self._sockets, ignore_errors=True)
        self._instance.close()

    # --- starting ------------------------------------------------------------------

    def _start(self, stopping: threading.Event) -> None:
        ray, settings = self._ray, self._settings
        try:
            self._placement.await_room(self._topology.addresses(), stopping)
            self._make(SEQUENCER, 0)
            others = [a for a in self._topology.addresses() if a != SEQUENCER]
            epochs = ray.get(self._actors[SEQUENCER].admit.remote(others))
            for address, epoch in zip(others, epochs, strict=True):
                self._make(address, epoch)
            for address, actor in self._actors.items():
                self._peers[address] = self._bound(actor)
            ray.get([a.expect.remote(self._peers) for a in self._actors.values()])
            ray.get([a.connect.remote(self._peers) for a in self._actors.values()])
            told = settings.metrics_s, self._tracing
            ray.get([a.start.remote(True, *told) for a in self._actors.values()])
            dispatchers = [a for a in self._actors if a.role == "dispatcher"]
            for address in dispatchers:
                self._await_ready(address)
            for address in dispatchers:
                self._serve(address)
        except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError) as error:
            raise Unavailable(f"an actor did not start: {error}") from error
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        self._supervisor = Supervisor(
            ray,
            self._actors,
            self._lock,
            self._replace,
            self._settings.lease_s,
            near=self._placement.lan is None,
        )
        self._supervisor.start()
        self._manning = Manning(self)
        self._manning.start()
        self._replanning.start()

    def _note(self, counters: Mapping[str, float]) -> None:
        with self._lock:
            actors = list(self._actors.items())
        for actor in (actor for address, actor in actors if address.role == "dispatcher"):
            actor.note.remote(counters)

    # --- workers that come and go ----------------------------------------------------

    @property
    def workers(self) -> int:
        with self._lock:
            return sum(address.role == "worker" for address in self._peers)

    def tell(self, workers: int) -> int:
        call = self._actors[SEQUENCER].workers.remote(workers)
        try:
            return int(self._ray.get(call, timeout=30))
        except self._ray.exceptions.RayError as error:
            raise Unavailable("the sequencer does not answer") from error

    def hire(self, worker: int) -> None:
        address = Address("worker", worker)
        try:
            self._bring(address)
        except BaseException:
            with self._lock:
                actor = self._actors.pop(address, None)
                self._peers.pop(address, None)
            if actor is not None:
                self._ray.kill(actor)
            raise

    def dismiss(self, worker: int) -> None:
        ray, address = self._ray, Address("worker", worker)
        with self._lock:
            actor = self._actors.pop(address)
            del self._peers[address]
        self._make_known({address: None}, self._others(address))
        try:
            ray.get(actor.stop.remote(), timeout=STOP_S)
        except ray.exceptions.RayError as error:
            log.warning("%s-%d did not stop cleanly: %s", *address, error)
        ray.kill(actor)

    def _others(self, address: Address) -> list[Any]:
        with self._lock:
            return [actor for peer, actor in self._actors.items() if peer != address]

    def _make_known(self, peers: dict[Address, Incarnation | None], to: list[Any]) -> None:
        self._wait([actor.connect.remote(peers) for actor in to])

    def _wait(self, calls: list[Any]) -> None:
        self._ray.wait(calls, num_returns=len(calls), timeout=5)  # the dead are told on return

    # --- replacing -------------------------------------------------------------------

    def _replace(self, address: Address) -> None:
        """A new incarnation of an actor that died or does not answer. Raises RayError, or
        what the actor raised, when it does not come up."""
        with self._lock:
            if address not in self._actors:
                return  # it was to go
        log.warning("%s-%d is replaced", *address)
        self._bring(address)
        self._replaced += 1

    def _bring(self, address: Address) -> None:
        """Start an actor in a service that runs."""
        ray = self._ray
        sequencer = self._actors[SEQUENCER]
        if address == SEQUENCER:
            epoch = 0
        else:
            try:
                if address.role == "dispatcher":
                    ray.get(sequencer.fence.remote(address.index), timeout=30)
                [epoch] = ray.get(sequencer.admit.remote([address]), timeout=30)
            except ray.exceptions.RayActorError as error:
                raise Unavailable("the sequencer is to be replaced first") from error
        actor = self._make(address, epoch, first=False)
        incarnation = self._bound(actor)
        with self._lock:
            wanted = self._actors.get(address) is actor
            if not wanted:
                ray.kill(actor)
                raise Unavailable(f"{address.role}-{address.index} is not wanted any more")
            self._peers[address] = incarnation
        if self._placement.lan is not None:
            self._wait([a.expect.remote({address: incarnation}) for a in self._others(address)])
        with self._lock:
            peers = dict(self._peers)
        ray.get(actor.connect.remote(peers), timeout=30)
        self._make_known({address: incarnation}, self._others(address))
        ray.get(actor.start.remote(True, self._settings.metrics_s, self._tracing), timeout=30)
        if address.role == "dispatcher":
            self._await_ready(address)
            self._serve(address)

    def _bound(self, actor: Any) -> Incarnation:
        call = actor.bind.remote(self._sockets, self._placement.lan)
        incarnation: Incarnation = self._ray.get(call, timeout=BIND_S)
        return incarnation

    def _serve(self, address: Address) -> None:
        """Open the endpoint, at its port of before, where it had one, and tell all of it."""
        settings, ray = self._settings, self._ray
        where = settings.host, self._ports[address.index]
        private = self._replanning.socket(address.index)
        call = self._actors[address].serve.remote(*where, settings.security, private)
        port = self._ports[address.index] = ray.get(call)
        home = self._peers[address].home or here()
        with self._lock:
            before = self._targets.get(address.index)
            now = self._targets[address.index] = target(settings.host, port, home)
            self.targets = [told for _, told in sorted(self._targets.items())]
            fronts = [actor for peer, actor in self._actors.items() if peer.role == "dispatcher"]
        if before not in (None, now):
            log.warning("dispatcher-%d listens at %s now", address.index, now)
        for front in fronts:
            front.locate.remote(self.targets)

    def _await_ready(self, address: Address) -> None:
        deadline = time.monotonic() + READY_S
        while not self._ray.get(self._actors[address].ready.remote()):
            if time.monotonic() > deadline:
                raise Unavailable(f"the ledger was not replayed within {READY_S:.0f} s")
            time.sleep(0.02)

    def _silent_s(self, address: Address) -> float:
        return 0.0 if self._supervisor is None else self._supervisor.silent_s(address)

    def _identity(self) -> int:
        return int(self._ray.get(self._actors[SEQUENCER].identity.remote(), timeout=30))

    def _make(self, address: Address, epoch: int, first: bool = True) -> Any:
        ray = self._ray
        args: tuple[Any, ...]
        shell: type
        match address.role:
            case "sequencer":
                shell = SequencerShell
                args = (self._place, self._topology, first)
            case "worker":
                policy = Policy(self._place, self._identity(), self._settings.snapshot_s)
                shell, args = WorkerShell, (epoch, self._topology, policy)
            case "merger":
                shell, args = MergerShell, (epoch, self._topology, self._logs)
            case "controller":
                shell, args = ControllerShell, (epoch, self._topology)
            case _:
                shell = DispatcherShell
                args = (epoch, self._topology, self._logs, self._identity())
        with self._lock:
            found = {peer: known.home for peer, known in self._peers.items()}
        homes = {peer: home for peer, home in found.items() if home is not None}
        placed = self._placement.options(address, homes, self._silent_s)
        alone = first and self._placement.lan is None  # else the name may be taken
        made = ray.remote(shell).options(
            name=f"{address.role}-{address.index}" + ("" if alone else f".{time.time_ns():x}"),
            namespace=NAMESPACE,
            num_cpus=0,
            **placed,
            max_task_retries=0,
            enable_task_events=False,
        )
        actor = made.remote(address, *args)
        with self._lock:
            self._actors[address] = actor
        return actor
