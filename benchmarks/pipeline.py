"""`ps2stream bench pipeline`: the whole service, gRPC in and gRPC out, and print JSON.

Three phases on one service: load the queries; *saturated*, in which publisher and updater send as
fast as they are answered; *half load*, open loop at half the rate that was reached, or at a given
rate: a batch's latency counts from the moment it was meant to be sent, whether the sender was
late or not, to the arrival of each delivery of its objects. Publisher and subscriber are
processes of their own, so that their CPU time is counted separately. Objects, inserts and deletes
come 10 : 1 : 1, all as Arrow or bulk batches, through the public API.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ps2stream.benchmarks import workload
from ps2stream.benchmarks.publisher import PublisherJob, PublishInterval, publish
from ps2stream.benchmarks.subscriber import DeliveryReceipt, subscribe
from ps2stream.benchmarks.verified import verified
from ps2stream.cluster.private_folder import PrivateFolder
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings, default_workers
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.routing.plan import built_in_plan

SAMPLE_EVERY = 20_011  # offsets; each sampled object is checked against brute force
SETTLE_S = 60.0


def run_pipeline(
    queries: int = 1_000_000,
    group: str = "q1",
    source: str = "synthetic",
    mo: float | None = None,
    seconds: float = 10.0,
    batch: int = 1024,
    rate: float | None = None,
    seed: int = 1,
    workers: int | None = None,
    mergers: int = 1,
    max_in_flight: int = 16,
    runtime: str = "ray",
    level: str = "durable",
) -> dict[str, Any]:
    """Returns the measured figures, JSON-able. `rate`: tuples per second of the latency phase.
    `mo` scales the squares' sides so that the sample of the engine benchmark gives about that
    many matches per object."""
    analysis = Analysis(salt=seed)
    analyzer = Analyzer(analysis)
    updates = min(int(seconds * 60_000), 600_000)
    load = workload.make(source, group, queries, updates, batch * 100, seed, analyzer)
    if mo is not None:
        from ps2stream.benchmarks.engine import tune_workload

        load, _ = tune_workload(
            load, mo, analyzer, analyzer.analyse(load.posts.text_off, load.posts.text)
        )
    with PrivateFolder() as folder:
        settings = Settings(
            port=0,
            data_dir=folder.path / "data",
            mergers=mergers,
            max_in_flight=max_in_flight,
            session_quota=1 << 30,
            runtime=runtime,
            workers=default_workers() if workers is None else workers,
        )
        plan = built_in_plan(
            analysis, load.grid, settings.workers, (load.posts.lon, load.posts.lat), load.counts
        )
        with start(settings, plan) as service:
            found = _PipelineRun(service, load, batch, rate, seconds, seed, level).measure()
    return {
        "benchmark": "pipeline",
        "settings": {
            "queries": queries,
            "group": group,
            "workload": source,
            "batch": batch,
            "seconds": seconds,
            "seed": seed,
            "workers": settings.workers,
            "mergers": mergers,
            "dispatchers": 1,
            "max_in_flight": max_in_flight,
            "runtime": runtime,
            "level": level,
            "cores": os.cpu_count(),
        },
        **found,
    }


@dataclasses.dataclass
class _PipelineRun:
    service: RunningService
    load: workload.Workload
    batch: int
    rate: float | None
    seconds: float
    seed: int
    level: str

    def measure(self) -> dict[str, Any]:
        context = multiprocessing.get_context("spawn")
        publisher, publisher_end = context.Pipe()
        subscriber, subscriber_end = context.Pipe()
        target = self.service.targets[0]
        job = PublisherJob(
            target, self.load.posts, self.load.expressions(), self.load.interests.rect,
            self.load.interests.death, self.load.start, self.batch, self.level,
        )  # fmt: skip
        processes = [
            context.Process(target=subscribe, args=(target, "bench", subscriber_end, SAMPLE_EVERY)),
            context.Process(target=publish, args=(job, publisher_end)),
        ]
        for process in processes:
            process.start()
        try:
            subscriber.recv()
            loaded: PublishInterval = publisher.recv()
            before = self._read_cpu()
            publisher.send((self.seconds, None, self.batch))
            full: PublishInterval = publisher.recv()
            full_receipt = self._collect_receipt(subscriber, full)
            after = self._read_cpu()
            rate = full.tuples / full_receipt.span(full.began)
            publisher.send((self.seconds, self.rate or rate / 2, self.batch))
            half: PublishInterval = publisher.recv()
            half_receipt = self._collect_receipt(subscriber, half)
            publisher.send(None)
            subscriber.send(None)
        finally:
            for process in processes:
                process.join(5)
                process.terminate()
        latency = half_receipt.latency(half)
        return {
            "load": {"inserts_per_second": self.load.start / loaded.elapsed},
            "saturated": {
                "tuples_per_second": rate,
                "objects": full.objects,
                "inserts": full.inserts,
                "deletes": full.deletes,
                "matches_per_object": full_receipt.pairs / max(full.objects, 1),
                "cpu_us_per_tuple": {
                    name: (after[name] - before[name]) / full.tuples * 1e6 for name in after
                }
                | {
                    "publisher": full.cpu / full.tuples * 1e6,
                    "subscriber": full_receipt.cpu / full.tuples * 1e6,
                },
            },
            "half_load": {
                "tuples_per_second": half.tuples / half.elapsed,
                "matches_per_object": half_receipt.pairs / max(half.objects, 1),
                "latency_ms": {
                    f"p{p:g}": float(np.percentile(latency, p)) for p in (50, 90, 99, 99.9)
                }
                if len(latency)
                else {},
            },
            "gaps": full_receipt.gaps + half_receipt.gaps,
            "verified": verified(
                self.load, [full, half], [full_receipt, half_receipt], SAMPLE_EVERY
            ),
        }

    def _collect_receipt(self, subscriber: Any, interval: PublishInterval) -> DeliveryReceipt:
        """Waits until every batch is complete, then returns what the subscriber received."""
        deadline = time.monotonic() + SETTLE_S
        while self.service.status()["dispatcher-0"]["in_flight"] and time.monotonic() < deadline:
            time.sleep(0.005)
        subscriber.send(interval.first_offset)
        receipt: DeliveryReceipt = subscriber.recv()
        return receipt

    def _read_cpu(self) -> dict[str, float]:
        """Returns the CPU seconds so far of each actor, and of Ray's own daemons together."""
        spent = {
            name: status["cpu_seconds"]
            for name, status in self.service.status().items()
            if "cpu_seconds" in status
        }
        return spent | {"ray_daemons": _read_daemons_cpu()}


def _read_daemons_cpu() -> float:
    """Returns the CPU seconds of raylet and gcs_server among the children of this process."""
    tick = os.sysconf("SC_CLK_TCK")
    total = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        name = text[text.index("(") + 1 : text.rindex(")")]
        fields = text[text.rindex(")") + 2 :].split()
        if name in ("raylet", "gcs_server") and int(fields[1]) == os.getpid():
            total += (int(fields[11]) + int(fields[12])) / tick
    return total


def summary(found: Mapping[str, Any]) -> str:
    """Returns the measurement as one line of text."""
    full, half = found["saturated"], found["half_load"]
    latency = half["latency_ms"]
    return (
        f"{full['tuples_per_second']:,.0f} tuples/s at {full['matches_per_object']:.1f} m/o; "
        f"at half load p50 {latency.get('p50', float('nan')):.1f} ms, "
        f"p99 {latency.get('p99', float('nan')):.1f} ms; "
        f"verified {found['verified']['sampled']}, wrong {found['verified']['wrong']}"
    )
