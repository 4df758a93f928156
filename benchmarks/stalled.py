"""`ps2stream bench stalled`: subscribers that open a stream and never take anything.

Two phases of the same open-loop load run on one service: with a few healthy sessions alone, and
with many more that have stalled; each of these was first sent more than its credits and its
connection's window hold. A delivery's latency counts from the moment its object was meant to be
published. The stalled subscribers are a process of their own.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import queue
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import grpc
import numpy as np

from ps2stream.benchmarks import memory
from ps2stream.benchmarks.taker import OPTIONS, EagerSubscriber
from ps2stream.cluster.private_folder import PrivateFolder
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.v1 import delivery_pb2, object_pb2, pubsub_pb2, pubsub_pb2_grpc, query_pb2

CHANNEL_STREAMS = 50
SETTLE_S = 120.0
PAUSE_S = 3.0
BURST_PAUSE_S = 0.25
LARGE = 32 << 10


def run_stalled(
    stalled: int = 1000,
    healthy: int = 4,
    seconds: float = 10.0,
    rate: float = 2000.0,
    batch: int = 20,
    every: int = 20,
    burst: int = 40,
    runtime: str = "ray",
) -> dict[str, Any]:
    """Returns the measured figures, JSON-able. `rate`: objects per second, each of which matches
    every healthy session, and one in `every` every stalled session too. `burst`: objects of 32
    KiB that each stalled session is sent first."""
    options = {k: v for k, v in locals().items() if k != "options"}
    with PrivateFolder() as folder:
        settings = Settings(port=0, data_dir=folder.path / "data", workers=1, runtime=runtime)
        with start(settings) as service:
            found = _measure_phases(service, options)
    return {"benchmark": "stalled", "settings": options | {"cores": os.cpu_count()}, **found}


def _measure_phases(service: RunningService, options: dict[str, Any]) -> dict[str, Any]:
    """Runs both phases on the service; returns what they measured."""
    target, stalled = service.targets[0], options["stalled"]
    with grpc.insecure_channel(target, options=OPTIONS) as channel:
        stub = pubsub_pb2_grpc.PubSubStub(channel)
        names = [f"healthy-{i}" for i in range(options["healthy"])]
        _subscribe_to(stub, "calm", names)
        sessions = [EagerSubscriber(target, name) for name in names]
        load = _ClockPublisher(stub, options)
        load.run(1.0)  # warm
        alone = _run_phase(load, sessions)
        before = memory.resident(service)

        _subscribe_to(stub, "storm", [f"stalled-{i}" for i in range(stalled)])
        crowd_pipe, crowd_end = multiprocessing.get_context("spawn").Pipe()
        crowd = multiprocessing.get_context("spawn").Process(
            target=_stall_streams, args=(target, stalled, crowd_end)
        )
        crowd.start()
        try:
            opened = crowd_pipe.recv()
            _wait_until(lambda: service.status()["dispatcher-0"]["streams"] == stalled + len(names))
            attached = memory.resident(service)
            memory.reset(service)
            for session in sessions:
                session.got.clear()
            load.burst(options["burst"])
            _wait_for_deliveries(load, sessions, load.next - options["burst"])
            time.sleep(PAUSE_S if stalled else 0.0)
            beside = _run_phase(load, sessions)
            after, most = memory.resident(service), memory.peak(service)
            still = service.status()["dispatcher-0"]["streams"] - len(names)
        finally:
            crowd_pipe.send(None)
            crowd.join(30)
            crowd.terminate()
        for session in sessions:
            session.close()
    each = {name: (most[name] - before[name]) / max(stalled, 1) for name in before}
    return {
        "opened": opened,
        "still_open": still,
        "healthy": {"alone": alone, "with_stalled": beside},
        "kib_per_stalled": {name: size / 1024 for name, size in each.items()},
        "rss_mib": {
            name: [round(part[name] / (1 << 20), 1) for part in (before, attached, after, most)]
            for name in before
        },
        "verified": {"wrong": alone["missing"] + beside["missing"] + stalled - still},
    }


def _run_phase(load: _ClockPublisher, sessions: list[EagerSubscriber]) -> dict[str, Any]:
    """Publishes for one phase; returns its latencies."""
    for session in sessions:
        session.got.clear()
    first = load.next
    refused = load.run(load.options["seconds"])
    want = load.next - first
    _wait_for_deliveries(load, sessions, first)
    late = np.array([(t.at - load.intended[int(t.id)]) * 1e3 for s in sessions for t in s.got])
    return {
        "published": want,
        "refused": refused,
        "missing": sum(max(want - len(s.got), 0) for s in sessions),
        "latency_ms": {f"p{p}": float(np.percentile(late, p)) for p in (50, 99)},
        "publish_ms": {f"p{p}": float(np.percentile(load.answered, p)) for p in (50, 99)},
    }


def _wait_for_deliveries(
    load: _ClockPublisher, sessions: list[EagerSubscriber], first: int
) -> None:
    """Waits until all sessions have received what was published since `first`."""
    want = load.next - first
    _wait_until(lambda: all(len(s.got) >= want for s in sessions))


@dataclasses.dataclass
class _ClockPublisher:
    """A publisher by the clock, whether it is answered or not. Object ids are numbers, and
    intended[number] is when the object was meant to be sent."""

    stub: Any
    options: dict[str, Any]
    next: int = 0
    intended: list[float] = dataclasses.field(default_factory=list)
    answered: list[float] = dataclasses.field(default_factory=list)

    def run(self, seconds: float) -> int:
        """Publishes for `seconds`; returns the number of refused batches."""
        size, rate = self.options["batch"], self.options["rate"]
        pause = size / rate
        began = time.monotonic()
        self.answered.clear()
        refused = 0
        meant: queue.SimpleQueue[float] = queue.SimpleQueue()

        def requests() -> Iterator[Any]:
            moment = began
            while moment < began + seconds:
                if (wait := moment - time.monotonic()) > 0:
                    time.sleep(wait)
                meant.put(moment)
                yield self._make_request(moment, self._make_texts())
                moment += pause

        for answer in self.stub.PublishStream(requests()):
            self.answered.append((time.monotonic() - meant.get()) * 1e3)
            refused += not answer.accepted
        return refused

    def burst(self, count: int) -> None:
        """Publishes `count` large objects that match every session, four a second."""
        large = "calm storm " + "x" * LARGE

        def requests() -> Iterator[Any]:
            for _ in range(count):
                yield self._make_request(time.monotonic(), [large])
                time.sleep(BURST_PAUSE_S)

        for answer in self.stub.PublishStream(requests()):
            if not answer.accepted:
                raise ValueError("a batch of the burst was refused")

    def _make_texts(self) -> list[str]:
        numbers = range(self.next, self.next + self.options["batch"])
        return ["calm" if n % self.options["every"] else "calm storm" for n in numbers]

    def _make_request(self, moment: float, texts: list[str]) -> Any:
        batch = object_pb2.ObjectBatch()
        for text in texts:
            batch.objects.add(id=str(self.next), text=text, lon=1.0, lat=1.0)
            self.intended.append(moment)
            self.next += 1
        return pubsub_pb2.PublishStreamRequest(batch=batch)


def _stall_streams(target: str, count: int, pipe: Connection) -> None:
    """Opens `count` streams, reads the first message of each and nothing more, until a message
    arrives on the pipe."""
    channels = []
    calls = []
    start_of = threading.Event()
    for i in range(count):
        if i % CHANNEL_STREAMS == 0:
            channels.append(grpc.insecure_channel(target, options=OPTIONS))
        begin = delivery_pb2.Start(session=f"stalled-{i}", fields=_ALL_FIELDS)

        def requests(begin: Any = begin) -> Iterator[Any]:
            yield delivery_pb2.DeliverRequest(start=begin)
            start_of.wait()

        call: Any = channels[-1].stream_stream(
            "/ps2stream.v1.PubSub/Deliver",
            request_serializer=delivery_pb2.DeliverRequest.SerializeToString,
        )(requests())
        calls.append(call)
    opened = 0
    for call in calls:
        try:
            next(call)
            opened += 1
        except grpc.RpcError as error:
            pipe.send(f"{opened} opened, then: {error}")
            return
    pipe.send(opened)
    pipe.recv()
    os._exit(0)  # without waiting for a thousand blocked threads


_ALL_FIELDS = delivery_pb2.DeliverFields(text=True, position=True, time=True)


def _subscribe_to(stub: Any, word: str, sessions: list[str]) -> None:
    for first in range(0, len(sessions), 500):
        queries = [
            query_pb2.Query(id=f"{word}-{name}", expression=word, session=name)
            for name in sessions[first : first + 500]
        ]
        batch = query_pb2.QueryBatch(queries=queries)
        for answer in stub.InsertQueries(iter([pubsub_pb2.InsertQueriesRequest(batch=batch)])):
            if answer.errors:
                raise ValueError(f"an insert was refused: {answer.errors[0]}")


def _wait_until(true: Any) -> None:
    deadline = time.monotonic() + SETTLE_S
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)
