"""The map's HTTP side: who is let in, what is refused, and that nobody can make it grow."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ps2stream.client.answers import WatchedMatch, WatchedObject, WatchReport
from ps2stream.client.async_client import AsyncClient
from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import InvalidArgument, ResourceExhausted
from ps2stream.protocol.tokens import make
from ps2stream.security import AccessScope
from ps2stream.store.tokens import FileTokenStore
from ps2stream.web import hub as hubs
from ps2stream.web.hub import MAX_PAGES, PageHub
from ps2stream.web.mailbox import LISTS, PageMailbox
from ps2stream.web.own import MAX_OWN, DrawnQueries
from ps2stream.web.serve import MapOptions, ServedMap, serving
from tests.support import certificates

JSON = {"Content-Type": "application/json"}
NONE: Mapping[str, str] = {}


def ask(
    url: str,
    method: str = "GET",
    body: bytes | None = None,
    headers: Mapping[str, str] = NONE,
    trust: ssl.SSLContext | None = None,
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an answer, without following it elsewhere."""
    request = urllib.request.Request(url, body, dict(headers), method=method)
    opener = urllib.request.build_opener(_Stay(), urllib.request.HTTPSHandler(context=trust))
    try:
        with opener.open(request, timeout=20) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def insert(live: ServedMap, query: object, **headers: str) -> tuple[int, Any]:
    data = query if isinstance(query, bytes) else json.dumps(query).encode()
    status, _, body = ask(f"{live.url}api/queries", "POST", data, JSON | headers)
    try:
        return status, json.loads(body)
    except ValueError:
        return status, body.decode()


def test_every_answer_forbids_scripts_of_others(live: ServedMap) -> None:
    for path in ("", "static/main.js", "api/plan", "nowhere"):
        status, headers, _ = ask(live.url + path)
        assert status == (404 if path == "nowhere" else 200)
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"


def test_files_outside_are_not_served(live: ServedMap) -> None:
    for path in ("static/../app.py", "static/%2e%2e/app.py", "static//etc/passwd", "static/"):
        assert ask(live.url + path)[0] in (403, 404)


def test_other_origins_and_names_are_refused(live: ServedMap, client: Client) -> None:
    query = {"expression": "evil", "region": None}
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},  # a form
    ):
        assert insert(live, query, **headers) == (403, "requests of other pages are refused")
    assert insert(live, query, Host="evil.example")[0] == 421
    assert ask(live.url, headers={"Host": "rebound.example:80"})[0] == 421
    assert ask(f"{live.url}events", headers={"Sec-Fetch-Site": "cross-site"})[0] == 403
    assert [q.expression for q in client.list()] == []
    own = {"Origin": live.url.rstrip("/"), "Sec-Fetch-Site": "same-origin"}
    status, made = insert(live, query, **own)
    assert status == 201
    assert ask(f"{live.url}api/queries/{made['properties']['id']}", "DELETE", headers=own)[0] == 200


def test_bad_requests_are_told_with_their_field(live: ServedMap, client: Client) -> None:
    def told(query: object, **headers: str) -> tuple[int, str]:
        status, body = insert(live, query, **headers)
        return status, body["error"]["message"]

    assert told(b"{", **JSON)[0] == 400
    assert told(b"[1]") == (400, "request: is not an object")
    assert told(b'{"expression": NaN}')[1].startswith("request: is not JSON")
    assert told({"x": 1}) == (400, "x: is not a field of a query")
    assert told({"expression": 1}) == (400, "expression: is not a text")
    assert told({"region": "x"}) == (400, "region: is neither null nor an object")
    assert told({"region": {"type": "Rect", "lon_min": 1}})[0] == 400
    assert told({"expression": "a AND"})[1].startswith("query.expression: ")
    assert told({"expression": "x"}, **{"Content-Type": "text/plain"})[0] == 400
    status, _ = insert(live, b"x" * (300 << 10))
    assert status == 413
    client.insert("not-of-the-map", "alien", session="s")
    assert ask(f"{live.url}api/queries/not-of-the-map", "DELETE")[0] == 404
    client.delete("not-of-the-map")


def test_no_more_queries_are_drawn_than_may_be(target: str) -> None:
    async def drawn() -> None:
        async with AsyncClient(target) as client:
            own = DrawnQueries(client, None)
            for i in range(MAX_OWN):
                await own.insert(f"word{i}", None)
            with pytest.raises(ResourceExhausted, match="100 queries are drawn"):
                await own.insert("one more", None)
            await own.leave()
            assert own.features() == []
            assert [q async for q in client.list(own.session)] == []

    asyncio.run(drawn())


