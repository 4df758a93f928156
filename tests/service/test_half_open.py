"""Calls that are opened and send nothing hold up nobody, and end by themselves."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from ps2stream.client.client import Client
from ps2stream.errors import ResourceExhausted
from ps2stream.security import PortSecurity
from ps2stream.service import auth, half_open, server
from ps2stream.service.half_open import HalfOpenCalls, PeerLimits, PeerShares
from tests.support.certificates import Authority
from tests.support.gateways import GATEWAY, running

Code = grpc.StatusCode
FLOOD = 330
CONNECTION_CALLS = 160  # half of the lane
METHODS = ("Publish", "InsertQuery", "DeleteQuery", "GetQuery", "PriceQuery")
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
OBJECT = {"lon": 0.0, "lat": 0.0, "text": "word"}


class Silence:
    """Calls of one connection that send no message until they are let go on."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._over = threading.Event()
        self.calls: list[Any] = []

    def open(self, count: int, methods: tuple[str, ...]) -> None:
        for i in range(count):
            path = f"/ps2stream.v1.PubSub/{methods[i % len(methods)]}"
            self.calls.append(self._channel.stream_stream(path)(self._nothing()))

    def _nothing(self) -> Iterator[bytes]:
        self._over.wait(60)
        yield from ()

    def codes(self) -> list[grpc.StatusCode]:
        """Of all calls, once they have ended."""
        return [call.code() for call in self.calls]

    def close(self) -> None:
        for call in self.calls:
            call.cancel()
        self._over.set()


@pytest.fixture
def silence() -> Iterator[Any]:
    made = []

    def of(target: str) -> Silence:
        channel = grpc.insecure_channel(target, OWN_CONNECTION)
        made.append((channel, Silence(channel)))
        return made[-1][1]

    yield of
    for channel, flood in made:
        flood.close()
        channel.close()


def test_a_connection_that_only_opens_calls_shuts_nobody_out(
    tmp_path: Path, silence: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With deadlines beyond the test's, so that only shares and waiting without a thread help."""
    monkeypatch.setattr(auth, "HalfOpenCalls", lambda *_: HalfOpenCalls(600.0))
    with running(tmp_path) as (target, _, _edge), Client(target, timeout=30) as client:
        flood = silence(target)
        flood.open(FLOOD, ("Publish", "InsertQuery", "GetQuery"))
        flood.open(80, ("DeleteQuery",))
        flood.open(20, ("PriceQuery",))
        refused = flood.calls[CONNECTION_CALLS:FLOOD]
        assert {call.code() for call in refused} == {Code.RESOURCE_EXHAUSTED}
        assert "160 calls of this connection are in progress" in refused[0].details()
        client.insert("q", "word", session="s")
        assert client.publish([OBJECT]).accepted == 1
        assert client.get("q").id == "q"
        client.delete("q")
        assert not any(call.done() for call in flood.calls[:CONNECTION_CALLS])


def test_calls_without_a_message_end(
    tmp_path: Path, silence: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "HalfOpenCalls", lambda *_: HalfOpenCalls(0.3))
    with running(tmp_path) as (target, _, _edge), Client(target, timeout=30) as client:
        flood = silence(target)
        flood.open(40, METHODS)
        assert set(flood.codes()) == {Code.DEADLINE_EXCEEDED}
        assert (
            flood.calls[0].details() == "no message arrived within 0.3 s, the limit (half_open_s)"
        )
        subscribing = silence(target)
        subscribing.open(4, ("Deliver",))
        assert set(subscribing.codes()) == {Code.CANCELLED}
        # What has had its first message may be silent for as long as it likes.
        client.insert("q", "word", session="s")
        with client.subscribe("s") as stream:
            matches = iter(stream)
            ended = silence(target)
            ended.open(4, ("Publish",))
            ended.codes()
            client.publish([OBJECT])
            assert next(matches).query_id == "q"


def test_an_open_call_of_health_and_of_admin_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "HalfOpenCalls", lambda *_: HalfOpenCalls(0.3))
    with running(tmp_path) as (target, _, _edge), grpc.insecure_channel(target) as opened:
        channel: Any = opened
        for path in ("/grpc.health.v1.Health/Check", "/ps2stream.v1.Admin/GetStatus"):
            call = channel.stream_stream(path)(iter(lambda: threading.Event().wait(9), None))
            assert call.code() == Code.DEADLINE_EXCEEDED
        empty = channel.stream_stream("/ps2stream.v1.PubSub/GetQuery")(iter(()))
        assert empty.code() == Code.INVALID_ARGUMENT
        assert empty.details() == "request: expected one message, got none"


