"""The two measured phases of the pipeline benchmark, with its publisher and subscriber."""

from __future__ import annotations

import dataclasses
import multiprocessing
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np

from ps2stream.benchmarks.publisher import SESSION, PublisherJob, PublishInterval, publish
from ps2stream.benchmarks.service_access import ServiceAccess
from ps2stream.benchmarks.subscriber import DeliveryReceipt, subscribe
from ps2stream.benchmarks.verified import verified
from ps2stream.benchmarks.workload import Workload

SAMPLE_EVERY = 20_011  # offsets; each sampled object is checked against brute force
SETTLE_S = 60.0
QUIET_S = 1.0  # without a delivery, after which all have arrived
SERVER_CPU = "server_cpu_us_per_tuple"


class MeasuredService(Protocol):
    """A service under measurement."""

    @property
    def access(self) -> ServiceAccess:
        """How publisher and subscriber reach it."""
        ...

    def is_idle(self) -> bool:
        """Returns whether every batch that it accepted is complete."""
        ...

    def read_cpu(self) -> Mapping[str, float]:
        """Returns the CPU seconds so far of each part of the service."""
        ...


@contextmanager
def start_clients(job: PublisherJob, every: int) -> Iterator[tuple[Connection, Connection]]:
    """Starts publisher and subscriber; yields the pipes to them once the subscriber has a stream.
    The first message from the publisher is that all queries are inserted."""
    context = multiprocessing.get_context("spawn")
    publisher, publisher_end = context.Pipe()
    subscriber, subscriber_end = context.Pipe()
    processes = [
        context.Process(target=subscribe, args=(job.access, SESSION, subscriber_end, every)),
        context.Process(target=publish, args=(job, publisher_end)),
    ]
    for process in processes:
        process.start()
    try:
        subscriber.recv()
        yield publisher, subscriber
        publisher.send(None)
        subscriber.send(None)
    finally:
        for process in processes:
            process.join(5)
            process.terminate()


@dataclasses.dataclass
class PipelineRun:
    """One run of load, saturated and half load on a service. rate: tuples per second of the last
    phase; None: half of what was reached. warm_s: seconds at full load that are not measured,
    before all others."""

    service: MeasuredService
    load: Workload
    batch: int
    rate: float | None
    seconds: float
    level: str
    warm_s: float = 0.0

    def measure(self) -> dict[str, Any]:
        """Returns the figures, JSON-able."""
        load = self.load
        job = PublisherJob(
            self.service.access, load.posts, load.expressions(), load.interests.rect,
            load.interests.death, load.start, self.batch, self.level,
        )  # fmt: skip
        with start_clients(job, SAMPLE_EVERY) as (publisher, subscriber):
            loaded: PublishInterval = publisher.recv()
            if self.warm_s:
                publisher.send((self.warm_s, None, self.batch))
                self._collect_receipt(subscriber, publisher.recv())
            before = self.service.read_cpu()
            publisher.send((self.seconds, None, self.batch))
            full: PublishInterval = publisher.recv()
            full_receipt = self._collect_receipt(subscriber, full)
            after = self.service.read_cpu()
            rate = full.tuples / full_receipt.span(full.began)
            publisher.send((self.seconds, self.rate or rate / 2, self.batch))
            half: PublishInterval = publisher.recv()
            half_receipt = self._collect_receipt(subscriber, half)
        latency = half_receipt.latency(half)
        server = {name: (after[name] - before[name]) / full.tuples * 1e6 for name in after}
        return {
            "load": {"inserts_per_second": load.start / loaded.elapsed},
            "saturated": {
                "tuples_per_second": rate,
                "objects": full.objects,
                "inserts": full.inserts,
                "deletes": full.deletes,
                "matches_per_object": full_receipt.pairs / max(full.objects, 1),
                SERVER_CPU: sum(server.values()),
                "cpu_us_per_tuple": server
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
            "verified": verified(load, [full, half], [full_receipt, half_receipt], SAMPLE_EVERY),
        }

    def _collect_receipt(
        self, subscriber: Connection, interval: PublishInterval
    ) -> DeliveryReceipt:
        """Waits until every batch is complete and no more of its matches arrive, which a session
        may read from its backlog; then returns what the subscriber received."""
        deadline = time.monotonic() + SETTLE_S
        while not self.service.is_idle() and time.monotonic() < deadline:
            time.sleep(0.005)
        receipt = DeliveryReceipt()
        while True:
            subscriber.send(interval.first_offset)
            later: DeliveryReceipt = subscriber.recv()
            receipt.add(later)
            if not later.pairs or time.monotonic() > deadline:
                return receipt
            time.sleep(QUIET_S)
