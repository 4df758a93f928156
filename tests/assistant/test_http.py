"""`ps2stream mcp --http`: who is let in, and what of others each sees."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from mcp.shared.exceptions import MCPDeprecationWarning

from ps2stream.assistant import callers as callers_module
from ps2stream.assistant import gate as gate_module
from ps2stream.assistant.callers import MATCHES
from ps2stream.assistant.serve import BODY_BYTES, McpOptions, open_http
from ps2stream.assistant.sessions import EACH
from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import InvalidArgument
from ps2stream.protocol.tokens import make
from ps2stream.security import AccessScope
from ps2stream.store.tokens import FileTokenStore
from tests.assistant.conftest import POST, TIMEOUT_S, call, connect, read_until, refuse
from tests.support.certificates import Authority

EVERYTHING = frozenset(AccessScope)
BEARERS = {
    "acme": ("acme", EVERYTHING),
    "acme-too": ("acme", EVERYTHING),
    "other": ("other", EVERYTHING),
    "feed": ("acme", frozenset({AccessScope.PUBLISH})),
}
"""Tenant and scopes of each token."""
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """The address of a service with tokens, and the tokens."""
    folder = Path(tmp_path_factory.mktemp("assistants"))
    made = {name: make(os.urandom(40), *of, 0) for name, of in BEARERS.items()}
    with FileTokenStore(folder) as store:
        store.keep_tokens([m.token for m in made.values()])
    settings = Settings(runtime="local", port=0, workers=1, data_dir=folder, auth=True)
    with start(settings) as service:
        yield service.targets[0], {name: m.text for name, m in made.items()}


def serve(
    target: str, talk: Callable[[str], Awaitable[None]], options: McpOptions | None = None
) -> None:
    """Runs a server, and what talks to it."""

    async def run() -> None:
        chosen = options or McpOptions(port=0)
        async with open_http(target, {"timeout": 10.0}, chosen) as url:
            await talk(url)

    asyncio.run(run())


def post(
    url: str, body: Any = PING, method: str = "POST", **headers: str
) -> tuple[int, dict[str, str], str]:
    """Sends a request as any program could."""
    sent = ACCEPT | {name.replace("_", "-"): value for name, value in headers.items()}
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, sent, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, dict(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read().decode()


def wait_for_status(status: int, url: str, **headers: str) -> None:
    """Sends requests until one is answered so."""
    deadline = time.monotonic() + TIMEOUT_S
    while post(url, INITIALIZE, **headers)[0] != status:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.takes_turns
def test_a_token_sees_its_own_session_alone(tokens: tuple[str, dict[str, str]]) -> None:
    target, of = tokens

    async def talk(url: str) -> None:
        async with (
            connect(url, of["acme"]) as acme,
            connect(url, of["acme-too"]) as too,
            connect(url, of["other"]) as other,
        ):
            mine = await call(acme, "add_subscription", query="quake")
            await call(acme, "add_subscription", query="tremor")
            with Client(target, token=of["feed"]) as feed:
                await asyncio.to_thread(feed.publish, [POST | {"text": "quake"}])
            found, cursor = await read_until(acme, 1)
            assert found[0]["untrusted_text"] == "quake"
            page = await call(acme, "list_subscriptions", limit=1)
            asked = {"id": mine["id"], "lon": 1, "lat": 1, "text": "quake"}
            for stranger in (too, other):
                words = f"there is no subscription {mine['id']!r}"
                assert await refuse(stranger, "remove_subscription", id=mine["id"]) == words
                assert await refuse(stranger, "explain", **asked) == words
                assert (await call(stranger, "list_subscriptions"))["subscriptions"] == []
                assert (await call(stranger, "read_matches"))["matches"] == []
                assert "not known" in await refuse(stranger, "read_matches", cursor=cursor)
                assert "not known" in await refuse(
                    stranger, "list_subscriptions", page=page["next"]
                )
            assert (await call(acme, "explain", **asked))["matches"]

    serve(target, talk)


def test_events_are_of_the_own_session_alone(tokens: tuple[str, dict[str, str]]) -> None:
    target, of = tokens

    async def talk(url: str) -> None:
        async with (
            connect(url, of["acme"]) as acme,
            connect(url, of["other"]) as other,
            acme.listen(resource_subscriptions=[MATCHES]) as own,
            other.listen(resource_subscriptions=[MATCHES]) as foreign,
        ):
            for client, name in ((acme, "acme"), (other, "other")):
                await call(client, "add_subscription", query=f"only{name}")
            waiting = asyncio.ensure_future(anext(foreign))
            with Client(target, token=of["feed"]) as feed:
                await asyncio.to_thread(feed.publish, [POST | {"text": "onlyacme"}])
                async with asyncio.timeout(TIMEOUT_S):
                    await anext(own)
                assert not waiting.done()
                await asyncio.to_thread(feed.publish, [POST | {"text": "onlyother"}])
                async with asyncio.timeout(TIMEOUT_S):
                    await waiting
            shown = (await other.read_resource(MATCHES)).contents[0]
            texts = [m["untrusted_text"] for m in json.loads(shown.text)["matches"]]  # type: ignore[union-attr]
            assert texts == ["onlyother"]

    serve(target, talk)


def test_nobody_without_a_token_is_let_in(tokens: tuple[str, dict[str, str]]) -> None:
    target, of = tokens

    async def talk(url: str) -> None:
        for headers in ({}, {"Authorization": "Bearer ps2s_nobody"}, {"Authorization": "Basic x"}):
            status, sent, body = await asyncio.to_thread(post, url, **headers)
            assert status == 401, body
            assert sent["www-authenticate"] == "Bearer"
            assert json.loads(body)["title"] == "Unauthorized"
        at = f"{url}?access_token={of['acme']}"
        assert (await asyncio.to_thread(post, at))[0] == 401
        feed = {"Authorization": f"Bearer {of['feed']}"}
        status, _, body = await asyncio.to_thread(post, url, **feed)
        assert (status, "subscribe" in body) == (403, True)

    serve(target, talk)


def test_a_revoked_token_is_refused_at_once(tokens: tuple[str, dict[str, str]]) -> None:
    target, of = tokens

    async def talk(url: str) -> None:
        with Client(target, token=of["acme"]) as admin:
            made, secret = await asyncio.to_thread(admin.create_token, "acme", ["subscribe"])
            bearer = {"Authorization": f"Bearer {secret}"}
            assert (await asyncio.to_thread(post, url, INITIALIZE, **bearer))[0] == 200
            async with connect(url, secret) as client:
                await call(client, "add_subscription", query="gone")
                await asyncio.to_thread(admin.revoke_token, made.id)
                # Dispatchers look every second.
                await asyncio.to_thread(wait_for_status, 401, url, **bearer)

    serve(target, talk)


def test_requests_of_web_pages_are_refused(target: str) -> None:
    async def talk(url: str) -> None:
        port = url.split(":")[2].split("/", maxsplit=1)[0]
        cases = [
            ({}, 200, ""),
            ({"Origin": "http://evil.example"}, 403, "web pages"),
            ({"Origin": f"http://127.0.0.1:{port}"}, 403, "web pages"),
            ({"Origin": "null"}, 403, "web pages"),
            ({"Sec_Fetch_Site": "cross-site"}, 403, "web pages"),
            ({"Sec_Fetch_Site": "same-origin"}, 403, "web pages"),
            ({"Host": "evil.example"}, 421, "evil.example"),
            ({"Host": f"evil.example:{port}"}, 421, "evil.example"),
            ({"Host": f"localhost:{port}"}, 200, ""),
            ({"Origin": "https://good.example", "Sec_Fetch_Site": "cross-site"}, 200, ""),
        ]
        for headers, status, words in cases:
            found, _, body = await asyncio.to_thread(post, url, INITIALIZE, **headers)
            assert (found, words in body) == (status, True), (headers, body)

    options = McpOptions(port=0, allow_origin=("https://good.example",))
    serve(target, talk, options)


def test_bodies_are_bounded_and_broken_ones_refused(target: str) -> None:
    async def talk(url: str) -> None:
        large = json.dumps(PING | {"params": "x" * BODY_BYTES}).encode()
        assert (await asyncio.to_thread(post, url, large))[0] == 413
        for broken in (b"", b"{", b"[]", b'"a"', b"[" * 10_000):
            assert 400 <= (await asyncio.to_thread(post, url, broken))[0] < 500

    serve(target, talk)


def test_a_body_that_does_not_arrive_holds_nothing(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_module, "BODY_S", 0.2)

    async def talk(url: str) -> None:
        at = urlsplit(url)
        reading, writing = await asyncio.open_connection(at.hostname, at.port)
        lines = (f"{name}: {value}\r\n" for name, value in ACCEPT.items())
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: {at.netloc}\r\nContent-Length: 9\r\n{''.join(lines)}\r\n"
        )
        writing.write(f"{head}{{".encode())
        async with asyncio.timeout(TIMEOUT_S):
            assert (await reading.readline()).startswith(b"HTTP/1.1 408 ")
        writing.close()

    serve(target, talk)


def test_an_assistant_of_2025_is_told_of_matches(target: str, client: Client) -> None:
    """It opens a session of the protocol, which another caller cannot use."""
    told = asyncio.Event()

    async def note(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/resources/updated":
            told.set()

    async def talk(url: str) -> None:
        async with connect(url, mode="legacy", message_handler=note) as assistant:
            await call(assistant, "add_subscription", query="legacy")
            with pytest.warns(MCPDeprecationWarning):
                await assistant.subscribe_resource(MATCHES)
            client.publish([POST | {"text": "legacy"}])
            async with asyncio.timeout(TIMEOUT_S):
                await told.wait()
            found, _ = await read_until(assistant, 1)
            assert found[0]["untrusted_text"] == "legacy"
            with pytest.warns(MCPDeprecationWarning):
                await assistant.unsubscribe_resource(MATCHES)

    serve(target, talk)


def test_a_session_of_the_protocol_is_of_its_token(tokens: tuple[str, dict[str, str]]) -> None:
    target, of = tokens

    async def talk(url: str) -> None:
        own = {"Authorization": f"Bearer {of['acme']}"}
        foreign = {"Authorization": f"Bearer {of['other']}"}
        _, sent, _ = await asyncio.to_thread(post, url, INITIALIZE, **own)
        session = {"Mcp_Session_Id": sent["mcp-session-id"]}
        assert (await asyncio.to_thread(post, url, PING, **own, **session))[0] == 200
        assert (await asyncio.to_thread(post, url, PING, **foreign, **session))[0] == 404

    serve(target, talk)


def test_one_caller_cannot_take_all_sessions_of_the_protocol(
    tokens: tuple[str, dict[str, str]],
) -> None:
    target, of = tokens

    async def talk(url: str) -> None:
        own = {"Authorization": f"Bearer {of['acme']}"}
        other = {"Authorization": f"Bearer {of['other']}"}
        for _ in range(EACH):
            status, sent, _ = await asyncio.to_thread(post, url, INITIALIZE, **own)
            assert status == 200
        status, _, body = await asyncio.to_thread(post, url, INITIALIZE, **own)
        assert (status, "(sessions)" in body) == (429, True)
        assert (await asyncio.to_thread(post, url, INITIALIZE, **other))[0] == 200
        session = {"Mcp_Session_Id": sent["mcp-session-id"]}
        assert (await asyncio.to_thread(post, url, PING, **own, **session))[0] == 200
        async with connect(url, of["acme"]) as assistant:  # in 2026 there are no sessions
            await call(assistant, "list_subscriptions")
        assert (await asyncio.to_thread(post, url, method="DELETE", **own, **session))[0] == 200
        assert (await asyncio.to_thread(post, url, INITIALIZE, **own))[0] == 200

    serve(target, talk)


def test_callers_and_requests_are_bounded(
    tokens: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, of = tokens
    monkeypatch.setattr(callers_module, "MAX_CALLERS", 1)
    monkeypatch.setattr(callers_module, "MAX_REQUESTS", 2)

    async def talk(url: str) -> None:
        own = {"Authorization": f"Bearer {of['acme']}"}
        other = {"Authorization": f"Bearer {of['other']}"}
        async with connect(url, of["acme"]) as acme:
            async with (
                acme.listen(resource_subscriptions=[MATCHES]),
                acme.listen(resource_subscriptions=[MATCHES]),
            ):
                status, sent, body = await asyncio.to_thread(post, url, **own)
                assert (status, "(requests)" in body) == (429, True)
                assert int(sent["retry-after"]) >= 1
                status, _, body = await asyncio.to_thread(post, url, **other)
                assert (status, "(callers)" in body) == (429, True)
            # The ends of the streams are on their way.
            await asyncio.to_thread(wait_for_status, 200, url, **other)

    serve(target, talk)


def test_off_loopback_needs_tls_and_tokens(
    target: str, tokens: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgument, match="--https-cert"):
        serve(target, _talk_to_nobody, McpOptions(host="0.0.0.0", port=0))
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server")
    open_to_all = McpOptions(host="0.0.0.0", port=0, https_cert=certificate, https_key=key)
    with pytest.raises(InvalidArgument, match="asks nobody for a token"):
        serve(target, _talk_to_nobody, open_to_all)

    async def talk(url: str) -> None:
        trust = ssl.create_default_context(cafile=authority.ca)
        local = url.replace("0.0.0.0", "localhost")
        async with connect(local, tokens[1]["acme"], trust=trust) as client:
            await call(client, "list_subscriptions")
            assert (await client.list_tools()).tools

    serve(tokens[0], talk, open_to_all)


async def _talk_to_nobody(url: str) -> None:
    raise AssertionError(url)


@pytest.mark.takes_turns
def test_the_program_serves_until_it_is_stopped(target: str) -> None:
    command = [sys.executable, "-m", "ps2stream", "mcp", "--http", "--port", "0", "--json"]
    with subprocess.Popen(
        [*command, "--server", target], stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        ready = json.loads(running.stdout.readline())
        assert post(ready["url"], INITIALIZE)[0] == 200
        running.send_signal(signal.SIGTERM)
        assert json.loads(running.stdout.readline()) == {"event": "stopped"}
    assert running.returncode == 0
