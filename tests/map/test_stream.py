"""GET /v1/stream against a real service: what is sent, resumed, refused and cleaned up."""

from __future__ import annotations

import asyncio
import functools
import http.server
import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from playwright.sync_api import Browser

from ps2stream.client.async_client import AsyncClient
from ps2stream.client.client import Client
from ps2stream.client.requests import Query
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import NotFound
from ps2stream.protocol.tokens import make
from ps2stream.security import AccessScope
from ps2stream.store.tokens import FileTokenStore
from ps2stream.web.api import ephemeral, feed, sinks, stream
from ps2stream.web.api.ephemeral import EphemeralQueries, EphemeralQuery, find_queries
from ps2stream.web.serve import MapOptions, ServedMap, serving
from tests.map.conftest import PATIENCE_MS, WINDOW
from tests.map.stream_reader import SentEvent, StreamReader

FOLDER = Path(__file__).parents[2] / "examples" / "browser"
MARKUP = "<img src=x onerror=alert(1)> flood"
LONDON = "near=-0.1,51.5,30"
Reading = Callable[..., StreamReader]


@pytest.fixture
def reading() -> Iterator[Reading]:
    """Opens readers, whose connections end with the test."""
    with ExitStack() as stack:

        def open_reader(*what: Any) -> StreamReader:
            reader = StreamReader(*what)
            stack.callback(reader.cut)
            return reader

        yield open_reader


@pytest.fixture
def small(target: str) -> Iterator[ServedMap]:
    """A map of which an identity may have two queries."""
    options = MapOptions(port=0, ephemeral_queries=2, allow_origin=("http://friend.example",))
    with serving(target, {}, options) as running:
        yield running


@pytest.fixture(autouse=True)
def _clean(client: Client) -> Iterator[None]:
    yield
    for query in client.list():
        client.delete(query.id)


def post(id: str, text: str = "a flood", lon: float = -0.1, lat: float = 51.5) -> dict[str, Any]:
    return {"id": id, "lon": lon, "lat": lat, "text": text, "time": 1_767_600_000_000}


def read_ready(reader: StreamReader) -> SentEvent:
    assert reader.status == 200, reader.body()
    event = reader.next()
    assert event.event == "ready"
    return event


def test_a_query_of_an_address_is_told_its_matches(
    reading: Reading, live: ServedMap, client: Client
) -> None:
    reader = reading(live.url, f"/v1/stream?q=flood&{LONDON}")
    ready = read_ready(reader)
    assert reader.headers["content-type"] == "text/event-stream"
    assert reader.headers["cache-control"] == "no-store"
    assert reader.retry == sinks.RETRY_MS
    assert ready.data["expression"] == "flood"
    assert ready.data["warnings"] == []
    thing = post("p1") | {"attributes": {"mag": 4.5}, "payload": {"a": 1}}
    receipt = client.publish([thing, post("p2", "no"), post("p3", lon=9.0)])
    found = reader.next()
    assert found.event == "match"
    seq = found.data.pop("seq")
    assert seq >= 1
    assert found.data == {
        "query_id": ready.data["query_id"],
        "partition": receipt.partition,
        "offset": receipt.first_offset,
        "object_id": "p1",
        "time": 1_767_600_000_000,
        "lon": -0.1,
        "lat": 51.5,
        "text": "a flood",
        "attributes": {"mag": 4.5},
    }
    reader.cut()


def test_matches_are_geojson_or_cloudevents(
    reading: Reading, live: ServedMap, client: Client
) -> None:
    readers = [
        reading(live.url, f"/v1/stream?q=flood&format={format}&fields=position,time,payload")
        for format in ("geojson", "cloudevents")
    ]
    queries = [read_ready(reader).data["query_id"] for reader in readers]
    client.publish([post("p1") | {"payload": {"a": 1}}])
    feature, event = (reader.next().data for reader in readers)
    assert feature["type"] == "Feature"
    assert feature["geometry"] == {"type": "Point", "coordinates": [-0.1, 51.5]}
    assert feature["properties"]["query_id"] == queries[0]
    assert feature["properties"]["payload"] == {"a": 1}
    assert "text" not in feature["properties"]
    assert event["specversion"] == "1.0"
    assert event["type"] == "ps2stream.match"
    assert event["subject"] == queries[1]
    assert event["time"] == "2026-01-05T08:00:00Z"
    assert event["data"]["object_id"] == "p1"
    assert event["id"].endswith(f"-{event['data']['seq']}")
    for reader in readers:
        reader.cut()


