"""The runtime `ray`: the service as Ray actors, one for each machine, on one host or several.

A supervisor replaces actors that die (docs/decisions/0006). Where Ray itself dies, a Ray that was
started here is started again with all actors; without a Ray of its own the service ends.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ps2stream.cluster import intervals, ray_environment
from ps2stream.cluster.actor_creation import ActorCreator
from ps2stream.cluster.actor_returns import ActorReturns
from ps2stream.cluster.actor_scaling import ActorScaler
from ps2stream.cluster.census_rounds import CensusRounds
from ps2stream.cluster.death_witnesses import DeathWitnesses
from ps2stream.cluster.endpoints import DispatcherEndpoints
from ps2stream.cluster.log_lines import LogReceiver
from ps2stream.cluster.logs import ServiceLogs
from ps2stream.cluster.private_folder import PrivateFolder
from ps2stream.cluster.ray_instance import RayInstance
from ps2stream.cluster.ray_pools import make_pools
from ps2stream.cluster.replanning import PeriodicReplanning
from ps2stream.cluster.running_service import RunningService, check_port, place_of
from ps2stream.cluster.shell import ActorIncarnation
from ps2stream.cluster.shell_types import find_shell
from ps2stream.cluster.start_stages import StartStage
from ps2stream.cluster.supervisor import ActorSupervisor
from ps2stream.cluster.topology import Topology
from ps2stream.config import Settings
from ps2stream.errors import Ps2StreamError, Unavailable
from ps2stream.observability.traces import tracing_of
from ps2stream.protocol.addresses import SEQUENCER, Address, Role

log = logging.getLogger("ps2stream.cluster")
STOP_ORDER = ("controller", "dispatcher", "sequencer", "worker", "merger")


class RayService(RunningService):
    """A service whose machines are Ray actors; see the module."""

    def __init__(
        self,
        settings: Settings,
        topology: Topology,
        stopping: threading.Event,
        accept_loss: bool = False,
        begin_stage: Callable[[StartStage], None] = lambda _: None,
    ) -> None:
        begin_stage(StartStage.RAY)
        self._place = place_of(settings)
        self._folder = PrivateFolder(holds_sockets=True)
        try:
            self._instance = RayInstance(settings, self._folder.path)
        except BaseException:
            self._folder.remove()
            raise
        self._ray = self._instance.ray
        self._settings = settings
        self._topology = topology
        self._creator = ActorCreator(self._instance, topology, settings.standbys)
        self._logs = ServiceLogs(self._place)
        self._log_receiver = LogReceiver(self._folder.path)
        self._tracing = tracing_of(settings)
        self._stopping, self._ending = stopping, threading.Event()
        self._watching = threading.Thread(target=self._watch_ray, daemon=True, name="ray-watch")
        self._lock = threading.RLock()  # guards the two tables
        self._actors: dict[Address, Any] = {}
        self._peers: dict[Address, ActorIncarnation] = {}
        self._supervisor: ActorSupervisor | None = None
        self._scaling: ActorScaler | None = None
        self._returns: ActorReturns | None = None
        self._replanning = PeriodicReplanning(settings, self._folder.path, self._note_parts)
        self._endpoints = DispatcherEndpoints(settings, self._replanning.socket, self._get_result)
        self._census = CensusRounds(self.status, self._note_parts)
        self._generation = 0  # of the actors: rises when Ray is started again
        self._has_token_file = False
        try:
            self._start_service(accept_loss, begin_stage)
            if settings.database_url is None:
                ray_environment.write_token_file(
                    settings.data_dir, os.environ, self._instance.dashboard_port
                )
                self._has_token_file = True
            self._watching.start()
        except BaseException:
            self.stop()
            raise

    def status(self) -> dict[str, Any]:
        """Returns the counters of every actor; `failure` says which of them do not answer."""
        with self._lock:
            calls = {address: actor.status.remote() for address, actor in self._actors.items()}
        found: dict[str, Any] = {}
        for address, call in calls.items():
            name = f"{address.role}-{address.index}"
            try:
                found[name] = self._get_result(call, 10)
            except (self._ray.exceptions.RayError, Unavailable) as error:
                found[name] = {"failure": f"{type(error).__name__}: does not answer"}
        return found | self._replanning.status()

    def stop(self) -> None:
        self._ending.set()
        self._census.stop()
        self._replanning.stop()
        if self._watching.is_alive():
            self._watching.join(intervals.JOIN_S)
        self._stop_watching_actors()
        if self._has_token_file:
            ray_environment.remove_token_file(self._settings.data_dir)
        self._creator.standbys.stop()
        if not self._instance.find_loss():
            self._stop_actors()
        self._actors = {}
        self._instance.close()
        self._log_receiver.stop()
        self._folder.remove()

    def _stop_actors(self) -> None:
        ray, deadline = self._ray, time.monotonic() + intervals.ACTORS_STOP_S
        actors = list(self._actors.items())
        for role in STOP_ORDER:
            mine = [(*each, each[1].stop.remote()) for each in actors if each[0].role == role]
            for address, actor, call in mine:
                try:
                    ray.get(call, timeout=max(0.0, deadline - time.monotonic()))
                except ray.exceptions.RayError as error:
                    log.warning("%s-%d did not stop cleanly: %s", *address, error)
                ray.kill(actor)

    # --- Ray itself ------------------------------------------------------------------

    def _watch_ray(self) -> None:
        lost = ""  # until all is started again: an actor that dies amid a start ends it
        while not self._ending.wait(intervals.LOOK_S):
            lost = self._instance.find_loss() or lost
            if not lost:
                continue
            if not self._instance.is_ours:
                self.failure = f"ray_address: this host has lost the {lost} of the Ray cluster"
                log.critical("%s; the service ends", self.failure)
                self._stopping.set()
                return
            log.error("Ray's %s has died; Ray and all actors are started again", lost)
            begun = time.monotonic()
            try:
                self._restart_ray()
            except Exception:
                if self._ending.is_set() or self._stopping.is_set():
                    return
                log.exception("Ray was not started again; retrying in %g s", intervals.RESTART_S)
                self._ending.wait(intervals.RESTART_S)
            else:
                lost = ""
                log.warning("serving again after %.1f s", time.monotonic() - begun)

    def _restart_ray(self) -> None:
        """Restarts Ray and all actors, at the same ports. The ledger has what else they need, as
        when each of them is replaced."""
        self._stop_watching_actors()
        with self._lock:
            addresses = [*self._peers]
            self._actors.clear()
            self._generation += 1
        self._creator.standbys.clear()
        self._instance.restart()
        self._start_actors(addresses, first=False)
        self._creator.standbys.start()

    def _check_running(self) -> None:
        """Raises Unavailable when it is useless to wait for Ray any longer."""
        if self._ending.is_set() or self._stopping.is_set():
            raise Unavailable("the service is stopping")
        if lost := self._instance.find_loss():
            raise Unavailable(f"Ray's {lost} has died")

    def _get_result(self, call: Any, timeout_s: float = math.inf) -> Any:
        return self._instance.get(call, timeout_s, self._check_running)

    # --- starting ------------------------------------------------------------------

    def _start_service(self, accept_loss: bool, begin_stage: Callable[[StartStage], None]) -> None:
        try:
            self._instance.placement.await_room(self._topology.addresses(), self._stopping)
            begin_stage(StartStage.ACTORS)
            self._start_actors(self._topology.addresses(), first=True, accept_loss=accept_loss)
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.GetTimeoutError) as error:
            raise Unavailable(f"an actor did not start: {error}") from error
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        self._replanning.start()
        self._census.start()
        self._creator.standbys.start()

    def _start_actors(
        self, addresses: list[Address], *, first: bool, accept_loss: bool = False
    ) -> None:
        """Starts these actors; `first`: they are the service's first, not successors."""
        settings = self._settings
        self._create_actor(SEQUENCER, 0, first)
        if first:
            self._get_result(self._actors[SEQUENCER].pair_logs.remote(self._logs, accept_loss))
        others = [a for a in addresses if a != SEQUENCER]
        epochs = self._get_result(self._actors[SEQUENCER].admit.remote(others))
        for address, epoch in zip(others, epochs, strict=True):
            self._create_actor(address, epoch, first)
        peers = {address: self._bind_inbox(actor) for address, actor in self._actors.items()}
        with self._lock:
            self._peers.clear()
            self._peers |= peers
        self._get_result([a.expect.remote(self._peers) for a in self._actors.values()])
        self._get_result([a.connect.remote(self._peers) for a in self._actors.values()])
        options = settings.metrics_s, self._tracing
        self._get_result([a.start.remote(True, *options) for a in self._actors.values()])
        found = [a for a in self._actors if a.role == "dispatcher"]
        dispatchers = [a for a in found if first or a.index in self._endpoints]
        for address in dispatchers:
            self._endpoints.await_ready(self._actors[address])
        for address in dispatchers:
            self._open_endpoint(address)
        tables = self._actors, self._peers, self._lock
        has_lan = self._instance.placement.lan is not None
        witnesses = DeathWitnesses(self._ray, *tables, self._silent_s) if has_lan else None
        self._supervisor = ActorSupervisor(
            self._ray, self._actors, self._lock, self._replace_actor, settings.lease_s, witnesses
        )
        pings = {a: actor.ping.remote(settings.lease_s, None) for a, actor in self._actors.items()}
        self._get_result([*pings.values()])
        self._supervisor.start(pings)
        self._scaling = ActorScaler(make_pools(self))
        self._scaling.start()
        calm, wait_s = self._supervisor.is_calm, settings.spread_s if has_lan else 0.0
        self._returns = ActorReturns(self._ray, self._creator, *tables, calm, wait_s)
        self._returns.start()

    def _stop_watching_actors(self) -> None:
        for thread in (self._returns, self._scaling):
            if thread is not None:
                thread.stop()
        if self._supervisor is not None:
            self._supervisor.stop()

    def _list_dispatchers(self) -> list[Any]:
        with self._lock:
            return [actor for peer, actor in self._actors.items() if peer.role == "dispatcher"]

    def _note_parts(self, parts: Mapping[str, Any]) -> None:
        for dispatcher in self._list_dispatchers():
            dispatcher.note.remote(parts)

    # --- actors that come and go -----------------------------------------------------

    def count_actors(self, role: Role) -> int:
        with self._lock:
            return sum(address.role == role for address in self._peers)

    def report_running(self, role: Role, running: int) -> int:
        try:
            call = self._actors[SEQUENCER].run_actors.remote(role, running)
            return int(self._get_result(call, 30))
        except self._ray.exceptions.RayError as error:
            raise Unavailable("the sequencer does not answer") from error

    def start_actor(self, address: Address) -> None:
        try:
            if address.role == "dispatcher":
                check_port(self._settings, address.index)
            if address.role != "worker":
                self._get_result(self._actors[SEQUENCER].make_log.remote(self._logs, address), 30)
            self._add_actor(address)
        except BaseException:
            with self._lock:
                actor = self._actors.pop(address, None)
                self._peers.pop(address, None)
            if actor is not None:
                self._ray.kill(actor)
            raise

    def dismiss_actor(self, address: Address) -> None:
        with self._lock:
            actor = self._actors.pop(address)
            del self._peers[address]
        if address.role == "dispatcher":
            self._endpoints.forget(address.index)
            self._replanning.forget(address.index)
            self.targets = self._endpoints.announce(self._list_dispatchers())
        self._announce_peers({address: None}, self._list_others(address))
        try:
            self._get_result(actor.stop.remote(), intervals.LEAVE_S)
        except self._ray.exceptions.RayError as error:
            log.warning("%s-%d did not stop cleanly: %s", *address, error)
        self._ray.kill(actor)

    def _list_others(self, address: Address) -> list[Any]:
        with self._lock:
            return [actor for peer, actor in self._actors.items() if peer != address]

    def _announce_peers(self, peers: dict[Address, ActorIncarnation | None], to: list[Any]) -> None:
        self._await_calls([actor.connect.remote(peers) for actor in to])

    def _await_calls(self, calls: list[Any]) -> None:
        # An actor that is dead, and so does not return, learns of its peers once it is replaced.
        self._ray.wait(calls, num_returns=len(calls), timeout=5)

    # --- replacing -------------------------------------------------------------------

    def _replace_actor(self, address: Address) -> None:
        """Starts a new incarnation of an actor that died or does not answer. Raises RayError, or
        what the actor raised, when it does not come up."""
        with self._lock:
            if address not in self._actors:
                return  # it has been dismissed
        log.warning("%s-%d is replaced", *address)
        self._add_actor(address)

    def _add_actor(self, address: Address) -> None:
        """Starts an actor in a service that runs."""
        ray = self._ray
        sequencer = self._actors[SEQUENCER]
        if address == SEQUENCER:
            epoch = 0
        else:
            try:
                if address.role == "dispatcher" and address in self._peers:
                    self._get_result(sequencer.fence.remote(address.index), 30)
                [epoch] = self._get_result(sequencer.admit.remote([address]), 30)
            except ray.exceptions.RayActorError as error:
                raise Unavailable("the sequencer must be replaced first") from error
        actor = self._create_actor(address, epoch, first=False)
        incarnation = self._bind_inbox(actor)
        with self._lock:
            wanted = self._actors.get(address) is actor
            if not wanted:
                ray.kill(actor)
                raise Unavailable(f"{address.role}-{address.index} is no longer needed")
            self._peers[address] = incarnation
        if self._instance.placement.lan is not None:
            self._await_calls(
                [a.expect.remote({address: incarnation}) for a in self._list_others(address)]
            )
        with self._lock:
            peers = dict(self._peers)
        # The lease that this asks for begins with `start`.
        first_ping = actor.ping.remote(self._settings.lease_s, None)
        self._get_result([actor.connect.remote(peers), first_ping], 30)
        self._announce_peers({address: incarnation}, self._list_others(address))
        self._get_result(actor.start.remote(True, self._settings.metrics_s, self._tracing), 30)
        if address.role == "dispatcher" and address.index in self._endpoints:
            self._endpoints.await_ready(self._actors[address])
            self._open_endpoint(address)

    def open_endpoints(self) -> None:
        """Opens the endpoints of dispatchers that have joined, once they accept something."""
        with self._lock:
            dispatchers = [a for a in self._actors if a.role == "dispatcher"]
        for address in [a for a in dispatchers if a.index not in self._endpoints]:
            if self._endpoints.is_ready(self._actors[address]):
                try:
                    self._open_endpoint(address)
                except Ps2StreamError as error:  # another program has its port
                    self._endpoints.note_refusal(address.index, error)

    def _bind_inbox(self, actor: Any) -> ActorIncarnation:
        call = actor.bind.remote(self._folder.path, self._instance.placement.lan)
        incarnation: ActorIncarnation = self._get_result(call, intervals.BIND_S)
        return incarnation

    def _open_endpoint(self, address: Address) -> None:
        """Opens a dispatcher's endpoint, and makes it known to all."""
        self._endpoints.open(address.index, self._actors[address], self._peers[address].home)
        self.targets = self._endpoints.announce(self._list_dispatchers())

    def _silent_s(self, address: Address) -> float:
        return 0.0 if self._supervisor is None else self._supervisor.silent_s(address)

    def _read_identity(self) -> int:
        return int(self._get_result(self._actors[SEQUENCER].identity.remote(), 30))

    def _create_actor(self, address: Address, epoch: int, first: bool = True) -> Any:
        self._check_running()
        common = self._topology, self._logs, self._read_identity, self._settings.snapshot_s
        shell, args = find_shell(address, epoch, *common, first)
        with self._lock:
            generation = self._generation
            homes = {a: peer.home for a, peer in self._peers.items() if peer.home is not None}
        actor = self._creator.create(shell, address, args, first, homes, self._silent_s)
        with self._lock:
            if generation != self._generation:
                raise Unavailable("Ray died in the meantime")
            self._actors[address] = actor
        return actor
