"""ps2stream/connectors/addresses.py and http_poster.py: where a sink may connect to."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ps2stream.connectors.addresses import AddressReach, check_address, check_url, is_public
from ps2stream.connectors.http_poster import HttpPoster, HttpTarget
from ps2stream.connectors.sink_loop import SinkAttempt, SinkVerdict
from ps2stream.errors import InvalidArgument, PermissionDenied
from tests.support.message_receivers import SlackChannel
from tests.support.webhook_receiver import serving

PRIVATE = [
    "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
    "0.0.0.0", "255.255.255.255", "224.0.0.1", "240.0.0.1", "192.0.2.1", "198.18.0.1",
    "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fec0::1", "ff02::1", "2001:db8::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::", "2002:a00:1::", "64:ff9b:1::1",
]  # fmt: skip
PUBLIC = ["1.1.1.1", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]


@pytest.mark.parametrize("address", PRIVATE)
def test_addresses_that_only_some_networks_know_are_not_public(address: str) -> None:
    assert not is_public(address)
    for reach in (AddressReach.PUBLIC, AddressReach.USUAL):
        with pytest.raises(PermissionDenied, match="not a public address"):
            check_address(address, reach, here=False)
    check_address(address, AddressReach.ANY, here=False)


@pytest.mark.parametrize("address", PUBLIC)
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)
    check_address(address, AddressReach.PUBLIC, here=False)


@pytest.mark.parametrize(
    ("url", "kind", "problem"),
    [
        ("http://localhost/", InvalidArgument, "plaintext"),
        ("https://127.0.0.1/", PermissionDenied, "127.0.0.1"),
        ("https://[::1]/", PermissionDenied, "::1"),
        ("https://[::ffff:10.0.0.1]/", PermissionDenied, "10.0.0.1|a00:1"),
        ("https://example.org\\@127.0.0.1/", InvalidArgument, "backslashes"),
        ("https://example.org/\r\nx: y", InvalidArgument, "spaces"),
        ("https://example.org:99999/", InvalidArgument, "expected an https URL"),
        ("https://[::1", InvalidArgument, "expected an https URL"),
    ],
)
def test_a_url_of_a_tenant_names_no_machine_of_ours(
    url: str, kind: type[Exception], problem: str
) -> None:
    with pytest.raises(kind, match=problem):
        check_url(url, AddressReach.PUBLIC)


def post_to(target: HttpTarget) -> SinkAttempt:
    async def run() -> SinkAttempt:
        async with HttpPoster(target) as poster:
            return await poster.post_json(b'{"text": "x"}', {})

    return asyncio.run(run())


def resolve_names_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """The names of the tests resolve to one address after the other, and then to the last."""
    left = list(addresses)
    before = socket.getaddrinfo

    def answer(host: Any, port: Any, *args: Any, **more: Any) -> Any:
        if not str(host).endswith(".test"):
            return before(host, port, *args, **more)
        address = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", answer)


@pytest.mark.parametrize("reach", [AddressReach.PUBLIC, AddressReach.USUAL])
def test_a_name_that_leads_into_our_network_is_not_connected_to(
    monkeypatch: pytest.MonkeyPatch, reach: AddressReach
) -> None:
    with serving(SlackChannel()) as channel:
        port = channel.url.rsplit(":", 1)[1]
        resolve_names_to(monkeypatch, "127.0.0.1")
        with pytest.raises(PermissionDenied, match=r"leads to 127\.0\.0\.1"):
            post_to(HttpTarget(f"https://hook.test:{port}", reach=reach))
        for literal in ("2130706433", "127.1", "0x7f000001"):
            with pytest.raises((PermissionDenied, InvalidArgument)):
                post_to(HttpTarget(f"https://{literal}:{port}", reach=reach))
        assert not channel.requests


@contextmanager
def answering(*answers: bytes) -> Iterator[int]:
    """A server that answers each connection with these bytes, whatever it is sent."""

    def serve() -> None:
        for answer in answers:
            came, _ = server.accept()
            with came:
                came.recv(1 << 16)
                came.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def test_no_outcome_shows_the_url_or_what_a_terminal_would_obey() -> None:
    answers = (
        b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
        b"no http at all\r\n\r\n",
        b"",
        b"HTTP/1.1 400 \x1b[31m" + b"x" * 4000 + b"\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 204 OK\r\n" + b"a: " + b"y" * 100_000 + b"\r\n\r\n",
    )
    with answering(*answers) as port:
        target = HttpTarget(f"http://127.0.0.1:{port}/services/hidden")
        for _ in answers:
            found = post_to(target)
            assert found.verdict is not SinkVerdict.ACCEPTED
            assert len(found.outcome) < 300
            assert "hidden" not in found.outcome
            assert "\x1b" not in found.outcome


def test_this_machine_is_reached_where_the_url_names_it() -> None:
    with serving(SlackChannel()) as channel:
        channel.script = [200, (307, {"location": channel.url}), 200]
        assert post_to(HttpTarget(channel.url)).verdict is SinkVerdict.ACCEPTED
        redirected = post_to(HttpTarget(channel.url.replace("127.0.0.1", "localhost")))
        assert redirected == (
            SinkVerdict.REFUSED,
            "answered 307 Temporary Redirect (redirects are not followed)",
            0.0,
        )
        assert len(channel.requests) == 2
