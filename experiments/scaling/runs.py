"""Real runs of the whole service on this machine: what it took for a tuple, by role."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from ps2stream.benchmarks.pipeline_run import PipelineRun
from ps2stream.benchmarks.service_access import ServiceAccess
from ps2stream.benchmarks.workload import Workload
from ps2stream.cluster.private_folder import PrivateFolder
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.experiments.scaling.actors import IN_FLIGHT
from ps2stream.experiments.scaling.flows import UPDATES_PER_OBJECT
from ps2stream.experiments.scaling.kinds import ROLES
from ps2stream.routing.plan import RoutingPlan

_SUMS = "cpu_seconds", "sent_frames", "sent_bytes"


WARM_S = 3.0
"""Seconds at full load before those that count: processes load code when they first need it."""


class RealRun(NamedTuple):
    """A run with so many workers. cpu_us: of a tuple by role, clients too; objects: of a batch;
    messages: between actors, of a batch of objects with all that flows beside it; bytes: the same
    for a tuple; pairs, updates: of an object; latency_ms: at half of the rate;
    loadavg: how many processes the machine had to run."""

    workers: int
    cpu_us: Mapping[str, float]
    objects: float
    messages: Mapping[str, float]
    bytes: float
    pairs: float
    tuples_per_second: float
    latency_ms: Mapping[str, float]
    loadavg: float
    wrong: int
    updates: float = UPDATES_PER_OBJECT


class _CountedService:
    """A service as what is measured; each reading is kept with the counters of that moment."""

    def __init__(self, service: RunningService) -> None:
        self._service = service
        self.readings: list[dict[str, Any]] = []

    @property
    def access(self) -> ServiceAccess:
        return ServiceAccess(self._service.targets[0])

    def is_idle(self) -> bool:
        return not self._service.status()["dispatcher-0"]["in_flight"]

    def read_cpu(self) -> dict[str, float]:
        found = self._service.status()
        self.readings.append(found)
        return {name: of["cpu_seconds"] for name, of in found.items() if "cpu_seconds" in of}


def run_service(
    load: Workload, plan: RoutingPlan, seconds: float, batch: int, runtime: str = "ray"
) -> RealRun:
    """Returns what a service of one dispatcher, one merger and the workers of the plan took under
    this load, as fast as it goes; latency is from a run at half of that."""
    with PrivateFolder() as folder:
        settings = Settings(
            port=0, data_dir=folder.path / "data", max_in_flight=IN_FLIGHT,
            session_quota=1 << 30, runtime=runtime, workers=plan.workers,
        )  # fmt: skip
        with start(settings, plan) as service:
            counted = _CountedService(service)
            before = os.getloadavg()[0]
            run = PipelineRun(counted, load, batch, None, seconds, "durable", WARM_S)
            found = run.measure()
    full = found["saturated"]
    tuples = full["objects"] + full["inserts"] + full["deletes"]
    spent = [_sum_by_role(reading) for reading in counted.readings[:2]]
    cpu = {role: (spent[1][role][0] - spent[0][role][0]) * 1e6 / tuples for role in ROLES}
    batches = _count(counted.readings[:2], "dispatcher-0", "batches")
    sent = {role: spent[1][role][1] - spent[0][role][1] for role in ROLES}
    return RealRun(
        plan.workers,
        cpu | {name: full["cpu_us_per_tuple"][name] for name in ("publisher", "subscriber")},
        full["objects"] / batches,
        {role: count / batches for role, count in sent.items()},
        sum(spent[1][role][2] - spent[0][role][2] for role in ROLES) / tuples,
        full["matches_per_object"], full["tuples_per_second"],
        found["half_load"]["latency_ms"], max(before, os.getloadavg()[0]),
        sum(int(found["verified"][key]) for key in ("wrong", "lost", "doubled")) + found["gaps"],
        tuples / full["objects"] - 1,
    )  # fmt: skip


def _sum_by_role(status: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[float, ...]]:
    """Returns CPU seconds, messages and bytes sent so far by role."""
    out = {}
    for role in ROLES:
        mine = [of for name, of in status.items() if name == role or name.startswith(f"{role}-")]
        out[role] = tuple(sum(float(of.get(key, 0)) for of in mine) for key in _SUMS)
    return out


def _count(readings: list[dict[str, Any]], actor: str, key: str) -> float:
    return float(max(readings[1][actor][key] - readings[0][actor][key], 1))
