"""`python -m tests.hosts bench`: the pipeline benchmark on services of one host and of several.

The clients, each a process, are outside of the hosts, and PostgreSQL has a host of its own. The
first host has the dispatcher, the sequencer and the controller, the last one the merger, and the
workers share all but the first. Beside the clusters, the same workload over a data directory.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ps2stream.benchmarks import workload
from ps2stream.benchmarks.pipeline_run import PipelineRun
from ps2stream.benchmarks.service_access import ServiceAccess
from ps2stream.benchmarks.tuning import tune_workload
from ps2stream.client.client import Client
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.routing.plan import built_in_plan
from ps2stream.routing.plan_file import save_plan
from tests.chaos.run import Say
from tests.hosts.cluster import Hosts, Shape
from tests.hosts.counters import (
    CLIENTS,
    POSTGRES,
    RAY,
    Reading,
    bytes_between,
    cpu_between,
    read_counters,
)
from tests.hosts.net import Net, made
from tests.support.postgres_server import Server, server

SEED = 1
BATCH = 1024
OPTIONS = (f"--session-quota={1 << 30}", "--max-in-flight=16")
ROLES = ("dispatcher", "worker", "merger", "sequencer", POSTGRES, RAY, CLIENTS)
"""The columns of CPU time; what others take is with Ray's."""
COLUMNS = (
    "hosts", "workers", "objects/s", "matches/s", "p50, p99 ms",
    *(f"{role}, us" for role in ROLES), "wire, B", "WAL, B",
)  # fmt: skip


class SetUp(NamedTuple):
    """What is measured: a service of some hosts, 0 for one over a data directory, and workers."""

    hosts: int
    workers: int

    def roles(self) -> list[str]:
        """Returns what each host offers, as `--roles` takes it."""
        offers = [["dispatcher", "sequencer", "controller"], *([] for _ in range(self.hosts - 1))]
        offers[-1].append("merger")
        homes = offers[1:] or offers
        for i, home in enumerate(homes):
            if share := len(range(i, self.workers, len(homes))):
                home.append(f"worker={share}")
        return [",".join(offer) or "none" for offer in offers]


class MeasuredHosts:
    """The service as what is measured. Each reading of CPU times is kept, with what else was read
    at that moment."""

    def __init__(self, hosts: Hosts, postgres: Server | None) -> None:
        self._hosts, self._postgres = hosts, postgres
        self.readings: list[Reading] = []
        target = f"{hosts.first.address}:{hosts.port}"
        self.access = ServiceAccess(target, hosts.access["token"], hosts.access["tls_ca"])
        self._client = Client(target, timeout=30, **hosts.access)

    def close(self) -> None:
        self._client.close()

    def is_idle(self) -> bool:
        return not self._client.status()["in_flight"]

    def read_cpu(self) -> Mapping[str, float]:
        self.readings.append(read_counters(self._hosts, self._postgres))
        return self.readings[-1].cpu_s


