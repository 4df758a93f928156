"""`ps2stream bench overload`: ten times as much as the service can take.

The peak, what the service can take, is measured first, with publishers that send as fast as they
are answered. Then they offer ten times that by the clock, over streams and again in calls. One
object in each batch matches a session of its own, whose deliveries show which accepted batches
came through, and how often. Meanwhile deletes are sent by the clock, and another session has a
window of one batch, so that it waits for each of its acknowledgements.
"""

from __future__ import annotations

import dataclasses
import functools
import multiprocessing
import os
import threading
import time
from collections import Counter
from typing import Any

import grpc
import numpy as np
import pyarrow as pa

from ps2stream.benchmarks import memory, workload
from ps2stream.benchmarks.flood import FloodOutcome, flood
from ps2stream.benchmarks.publisher import SESSION, BenchmarkPublisher, PublisherJob
from ps2stream.benchmarks.service_access import ServiceAccess
from ps2stream.benchmarks.subscriber import subscribe
from ps2stream.benchmarks.taker import OPTIONS, EagerSubscriber
from ps2stream.cluster.private_folder import PrivateFolder
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings, default_workers
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.protocol.arrow_ipc import to_ipc
from ps2stream.protocol.frame import column_to_strings
from ps2stream.routing.plan import built_in_plan
from ps2stream.v1 import object_pb2, pubsub_pb2, pubsub_pb2_grpc, query_pb2

MARK = "zzmark"
BATCHES = 50  # different batches, sent over and over
DELETE_EVERY_S = 0.1
SETTLE_S = 120.0
PACED_STREAMS = 2


def run_overload(
    queries: int = 100_000,
    seconds: float = 10.0,
    batch: int = 1024,
    times: float = 10.0,
    streams: int = 64,
    levels: tuple[str, ...] = ("durable", "none"),
    max_in_flight: int = 64,
    seed: int = 1,
    runtime: str = "ray",
) -> dict[str, Any]:
    """Returns the measured figures, JSON-able. `times`: the multiple of the peak that is offered,
    over `streams` streams."""
    options = dict(locals())
    analysis = Analysis(salt=seed)
    load = workload.make("synthetic", "q1", queries, 0, batch * BATCHES, seed, Analyzer(analysis))
    with PrivateFolder() as folder:
        settings = Settings(
            port=0,
            data_dir=folder.path / "data",
            max_in_flight=max_in_flight,
            session_quota=1 << 30,
            runtime=runtime,
            workers=default_workers(),
        )
        plan = built_in_plan(
            analysis, load.grid, settings.workers, (load.posts.lon, load.posts.lat), load.counts
        )
        with start(settings, plan) as service:
            run = _OverloadRun(service, load, batch, seconds, times, streams)
            found = {level: run.level(level) for level in run.opened(levels)}
    wrong = sum(
        part[name]
        for level in found.values()
        for part in level.values()
        for name in ("lost", "repeated", "without_retry", "ended")
    )
    return {
        "benchmark": "overload",
        "settings": options | {"levels": list(levels), "cores": os.cpu_count()},
        **found,
        "verified": {"wrong": wrong},
    }