def test_a_session_with_a_name_keeps_its_queries(target: str, client: Client) -> None:
    with serving(target, {}, MapOptions(port=0, session="kept")) as first:
        assert insert(first, {"expression": "glacier"})[0] == 201
    (query,) = client.list("kept")
    with serving(target, {}, MapOptions(port=0, session="kept")) as second:
        (feature,) = second.hub.own.features()
        assert feature["properties"]["expression"] == "glacier"
        assert ask(f"{second.url}api/queries/{query.id}", "DELETE")[0] == 200


# --- who watches slowly, and how many ------------------------------------------


def test_a_mailbox_is_bounded_and_counts_what_it_drops() -> None:
    async def filled() -> None:
        box = PageMailbox()
        for i in range(1000):
            box.put({"objects": [i, i], "status": i})
        assert len(box) == LISTS["objects"] + 1
        told = await box.take()
        assert told["objects"][-1] == told["status"] == 999
        assert told["dropped"] == 2000 - LISTS["objects"]
        assert len(box) == 0
        box.put({"own": [1]})
        assert await box.take() == {"own": [1], "dropped": told["dropped"]}

    asyncio.run(filled())


def test_who_reads_nothing_holds_up_nobody_and_does_not_grow(target: str) -> None:
    async def watched() -> None:
        async with AsyncClient(target) as client:
            hub = PageHub(client, DrawnQueries(client, None))
            slow, quick = hub.join(), hub.join()
            some = WatchedObject("o", 0, 1, 0, 1.0, 2.0, "t" * 1000)
            match = WatchedMatch(some, "q", 1, 1)
            for _ in range(500):
                hub._take_watched(WatchReport((some,) * 5, (match,) * 5, 5, 5, (1.0,) * 90, 0))
                told = await quick.take()
                assert (len(told["objects"]), told["dropped"]) == (5, 0)
            assert len(slow) <= sum(LISTS.values()) + 20
            assert (await slow.take())["dropped"] == 2 * (2500 - LISTS["objects"])
            assert len(hub._latency) <= hubs.MAX_BATCHES
            hub.leave(slow)
            hub.leave(quick)
            assert not hub._tasks
            await hub.close()

    asyncio.run(watched())


def test_the_objects_of_several_dispatchers_are_shown_and_each_match_once(tmp_path: Path) -> None:
    settings = Settings(
        runtime="local", port=0, workers=1, dispatchers=2, data_dir=tmp_path / "data"
    )
    with ExitStack() as stack:
        service = stack.enter_context(start(settings))
        clients = [stack.enter_context(Client(target)) for target in service.targets]
        clients[0].insert("q", "word", session="s")
        here, there = service.targets
        live = stack.enter_context(serving(here, {}, MapOptions(port=0, also=(there, here))))
        seen: dict[str, list[Any]] = {"objects": [], "matches": []}
        counted = {"objects": 0.0, "matches": 0.0}
        links = []
        with urllib.request.urlopen(f"{live.url}events", timeout=30) as answer:
            for line in answer:
                told = json.loads(line[6:]) if line.startswith(b"data: ") else {}
                if "link" in told:
                    links.append((told["link"]["up"], set(told["link"]["server"].split(", "))))
                    if len(links[-1][1]) == 2:
                        for client in clients:
                            thing = {"id": client.target, "lon": 1.0, "lat": 2.0, "text": "word"}
                            client.publish([thing])
                for name, found in seen.items():
                    found += [post["id"] for post in told.get(name, [])]
                    counted[name] += sum(second[name] for second in told.get("seconds", []))
                if min(counted.values()) > 1.5:
                    break
        assert sorted(seen["objects"]) == sorted(seen["matches"]) == sorted(service.targets)
        assert counted == pytest.approx({"objects": 2, "matches": 2}, rel=0.2)
        assert links[-1] == (True, {here, there})


def test_a_dispatcher_that_is_away_is_named(target: str) -> None:
    async def watched() -> None:
        async with AsyncClient(target) as client, AsyncClient("127.0.0.1:1") as other:
            hub = PageHub(client, DrawnQueries(client, None), (other,))
            page = hub.join()
            while (link := (await page.take()).get("link", {})).get("up") is not False:
                pass
            assert link["server"] == "127.0.0.1:1"
            hub.leave(page)
            await hub.close()

    asyncio.run(watched())


