"""A server over the real machines, all in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from ps2stream.client.client import Client
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from tests.support.methods import UNARY


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    settings = Settings(
        runtime="local",
        port=0,
        hot="off",
        adjust="off",
        workers=2,
        data_dir=Path(tmp_path_factory.mktemp("data")),
    )
    with start(settings) as running:
        yield running


@pytest.fixture(scope="module")
def target(service: RunningService) -> str:
    return service.targets[0]


@pytest.fixture
def client(target: str) -> Iterator[Client]:
    with Client(target, timeout=90) as connected:
        yield connected


@pytest.fixture(scope="module")
def call(target: str) -> Iterator[Callable[[str, bytes], Any]]:
    """Calls a method with raw bytes; gives (code, violations by field, message)."""
    with grpc.insecure_channel(target) as opened:
        channel: Any = opened

        def run(name: str, data: bytes) -> tuple[grpc.StatusCode, dict[str, str], str]:
            path = f"/ps2stream.v1.PubSub/{name}"
            try:
                if name in UNARY:
                    channel.unary_unary(path)(data, timeout=60)
                else:
                    list(channel.stream_stream(path)(iter([data]), timeout=60))
            except grpc.RpcError as error:
                status = rpc_status.from_call(error)
                found = {}
                for detail in status.details if status else ():
                    bad = error_details_pb2.BadRequest()
                    if detail.Unpack(bad):
                        found = {v.field: v.description for v in bad.field_violations}
                return error.code(), found, error.details() or ""
            return grpc.StatusCode.OK, {}, ""

        yield run
