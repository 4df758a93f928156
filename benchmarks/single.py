"""`ps2stream bench single`: one object at a time, published to a service that has nothing to do.

Between two objects the service is idle, and an fsync of the same file system is measured: both
see the same disk and the same other load. Publisher and subscriber are this process, with the
public client.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from ps2stream.benchmarks.publisher import BenchmarkPublisher, PublisherJob
from ps2stream.benchmarks.service_access import ServiceAccess
from ps2stream.benchmarks.workload import Workload, make
from ps2stream.client.client import Client
from ps2stream.client.subscription import Subscription
from ps2stream.cluster.private_folder import PrivateFolder
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings, default_workers
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.protocol.frame import column_to_strings
from ps2stream.routing.plan import built_in_plan
from ps2stream.space.regions import Rect

WORD = "ps2streamsingle"
"""A word that no other query has."""
WARM = 20
"""Objects that are published before those that are measured."""
SYNCED_BYTES = 512
"""Bytes that are written before each fsync, about as many as an object takes in a log."""
PATIENCE_S = 30.0


def run_single(
    queries: int = 100_000,
    group: str = "q1",
    workload: str = "synthetic",
    seed: int = 1,
    times: int = 200,
    pause_s: float = 0.05,
    workers: int | None = None,
    runtime: str = "ray",
    directory: str | None = None,
) -> dict[str, Any]:
    """Publishes `times` objects, one after the other; returns the measured figures, JSON-able.
    `directory` holds the data of the service."""
    analysis = Analysis(salt=seed)
    load = make(workload, group, queries, 1, max(times + WARM, 1024), seed, Analyzer(analysis))
    count = default_workers() if workers is None else workers
    places = load.posts.lon, load.posts.lat
    plan = built_in_plan(analysis, load.grid, count, places, load.counts)
    with PrivateFolder(None if directory is None else Path(directory)) as folder:
        settings = Settings(port=0, data_dir=folder.path / "data", workers=count, runtime=runtime)
        with start(settings, plan) as service:
            _insert_queries(service.targets[0], load)
            found = _publish_objects(service, load, times, pause_s, folder.path)
    return {
        "benchmark": "single",
        "settings": {
            "queries": queries,
            "group": group,
            "workload": workload,
            "seed": seed,
            "times": times,
            "pause_s": pause_s,
            "workers": count,
            "runtime": runtime,
            "level": "durable",
            "cores": os.cpu_count(),
        },
        **found,
    }


@dataclasses.dataclass
class DeliveryTimes:
    """The arrivals of deliveries by the id of the object, monotonic s."""

    at: dict[str, list[float]] = dataclasses.field(default_factory=lambda: defaultdict(list))
    changed: threading.Condition = dataclasses.field(default_factory=threading.Condition)

    def receive(self, matches: Subscription) -> None:
        """Notes each match until the subscription ends."""
        for match in matches:
            now = time.monotonic()
            with self.changed:
                self.at[match.object_id].append(now)
                self.changed.notify()

    def await_object(self, name: str) -> bool:
        """Waits for the delivery of this object; returns False if it does not come."""
        with self.changed:
            return self.changed.wait_for(lambda: bool(self.at.get(name)), PATIENCE_S)


def _insert_queries(target: str, load: Workload) -> None:
    """Inserts the queries of the workload, and the one that all published objects match."""
    job = PublisherJob(
        ServiceAccess(target), load.posts, load.expressions(), load.interests.rect,
        load.interests.death, load.start, 1024, "durable",
    )  # fmt: skip
    with job.access.open_channel() as channel:
        publisher = BenchmarkPublisher(job, channel)
        publisher.insert_first()
        publisher.close()
    lon, lat = float(load.posts.lon[0]), float(load.posts.lat[0])
    with Client(target, timeout=60) as client:
        around = Rect(lon - 0.1, lat - 0.1, lon + 0.1, lat + 0.1)
        client.insert("single", WORD, around, session="single")


def _publish_objects(
    service: RunningService, load: Workload, times: int, pause_s: float, folder: Path
) -> dict[str, Any]:
    """Publishes one object after the other; returns what was measured."""
    lon, lat = float(load.posts.lon[0]), float(load.posts.lat[0])
    texts = column_to_strings(load.posts.text_off, load.posts.text)[: WARM + times]
    arrivals = DeliveryTimes()
    begun, answered, synced = np.zeros(len(texts)), np.zeros(len(texts)), np.zeros(len(texts))
    target = service.targets[0]
    with (
        Client(target, timeout=60) as client,
        Client(target, timeout=60) as other,
        other.subscribe("single") as matches,
        (folder / "synced").open("wb", buffering=0) as file,
    ):
        receiver = threading.Thread(target=arrivals.receive, args=(matches,), daemon=True)
        receiver.start()
        before = 0
        for i, text in enumerate(texts):
            if i == WARM:
                before = _count_matches(service)
            synced[i] = _time_fsync(file.fileno())
            time.sleep(pause_s)
            post = {"id": str(i), "lon": lon, "lat": lat, "text": f"{text} {WORD}"}
            begun[i] = time.monotonic()
            client.publish([post], level="durable")
            answered[i] = time.monotonic()
            arrivals.await_object(str(i))
        matched = _count_matches(service) - before
    missing = sum(not arrivals.at.get(str(i)) for i in range(len(texts)))
    doubled = sum(len(at) > 1 for at in arrivals.at.values())
    late = [
        (arrivals.at[str(i)][0] - begun[i]) * 1e3
        for i in range(WARM, len(texts))
        if arrivals.at.get(str(i))
    ]
    delivery, fsync = _list_percentiles(late), _list_percentiles(synced[WARM:] * 1e3)
    return {
        "matches_per_object": matched / times,
        "delivery_ms": delivery,
        "answer_ms": _list_percentiles((answered - begun)[WARM:] * 1e3),
        "fsync_ms": fsync,
        "beyond_fsync_ms": {name: value - fsync["p50"] for name, value in delivery.items()},
        "verified": {"objects": len(texts), "wrong": missing + doubled},
    }


def _time_fsync(file: int) -> float:
    """Appends to a file and syncs it; returns the seconds that this took."""
    begun = time.monotonic()
    os.write(file, bytes(SYNCED_BYTES))
    os.fsync(file)
    return time.monotonic() - begun


def _count_matches(service: RunningService) -> int:
    """Returns the matches that the workers have found so far."""
    status = service.status()
    return sum(status[name]["matches"] for name in status if name.startswith("worker-"))


def _list_percentiles(values: Any) -> dict[str, float]:
    if not len(values):
        return {}
    return {f"p{p}": float(np.percentile(values, p)) for p in (50, 90, 99)}