@pytest.mark.takes_turns
@pytest.mark.parametrize("seed", [1, 2])
def test_a_stream_that_is_cut_goes_on_exactly(
    reading: Reading, live: ServedMap, client: Client, seed: int
) -> None:
    draw = random.Random(seed)
    posts = [
        post(f"p{i}", draw.choice(["flood", "fire", "a flood and a fire"]), draw.uniform(-1, 1))
        for i in range(3000)
    ]
    wanted = [p["id"] for p in posts if "flood" in p["text"] and -0.5 <= p["lon"] <= 0.5]
    path = "/v1/stream?q=flood&bbox=-0.5,51,0.5,52"
    reader = reading(live.url, path)
    last = read_ready(reader).id

    def publish() -> None:
        for i in range(0, len(posts), 50):
            client.publish(posts[i : i + 50])

    publishing = threading.Thread(target=publish)
    publishing.start()
    found: list[str] = []
    cuts = 0
    while len(found) < len(wanted):
        for _ in range(draw.randrange(0, 150)):
            if len(found) == len(wanted):
                break
            event = reader.next()
            assert event.event == "match"
            found.append(event.data["object_id"])
            last = event.id
        reader.cut()
        cuts += 1
        reader = reading(live.url, path, {"Last-Event-ID": last})
        assert read_ready(reader).id == last
    publishing.join()
    assert cuts > 5
    assert found == wanted
    client.publish([post("last")])  # nothing else has come in between
    assert reader.next().data["object_id"] == "last"
    reader.cut()


def test_another_map_of_the_service_goes_on(
    reading: Reading, live: ServedMap, small: ServedMap, client: Client
) -> None:
    reader = reading(small.url, "/v1/stream?q=flood")
    last = read_ready(reader).id
    reader.cut()
    client.publish([post("p1")])
    reader = reading(live.url, f"/v1/stream?cursor={last}")
    read_ready(reader)
    assert reader.next().data["object_id"] == "p1"
    reader.cut()


