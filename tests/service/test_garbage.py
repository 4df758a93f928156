"""What a call held is freed when it ends, not when garbage is next collected: Ray's actors collect
theirs rarely, and a message has up to 4 MiB."""

from __future__ import annotations

import gc
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.service.gate import PublishGate
from ps2stream.v1 import object_pb2, pubsub_pb2

pytestmark = pytest.mark.takes_turns

CALLS = 16
SIZE_BYTES = 2_000_000


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    settings = Settings(
        runtime="local", port=0, workers=1, data_dir=Path(tmp_path_factory.mktemp("data"))
    )
    with start(settings) as running:
        yield running


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    tracemalloc.start()
    yield
    tracemalloc.stop()
    gc.enable()


def count_copies(request: bytes) -> int:
    """Messages of this length that are in memory, whoever holds them."""
    size = sys.getsizeof(request)
    return sum(trace.size == size for trace in tracemalloc.take_snapshot().traces) - 1


def wait_for_few_copies(request: bytes) -> None:
    deadline = time.monotonic() + 20
    while count_copies(request) > CALLS // 4 and time.monotonic() < deadline:
        time.sleep(0.05)  # a call ends a little after its answer
    assert count_copies(request) <= CALLS // 4


def batch(row: object_pb2.Object) -> object_pb2.ObjectBatch:
    return object_pb2.ObjectBatch(objects=[row] * (SIZE_BYTES // len(row.text)))


ROWS = {
    "accepted": object_pb2.Object(lon=1, lat=1, text="word " * 12_000),
    "invalid": object_pb2.Object(lon=999, lat=1, text="word " * 12_000),
    "refused": object_pb2.Object(lon=1, lat=1, text="word " * 12_000),
}


@pytest.mark.parametrize("method", ["Publish", "PublishStream"])
@pytest.mark.parametrize("outcome", [*ROWS, "malformed"])
def test_a_call_that_ended_holds_no_message(
    service: RunningService, monkeypatch: pytest.MonkeyPatch, outcome: str, method: str
) -> None:
    if outcome == "refused":
        monkeypatch.setattr(PublishGate, "begin_refusal", lambda *_: 0.001)
        monkeypatch.setattr(PublishGate, "end_refusal", lambda *_: None)
        monkeypatch.setattr("ps2stream.service.admission.FairAdmission.request", lambda *_: None)
    request = b"\xff" * SIZE_BYTES
    if outcome in ROWS:
        request = pubsub_pb2.PublishRequest(batch=batch(ROWS[outcome])).SerializeToString()
    with grpc.insecure_channel(service.targets[0]) as opened:
        channel: Any = opened
        name = f"/ps2stream.v1.PubSub/{method}"

        def call() -> None:
            try:
                if method == "Publish":
                    channel.unary_unary(name)(request, timeout=60)
                else:
                    list(channel.stream_stream(name)(iter([request]), timeout=60))
            except grpc.RpcError:
                assert outcome != "accepted"

        for _ in range(CALLS):
            call()
        wait_for_few_copies(request)


@pytest.mark.parametrize("outcome", ["accepted", "refused"])
def test_a_stream_that_stays_open_holds_no_message(
    service: RunningService, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    held_back = threading.Semaphore(0)
    if outcome == "refused":

        def begin(*_: object) -> float:
            held_back.release()
            return 2.0

        monkeypatch.setattr(PublishGate, "begin_refusal", begin)
        monkeypatch.setattr(PublishGate, "end_refusal", lambda *_: None)
        monkeypatch.setattr("ps2stream.service.admission.FairAdmission.request", lambda *_: None)
    request = pubsub_pb2.PublishRequest(batch=batch(ROWS[outcome])).SerializeToString()
    ended = threading.Event()

    def requests() -> Iterator[bytes]:
        yield request
        ended.wait(60)

    with grpc.insecure_channel(service.targets[0]) as opened:
        channel: Any = opened
        publish = channel.stream_stream("/ps2stream.v1.PubSub/PublishStream")
        streams = [publish(requests(), timeout=60) for _ in range(CALLS)]
        for stream in streams:
            if outcome == "refused":
                assert held_back.acquire(timeout=20)
            else:
                next(stream)
        wait_for_few_copies(request)
        ended.set()
        for stream in streams:
            list(stream)
