"""The port, health, reflection, deadlines, and clients that live through a restart."""

from __future__ import annotations

import pickle
import socket
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import (
    InvalidArgument,
    Ps2StreamError,
    ResourceExhausted,
    Unavailable,
    Violation,
)
from ps2stream.service import status
from ps2stream.service.server import serve
from ps2stream.v1 import pubsub_pb2
from tests.support.gateways import GATEWAY, Nothing


def test_a_port_in_use_is_one_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(InvalidArgument, match=f"port: {port} on 127.0.0.1 is in use"):
            serve(GATEWAY, "127.0.0.1", port)
    first = serve(GATEWAY, "localhost", 0)
    with pytest.raises(InvalidArgument, match="is in use"):
        serve(GATEWAY, "127.0.0.1", first.port)
    first.stop(0)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_only_loopback_without_tls(host: str) -> None:
    with pytest.raises(InvalidArgument, match=r"host: .*(needs TLS|not an IP address)"):
        serve(GATEWAY, host, 0)


def test_health_and_reflection(target: str) -> None:
    with grpc.insecure_channel(target) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", "ps2stream.v1.PubSub", "ps2stream.v1.Admin"):
            answer = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=60)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        request = reflection_pb2.ServerReflectionRequest(
            file_containing_symbol="ps2stream.v1.PubSub"
        )
        mirror = reflection_pb2_grpc.ServerReflectionStub(channel)
        (answer,) = mirror.ServerReflectionInfo(iter([request]), timeout=60)
        assert answer.file_descriptor_response.file_descriptor_proto


def test_a_deadline_is_honoured() -> None:
    class Stuck(Nothing):
        def lookup(self, *_: object) -> Future[Any]:
            return Future()

    stuck: Any = Stuck()
    server = serve(stuck, "127.0.0.1", 0)
    with (
        Client(f"127.0.0.1:{server.port}", timeout=0.3) as client,
        pytest.raises(TimeoutError),
    ):
        client.get("x")
    server.stop(0)


def test_a_bug_is_internal_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    server = serve(GATEWAY, "127.0.0.1", 0)
    with (
        Client(f"127.0.0.1:{server.port}") as client,
        pytest.raises(Ps2StreamError, match="INTERNAL: internal error"),
    ):
        client.get("x")
    server.stop(0)
    assert "AttributeError" in caplog.text


def test_nobody_there() -> None:
    with Client("127.0.0.1:1", timeout=0.5) as client, pytest.raises((Unavailable, TimeoutError)):
        client.get("x")


def test_a_client_lives_through_a_restart(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    settings = Settings(runtime="local", port=port, workers=1, data_dir=tmp_path / "data")
    row = {"lon": 0, "lat": 0, "text": "word"}
    found: list[str] = []
    both = threading.Semaphore(0)

    def listen(matches: Any) -> None:
        for match in matches:
            found.append(match.object_id)
            both.release()

    with Client(f"127.0.0.1:{port}", timeout=30) as client:
        with start(settings):
            client.insert("r", "word")
            matches = client.subscribe()
            thread = threading.Thread(target=listen, args=(matches,), daemon=True)
            thread.start()
            client.publish([{"id": "before", **row}])
            assert both.acquire(timeout=60)
        with start(settings):
            assert client.get("r").expression == "word"
            client.publish([{"id": "after", **row}])
            assert both.acquire(timeout=60)
            matches.close()
            thread.join(60)
    assert found == ["before", "after"]


def test_statuses() -> None:
    full = status.to_status(ResourceExhausted("full", 70))
    retry = error_details_pb2.RetryInfo()
    assert full.details[0].Unpack(retry)
    assert retry.retry_delay.ToMilliseconds() == 70
    many = InvalidArgument([Violation(f"f[{i}]", "x" * 1000) for i in range(1000)])
    assert status.to_status(many).ByteSize() < 8192
    assert status.to_status(ZeroDivisionError()).code == grpc.StatusCode.INTERNAL.value[0]
    assert pickle.loads(pickle.dumps(many)).violations == many.violations


def test_a_delete_may_be_repeated_with_its_request_id(target: str) -> None:
    with Client(target) as client:
        client.insert("d", "word")
    request = pubsub_pb2.DeleteQueryRequest(id="d", request_id="once").SerializeToString()
    with grpc.insecure_channel(target) as channel:
        call: Any = channel.unary_unary("/ps2stream.v1.PubSub/DeleteQuery")
        assert call(request) == call(request)
