"""Real runs of the whole service on this machine: what it took for a tuple, by role."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ps2stream.benchmarks.pipeline_run import PipelineRun
from ps2stream.benchmarks.publisher import PublisherJob, make_publish_request
from ps2stream.benchmarks.service_access import ServiceAccess
from ps2stream.benchmarks.workload import Workload
from ps2stream.cluster.private_folder import PrivateFolder
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.experiments.scaling.actors import IN_FLIGHT
from ps2stream.experiments.scaling.flows import UPDATES_PER_OBJECT
from ps2stream.experiments.scaling.kinds import ROLES
from ps2stream.protocol.frame import F64, column_to_strings
from ps2stream.routing.plan import RoutingPlan

_SUMS = "cpu_seconds", "sent_frames", "sent_bytes"


WARM_S = 3.0
"""Seconds at full load before those that count: processes load code when they first need it."""
IDLE_S = 4.0
"""Seconds in which the service does nothing, to see what its processes take for that."""


class RealRun(NamedTuple):
    """A run with so many workers. cpu_us: of a tuple by role, clients too; objects: of a batch;
    messages: between actors, of a batch of objects with all that flows beside it; bytes: the same
    for a tuple; pairs, updates: of an object; latency_ms: at half of the rate; loadavg: how many
    processes the machine had to run; idle: cores that all processes of a role take together while
    nothing comes: ticks, leases, Ray's own threads. They take that under load as well, however
    slowly it goes, so cpu_us, messages and bytes are what was spent beyond it."""

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
    idle: Mapping[str, float] = dict.fromkeys(ROLES, 0.0)


class _Spent(NamedTuple):
    """What a service spent in some seconds, by role: float64[3] of _SUMS."""

    seconds: float
    by_role: Mapping[str, F64]

    def without(self, rest: _Spent) -> dict[str, F64]:
        """Returns what was spent beyond what `rest` spent in as many seconds."""
        times = self.seconds / rest.seconds
        return {role: self.by_role[role] - times * rest.by_role[role] for role in ROLES}


class _CountedService:
    """A service as what is measured; each reading is kept with the counters of that moment."""

    def __init__(self, service: RunningService) -> None:
        self._service = service
        self.readings: list[dict[str, Any]] = []
        self.times: list[float] = []

    @property
    def access(self) -> ServiceAccess:
        return ServiceAccess(self._service.targets[0])

    def is_idle(self) -> bool:
        return not self._service.status()["dispatcher-0"]["in_flight"]

    def read_cpu(self) -> dict[str, float]:
        found = self._service.status()
        self.times.append(time.monotonic())
        self.readings.append(found)
        return {name: of["cpu_seconds"] for name, of in found.items() if "cpu_seconds" in of}

    def spend(self, first: int) -> _Spent:
        """Returns what the service spent from this reading to the next."""
        before, after = (_sum_by_role(reading) for reading in self.readings[first : first + 2])
        spent = {role: np.subtract(after[role], before[role]) for role in ROLES}
        return _Spent(self.times[first + 1] - self.times[first], spent)


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
            counted.read_cpu()
            time.sleep(IDLE_S)
            counted.read_cpu()
    full = found["saturated"]
    tuples = full["objects"] + full["inserts"] + full["deletes"]
    rest = counted.spend(2)
    spent = counted.spend(0).without(rest)
    cpu = {role: 1e6 * float(spent[role][0]) / tuples for role in ROLES}
    batches = _count(counted.readings[:2], "dispatcher-0", "batches")
    return RealRun(
        plan.workers,
        cpu | {name: full["cpu_us_per_tuple"][name] for name in ("publisher", "subscriber")},
        full["objects"] / batches,
        {role: float(spent[role][1]) / batches for role in ROLES},
        float(sum(spent[role][2] for role in ROLES)) / tuples,
        full["matches_per_object"], full["tuples_per_second"],
        found["half_load"]["latency_ms"], max(before, os.getloadavg()[0]),
        sum(int(found["verified"][key]) for key in ("wrong", "lost", "doubled")) + found["gaps"],
        tuples / full["objects"] - 1,
        {role: float(rest.by_role[role][0]) / rest.seconds for role in ROLES},
    )  # fmt: skip


def count_request_bytes(load: Workload, batch: int) -> int:
    """Returns the bytes of a publication of so many posts, as the publisher of a run sends it."""
    job = PublisherJob(
        ServiceAccess(""), load.posts, [], load.interests.rect, load.interests.death, 0, batch,
        "durable",
    )  # fmt: skip
    texts = pa.array(column_to_strings(load.posts.text_off, load.posts.text))
    return make_publish_request(job, texts, 0, batch).ByteSize()


def _sum_by_role(status: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[float, ...]]:
    """Returns CPU seconds, messages and bytes sent so far by role."""
    out = {}
    for role in ROLES:
        mine = [of for name, of in status.items() if name == role or name.startswith(f"{role}-")]
        out[role] = tuple(sum(float(of.get(key, 0)) for of in mine) for key in _SUMS)
    return out


def _count(readings: list[dict[str, Any]], actor: str, key: str) -> float:
    return float(max(readings[1][actor][key] - readings[0][actor][key], 1))
