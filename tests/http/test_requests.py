"""Queries, posts and questions over HTTP: the same as over gRPC, and nothing half accepted."""

from __future__ import annotations

import gzip
import itertools
import json
import threading
import time
from typing import Any

import pytest

from ps2stream.client.client import Client
from ps2stream.limits import BATCH_BYTES, BATCH_ROWS
from tests.http.conftest import Answer, ask

GEOJSON = {"Content-Type": "application/geo+json"}
LINES = {"Content-Type": "application/x-ndjson"}
PACKED = {"Content-Encoding": "gzip"}
POST = {"lon": 8.5, "lat": 47.4, "text": "a flood at the river"}
numbers = itertools.count()


def feature(**properties: Any) -> dict[str, Any]:
    at = {"type": "Point", "coordinates": [8.5, 47.4]}
    return {"type": "Feature", "geometry": at, "properties": {"text": "a flood"} | properties}


def problem(answer: Answer, status: int, field: str, words: str) -> None:
    """The answer is a problem of this status, which names the field and says so much."""
    assert answer.status == status, answer
    assert answer.headers["Content-Type"].startswith("application/problem+json")
    assert {"type", "title", "status", "detail", "instance"} <= answer.body.keys()
    fields = [v["field"] for v in answer.body["violations"]]
    assert field in fields or (not field and not fields), answer.body
    assert words in answer.body["detail"], answer.body


def test_a_query_is_inserted_shown_listed_and_deleted(api: str, client: Client) -> None:
    region = {"type": "Circle", "lon": 8.5, "lat": 47.4, "radius_km": 30}
    sent = {"id": "a/b c", "expression": "flood AND river", "session": "shown"}
    made = ask(f"{api}/queries", "POST", sent | {"region": client_region(client)})
    assert made.status == 201, made
    assert made.headers["Location"] == "/v1/queries/a%2Fb%20c"
    assert made.body["lsn"] > 0 and made.body["canonical"] == "flood AND river"
    assert region["type"]  # a circle in the form that the service shows
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


def client_region(client: Client) -> dict[str, Any]:
    """A circle as the service shows one."""
    client.insert("circle", "x", {"type": "Circle", "lon": 8.5, "lat": 47.4, "radius_km": 30})
    region = client.get("circle").region
    client.delete("circle")
    assert region is not None
    return region.to_json()


def test_a_query_without_an_id_gets_one(api: str) -> None:
    made = ask(f"{api}/queries", "POST", {"expression": "flood"})
    assert ask(f"{api}/queries/{made.body['id']}").body["expression"] == "flood"
    assert ask(f"{api}/queries/{made.body['id']}", "DELETE").status == 200


def test_lists_come_in_pages(api: str, client: Client) -> None:
    client.insert_many([(f"page{i}", "flood") for i in range(7)], session="pages")
    found, after = [], ""
    while after is not None:
        page = ask(f"{api}/queries?session=pages&limit=3&after={after}").body
        assert len(page["queries"]) <= 3
        found += [query["id"] for query in page["queries"]]
        after = page["next"]
    assert found == [f"page{i}" for i in range(7)]


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"expression": "flood", "colour": 1}, "colour", "not a field"),
        ({"expression": 5}, "expression", "expected a text"),
        ({"expression": "flood", "region": [1, 2]}, "region", "expected an object"),
        ({"expression": "flood", "region": {"type": "Cube"}}, "region.type", "Cube"),
        ({"expression": "flood", "until": "soon"}, "until", "ISO 8601"),
        ({"expression": "flood", "retro": "yes"}, "retro", "true or false"),
        ({}, "expression", "needs an expression or a region"),
        (b'{"expression": "a", "expression": "b"}', "body", "occurs 2 times"),
        (b"[" * 100, "body", "64 nested levels"),
        (b'{"expression": NaN}', "body", "NaN"),
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
        found = received(
            client, "kinds", lambda b=body, h=headers: ask(url, "POST", b, h), count
        )
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
        ([POST, 5], "objects[1]", "an object of JSON"),
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
    before = client.status()["accepted"] if "accepted" in client.status() else None
    headers = {"Content-Type": "application/json"}
    problem(ask(f"{api}/objects", "POST", body, headers), 400, field, words)
    if before is not None:
        assert client.status()["accepted"] == before


def test_a_body_is_bounded_by_what_it_unpacks_to(api: str) -> None:
    bomb = gzip.compress(bytes(200 << 20), 9)
    assert len(bomb) < BATCH_BYTES / 4
    begun = time.monotonic()
    for body, headers in ((bomb, PACKED), (bytes(BATCH_BYTES + 1), {})):
        answer = ask(f"{api}/objects", "POST", body, LINES | headers)
        problem(answer, 413, "", f"more than {BATCH_BYTES} bytes")
    assert time.monotonic() - begun < 20
    cut = gzip.compress(json.dumps(POST).encode())[:-9]
    problem(ask(f"{api}/objects", "POST", cut, LINES | PACKED), 400, "body", "gzip")
    problem(ask(f"{api}/objects", "POST", b"{}", LINES | PACKED), 400, "body", "gzip")
    brotli = ask(f"{api}/objects", "POST", b"{}", LINES | {"Content-Encoding": "br"})
    assert (brotli.status, brotli.headers["Accept-Encoding"]) == (415, "gzip, identity")
    assert ask(f"{api}/objects", "POST", b"x", {"Content-Type": "text/csv"}).status == 415


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
    assert price.body == client.price(
        "flood", {"type": "Circle", "lon": 8.5, "lat": 47.4, "radius_km": 30}
    ) | {k: v for k, v in price.body.items() if isinstance(v, float)}
    client.insert("why", "flood AND river", session="why")
    place = "lon=8.5&lat=47.4"
    yes = ask(f"{api}/explain?query=why&{place}&text=flood+river").body
    no = ask(f"{api}/explain?query=why&{place}&text=flood").body
    assert (yes["matches"], no["matches"]) == (True, False)
    problem(ask(f"{api}/explain?query=nobody&{place}&text=x"), 404, "", "nobody")
    problem(ask(f"{api}/explain?query=why&{place}"), 400, "object.text", "string")
    problem(ask(f"{api}/price"), 400, "q", "expression")
    problem(ask(f"{api}/price?q=a&near=1,2"), 400, "near", "LON,LAT,KM")
    problem(ask(f"{api}/price?q=a&token=s"), 400, "token", "Authorization")
    client.delete("why")


def test_large_bodies_do_not_hold_up_others(api: str) -> None:
    big = [POST | {"text": "flood " * 60, "id": f"big{i}"} for i in range(8_000)]
    body = json.dumps(big).encode()
    assert len(body) < BATCH_BYTES
    done: list[Answer] = []
    headers = {"Content-Type": "application/json"}
    sender = threading.Thread(
        target=lambda: done.append(ask(f"{api}/objects", "POST", body, headers))
    )
    sender.start()
    waits = []
    while sender.is_alive():
        begun = time.monotonic()
        assert ask(f"{api}/health").status == 204
        waits.append(time.monotonic() - begun)
    assert done[0].status == 200, done
    assert done[0].body["accepted"] == 8_000
    assert waits
