"""The HTTP interface of a service with tokens: what a tenant has is invisible to others."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.protocol.tokens import make
from ps2stream.security import AccessScope
from ps2stream.store.tokens import FileTokenStore
from ps2stream.web.api.operations import OPERATIONS
from ps2stream.web.serve import MapOptions, serving
from tests.http.conftest import LINES, POST, ask, problem

BEARERS = {
    "acme": ("acme", set(AccessScope)),
    "acme-too": ("acme", set(AccessScope)),
    "other": ("other", set(AccessScope)),
    "feed": ("acme", {AccessScope.PUBLISH}),
    "map": ("", {AccessScope.SUBSCRIBE}),
}
"""Tenant and scopes of each token."""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """The address of the interface, and the tokens."""
    folder = Path(tmp_path_factory.mktemp("tenants"))
    made = {name: make(os.urandom(40), *of, 0) for name, of in _freeze().items()}
    with FileTokenStore(folder) as store:
        store.keep_tokens([m.token for m in made.values()])
    settings = Settings(runtime="local", port=0, workers=1, data_dir=folder, auth=True)
    with start(settings) as service:
        access = {"token": made["map"].text}
        with serving(service.targets[0], access, MapOptions(port=0)) as live:
            home = live.url.split("?")[0]
            yield f"{home}v1", {name: m.text for name, m in made.items()}


def _freeze() -> dict[str, tuple[str, frozenset[AccessScope]]]:
    return {name: (tenant, frozenset(scopes)) for name, (tenant, scopes) in BEARERS.items()}


@pytest.fixture(scope="module")
def url(guarded: tuple[str, dict[str, str]]) -> str:
    return guarded[0]


@pytest.fixture(scope="module")
def bearer(guarded: tuple[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """The header of each bearer."""
    return {name: {"Authorization": f"Bearer {token}"} for name, token in guarded[1].items()}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
def test_nothing_is_done_for_nobody(url: str, operation: object) -> None:
    """But a token is forgotten for anybody."""
    name, method, path = operation[:3]  # type: ignore[index]
    at = f"{url}{path.removeprefix('/v1').replace('{id}', 'x')}"
    if name == "price_query":
        at += "?q=a"
    if name == "explain_match":
        at += "?query=a"
    body = b"{}" if method == "POST" else None
    answer = ask(at, method, body, {"Content-Type": "application/json"} if body else {})
    if name == "drop_token":
        assert answer.status == 204
        return
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_queries_of_another_tenant_are_unknown(url: str, bearer: dict[str, dict[str, str]]) -> None:
    acme, too, other = bearer["acme"], bearer["acme-too"], bearer["other"]
    for i in range(3):
        sent = {"id": f"mine{i}", "expression": "flood", "session": "s"}
        assert ask(f"{url}/queries", "POST", sent, acme).status == 201
    assert ask(f"{url}/queries/mine0", headers=too).status == 200
    problem(ask(f"{url}/queries/mine0", headers=other), 404, "", "mine0")
    problem(ask(f"{url}/queries/mine0", "DELETE", headers=other), 404, "", "mine0")
    place = "lon=8.5&lat=47.4&text=flood"
    problem(ask(f"{url}/explain?query=mine0&{place}", headers=other), 404, "", "mine0")
    assert ask(f"{url}/queries", headers=other).body == {"queries": [], "next": None}
    page = ask(f"{url}/queries?session=s&limit=2", headers=acme).body
    assert [q["id"] for q in page["queries"]] == ["mine0", "mine1"]
    following = f"{url}/queries?session=s&limit=2&after={page['next']}"
    assert [q["id"] for q in ask(following, headers=acme).body["queries"]] == ["mine2"]
    for foreign in (other, too):  # a cursor is of one token
        problem(ask(following, headers=foreign), 404, "", "not known here")


def test_a_key_is_of_one_token(url: str, bearer: dict[str, dict[str, str]]) -> None:
    key = {"Idempotency-Key": "7f"}
    receipts = [
        ask(f"{url}/objects", "POST", [POST], bearer[name] | key).body["first_offset"]
        for name in ("acme", "acme", "acme-too", "other")
    ]
    assert receipts[0] == receipts[1]
    assert len(set(receipts)) == 3


def test_scopes_are_those_of_the_service(url: str, bearer: dict[str, dict[str, str]]) -> None:
    lines = b'{"lon": 1, "lat": 2, "text": "a"}'
    assert ask(f"{url}/objects", "POST", lines, LINES | bearer["feed"]).status == 200
    problem(ask(f"{url}/queries", headers=bearer["feed"]), 403, "", "subscribe")
    problem(ask(f"{url}/objects", "POST", [POST], bearer["map"]), 403, "", "publish")
    unknown = {"Authorization": "Bearer ps2s_nobody"}
    assert ask(f"{url}/queries", headers=unknown).status == 401
    problem(ask(f"{url}/queries?access_token=x", headers=bearer["acme"]), 400, "access_token", "")


def test_other_pages_are_refused(url: str, bearer: dict[str, dict[str, str]]) -> None:
    for foreign in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        problem(ask(f"{url}/queries", headers=bearer["acme"] | foreign), 403, "", "other pages")
    problem(
        ask(f"{url}/queries", headers=bearer["acme"] | {"Host": "a.example"}), 421, "", "a.example"
    )


def test_no_log_has_a_token(
    url: str,
    bearer: dict[str, dict[str, str]],
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Also at the level that tells most, of requests that fail, and of tokens in wrong places."""
    caplog.set_level(logging.DEBUG)
    unknown = f"ps2s_{'0' * 40}"
    secret = bearer["acme"]["Authorization"].removeprefix("Bearer ")
    tried = [unknown, secret]
    for token in tried:
        header = {"Authorization": f"Bearer {token}"}
        kept = ask(f"{url}/cookie", "POST", headers=header)
        cookie = {"Cookie": (kept.headers.get("Set-Cookie") or f"ps2stream_token={token}")}
        for headers in (header, cookie, header | {"Host": "a.example"}, {"Authorization": token}):
            ask(f"{url}/queries", headers=headers)
            ask(f"{url}/objects", "POST", [POST], headers)
            ask(f"{url}/objects", "POST", b"{", headers | LINES)
            ask(f"{url}/queries/{token}", headers=headers)
            ask(f"{url}/stream?q=flood&token={token}", headers=headers)
    told = caplog.text + "".join(capfd.readouterr())
    assert not [token for token in tried if token in told]