def test_a_cursor_of_an_empty_stream_notices_what_is_gone(
    reading: Reading, live: ServedMap, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = reading(live.url, "/v1/stream?q=flood")
    begin = read_ready(reader).id
    reader.cut()
    monkeypatch.setattr(feed, "KEEP_S", 0.0)
    reader = reading(live.url, f"/v1/stream?cursor={begin}")
    read_ready(reader)
    client.publish([post(f"p{i}") for i in range(3)])
    first = reader.next()
    for number in range(20):  # until what was written is acknowledged
        reader.cut()
        reader = reading(live.url, f"/v1/stream?cursor={begin}")
        assert read_ready(reader).id == begin
        client.publish([post(f"again-{number}")])
        if (found := reader.next()).event == "gap":
            break
    assert found.event == "gap"
    assert found.data["from"] == first.data["seq"]
    assert reader.next().data["seq"] == found.data["to"] + 1
    reader.cut()


def test_a_forged_cursor_is_unknown(reading: Reading, live: ServedMap, client: Client) -> None:
    reader = reading(live.url, "/v1/stream?q=flood")
    ready = read_ready(reader)
    client.publish([post("p1")])
    cursor = reader.next().id
    ends = client.get(ready.data["query_id"]).until
    reader.cut()
    patience = time.monotonic() + 30
    while client.get(ready.data["query_id"]).until == ends:  # until the reader has left
        assert time.monotonic() < patience
        time.sleep(0.02)
    other = "A" if cursor[20] != "A" else "B"
    for forged in ("x", "AAAA", cursor[:-4], cursor[:20] + other + cursor[21:], "é", "=" * 600):
        answer = reading(live.url, "/v1/stream?q=flood", {"Last-Event-ID": forged})
        assert answer.status == 404
        problem = answer.body()
        assert (
            problem["detail"] == "the cursor is not known here, or its query has ended; "
            "begin anew without it"
        )
    answer = reading(live.url, "/v1/stream?q=fire", {"Last-Event-ID": cursor})
    assert (answer.status, answer.body()["violations"][0]["field"]) == (400, "cursor")
    client.delete(ready.data["query_id"])
    answer = reading(live.url, "/v1/stream?q=flood", {"Last-Event-ID": cursor})
    assert answer.status == 404
    assert not [q for q in client.list() if q.session.startswith("ephemeral")]


def test_a_stream_whose_query_is_deleted_ends(
    reading: Reading, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_renewing = EphemeralQueries.keep_renewing

    async def renew_often(self: EphemeralQueries, *what: Any) -> None:
        self._renew_s = 0.2
        await keep_renewing(self, *what)

    monkeypatch.setattr(EphemeralQueries, "keep_renewing", renew_often)
    with serving(client.target, {}, MapOptions(port=0)) as own:
        reader = reading(own.url, "/v1/stream?q=flood")
        client.delete(read_ready(reader).data["query_id"])
        end = reader.next()
    assert (end.event, end.data["status"]) == ("end", 404)


def test_an_identity_has_so_many_queries_and_no_more(
    reading: Reading, small: ServedMap, client: Client
) -> None:
    readers = [reading(small.url, f"/v1/stream?q=w{i}") for i in range(2)]
    for reader in readers:
        read_ready(reader)
    refused = reading(small.url, "/v1/stream?q=w2")
    assert refused.status == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert "2 queries" in refused.body()["detail"]
    assert len(list(client.list())) == 2
    for reader in readers:
        reader.cut()


@pytest.mark.takes_turns
def test_a_query_ends_after_its_last_reader(target: str) -> None:
    async def leave() -> None:
        queries = EphemeralQueries(1, lease_s=3.0, renew_s=0.2)
        async with AsyncClient(target) as client:
            async with queries.claim(client, "me", "0" * 16) as query:
                assert await queries.insert(client, query, "flood", None) is not None
                ends = {(await client.get(query.id)).until}
                renewing = asyncio.create_task(queries.keep_renewing(client, query))
                async with asyncio.timeout(60):
                    while len(ends) < 4:  # it is put off again and again
                        await asyncio.sleep(0.05)
                        ends.add((await client.get(query.id)).until)
                renewing.cancel()
                await queries.leave(client, query)
            async with asyncio.timeout(60):
                while await find_queries(client, query.session):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            with pytest.raises(NotFound):
                await client.get(query.id)
            async with queries.claim(client, "me", "1" * 16) as again:
                assert again.session == query.session
            await queries.close()

    asyncio.run(leave())


@pytest.mark.parametrize("is_deleted", [True, False])
def test_an_end_is_moved_of_the_query_that_was_read_alone(target: str, is_deleted: bool) -> None:
    """What is deleted between reading and writing is not made again; what is replaced is moved."""

    class InterruptedClient(AsyncClient):
        left = 1

        async def get(self, id: str) -> Query:
            found = await super().get(id)
            if self.left:
                self.left -= 1
                if is_deleted:
                    await self.delete(id)
                else:
                    ends = timedelta(seconds=900)
                    await self.insert(id, "flood", session=found.session, replace=True, until=ends)
            return found

    async def leave() -> None:
        queries = EphemeralQueries(1)
        async with AsyncClient(target) as client, InterruptedClient(target) as interrupted:
            async with queries.claim(client, "me", "0" * 16) as query:
                assert await queries.insert(client, query, "flood", None) is not None
                await queries.leave(interrupted, query)
                assert not interrupted.left
                if is_deleted:
                    assert await find_queries(client, query.session) == []
                    with pytest.raises(NotFound):
                        await queries.renew(interrupted, query)
                else:
                    until = (await client.get(query.id)).until
                    assert until is not None
                    assert until / 1000 - time.time() < 400
            await queries.close()

    asyncio.run(leave())


def test_a_slot_is_not_shared_by_two_maps(target: str) -> None:
    async def race() -> None:
        one, two = EphemeralQueries(1), EphemeralQueries(1)
        async with (
            AsyncClient(target) as client,
            one.claim(client, "me", "0" * 16) as first,
            two.claim(client, "me", "0" * 16) as second,
        ):
            assert await one.insert(client, first, "flood", None) is not None
            assert await two.insert(client, second, "flood", None) is None
            assert [q.id async for q in client.list(first.session)] == [first.id]
            await client.delete(first.id)

    asyncio.run(race())


def test_what_a_former_query_left_is_not_told(
    reading: Reading, small: ServedMap, client: Client
) -> None:
    reader = reading(small.url, "/v1/stream?q=flood")
    query = read_ready(reader).data["query_id"]
    client.publish([post("p1")])
    reader.next()
    reader.cut()
    client.delete(query)
    reader = reading(small.url, "/v1/stream?q=flood")
    assert read_ready(reader).data["query_id"] != query
    client.publish([post("p2")])
    assert reader.next().data["object_id"] == "p2"
    reader.cut()


def test_a_session_is_streamed_and_what_it_lost_is_told(
    reading: Reading, live: ServedMap, client: Client
) -> None:
    client.insert("alert", "flood", session="http-alerts")
    reader = reading(live.url, "/v1/stream?session=http-alerts")
    ready = read_ready(reader)
    client.publish([post("p1"), post("p2")])
    events = [reader.next(), reader.next()]
    assert [(e.data["query_id"], e.data["object_id"]) for e in events] == [
        ("alert", "p1"),
        ("alert", "p2"),
    ]
    reader.cut()
    with client.subscribe("http-alerts") as matches:  # somebody else takes them for good
        assert [matches.next(10).object_id for _ in range(2)] == ["p1", "p2"]
    client.publish([post("p3")])
    reader = reading(live.url, "/v1/stream?session=http-alerts", {"Last-Event-ID": events[0].id})
    read_ready(reader)
    gap, found = reader.next(), reader.next()
    number = events[0].data["seq"]
    assert (gap.event, gap.data["from"], gap.data["to"]) == ("gap", number + 1, number + 1)
    assert found.data["object_id"] == "p3"
    wrong = reading(live.url, "/v1/stream?session=other", {"Last-Event-ID": ready.id})
    assert wrong.status == 400
    reader.cut()


def test_the_newest_reader_of_a_session_wins(reading: Reading, live: ServedMap) -> None:
    first = reading(live.url, "/v1/stream?session=http-taken")
    read_ready(first)
    second = reading(live.url, "/v1/stream?session=http-taken")
    read_ready(second)
    end = first.next()
    assert (end.event, end.data["status"]) == ("end", 409)
    assert first.retry == sinks.TAKEN_RETRY_MS
    second.cut()


def test_a_reader_that_takes_nothing_is_disconnected(
    reading: Reading, live: ServedMap, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()

    class NotedSink(sinks.EventStreamSink):
        """Tells when it is dropped, and not when one of an earlier test is."""

        def abort(self) -> None:
            super().abort()
            ended.set()

    monkeypatch.setattr(sinks, "WRITE_S", 0.5)
    monkeypatch.setattr(stream, "EventStreamSink", NotedSink)
    reader = reading(live.url, "/v1/stream?q=flood")
    last = read_ready(reader).id
    posts = [post(f"p{i}", "flood " + "x" * 60_000) for i in range(200)]
    for i in range(0, len(posts), 10):
        client.publish(posts[i : i + 10])
    assert ended.wait(60)
    found: list[str] = []

    def read_all() -> None:
        nonlocal last
        while True:
            event = reader.next()
            found.append(event.data["object_id"])
            last = event.id

    with pytest.raises((EOFError, ConnectionError)):
        read_all()
    assert len(found) < len(posts)
    reader = reading(live.url, "/v1/stream?q=flood", {"Last-Event-ID": last})
    read_ready(reader)
    found += [reader.next().data["object_id"] for _ in range(len(posts) - len(found))]
    assert found == [p["id"] for p in posts]
    reader.cut()


def test_a_websocket_has_the_same_events(live: ServedMap, client: Client) -> None:
    async def talk() -> None:
        url = f"{live.url}v1/stream"
        async with aiohttp.ClientSession() as web:
            async with web.ws_connect(f"{url}?q=flood&{LONDON}") as socket:
                assert (await socket.receive_json(timeout=20))["event"] == "ready"
                client.publish([post("p1"), post("p2")])
                found = await socket.receive_json(timeout=20)
                assert (found["event"], found["data"]["object_id"]) == ("match", "p1")
            for how in ("address", "message"):
                path = url + (f"?cursor={found['id']}" if how == "address" else "")
                async with web.ws_connect(path) as socket:
                    if how == "message":
                        await socket.send_json({"cursor": found["id"]})
                    assert (await socket.receive_json(timeout=20))["event"] == "ready"
                    again = await socket.receive_json(timeout=20)
                    assert again["data"]["object_id"] == "p2"
            async with web.ws_connect(url) as socket:
                await socket.send_json({"cursor": "forged"})
                closing = await socket.receive(timeout=20)
                assert closing.type is aiohttp.WSMsgType.CLOSE
                assert closing.data == sinks.POLICY
                assert "cursor" in str(closing.extra)
            with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                await web.ws_connect(url, headers={"Origin": "http://evil.example"})

    asyncio.run(talk())


def test_foreign_pages_are_refused_unless_named(
    reading: Reading, live: ServedMap, small: ServedMap
) -> None:
    def status(url: str, **headers: str) -> int:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        reader = reading(url, "/v1/stream?q=flood", names)
        reader.cut()
        return reader.status

    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"},
        {"Origin": "http://friend.example"},
    ):
        assert status(live.url, **headers) == 403, headers
    assert status(live.url, Host="evil.example") == 421
    named = {"Origin": "http://friend.example", "Sec-Fetch-Site": "cross-site"}
    asking = named | {"Access-Control-Request-Method": "GET"}
    allowed = reading(small.url, "/v1/stream", asking, 20.0, "OPTIONS")
    assert allowed.status == 204
    assert "Last-Event-ID" in allowed.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in allowed.headers
    assert reading(live.url, "/v1/stream", asking, 20.0, "OPTIONS").status == 403
    reader = reading(small.url, "/v1/stream?q=flood", named)
    read_ready(reader)
    assert reader.headers["access-control-allow-origin"] == "http://friend.example"
    reader.cut()


def test_bad_parameters_are_told_by_name(reading: Reading, live: ServedMap, client: Client) -> None:
    def told(query: str) -> tuple[int, str]:
        answer = reading(live.url, f"/v1/stream?{query}")
        problem = answer.body()
        assert answer.headers["content-type"].startswith("application/problem+json")
        return answer.status, problem["violations"][0]["field"]

    for query, field in {
        "": "q",
        "q=a&token=secret": "token",
        "q=a&q=b": "q",
        "q=a&x=1": "x",
        "near=1,2": "near",
        "near=1,2,x": "near",
        "near=200,2,3": "near.lon",
        "near=1,2,3&bbox=1,2,3,4": "bbox",
        "bbox=1,2,3,nan": "bbox.lat_max",
        "polygon=1,2;3,4": "polygon",
        "polygon=%7B": "polygon",
        "q=a&fields=text,lon": "fields",
        "q=a&format=xml": "format",
        "q=a&session=b": "session",
        "q=a+AND": "q",
    }.items():
        assert told(query) == (400, field), query
    assert list(client.list()) == []
    answer = reading(live.url, "/v1/stream?session=ephemeral-local-00")
    assert answer.status == 404


def test_a_token_comes_in_a_header_or_a_cookie(
    reading: Reading, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = Path(tmp_path_factory.mktemp("tokens"))
    made = [make(os.urandom(40), "", frozenset({AccessScope.SUBSCRIBE}), 0) for _ in range(2)]
    with FileTokenStore(folder) as store:
        store.keep_tokens([m.token for m in made])
    one, two = ({"Authorization": f"Bearer {m.text}"} for m in made)
    settings = Settings(runtime="local", port=0, workers=1, data_dir=folder, auth=True)
    with start(settings) as service, serving(service.targets[0], {}, MapOptions(port=0)) as live:
        path = "/v1/stream?q=flood"
        for headers in ({}, {"Authorization": "Bearer ps2s_wrong"}, {"Authorization": "Bearer"}):
            stranger = reading(live.url, path, headers)
            assert (stranger.status, stranger.headers["www-authenticate"]) == (401, "Bearer")
            assert "ps2s_wrong" not in str(stranger.body())
        ready = read_ready(reading(live.url, path, one))
        refused = reading(live.url, path, two | {"Last-Event-ID": ready.id})
        assert refused.status == 404
        kept = reading(live.url, "/v1/cookie", one, 20.0, "POST")
        assert kept.status == 204
        cookie = kept.headers["set-cookie"]
        assert all(word in cookie for word in ("HttpOnly", "SameSite=Strict", "Path=/v1/"))
        own = {"Cookie": cookie.split(";")[0], "Last-Event-ID": ready.id}
        assert read_ready(reading(live.url, path, own)).id == ready.id
        assert made[0].text not in ready.id
        assert made[0].text not in str(ready.data)


def test_head_and_options_make_nothing(live: ServedMap, client: Client) -> None:
    async def ask() -> None:
        async with aiohttp.ClientSession() as web:
            async with web.head(f"{live.url}v1/stream?q=flood") as answer:
                assert (answer.status, answer.content_type) == (200, "text/event-stream")
            async with web.options(f"{live.url}v1/stream") as answer:
                assert (answer.status, answer.headers["Allow"]) == (204, "GET, HEAD, OPTIONS")
            async with web.post(f"{live.url}v1/stream") as answer:
                assert (answer.status, answer.content_type) == (405, "application/problem+json")
            async with web.get(f"{live.url}v1/nothing") as answer:
                assert (answer.status, json.loads(await answer.text())["status"]) == (404, 404)

    asyncio.run(ask())
    assert list(client.list()) == []


def test_names_of_others_are_not_read() -> None:
    query = EphemeralQuery("me", 3, "d" * 16, "s" * 32)
    assert ephemeral.read_name(query.id, "me") == query
    for id, identity in ((query.id, "you"), (f"x{query.id}", "me"), ("ephemeral-me-1", "me")):
        with pytest.raises(NotFound):
            ephemeral.read_name(id, identity)


# --- examples/browser --------------------------------------------------------------


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *_: Any) -> None:
        """Writes no log."""


@pytest.fixture
def origin() -> Iterator[str]:
    """The folder of the example, served as the page says."""
    handler = functools.partial(_Silent, directory=str(FOLDER))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_the_example_is_as_short_as_it_says() -> None:
    assert len((FOLDER / "index.html").read_text().splitlines()) <= 33


@pytest.mark.takes_turns
@pytest.mark.browser
def test_a_page_shows_matches_also_across_a_restart_of_the_map(
    browser: Browser, target: str, client: Client, origin: str
) -> None:
    def publish(first: int, last: int) -> None:
        near = [{"lon": -0.1, "lat": 51.5, "text": f"flood {i}"} for i in range(first, last)]
        client.publish([*near, {"lon": -0.1, "lat": 51.5, "text": "no"}])

    with browser.new_context(**WINDOW) as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        with serving(target, {}, MapOptions(port=0, allow_origin=(origin,))) as live:
            port = int(live.url.rstrip("/").rpartition(":")[2])
            page.goto(f"{origin}/?q=flood&near=-0.1,51.5,30&map={live.url}")
            page.wait_for_selector("text=connected")
            publish(0, 20)
            client.publish([{"lon": -0.1, "lat": 51.5, "text": MARKUP}])
            page.wait_for_function("document.querySelectorAll('li').length === 21")
        publish(20, 40)  # while the map is away
        page.wait_for_selector("text=lost")
        with serving(target, {}, MapOptions(port=port, allow_origin=(origin,))):
            page.wait_for_selector("text=connected")
            publish(40, 60)
            page.wait_for_function("document.querySelectorAll('li').length >= 61")
            shown = page.locator("li").all_text_contents()[::-1]
        page.goto(f"{origin}/?q=flood&map=http://127.0.0.1:{port}/")
        page.wait_for_selector("text=lost")
    posts = [f"flood {i}" for i in range(60)]
    assert shown == [*posts[:20], MARKUP, *posts[20:]]
    for query in client.list():
        client.delete(query.id)