def test_matches_of_own_queries_come_once_and_few_others_are_looked_up(target: str) -> None:
    async def watched() -> None:
        async with AsyncClient(target) as client:
            own = DrawnQueries(client, None)
            mine = (await own.insert("lava", None))["properties"]["id"]
            hub = PageHub(client, own)
            page = hub.join()
            await page.take()
            some = WatchedObject("o", 0, 1, 0, 1.0, 2.0, "t")
            matches = [WatchedMatch(some, name, 1, 1) for name in (mine, *map(str, range(20)))]
            hub._take_watched(WatchReport((), tuple(matches), 0, 21, (), 0))
            assert len(hub._asked) == hubs.MAX_LOOKUPS
            told = await page.take()
            assert [match["query"] for match in told["matches"]] == [*map(str, range(20))]
            await asyncio.gather(*hub._lookups)
            assert hub._known["0"]["geometry"] is None  # there is no such query
            ids = [str(i) for i in range(hubs.MAX_KNOWN + 9)]
            hub._keep_queries([{"properties": {"id": id}, "geometry": None} for id in ids])
            assert list(hub._known) == ids[9:]
            hub.leave(page)
            await hub.close()
            await own.leave()

    asyncio.run(watched())


def test_a_query_that_somebody_else_drops_is_dropped_here_too(target: str, client: Client) -> None:
    async def drawn() -> None:
        async with AsyncClient(target) as connected:
            own = DrawnQueries(connected, None)
            told: asyncio.Queue[Any] = asyncio.Queue()
            own.tell = told.put_nowait
            kept, gone = [await own.insert(words, None) for words in ("basalt", "granite")]
            id = gone["properties"]["id"]
            client.delete(id)
            await own.drop(id)
            assert own.features() == [kept]
            client.insert("of-the-session", "granite", session=own.session)
            task = asyncio.create_task(own.receive())
            text = "basalt granite " + "x" * 1000
            for words in (text, "basalt at last"):
                client.publish([{"lon": 1.0, "lat": 2.0, "text": words}])
            found: list[dict[str, Any]] = []
            async with asyncio.timeout(30):
                while not found or found[-1]["text"] != "basalt at last":
                    found += (await told.get()).get("own", [])
            assert [match["text"] for match in found] == [text[:500], "basalt at last"]
            assert {match["query"] for match in found} == {kept["properties"]["id"]}
            task.cancel()
            await own.leave()

    asyncio.run(drawn())
    client.delete("of-the-session")


def test_regions_of_so_many_queries_are_shown_and_no_more(
    target: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hubs, "MAX_REGIONS", 3)
    ids = [f"region{i}" for i in range(5)]
    client.insert_many([(id, "word") for id in ids])

    async def listed() -> int:
        async with AsyncClient(target) as connected:
            hub = PageHub(connected, DrawnQueries(connected, None))
            await hub._fetch_queries()
            return len(hub._known)

    assert asyncio.run(listed()) == 3
    client.delete_many(ids)


def test_no_more_pages_are_open_than_may_be_and_the_service_is_watched_while_one_is(
    live: ServedMap, client: Client
) -> None:
    def until(watchers: int) -> None:
        deadline = time.monotonic() + 30
        while client.status()["watchers"] != watchers:
            assert time.monotonic() < deadline

    until(0)
    host, port = live.url.removeprefix("http://").rstrip("/").split(":")
    pages = []
    for _ in range(MAX_PAGES):
        page = socket.create_connection((host, int(port)))
        page.sendall(f"GET /events HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        assert page.recv(100).startswith(b"HTTP/1.1 200")
        pages.append(page)
    status, _, body = ask(f"{live.url}events")
    assert (status, b"32 pages are open, the limit (pages)" in body) == (429, True)
    until(1)
    for page in pages:
        page.close()
    until(0)


# --- keys ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    folder = Path(tmp_path_factory.mktemp("guarded"))
    made = {
        name: make(os.urandom(40), "", frozenset(scopes), 0)
        for name, scopes in {"all": set(AccessScope), "subscribe": {AccessScope.SUBSCRIBE}}.items()
    }
    with FileTokenStore(folder) as store:
        store.keep_tokens([m.token for m in made.values()])
    settings = Settings(runtime="local", port=0, workers=1, data_dir=folder, auth=True)
    with start(settings) as service:
        yield service.targets[0], {name: m.text for name, m in made.items()}


def first(url: str, cookie: str, wanted: str) -> Any:
    """The first event that tells `wanted`."""
    request = urllib.request.Request(f"{url}events", headers={"Cookie": cookie})
    with urllib.request.urlopen(request, timeout=30) as answer:
        for line in answer:
            if line.startswith(b"data: ") and wanted in (told := json.loads(line[6:])):
                return told[wanted]
    raise AssertionError


def test_a_map_that_holds_a_token_asks_for_its_key(guarded: tuple[str, dict[str, str]]) -> None:
    target, tokens = guarded
    with serving(target, {"token": tokens["all"]}, MapOptions(port=0)) as live:
        home, _, key = live.url.partition("?key=")
        assert len(key) == 32
        for path in ("", "events", "api/plan", "static/main.js", "?key=wrong", f"events?key={key}"):
            status, _, body = ask(home + path)
            assert (status, b"needs its key" in body) == (401, True)
        status, headers, _ = ask(live.url)
        assert (status, headers["Location"]) == (303, "/")
        cookie, *attributes = headers["Set-Cookie"].split("; ")
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(attributes)
        assert ask(home, headers={"Cookie": cookie})[0] == 200
        assert ask(home, headers={"Cookie": cookie[:-1]})[0] == 401
        assert first(home, cookie, "load")["plan_version"] == 1
        assert tokens["all"] not in str(ask(home, headers={"Cookie": cookie}))


def test_without_the_scope_admin_the_map_shows_the_rest(
    guarded: tuple[str, dict[str, str]],
) -> None:
    target, tokens = guarded
    with serving(target, {"token": tokens["subscribe"]}, MapOptions(port=0)) as live:
        home = live.url.partition("?")[0]
        cookie = ask(live.url)[1]["Set-Cookie"].split("; ")[0]
        assert "needs the scope admin" in first(home, cookie, "load")["problem"]
        assert first(home, cookie, "link")["up"]


def test_a_token_that_does_not_hold_is_told(guarded: tuple[str, dict[str, str]]) -> None:
    with serving(guarded[0], {"token": "ps2s_nonsense"}, MapOptions(port=0)) as live:
        cookie = ask(live.url)[1]["Set-Cookie"].split("; ")[0]
        link = first(live.url.partition("?")[0], cookie, "link")
        assert (link["up"], link["why"]) == (False, "the token is not known")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (MapOptions(host="0.0.0.0"), "--host: 0.0.0.0 is not a loopback address, which needs"),
        (MapOptions(host="example.org"), "--host: 'example.org' is not an IP address"),
        (
            MapOptions(https_cert=Path("c.pem")),
            "--https-cert: must be set together with --https-key",
        ),
    ],
)
def test_what_cannot_be_served_safely_is_refused(options: MapOptions, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem), serving("localhost:1", {}, options):
        pytest.fail("it serves")


