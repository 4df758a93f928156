"""Queries, posts and questions over HTTP: the same as over gRPC, and nothing half accepted."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
import urllib.parse
from contextlib import ExitStack
from typing import Any

import pytest

from ps2stream.client.client import Client
from ps2stream.limits import BATCH_BYTES, BATCH_ROWS
from ps2stream.web.api import objects
from ps2stream.web.api.bodies import BODIES_EACH
from ps2stream.web.serve import ServedMap
from tests.http.conftest import LINES, POST, ask, problem

GEOJSON = {"Content-Type": "application/geo+json"}
PACKED = {"Content-Encoding": "gzip"}


def feature(**properties: Any) -> dict[str, Any]:
    at = {"type": "Point", "coordinates": [8.5, 47.4]}
    return {"type": "Feature", "geometry": at, "properties": {"text": "a flood"} | properties}


def test_a_query_is_inserted_shown_listed_and_deleted(api: str, client: Client) -> None:
    region = {"type": "Circle", "lon": 8.5, "lat": 47.4, "radius_km": 30}
    sent = {"id": "a/b c", "expression": "flood AND river", "session": "shown"}
    made = ask(f"{api}/queries", "POST", sent | {"region": region})
    assert made.status == 201, made
    assert made.headers["Location"] == "/v1/queries/a%2Fb%20c"
    assert made.body["lsn"] > 0
    assert made.body["canonical"] == "flood AND river"
    one = ask(f"{api}/queries/a%2Fb%20c")
    assert (one.status, one.body["expression"], one.body["session"]) == (
        200,
        "flood AND river",
        "shown",
    )
    assert client.get("a/b c").region is not None
    again = ask(f"{api}/queries", "POST", sent | {"region": one.body["region"]})
    assert (again.status, again.body["lsn"]) == (201, made.body["lsn"])
    taken = ask(f"{api}/queries", "POST", sent | {"expression": "storm"})
    problem(taken, 409, "", "a/b c")
    assert ask(f"{api}/queries/a%2Fb%20c", "DELETE").body["lsn"] > made.body["lsn"]
    problem(ask(f"{api}/queries/a%2Fb%20c"), 404, "", "a/b c")
    problem(ask(f"{api}/queries/a%2Fb%20c", "DELETE"), 404, "", "a/b c")


def test_a_query_without_an_id_gets_one(api: str) -> None:
    made = ask(f"{api}/queries", "POST", {"expression": "flood"})
    assert ask(f"{api}/queries/{made.body['id']}").body["expression"] == "flood"
    assert ask(f"{api}/queries/{made.body['id']}", "DELETE").status == 200


def test_lists_come_in_pages(api: str, client: Client) -> None:
    client.insert_many([(f"page{i}", "flood") for i in range(7)], session="pages")
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        page = ask(f"{api}/queries?session=pages&limit=3&after={after}").body
        assert len(page["queries"]) <= 3
        found += [query["id"] for query in page["queries"]]
        after = page["next"]
    assert found == [f"page{i}" for i in range(7)]
    first = ask(f"{api}/queries?session=pages&limit=3").body["next"]
    for forged in (f"9{first}", first[:-1], "12", "-", first.split("-")[0]):
        problem(ask(f"{api}/queries?session=pages&after={forged}"), 404, "", "not known here")
    problem(ask(f"{api}/queries?session=other&after={first}"), 404, "", "not known here")
    problem(ask(f"{api}/queries?limit=0"), 400, "limit", "from 1 to 1000")


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"expression": "flood", "colour": 1}, "colour", "not a field"),
        ({"expression": 5}, "expression", "expected a text"),
        ({"expression": "flood", "region": [1, 2]}, "region", "expected an object"),
        ({"expression": "flood", "region": {"type": "Cube"}}, "region.type", "Cube"),
        ({"expression": "flood", "until": "soon"}, "until", "ISO 8601"),
        ({"expression": "flood", "retro": "yes"}, "retro", "true or false"),
        ({"expression": "flood", "if_lsn": True}, "if_lsn", "a whole number"),
        ({"expression": "flood", "if_lsn": 3}, "if_lsn", "is set without replace"),
        ({}, "expression", "needs an expression or a region"),
        (b'{"expression": "a", "expression": "b"}', "body", "occurs 2 times"),
        (b"[" * 100, "body", "64 nested levels"),
        (b'{"expression": NaN}', "body.expression", "NaN"),
        (b'{"expression": 1e999}', "body.expression", "64 bits"),
        (b'{"expression": "\xff"}', "body", "UTF-8"),
        (b"[1]", "body", "an object"),
    ],
)
def test_a_bad_query_is_refused_by_name(api: str, body: Any, field: str, words: str) -> None:
    headers = {"Content-Type": "application/json"}
    problem(ask(f"{api}/queries", "POST", body, headers), 400, field, words)


def received(client: Client, session: str, send: Any, count: int) -> list[Any]:
    """The matches that come once `send` has been called."""
    with client.subscribe(session) as matches:
        assert send().status == 200
        return [matches.next(30) for _ in range(count)]


def test_posts_of_each_kind_are_published(api: str, client: Client) -> None:
    client.insert("all", "flood", session="kinds")
    url = f"{api}/objects"
    rows = [POST | {"id": "r0", "severity": 3}, POST | {"id": "r1"}]
    lines = b"\n".join(json.dumps(each).encode() for each in (rows[0], feature(id="f0"))) + b"\n\n"
    features = {"type": "FeatureCollection", "features": [feature(id="f1", mag=6.5), feature()]}
    kinds: list[tuple[Any, dict[str, str], int]] = [
        (POST, {}, 1),
        (rows, {}, 2),
        (feature(id="f2"), GEOJSON, 1),
        (features, GEOJSON, 2),
        (lines, LINES, 2),
        (gzip.compress(lines[:200]) + gzip.compress(lines[200:]), LINES | PACKED, 2),
    ]
    for body, headers, count in kinds:
        found = received(client, "kinds", lambda b=body, h=headers: ask(url, "POST", b, h), count)
        assert len(found) == count
    match = received(client, "kinds", lambda: ask(url, "POST", features, GEOJSON), 2)[0]
    assert (match.object_id, match.attributes) == ("f1", {"mag": 6.5})
    client.delete("all")


def test_what_cannot_be_an_attribute_is_left_out_and_told(api: str) -> None:
    done = ask(f"{api}/objects", "POST", [POST | {"tags": ["a"]}])
    assert done.body["accepted"] == 1
    assert done.body["left_out"][0].startswith("tags")


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ([POST, POST | {"lat": 91}], "objects[1].lat", "degrees"),
        ([POST, {"lon": 1, "lat": 1}], "objects[1].text", "expected a string"),
        ([POST, POST | {"attributes": {"a": []}}], "objects[1].attributes.a", "an array"),
        ([POST | {"attributes": {f"a{i}": i for i in range(65)}}], "objects[0].attributes", "64"),
        ([POST, 5], "objects[1]", "an object of JSON"),
        (b'[1, {"a": {"mag": [2, NaN]}}]', "body[1].a.mag[1]", "NaN is not a number of JSON"),
        (b'{"lon": 1, "mag": 1e999}', "body.mag", "beyond the numbers of 64 bits"),
        ([], "objects", "none"),
        ({"type": "FeatureCollection", "features": 5}, "features", "list"),
        ([POST, feature() | {"geometry": None}], "objects[1].geometry", "Point"),
        ([POST] * (BATCH_ROWS + 1), "objects", f"limit {BATCH_ROWS}"),
        (b'[{"lon": 1, "lat": 1, "text": "x"}', "body", "not JSON"),
    ],
)
def test_bad_posts_are_refused_as_a_whole(
    api: str, client: Client, body: Any, field: str, words: str
) -> None:
    before = client.publish([POST]).first_offset
    headers = {"Content-Type": "application/json"}
    problem(ask(f"{api}/objects", "POST", body, headers), 400, field, words)
    assert client.publish([POST]).first_offset == before + 1


def test_a_body_is_bounded_by_what_it_unpacks_to(api: str) -> None:
    bomb = gzip.compress(bytes(8 * BATCH_BYTES), 1)
    assert len(bomb) < BATCH_BYTES / 4
    for body, headers in ((bomb, PACKED), (bytes(BATCH_BYTES + 1), {})):
        answer = ask(f"{api}/objects", "POST", body, LINES | headers)
        problem(answer, 413, "", f"more than {BATCH_BYTES} bytes")
    cut = gzip.compress(json.dumps(POST).encode())[:-9]
    problem(ask(f"{api}/objects", "POST", cut, LINES | PACKED), 400, "body", "gzip")
    problem(ask(f"{api}/objects", "POST", b"{}", LINES | PACKED), 400, "body", "gzip")
    brotli = ask(f"{api}/objects", "POST", b"{}", LINES | {"Content-Encoding": "br"})
    assert (brotli.status, brotli.headers["Accept-Encoding"]) == (415, "gzip, identity")
    table = ask(f"{api}/objects", "POST", b"x", {"Content-Type": "text/csv"})
    assert (table.status, table.headers["Accept"].split(", ")[0]) == (415, "application/json")


def test_a_repeat_with_the_same_key_is_published_once(api: str, client: Client) -> None:
    client.insert("once", "flood", session="keys")
    for key in ('"7f-opaque"', "sensor-3/12"):
        keyed = {"Idempotency-Key": key}
        first, second = (ask(f"{api}/objects", "POST", [POST], keyed) for _ in range(2))
        assert first.status == second.status == 200
        assert first.body == second.body
        other = ask(f"{api}/objects", "POST", [POST | {"text": "another"}], keyed)
        problem(other, 422, "", "another batch")
    with client.subscribe("keys") as matches:
        assert [matches.next(30).object_id for _ in range(2)]
        with pytest.raises(TimeoutError):
            matches.next(1)
    for bad in ("", "a\tb", "x" * 200):
        answer = ask(f"{api}/objects", "POST", [POST], {"Idempotency-Key": bad})
        problem(answer, 400, "Idempotency-Key", "")
    client.delete("once")


def test_questions_are_answered(api: str, client: Client) -> None:
    client.publish([POST] * 20)
    price = ask(f"{api}/price?q=flood&near=8.5,47.4,30")
    circle = {"type": "Circle", "lon": 8.5, "lat": 47.4, "radius_km": 30}
    asked = client.price("flood", circle)
    assert price.body.keys() == asked.keys()
    counts = ("sampled", "matched", "level", "cells", "postings")
    assert [price.body[name] for name in counts] == [asked[name] for name in counts]
    assert price.body["matched"] > 0
    client.insert("why", "flood AND river", session="why")
    place = "lon=8.5&lat=47.4"
    yes = ask(f"{api}/explain?query=why&{place}&text=flood+river").body
    no = ask(f"{api}/explain?query=why&{place}&text=flood").body
    assert (yes["matches"], no["matches"]) == (True, False)
    problem(ask(f"{api}/explain?query=nobody&{place}&text=x"), 404, "", "nobody")
    problem(ask(f"{api}/explain?query=why&{place}"), 400, "object.text", "string")
    whole = ask(f"{api}/explain?q=flood&near=8.5,47.4,30&{place}&text=flood").body
    asked = client.explain(("", "flood", circle), {"lon": 8.5, "lat": 47.4, "text": "flood"})
    assert (whole, whole["matches"], whole["query_lsn"]) == (asked, True, 0)
    for near in ("bbox=9,47,10,48", "polygon=9,47;10,47;10,48"):
        assert not ask(f"{api}/explain?{near}&{place}&text=flood").body["matches"]
    problem(ask(f"{api}/explain?{place}&text=x"), 400, "query", "id of a live query, or q")
    problem(ask(f"{api}/explain?query=&{place}&text=x"), 400, "query", "id of a live query")
    problem(ask(f"{api}/explain?q=&{place}&text=x"), 400, "q", "expression")
    for extra in ("q=flood", "near=8,47,1"):
        at = f"{api}/explain?query=why&{extra}&{place}&text=x"
        problem(ask(at), 400, extra.partition("=")[0], "give one of them")
    for path in (f"explain?{place}&text=x&", "price?", "stream?"):
        problem(ask(f"{api}/{path}q=flood+AND"), 400, "q", "column 10")
        problem(ask(f"{api}/{path}near=8,95,1"), 400, "near.lat", "95")
    problem(ask(f"{api}/price"), 400, "q", "expression")
    problem(ask(f"{api}/price?q=a&near=1,2"), 400, "near", "LON,LAT,KM")
    problem(ask(f"{api}/price?q=a&token=s"), 400, "token", "Authorization")
    client.delete("why")


@pytest.mark.takes_turns
def test_large_bodies_are_read_beside_the_event_loop(
    api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: list[str] = []

    def read_posts(body: bytes, in_lines: bool) -> objects.ReadPosts:
        readers.append(threading.current_thread().name)
        return kept(body, in_lines)

    kept = objects.read_posts
    monkeypatch.setattr(objects, "read_posts", read_posts)
    for count in (1, 8_000):
        sent = [POST | {"text": "flood " * 60, "id": f"big{i}"} for i in range(count)]
        done = ask(f"{api}/objects", "POST", sent)
        assert done.body["accepted"] == count
    assert readers[0] != readers[1]


def test_only_so_many_bodies_are_held(api: str, live: ServedMap) -> None:
    """Senders that do not go on take the room of one identity; then others of it are refused."""
    place = urllib.parse.urlsplit(live.url)
    head = f"POST /v1/objects HTTP/1.1\r\nHost: {place.netloc}\r\n"
    head += "Content-Type: application/x-ndjson\r\nContent-Length: 1000\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(BODIES_EACH):
            sender = socket.create_connection((place.hostname, place.port), 20)
            stack.callback(sender.close)
            sender.sendall(head.encode())
        patience = time.monotonic() + 20
        while (answer := ask(f"{api}/objects", "POST", [POST])).status == 200:
            assert time.monotonic() < patience
        problem(answer, 429, "", f"{BODIES_EACH} requests with bodies")
        assert answer.headers["Retry-After"] == "1"
    patience = time.monotonic() + 20
    while ask(f"{api}/objects", "POST", [POST]).status != 200:
        assert time.monotonic() < patience
