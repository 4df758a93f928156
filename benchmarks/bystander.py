"""`ps2stream bench bystander`: a small publisher beside a flood of large publications.

The flood keeps every limit: each connection sends publications of nearly 4 MB as fast as it is
answered, in calls or over streams. Beside it one client publishes a few objects by the clock. The
benchmark measures how long each of its publications takes, from when it was meant to be sent, and
the memory of the dispatcher: before the flood, at most, and after it.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import threading
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pyarrow as pa

from ps2stream.benchmarks import memory
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.protocol.arrow_ipc import to_ipc
from ps2stream.v1 import object_pb2, pubsub_pb2

SHAPES = ("arrow", "ascii", "ligatures")
PUBSUB = "/ps2stream.v1.PubSub/"
PUBLISH_EVERY_S = 0.05
PATIENCE_S = 60.0
REST_S = 15.0
"""The time after the flood until the memory that is still held is read."""
STREAM_WINDOW = 8
TEXT_BYTES = 65_000


def run_bystander(
    shape: str = "arrow",
    seconds: float = 20.0,
    calls: int = 24,
    streams: int = 12,
    rest: float = REST_S,
    request_bytes: int = 3_900_000,
    runtime: str = "ray",
) -> dict[str, Any]:
    """Returns the measured figures, JSON-able. shape: what the flood consists of, one of SHAPES."""
    inputs = dict(locals())
    request = _make_request(shape, request_bytes)
    with tempfile.TemporaryDirectory(prefix="ps2s-bench-") as folder:
        settings = Settings(port=0, data_dir=Path(folder) / "data", runtime=runtime)
        with start(settings) as service:
            target = service.targets[0]
            alone = _publish_by_clock(target, seconds / 4)
            before = memory.resident(service)
            memory.reset(service)
            context = multiprocessing.get_context("spawn")
            pipe, flood_end = context.Pipe()
            arguments = (target, request, calls, streams, flood_end)
            flood = context.Process(target=flood_large, args=arguments, daemon=True)
            flood.start()
            try:
                pipe.recv()
                beside = _publish_by_clock(target, seconds)
                most = memory.peak(service)
                pipe.send(None)
                answers = pipe.recv() if pipe.poll(PATIENCE_S) else {}
            finally:
                flood.join(5)
                flood.terminate()
            time.sleep(rest)
            after = memory.resident(service)
    return {
        "benchmark": "bystander",
        "settings": inputs | {"request_bytes": len(request)},
        "alone": alone,
        "beside": beside,
        "flood_answers": answers,
        "rss_mib": {
            name: [round(part[name] / (1 << 20)) for part in (before, most, after)]
            for name in before
        },
    }


def flood_large(target: str, request: bytes, calls: int, streams: int, pipe: Connection) -> None:
    """Sends `request` over many connections until a message arrives on the pipe; then sends the
    answers by status."""
    found: Counter[str] = Counter()
    stopped = threading.Event()
    options = [
        ("grpc.max_send_message_length", -1),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
    ]
    channels = [grpc.insecure_channel(target, options) for _ in range(calls + streams)]
    threads = [
        threading.Thread(target=send, args=(channel, request, found, stopped), daemon=True)
        for send, some in ((_send_calls, channels[:calls]), (_send_stream, channels[calls:]))
        for channel in some
    ]
    for thread in threads:
        thread.start()
    pipe.send(None)
    pipe.recv()
    stopped.set()
    for channel in channels:
        channel.close()
    for thread in threads:
        thread.join(5)
    pipe.send(dict(found))


def _send_calls(
    channel: Any, request: bytes, found: Counter[str], stopped: threading.Event
) -> None:
    call = channel.unary_unary(PUBSUB + "Publish")
    while not stopped.is_set():
        found[_call_status(call, request)] += 1


def _call_status(call: Any, request: bytes) -> str:
    try:
        call(request, timeout=PATIENCE_S)
    except (grpc.RpcError, ValueError) as error:  # ValueError: the channel is closed
        return error.code().name if isinstance(error, grpc.Call) else "CLOSED"
    return "OK"


def _send_stream(
    channel: Any, request: bytes, found: Counter[str], stopped: threading.Event
) -> None:
    room = threading.Semaphore(STREAM_WINDOW)

    def requests() -> Any:
        while not stopped.is_set():
            if room.acquire(timeout=0.5):
                yield request

    try:
        for data in channel.stream_stream(PUBSUB + "PublishStream")(requests()):
            answer = pubsub_pb2.PublishStreamResponse.FromString(data)
            found["OK" if answer.accepted else "RETRY"] += 1
            room.release()
    except grpc.RpcError as error:
        if not stopped.is_set():
            found[error.code().name] += 1


def _publish_by_clock(target: str, seconds: float) -> dict[str, Any]:
    """Publishes ten objects each PUBLISH_EVERY_S, again until they are accepted; returns the
    times."""
    rows = [object_pb2.Object(lon=1.0, lat=2.0, text="a small publication")] * 10
    batch = object_pb2.ObjectBatch(objects=rows)
    request = pubsub_pb2.PublishRequest(batch=batch).SerializeToString()
    took: list[float] = []
    refused = 0
    with grpc.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        call: Any = channel.unary_unary(PUBSUB + "Publish")
        _call_status(call, request)  # connects
        began = time.monotonic()
        while (moment := began + len(took) * PUBLISH_EVERY_S) < began + seconds:
            time.sleep(max(moment - time.monotonic(), 0.0))
            if time.monotonic() > began + 3 * seconds:
                break
            while _call_status(call, request) != "OK":
                refused += 1
            took.append(time.monotonic() - moment)
    return {
        "published": len(took),
        "planned": int(seconds / PUBLISH_EVERY_S),
        "refused": refused,
        "ms": {f"p{p}": round(float(np.percentile(took, p)) * 1e3, 1) for p in (50, 99, 100)},
    }


def _make_request(shape: str, size_bytes: int) -> bytes:
    if shape == "arrow":
        rows = 8_000
        words = "the quick brown fox jumps over the lazy dog near the river bank at dawn "
        text = (words * 6)[: size_bytes // rows - 24]
    else:
        rows = size_bytes // TEXT_BYTES
        piece = "\ufdfa" if shape == "ligatures" else "flood river "
        text = (piece * TEXT_BYTES).encode()[: TEXT_BYTES // 3 * 3].decode()
    columns = {
        "lon": np.linspace(-180, 180, rows),
        "lat": np.linspace(-90, 90, rows),
        "text": pa.array([text] * rows),
    }
    batch = object_pb2.ObjectBatch(arrow=to_ipc(pa.RecordBatch.from_pydict(columns)))
    return pubsub_pb2.PublishRequest(batch=batch).SerializeToString()