def test_shares_are_of_connections_and_of_hosts() -> None:
    shares = PeerShares(PeerLimits(connection=2, host=3), "peer_calls")
    one, two, other = "ipv4:10.0.0.7:4711", "ipv4:10.0.0.7:4712", "ipv6:%5B::1%5D:4711"
    for peer in (one, one, two):
        shares.enter(peer)
    with pytest.raises(ResourceExhausted, match=r"2 calls of this connection .*\(peer_calls\)"):
        shares.enter(one)
    with pytest.raises(ResourceExhausted, match="3 calls of this host are in progress"):
        shares.enter(two)
    shares.enter(other)
    shares.leave(one)
    shares.enter(two)
    for peer in (one, two, two, other):
        shares.leave(peer)
    assert len(shares) == 0
    for _ in range(3):
        shares.enter("unix:")
    with pytest.raises(ResourceExhausted, match="host"):
        shares.enter("unix:")


def test_the_oldest_half_open_call_ends_when_there_are_too_many() -> None:
    ended: list[int] = []

    async def open_too_many() -> None:
        calls = HalfOpenCalls(600.0, most=3)
        for i in range(5):
            calls.add(i, partial(ended.append, i))
        assert ended == [0, 1]
        assert not calls.drop(0)
        assert calls.drop(2)
        assert len(calls) == 2

    asyncio.run(open_too_many())


def test_a_half_open_call_ends_in_time_whatever_came_before() -> None:
    ended: list[tuple[str, float]] = []

    async def open_one_after_another() -> None:
        calls = HalfOpenCalls(0.3)
        began = time.monotonic()

        def end(name: str) -> None:
            ended.append((name, time.monotonic() - began))
            raise ValueError(name)  # which keeps no other from its end

        calls.add("dropped", partial(end, "dropped"))
        await asyncio.sleep(0.1)
        calls.add("first", partial(end, "first"))
        assert calls.drop("dropped")
        await asyncio.sleep(0.1)
        calls.add("second", partial(end, "second"))
        await asyncio.sleep(0.6)
        calls.add("third", partial(end, "third"))  # when no timer runs any more
        await asyncio.sleep(0.6)
        assert len(calls) == 0

    asyncio.run(open_one_after_another())
    assert [name for name, _ in ended] == ["first", "second", "third"]
    for (_, at), least in zip(ended, (0.4, 0.5, 1.1), strict=True):
        assert least - 0.02 <= at < least + 1


def test_the_documented_limit_is_the_one_that_holds() -> None:
    assert half_open.HALF_OPEN_S == 5.0


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def lives_s(connection: socket.socket) -> float:
    """How long the service keeps a connection, which reads whatever it is sent."""
    begun = time.monotonic()
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(4096):
            pass
    return time.monotonic() - begun


@pytest.mark.parametrize("said", [b"", PREFACE[:10], PREFACE, b"\x16\x03\x01"])
@pytest.mark.parametrize("secret", [False, True], ids=["plaintext", "TLS"])
def test_a_connection_that_does_not_speak_is_closed(
    said: bytes, secret: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of the option is gRPC's, which ignores one that it does not know."""
    assert dict(server.OPTIONS)["grpc.server_handshake_timeout_ms"] <= 30_000
    options = dict(server.OPTIONS) | {"grpc.server_handshake_timeout_ms": 1000}
    monkeypatch.setattr(server, "OPTIONS", [*options.items()])
    security = server.OPEN
    if secret:
        pair = Authority(tmp_path).issue("server")
        security = PortSecurity(tls_cert=pair.cert, tls_key=pair.key)
    serving = server.serve(GATEWAY, "127.0.0.1", 0, security)
    try:
        with socket.create_connection(("127.0.0.1", serving.port), timeout=60) as connection:
            connection.sendall(said)
            assert lives_s(connection) < 30
    finally:
        serving.stop(0)


@pytest.mark.takes_turns
def test_a_connection_that_has_spoken_may_be_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    options = dict(server.OPTIONS) | {"grpc.server_handshake_timeout_ms": 1000}
    monkeypatch.setattr(server, "OPTIONS", [*options.items()])
    serving = server.serve(GATEWAY, "127.0.0.1", 0)
    try:
        with socket.create_connection(("127.0.0.1", serving.port), timeout=3) as connection:
            connection.sendall(PREFACE + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))  # empty settings
            with pytest.raises(TimeoutError):
                lives_s(connection)
    finally:
        serving.stop(0)