class HostsBenchmark:
    """Set-ups, measured one after the other under the same load, each by a service of its own."""

    def __init__(self, queries: int, mo: float | None, seconds: float, say: Say) -> None:
        self.seconds = seconds
        self._say = say
        self._analysis = Analysis(salt=SEED)
        analyzer = Analyzer(self._analysis)
        updates = min(int(seconds * 60_000), 600_000)
        load = workload.make("synthetic", "q1", queries, updates, BATCH * 100, SEED, analyzer)
        if mo is not None:
            objects = analyzer.analyse(load.posts.text_off, load.posts.text)
            load, _ = tune_workload(load, mo, analyzer, objects)
        self._load = load

    def measure(self, net: Net, postgres: Server, setup: SetUp, name: str) -> dict[str, Any]:
        """Returns the figures of a service of its own; `name`: of its schema."""
        load, folder = self._load, Path(tempfile.mkdtemp(prefix="hosts-", dir="/tmp"))
        places = load.posts.lon, load.posts.lat
        plan = built_in_plan(self._analysis, load.grid, setup.workers, places, load.counts)
        save_plan(plan, folder / "plan.json")
        storage = [f"--data-dir={folder / 'data'}"]
        if setup.hosts:
            storage = [f"--database-url={postgres.network_url}", f"--database-schema={name}"]
        options = [f"--plan={folder / 'plan.json'}", *OPTIONS]
        with contextlib.ExitStack() as ending:
            ending.callback(shutil.rmtree, folder, ignore_errors=True)
            hosts = ending.enter_context(
                Hosts(
                    net, storage, folder, Shape(setup.workers), options,
                    setup.roles() if setup.hosts else (), max(setup.hosts, 1), setup.hosts > 0,
                )
            )  # fmt: skip
            hosts.start()
            self._say(f"{setup} is ready")
            measured = MeasuredHosts(hosts, postgres if setup.hosts else None)
            ending.callback(measured.close)
            run = PipelineRun(measured, load, BATCH, None, self.seconds, "durable")
            found = run.measure()
            before, after = measured.readings
            placed = [Counter(machine.shells().values()) for machine in hosts.machines]
            hosts.stop()
        full = found["saturated"]
        tuples = full["objects"] + full["inserts"] + full["deletes"]
        objects_per_second = full["tuples_per_second"] * full["objects"] / tuples
        cpu_us = {k: v / tuples * 1e6 for k, v in cpu_between(before, after).items()}
        mine = full["cpu_us_per_tuple"]
        sent = bytes_between(before.traffics, after.traffics)
        found["setup"] = setup._asdict() | {"actors": placed}
        found["summary"] = {
            "objects_per_second": objects_per_second,
            "matches_per_second": objects_per_second * full["matches_per_object"],
            "cpu_us_per_tuple": cpu_us | {CLIENTS: mine["publisher"] + mine["subscriber"]},
            "wire_bytes_per_tuple": (after.wire - before.wire) / tuples,
            "payload_bytes_per_tuple": {k: v / tuples for k, v in sorted(sent.items())},
            "wal_bytes_per_tuple": (after.wal - before.wal) / tuples,
        }
        return found


def run_hosts(
    setups: Sequence[SetUp],
    queries: int,
    mo: float | None,
    seconds: float,
    programs: Path,
    say: Say,
) -> dict[str, Any]:
    """Returns the figures of all set-ups. `programs`: those of PostgreSQL."""
    benchmark = HostsBenchmark(queries, mo, seconds, say)
    count = max(*(setup.hosts for setup in setups), 1)
    with made(count + 1) as net, server(programs, net.hosts[-1], net.within(count)) as postgres:
        runs = [
            benchmark.measure(net, postgres, setup, f"bench{i}") for i, setup in enumerate(setups)
        ]
        separate = net.separate
    return {
        "benchmark": "hosts",
        "held": not any(run["verified"]["wrong"] or run["gaps"] for run in runs),
        "settings": {
            "queries": queries, "mo": mo, "seconds": seconds, "batch": BATCH, "level": "durable",
            "separate": separate, "cores": os.cpu_count(),
        },
        "runs": runs,
    }  # fmt: skip


def write_table(found: Mapping[str, Any]) -> str:
    """Returns the figures as a table in Markdown, those of CPU and bytes for each tuple."""
    rows = [COLUMNS, tuple("---" for _ in COLUMNS)]
    for run in found["runs"]:
        setup, summary = run["setup"], run["summary"]
        cpu_us = Counter(summary["cpu_us_per_tuple"])
        cpu_us[RAY] = sum(s for role, s in cpu_us.items() if role not in ROLES or role == RAY)
        latency = run["half_load"]["latency_ms"]
        rows.append((
            str(setup["hosts"] or "data directory"),
            str(setup["workers"]),
            f"{summary['objects_per_second'] / 1e3:.0f}k",
            f"{summary['matches_per_second'] / 1e3:.0f}k",
            f"{latency['p50']:.0f}, {latency['p99']:.0f}" if latency else "-",
            *(f"{cpu_us[role]:.1f}" for role in ROLES),
            f"{summary['wire_bytes_per_tuple']:.0f}",
            f"{summary['wal_bytes_per_tuple']:.0f}",
        ))  # fmt: skip
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