@dataclasses.dataclass
class _OverloadRun:
    service: RunningService
    load: workload.Workload
    batch: int
    seconds: float
    times: float
    streams: int

    def opened(self, levels: tuple[str, ...]) -> Any:
        """Yields the levels, one after the other, while clients and queries are in place."""
        target = self.service.targets[0]
        context = multiprocessing.get_context("spawn")
        self._pipe, flood_end = context.Pipe()
        subscriber, subscriber_end = context.Pipe()
        processes = [
            context.Process(
                target=subscribe,
                args=(ServiceAccess(target), SESSION, subscriber_end, 1 << 40),
            ),
            context.Process(target=flood, args=(target, flood_end)),
        ]
        for process in processes:
            process.start()
        try:
            subscriber.recv()
            with grpc.insecure_channel(target, options=OPTIONS) as channel:
                self._stub = pubsub_pb2_grpc.PubSubStub(channel)
                self._insert_queries(channel, target)
                self._marks = EagerSubscriber(target, "marks")
                self._acks = EagerSubscriber(target, "acks", 1)
                yield from levels
                self._marks.close()
                self._acks.close()
            self._pipe.send(None)
            subscriber.send(None)
        finally:
            for process in processes:
                process.join(5)
                process.terminate()

    def level(self, level: str) -> dict[str, Any]:
        """Measures peak and flood at one level of publication, over streams and in calls."""
        requests = self._encode_requests(level)
        self._run_phase(requests, PACED_STREAMS, None, level)  # warm
        return self._measure_pair(requests, level, calls=False) | {
            f"calls_{name}": part
            for name, part in self._measure_pair(requests, level, calls=True).items()
        }

    def _measure_pair(self, requests: list[bytes], level: str, calls: bool) -> dict[str, Any]:
        """Measures the peak, then a flood of a multiple of it."""
        peak = self._run_phase(requests, PACED_STREAMS, None, level, calls)
        rate = peak["accepted_per_second"] * self.times / self.batch
        before = memory.resident(self.service)
        memory.reset(self.service)
        flood = self._run_phase(requests, self.streams, rate, level, calls)
        most = memory.peak(self.service)
        flood |= {
            "goodput": {
                name: flood[f"{name}_per_second"] / peak[f"{name}_per_second"]
                for name in ("accepted", "delivered")
            },
            "rss_mib": {
                name: [round(part[name] / (1 << 20), 1) for part in (before, most)]
                for name in before
            },
        }
        return {"peak": peak, "flood": flood}

    def _run_phase(
        self,
        requests: list[bytes],
        streams: int,
        rate: float | None,
        level: str,
        calls: bool = False,
    ) -> dict[str, Any]:
        """Publishes for one phase; returns what became of the batches."""
        self._marks.got.clear()
        again = self._marks.again
        self._acks.waits.clear()
        deletes = _DeleteThread(self._stub, self.seconds)
        began = time.monotonic()
        self._pipe.send((requests, streams, rate, self.seconds, calls))
        deletes.start()
        found: FloodOutcome = self._pipe.recv()
        deletes.join()
        self._wait_for_deliveries(len(found.accepted))
        got = Counter((t.partition, t.offset) for t in self._marks.got)
        last = max((t.at for t in self._marks.got), default=began)
        size = self.batch
        refusals = found.refused.count(0) if level == "durable" else 0
        return {
            "offered_per_second": found.offered * size / self.seconds,
            "sent": found.sent * size,
            "accepted": len(found.accepted) * size,
            "accepted_per_second": len(found.accepted) * size / found.elapsed,
            "delivered_per_second": sum(got.values()) * size / (last - began),
            "refused_batches": len(found.refused),
            "without_retry": refusals,
            "ended": sum(found.errors.values()),
            "lost": sum(not got[at[:2]] for at in found.accepted),
            "repeated": sum(n - 1 for n in got.values()),
            "redelivered": self._marks.again - again,
            "generator_cpu_s": found.cpu,
            "delete_ms": _compute_percentiles(deletes.took),
            "deletes_refused": deletes.refused,
            "ack_ms": _compute_percentiles(self._acks.waits),
        }

    def _wait_for_deliveries(self, accepted: int) -> None:
        """Waits until every accepted batch is delivered."""
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline:
            idle = not self.service.status()["dispatcher-0"]["in_flight"]
            if idle and len(self._marks.got) >= accepted:
                return
            time.sleep(0.05)

    def _insert_queries(self, channel: grpc.Channel, target: str) -> None:
        load = self.load
        job = PublisherJob(
            ServiceAccess(target), load.posts, load.expressions(), load.interests.rect,
            load.interests.death, load.start, self.batch, "durable",
        )  # fmt: skip
        publisher = BenchmarkPublisher(job, channel)
        publisher.insert_first()
        marks = [
            query_pb2.Query(id=f"mark-{session}", expression=MARK, session=session)
            for session in ("marks", "acks")
        ]
        request = pubsub_pb2.InsertQueriesRequest(batch=query_pb2.QueryBatch(queries=marks))
        for answer in self._stub.InsertQueries(iter([request])):
            if answer.errors:
                raise ValueError(f"an insert was refused: {answer.errors[0]}")
        publisher.close()

    def _encode_requests(self, level: str) -> list[bytes]:
        posts, size = self.load.posts, self.batch
        texts = column_to_strings(posts.text_off, posts.text)
        found = []
        for first in range(0, len(texts) - size + 1, size):
            part = slice(first, first + size)
            columns = {
                "id": pa.array([str(i) for i in range(first, first + size)]),
                "lon": pa.array(posts.lon[part]),
                "lat": pa.array(posts.lat[part]),
                "text": pa.array([f"{texts[first]} {MARK}", *texts[part][1:]]),
            }
            batch = object_pb2.ObjectBatch(arrow=to_ipc(pa.RecordBatch.from_pydict(columns)))
            value = object_pb2.PublishLevel.Value(f"PUBLISH_LEVEL_{level.upper()}")
            request = pubsub_pb2.PublishStreamRequest(batch=batch, level=value)
            found.append(request.SerializeToString())
        return found


class _DeleteThread(threading.Thread):
    """A thread that deletes queries by the clock. took: for each delete, the seconds from when it
    was meant to be sent to its answer."""

    number = 0

    def __init__(self, stub: Any, seconds: float) -> None:
        super().__init__(daemon=True)
        self._stub = stub
        self.took: list[float] = []
        self.refused = 0
        first, count = _DeleteThread.number, max(int(seconds / DELETE_EVERY_S), 1)
        _DeleteThread.number += count
        self._ids = [f"gone-{i}" for i in range(first, first + count)]
        queries = [query_pb2.Query(id=i, expression="zznever", session="gone") for i in self._ids]
        request = pubsub_pb2.InsertQueriesRequest(batch=query_pb2.QueryBatch(queries=queries))
        list(stub.InsertQueries(iter([request])))

    def run(self) -> None:
        began = time.monotonic()
        calls = []
        for i, id_ in enumerate(self._ids):
            moment = began + i * DELETE_EVERY_S
            time.sleep(max(moment - time.monotonic(), 0.0))
            call = self._stub.DeleteQuery.future(pubsub_pb2.DeleteQueryRequest(id=id_))
            call.add_done_callback(functools.partial(self._record_answer, moment))
            calls.append(call)
        for call in calls:
            call.exception()

    def _record_answer(self, moment: float, call: Any) -> None:
        self.took.append(time.monotonic() - moment)
        self.refused += call.exception() is not None


def _compute_percentiles(seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return {}
    return {f"p{p}": float(np.percentile(seconds, p)) * 1e3 for p in (50, 99)}
