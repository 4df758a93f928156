"""The wire: whatever arrives at a method or at the port itself, the answer has the right code,
never UNKNOWN, and the service goes on."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ps2stream.client.client import Client
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.limits import DISPATCHERS
from ps2stream.protocol.arrow_ipc import to_ipc
from ps2stream.protocol.session_map import MAX_MERGERS
from ps2stream.routing.plan import MAX_WORKERS
from ps2stream.v1 import admin_pb2, pubsub_pb2
from tests.fuzz.conftest import EXAMPLES
from tests.fuzz.damage import damaged, edited, edits, messages

pytestmark = pytest.mark.slow
Code = grpc.StatusCode
ALLOWED = {
    Code.OK, Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.ALREADY_EXISTS,
    Code.FAILED_PRECONDITION, Code.RESOURCE_EXHAUSTED,
}  # fmt: skip
METHODS: list[MethodDescriptor] = [
    method
    for file in (pubsub_pb2.DESCRIPTOR, admin_pb2.DESCRIPTOR)
    for service in file.services_by_name.values()
    for method in service.methods
]
SIDES = {n: pa.array([0.0, None], pa.float64()) for n in ("lon_min", "lat_min", "lon_max")}
ARROW = [
    to_ipc(pa.RecordBatch.from_pydict(columns))
    for columns in (
        {"lon": [0.0, 1.0], "lat": [0.0, 2.0], "text": ["storm", "é"], "time": [1, 2]},
        {"id": ["a", "b"], "expression": ["x", "y"], **SIDES, "lat_max": SIDES["lat_min"]},
    )
]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    settings = Settings(
        runtime="local", port=0, workers=2, session_quota=1 << 16,
        data_dir=Path(tmp_path_factory.mktemp("fuzzed")),
    )  # fmt: skip
    with start(settings) as running:
        yield running


@pytest.fixture(scope="module")
def call(service: RunningService) -> Iterator[Callable[[MethodDescriptor, list[bytes]], Any]]:
    """Calls a method with raw bytes; how it ended."""
    with grpc.insecure_channel(service.targets[0]) as opened:
        channel: Any = opened

        def run(method: MethodDescriptor, data: list[bytes]) -> Any:
            assert method.containing_service is not None
            path = f"/{method.containing_service.full_name}/{method.name}"
            sends, gets = method.client_streaming, method.server_streaming
            kind = f"{'stream' if sends else 'unary'}_{'stream' if gets else 'unary'}"
            try:
                answer = getattr(channel, kind)(path)(iter(data) if sends else data[0], timeout=60)
                if method.name == "Watch":  # it has no end
                    next(answer)
                    answer.cancel()
                elif gets:
                    list(answer)
            except grpc.RpcError as error:
                return error.code()
            return Code.OK

        yield run


@cache
def requests(method: MethodDescriptor) -> st.SearchStrategy[list[bytes]]:
    """Requests of a method, odd and then edited. Built once: to check a strategy anew for each
    request takes longer than to draw from it."""
    arrow = st.one_of(st.just(b""), damaged(ARROW))
    message = messages(method.input_type, arrow).map(lambda m: m.SerializeToString())
    one = st.one_of(message, st.builds(edited, message, edits()), st.binary(max_size=64))
    return st.lists(one, min_size=1, max_size=3 if method.client_streaming else 1)


def many_actors(method: MethodDescriptor, data: list[bytes]) -> bool:
    """Whether it asks for more actors than one wants to start here."""
    try:
        match method.name:
            case "ScaleWorkers":
                return 4 < admin_pb2.ScaleWorkersRequest.FromString(data[0]).workers <= MAX_WORKERS
            case "ScaleMergers":
                return 4 < admin_pb2.ScaleMergersRequest.FromString(data[0]).mergers <= MAX_MERGERS
            case "ScaleDispatchers":
                asked = admin_pb2.ScaleDispatchersRequest.FromString(data[0]).dispatchers
                return 4 < asked <= DISPATCHERS
    except DecodeError:
        pass
    return False


def works(service: RunningService) -> None:
    """The service matches and delivers, and no machine of it has failed."""
    with Client(service.targets[0], timeout=60) as client:
        client.insert("control", "controlword", session="control")
        with client.subscribe("control") as matches:
            client.publish([{"lon": 0.0, "lat": 0.0, "text": "controlword"}])
            assert next(iter(matches)).query_id == "control"
        client.delete("control")
    assert not any(status.get("failure") for status in service.status().values())


def test_every_method(
    service: RunningService, call: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    @settings(settings.get_profile("fuzz"))
    @given(st.data())
    def run(data: st.DataObject) -> None:
        method = data.draw(st.sampled_from(METHODS))
        sent = data.draw(requests(method))
        assume(not many_actors(method, sent))
        code = call(method, sent)
        scales = method.name in ("ScaleWorkers", "ScaleMergers", "ScaleDispatchers")
        starting = {Code.UNAVAILABLE} if scales else set()
        assert code in ALLOWED | starting, (method.full_name, code)

    with caplog.at_level(logging.ERROR, logger="ps2stream"):
        run()
    assert not caplog.records, caplog.text
    works(service)


def test_the_port_itself(service: RunningService) -> None:
    """Bytes that are no HTTP/2, or bad HTTP/2."""
    host, _, port = service.targets[0].rpartition(":")
    frame = st.builds(
        lambda size, kind, flags, stream, body: (
            size.to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body
        ),
        st.sampled_from([0, 1, 4, 8, 255, 1 << 14, (1 << 24) - 1]),
        st.integers(0, 12),
        st.integers(0, 255),
        st.sampled_from([0, 1, 2, 3, (1 << 32) - 1]),
        st.binary(max_size=64),
    )
    sent = st.one_of(
        st.binary(max_size=200),
        st.lists(frame, max_size=5).map(lambda frames: PREFACE + b"".join(frames)),
    )

    @settings(settings.get_profile("fuzz"), max_examples=max(1, EXAMPLES // 20))
    @given(sent)
    def run(data: bytes) -> None:
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            try:
                while connection.recv(4096):
                    pass
            except ConnectionError:
                return

    run()
    works(service)
