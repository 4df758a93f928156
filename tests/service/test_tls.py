"""TLS on the port: who is trusted, certificates of clients, rotation, and refusals."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ps2stream import config
from ps2stream.client.async_client import AsyncClient
from ps2stream.client.client import Client
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import InvalidArgument, PermissionDenied, Unauthenticated, Unavailable
from ps2stream.security import AccessScope, CertificateIdentity, PortSecurity
from ps2stream.service.server import serve
from tests.support.certificates import Authority, Pair
from tests.support.gateways import GATEWAY

FEED = "spiffe://example.org/feed"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.issue("server")


@pytest.fixture(scope="module")
def mutual(
    authority: Authority, pair: Pair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningService]:
    settings = Settings(
        runtime="local", port=0, workers=1, data_dir=Path(tmp_path_factory.mktemp("mutual")),
        tls_cert=pair.cert, tls_key=pair.key, tls_client_ca=authority.ca, auth=True,
        identities={
            FEED: CertificateIdentity(scopes=frozenset({AccessScope.PUBLISH})),
            "reader": CertificateIdentity(scopes=frozenset({AccessScope.SUBSCRIBE})),
        },
    )  # fmt: skip
    with start(settings) as running:
        yield running


def shown(port: int) -> bytes:
    """The certificate that a port shows."""
    return ssl.get_server_certificate(("127.0.0.1", port)).encode()


def test_the_client_trusts_the_authority_it_was_given(
    authority: Authority, pair: Pair, tmp_path: Path
) -> None:
    settings = Settings(
        runtime="local", port=0, workers=1, data_dir=tmp_path / "data",
        tls_cert=pair.cert, tls_key=pair.key,
    )  # fmt: skip
    other = Authority(tmp_path, "other")
    with start(settings) as running:
        target = running.targets[0]
        with Client(target, tls_ca=authority.ca) as client:
            client.insert("q", "storm")

        async def ask() -> int:
            async with AsyncClient(target, tls_ca=authority.ca) as client:
                return int((await client.status())["live_queries"])

        assert asyncio.run(ask()) == 1
        for bad in ({}, {"tls_ca": other.ca}, {"tls_ca": "system"}):
            with Client(target, timeout=1, **bad) as client, pytest.raises(Unavailable):
                client.status()


def test_a_client_certificate_is_an_identity(authority: Authority, mutual: RunningService) -> None:
    target = mutual.targets[0]

    def client(pair: Pair) -> Client:
        return Client(target, tls_ca=authority.ca, tls_cert=pair.cert, tls_key=pair.key)

    with client(authority.issue("anyone", FEED)) as feed:
        assert feed.publish([{"lon": 0.0, "lat": 0.0, "text": "storm"}]).accepted == 1
        with pytest.raises(PermissionDenied, match="needs the scope subscribe"):
            feed.insert("q", "storm")
    with client(authority.issue("reader")) as reader:
        reader.insert("r", "storm")
    # A SPIFFE id that is not known is not made good by a common name that is.
    for stranger in (
        authority.issue("reader", "spiffe://example.org/other"),
        authority.issue("stranger"),
        authority.issue(FEED),
    ):
        with client(stranger) as unknown, pytest.raises(Unauthenticated, match="certificate"):
            unknown.insert("s", "storm")


def test_without_a_certificate_there_is_no_connection(
    authority: Authority, mutual: RunningService, tmp_path: Path
) -> None:
    bare = Client(mutual.targets[0], timeout=1, tls_ca=authority.ca)
    with bare, pytest.raises(Unavailable):
        bare.status()
    forged = Authority(tmp_path, "forged").issue("anyone", FEED)
    with (
        Client(
            mutual.targets[0],
            timeout=1,
            tls_ca=authority.ca,
            tls_cert=forged.cert,
            tls_key=forged.key,
        ) as thief,
        pytest.raises(Unavailable),
    ):
        thief.status()


def test_a_new_certificate_is_taken_and_a_bad_one_is_not(authority: Authority) -> None:
    old = authority.issue("rotated", file="rotated")
    first = old.cert.read_bytes()
    server = serve(GATEWAY, "127.0.0.1", 0, PortSecurity(tls_cert=old.cert, tls_key=old.key))
    try:
        assert shown(server.port) == first
        old.cert.write_bytes(authority.issue("other").cert.read_bytes())  # does not fit the key
        assert shown(server.port) == first
        old.cert.unlink()
        assert shown(server.port) == first
        second = authority.issue("rotated", file="rotated").cert.read_bytes()
        assert second != first
        deadline = time.monotonic() + 60
        while shown(server.port) != second:
            assert time.monotonic() < deadline
    finally:
        server.stop(0)


def test_every_address_with_tls(authority: Authority, pair: Pair) -> None:
    server = serve(GATEWAY, "0.0.0.0", 0, PortSecurity(tls_cert=pair.cert, tls_key=pair.key))
    assert shown(server.port) == pair.cert.read_bytes()
    server.stop(0)


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"tls_cert": "missing.pem"}, "tls_cert: .*missing.pem: No such file"),
        ({"tls_cert": "empty.pem"}, "tls_cert, tls_key: do not belong together, or are not in PEM"),
        ({"tls_cert": "other.pem"}, "tls_cert, tls_key: do not belong together"),
        ({"tls_client_ca": "empty.pem"}, "tls_client_ca: is not in PEM"),
    ],
)
def test_files_that_cannot_be_used(
    authority: Authority, pair: Pair, tmp_path: Path, files: dict[str, str], problem: str
) -> None:
    (tmp_path / "empty.pem").write_text("nothing")
    (tmp_path / "other.pem").write_bytes(authority.issue("other").cert.read_bytes())
    security = PortSecurity(tls_cert=pair.cert, tls_key=pair.key)
    changes: dict[str, Any] = {name: tmp_path / file for name, file in files.items()}
    with pytest.raises(InvalidArgument, match=problem):
        serve(GATEWAY, "127.0.0.1", 0, dataclasses.replace(security, **changes))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"host": "0.0.0.0"}, "host: 0.0.0.0 is not a loopback address, which needs TLS"),
        ({"host": "example.org"}, "host: 'example.org' is not an IP address or localhost"),
        ({"tls_cert": "c"}, "tls_cert: must be set together with tls_key"),
        ({"tls_client_ca": "c"}, "tls_client_ca: needs tls_cert and tls_key"),
        ({"identities": {"x": {"scopes": ["publish"]}}}, "identities: needs tls_client_ca"),
        (
            {"host": "::", "tls_cert": "c", "tls_key": "k", "auth": False},
            "auth: cannot be off, because host :: is not a loopback address",
        ),
    ],
)
def test_settings_that_leave_a_door_open(given: dict[str, object], problem: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{problem}"):
        config.load(given, environ={})


def test_auth_is_on_where_others_reach_it() -> None:
    files = {"tls_cert": Path("c"), "tls_key": Path("k")}
    assert Settings(host="::", **files).security.auth
    assert not Settings(host="::1", **files).security.auth
    assert Settings(auth=True).security.auth


def test_a_token_does_not_travel_in_plaintext() -> None:
    with pytest.raises(InvalidArgument, match="token: would travel in plaintext to 192"):
        Client("192.0.2.1:7", token="ps2s_secret")
    with pytest.raises(InvalidArgument) as caught:
        Client("localhost:7", token="a\nb")
    assert "a\nb" not in str(caught.value)
    for bad, problem in (
        ({"tls_ca": "/nowhere.pem"}, "tls_ca: /nowhere.pem: No such file"),
        ({"tls_cert": "/nowhere.pem"}, "tls_cert: must be set together with tls_key"),
    ):
        given: dict[str, Any] = bad
        with pytest.raises(InvalidArgument, match=problem):
            Client("localhost:7", **given)


STRANGERS = """
import socket, sys
from pathlib import Path
from ps2stream.security import PortSecurity
from ps2stream.service.server import serve
from tests.support.gateways import GATEWAY

server = serve(GATEWAY, "127.0.0.1", 0, PortSecurity(*map(Path, sys.argv[1:3])))
for _ in range(100):
    with socket.create_connection(("127.0.0.1", server.port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
        while stranger.recv(100):
            pass
server.stop(0)
"""


def test_handshakes_of_strangers_write_few_lines(pair: Pair, root: Path) -> None:
    own = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    done = subprocess.run(
        [sys.executable, "-c", STRANGERS, str(pair.cert), str(pair.key)],
        env=own | {"PYTHONPATH": str(root)},
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert len(done.stderr.splitlines()) <= 3, done.stderr
