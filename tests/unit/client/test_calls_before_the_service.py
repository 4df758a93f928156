"""Calls made before the service is there: nothing of them was sent, so that each is made again."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from ps2stream import AsyncClient, Client
from ps2stream.errors import Unavailable
from ps2stream.v1 import pubsub_pb2

POST = {"id": "p", "lon": 1.0, "lat": 2.0, "text": "early"}


class CountingService:
    """Takes publications, and counts them."""

    def __init__(self) -> None:
        self.published = 0

    def publish(self, request: bytes, _: grpc.ServicerContext) -> bytes:
        self.published += 1
        count = len(pubsub_pb2.PublishRequest.FromString(request).batch.objects)
        return pubsub_pb2.PublishResponse(accepted=count).SerializeToString()


@pytest.fixture
def free() -> int:
    """A port that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def late_service(port: int) -> Iterator[CountingService]:
    """A service that listens at the port a second later."""
    service, server = CountingService(), grpc.server(ThreadPoolExecutor(1))
    methods: dict[str, Any] = {"Publish": grpc.unary_unary_rpc_method_handler(service.publish)}
    handler = grpc.method_handlers_generic_handler("ps2stream.v1.PubSub", methods)
    server.add_generic_rpc_handlers((handler,))

    def listen() -> None:
        server.add_insecure_port(f"127.0.0.1:{port}")
        server.start()

    starting = threading.Timer(1.0, listen)
    starting.start()
    try:
        yield service
    finally:
        starting.join()
        server.stop(0)


def publish(port: int) -> int:
    with Client(f"127.0.0.1:{port}", timeout=30) as client:
        return client.publish([POST]).accepted


def publish_asynchronously(port: int) -> int:
    async def call() -> int:
        async with AsyncClient(f"127.0.0.1:{port}", timeout=30) as client:
            return (await client.publish([POST])).accepted

    return asyncio.run(call())


@pytest.mark.parametrize("call", [publish, publish_asynchronously])
def test_a_publication_without_a_producer_waits_for_the_service(
    call: Callable[[int], int], free: int
) -> None:
    with late_service(free) as service:
        assert call(free) == 1
        assert service.published == 1


def test_it_waits_no_longer_than_the_timeout(free: int) -> None:
    with (
        Client(f"127.0.0.1:{free}", timeout=0.3) as client,
        pytest.raises(Unavailable, match="Connection refused"),
    ):
        client.publish([POST])