def test_files_and_ports_that_cannot_be_used_are_told(target: str, tmp_path: Path) -> None:
    none = MapOptions(port=0, https_cert=tmp_path / "c", https_key=tmp_path / "k")
    problem = "--https-cert, --https-key: cannot be used"
    with pytest.raises(InvalidArgument, match=problem), serving(target, {}, none):
        pass
    with serving(target, {}, MapOptions(port=0)) as live:
        port = int(live.url.rstrip("/").rpartition(":")[2])
        problem = f"--port: {port} on 127.0.0.1 is in use"
        with (
            pytest.raises(InvalidArgument, match=problem),
            serving(target, {}, MapOptions(port=port)),
        ):
            pass


def test_off_loopback_the_page_is_encrypted_and_asks_for_its_key(
    target: str, tmp_path: Path
) -> None:
    authority = certificates.Authority(tmp_path)
    pair = authority.issue("map")
    options = MapOptions(host="0.0.0.0", port=0, https_cert=pair.cert, https_key=pair.key)
    trust = ssl.create_default_context(cafile=authority.ca)
    with serving(target, {}, options) as live:
        home, _, key = live.url.replace("0.0.0.0", "localhost").partition("?key=")
        assert home.startswith("https://")
        assert ask(home, trust=trust)[0] == 401
        status, headers, _ = ask(f"{home}?key={key}", trust=trust)
        assert (status, "Secure" in headers["Set-Cookie"]) == (303, True)
        cookie = headers["Set-Cookie"].split("; ")[0]
        assert ask(home, trust=trust, headers={"Cookie": cookie})[0] == 200
        evil = {"Cookie": cookie, "Origin": "https://evil.example"}
        assert ask(f"{home}api/queries", "POST", b"{}", headers=evil, trust=trust)[0] == 403


def test_the_command_serves_until_it_is_interrupted(target: str) -> None:
    program = [sys.executable, "-m", "ps2stream", "map", "--server", target, "--port", "0"]
    with subprocess.Popen([*program, "--json"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["event"] == "ready"
        assert ask(ready["url"])[0] == 200
        process.terminate()
        assert json.loads(process.stdout.readline()) == {"event": "stopped"}
        assert process.wait(30) == 0


@pytest.mark.takes_turns
def test_the_demo_serves_its_map() -> None:
    program = [sys.executable, "-m", "ps2stream", "demo", "--runtime", "local", "--map"]
    size = ["--map-port", "0", "--seconds", "2", "--rate", "100", "--queries", "20"]
    with subprocess.Popen([*program, *size], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout)
        url = next(line for line in lines if line.startswith("the map is at ")).split()[-1]
        assert first(url, "", "link")["up"]
        assert any("verified: " in line for line in lines)
        assert process.wait(60) == 0
