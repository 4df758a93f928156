"""Start and stop the whole service on this machine.

    with start(settings) as service:
        print(service.targets)

`runtime = "ray"` puts each machine into its own Ray actor; `"local"` keeps all of
them in this process. Both serve the same gRPC API.
"""

from __future__ import annotations

import abc
import dataclasses
import json
import logging
import os
import secrets
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ps2stream.batch import F64
from ps2stream.cluster import ray_environment
from ps2stream.cluster.actors import TICK_S, DispatcherShell, MachineShell, SequencerShell
from ps2stream.cluster.local import LocalRuntime
from ps2stream.cluster.topology import Topology
from ps2stream.cluster.warm import warm
from ps2stream.config import Settings
from ps2stream.errors import DataDirectoryError, PlanError, Unavailable
from ps2stream.grid import Grid
from ps2stream.messages import Address
from ps2stream.plan import RoutingPlan, built_in_plan
from ps2stream.plan_file import load_plan
from ps2stream.store.ledger import Ledger, recorded_analysis
from ps2stream.terms import Analysis, Analyzer

log = logging.getLogger("ps2stream.cluster")
NAMESPACE = "ps2stream"
READY_S = 300.0
STOP_ORDER = ("dispatcher", "sequencer", "worker", "merger")


class Service(abc.ABC):
    """A running service: `targets` are the dispatchers' host:port."""

    targets: list[str]

    @abc.abstractmethod
    def status(self) -> dict[str, Any]:
        """Counters of every actor, by name; `failure` is not empty where one stopped."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Stop what this service started, and only that."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def start(settings: Settings, plan: RoutingPlan | None = None) -> Service:
    """Start everything, replay the ledger, and serve.

    `plan` overrides `settings.plan`. Raises DataDirectoryError, PlanError, InvalidArgument
    (a port in use, a refused address) or Unavailable; what was started is stopped again.
    """
    plan = fitted_plan(settings, plan)
    topology = Topology(
        plan,
        dispatchers=settings.dispatchers,
        mergers=settings.mergers,
        max_in_flight=settings.max_in_flight,
        session_quota=settings.session_quota,
        sample_objects=settings.sample_objects,
        quotas=settings.security.quotas,
    )
    warm(topology)
    if settings.runtime == "local":
        return LocalService(settings, topology)
    return RayService(settings, topology)


def fitted_plan(settings: Settings, plan: RoutingPlan | None) -> RoutingPlan:
    """The plan under the analysis settings of the data directory; without a plan the
    built-in one. A new directory takes the plan's settings, or its own and a random salt.

    A plan carries term strings and a plan file no salt, so theirs may differ. Raises
    PlanError or DataDirectoryError when stemmer, stop words or character data do.
    """
    if plan is None and settings.plan is not None:
        given = "workers" in settings.model_fields_set
        plan = load_plan(settings.plan, workers=settings.workers if given else None)
    recorded = recorded_analysis(settings.data_dir)
    if recorded is not None:
        analysis = Analysis.from_dict(json.loads(recorded))
    elif plan is not None:
        salt = plan.analysis.salt or secrets.randbits(63)
        analysis = dataclasses.replace(plan.analysis, salt=salt)
    else:
        analysis = Analysis(
            salt=secrets.randbits(63), stemmer=settings.stemmer, stop_words=settings.stop_words
        )
    for name in ("stemmer", "stop_words"):
        wanted, fixed = getattr(settings, name), getattr(analysis, name)
        if wanted is not None and wanted != fixed:
            raise DataDirectoryError(
                f"{settings.data_dir}: {name} is fixed as {fixed!r}, not {wanted!r}: "
                "its queries would match other words"
            )
    if plan is None:
        return built_in_plan(analysis, Grid(), settings.workers)
    salted = dataclasses.replace(plan.analysis, salt=analysis.salt)
    if salted != analysis:
        theirs, ours = salted.to_dict(), analysis.to_dict()
        name = next(name for name in ours if ours[name] != theirs[name])
        raise PlanError(
            f"plan: made for a text analysis with {name} = {theirs[name]!r}; "
            f"{settings.data_dir} has {ours[name]!r}"
        )
    return dataclasses.replace(plan, analysis=analysis)


def sampled_plan(
    settings: Settings, lon: F64, lat: F64, texts: Sequence[str], grid: Grid | None = None
) -> RoutingPlan:
    """A built-in plan for objects like these: kd-tree by their places, and the frequencies
    of their terms, which choose the posting terms."""
    analysis = fitted_plan(settings, None).analysis
    analyzer = Analyzer(analysis)
    counts = Counter(token for text in texts for token in analyzer.tokens(text))
    return built_in_plan(analysis, grid or Grid(), settings.workers, (lon, lat), counts)


def open_ledger(settings: Settings, topology: Topology) -> Ledger:
    """The data directory, locked and checked."""
    return Ledger.open(settings.data_dir, json.dumps(topology.plan.analysis.to_dict()))


class LocalService(Service):
    """Everything in this process."""

    def __init__(self, settings: Settings, topology: Topology) -> None:
        from ps2stream.service.server import serve

        self._ledger = open_ledger(settings, topology)
        self._done = threading.Event()
        self._servers: list[Any] = []
        try:
            self.runtime = LocalRuntime(topology, self._ledger)
            for edge, port in zip(self.runtime.edges, ports(settings), strict=True):
                self._servers.append(serve(edge, settings.host, port, settings.security))
        except BaseException:
            self.stop()
            raise
        self.targets = [f"{settings.host}:{s.port}" for s in self._servers]
        threading.Thread(target=self._tick, daemon=True, name="tick").start()

    def status(self) -> dict[str, Any]:
        return self.runtime.status()

    def stop(self) -> None:
        self._done.set()
        for server in self._servers:
            server.stop(1.0)
        self._ledger.close()

    def _tick(self) -> None:
        while not self._done.wait(TICK_S):
            self.runtime.tick()


class RayService(Service):
    """One Ray actor a machine, in a Ray instance of its own unless Ray already runs here."""

    def __init__(self, settings: Settings, topology: Topology) -> None:
        ray_environment.prepare(os.environ)
        import ray

        self._ray = ray
        self._data_dir = settings.data_dir
        self._sockets = Path(tempfile.mkdtemp(prefix="ps2s-"))
        self._temp: Path | None = None
        self._actors: dict[Address, Any] = {}
        self._kept = False
        if ray.is_initialized():
            ray_environment.check_joined(os.environ)
        else:
            self._temp = Path(tempfile.mkdtemp(prefix="ps2s-"))
            ray.init(
                address="local",
                namespace=NAMESPACE,
                include_dashboard=False,
                log_to_driver=True,
                logging_level=logging.ERROR,
                object_store_memory=128 << 20,
                _temp_dir=str(self._temp),
            )
        try:
            self._start(settings, topology)
            ray_environment.keep(settings.data_dir, os.environ)  # the directory is now ours
            self._kept = True
        except BaseException:
            self.stop()
            raise

    def status(self) -> dict[str, Any]:
        found = self._ray.get([a.status.remote() for a in self._actors.values()], timeout=10)
        return {
            f"{address.role}-{address.index}": status
            for address, status in zip(self._actors, found, strict=True)
        }

    def stop(self) -> None:
        ray = self._ray
        if self._kept:
            ray_environment.forget(self._data_dir)
        actors = sorted(self._actors.items(), key=lambda item: STOP_ORDER.index(item[0].role))
        for address, actor in actors:
            if address.role in ("dispatcher", "sequencer"):
                try:
                    ray.get(actor.stop.remote(), timeout=10)
                except ray.exceptions.RayError as error:
                    log.warning("%s-%d did not stop cleanly: %s", *address, error)
            ray.kill(actor)
        self._actors = {}
        shutil.rmtree(self._sockets, ignore_errors=True)
        if self._temp is not None:
            ray.shutdown()
            shutil.rmtree(self._temp, ignore_errors=True)
            self._temp = None

    def _start(self, settings: Settings, topology: Topology) -> None:
        ray = self._ray
        dispatchers, replayed = self._actors_of(settings, topology)
        deadline = time.monotonic() + READY_S
        for dispatcher in dispatchers:
            while ray.get(dispatcher.applied.remote()) < replayed:
                if time.monotonic() > deadline:
                    raise Unavailable(f"the ledger was not replayed within {READY_S:.0f} s")
                time.sleep(0.02)
        calls = [
            d.serve.remote(settings.host, port, settings.security)
            for d, port in zip(dispatchers, ports(settings), strict=True)
        ]
        try:
            self.targets = [f"{settings.host}:{port}" for port in ray.get(calls)]
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None

    def _actors_of(self, settings: Settings, topology: Topology) -> tuple[list[Any], int]:
        ray = self._ray
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )

        def remote(shell: type, address: Address, *args: object) -> Any:
            name = f"{address.role}-{address.index}"
            made = ray.remote(shell).options(
                name=name,
                namespace=NAMESPACE,
                num_cpus=0,
                scheduling_strategy=here,
                max_task_retries=0,
                enable_task_events=False,
            )
            self._actors[address] = made.remote(name, *args)
            return self._actors[address]

        for address in topology.addresses():
            if address.role == "sequencer":
                remote(SequencerShell, address, settings.data_dir, topology)
            elif address.role == "dispatcher":
                remote(DispatcherShell, address, address.index, topology)
            else:
                remote(MachineShell, address, address, topology)
        try:
            bound = ray.get([a.bind.remote(self._sockets) for a in self._actors.values()])
            endpoints = dict(zip(self._actors, bound, strict=True))
            ray.get([a.connect.remote(endpoints) for a in self._actors.values()])
            replayed = max(ray.get([a.start.remote() for a in self._actors.values()]))
        except ray.exceptions.RayActorError as error:
            raise Unavailable(f"an actor did not start: {error}") from error
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        return [a for k, a in self._actors.items() if k.role == "dispatcher"], int(replayed)


def ports(settings: Settings) -> list[int]:
    """Consecutive ports, or 0 (any free one) for each dispatcher."""
    return [settings.port + i if settings.port else 0 for i in range(settings.dispatchers)]
