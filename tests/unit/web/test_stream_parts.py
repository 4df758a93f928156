"""What streams over HTTP are made of: cursors, feeds, output and clients, without a service."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import random
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from aiohttp.test_utils import make_mocked_request

from ps2stream.client.async_subscription import AsyncSubscription
from ps2stream.client.matches import Gap, Matches, read_batch
from ps2stream.client.shed_load import ShedLoad
from ps2stream.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    invalid,
)
from ps2stream.v1 import delivery_pb2, object_pb2
from ps2stream.web.api import callers as callers_module
from ps2stream.web.api.callers import Callers
from ps2stream.web.api.cursors import CursorWriter, read_cursor
from ps2stream.web.api.feed import KEEP_BYTES, KEEP_S, SessionFeed
from ps2stream.web.api.identities import LOCAL, name_token
from ps2stream.web.api.output import FORMATS, EventWriter
from ps2stream.web.api.parameters import read_parameters
from ps2stream.web.api.problems import build_problem, describe_error
from ps2stream.web.gate import PageGate

KEY, OTHER = b"k" * 32, b"o" * 32
PLACE = delivery_pb2.Cursor(incarnation=7, session=3, session_seq=9).SerializeToString()
ALL = delivery_pb2.DeliverFields(text=True, position=True, time=True, attributes=True, payload=True)


def build_batch(
    first: int, pairs: list[tuple[int, int]], objects: int, *, infinite: bool = False
) -> Matches:
    """A batch as the service sends it, with queries q0, q1, ... by handle."""
    mag = object_pb2.AttributeValue(number=float("inf") if infinite else 4.5)
    batch = delivery_pb2.DeliverBatch(
        session_seq=first,
        new_handles=range(5),
        new_query_ids=[f"q{i}" for i in range(5)],
        pair_handles=[handle for handle, _ in pairs],
        pair_objects=[at for _, at in pairs],
        object_ids=[f"o{i}\n☕" for i in range(objects)],
        object_offsets=range(100, 100 + objects),
        partition=2,
        lon=[float(i) for i in range(objects)],
        lat=[-float(i) for i in range(objects)],
        time_ms=[1000 * i for i in range(objects)],
        text=[f"text {i}\r\n\ndata: no" for i in range(objects)],
        attributes=[object_pb2.Attributes(values={"mag": mag})] * objects,
        payloads=[object_pb2.Payload(json='{"a": [1e999]}')] * objects,
    )
    return read_batch(delivery_pb2.DeliverResponse(batch=batch).SerializeToString(), {}, ALL)


def build_gap(gap: Gap) -> Matches:
    return Matches(delivery_pb2.DeliverBatch(session_seq=gap.last + 1), {}, gap)


# --- cursors -----------------------------------------------------------------------


@pytest.mark.parametrize("ephemeral", [True, False])
def test_a_cursor_is_read_with_its_own_key_alone(ephemeral: bool) -> None:
    text = CursorWriter(KEY, "größe/1", ephemeral, PLACE).write(42)
    found = read_cursor(KEY, text)
    assert (found.name, found.ephemeral, found.number) == ("größe/1", ephemeral, 42)
    place = delivery_pb2.Cursor.FromString(found.place)
    assert (place.incarnation, place.session) == (7, 3)
    with pytest.raises(NotFound):
        read_cursor(OTHER, text)


def test_no_changed_cursor_is_read() -> None:
    text = CursorWriter(KEY, "s", False, PLACE).write(42)
    draw = random.Random(5)
    letters = "ABCabc019-_=+/ \n\x00é"
    for _ in range(3000):
        at = draw.randrange(len(text))
        changed = draw.choice(
            (
                text[:at] + draw.choice(letters) + text[at + 1 :],
                text[:at],
                text[:at] + draw.choice(letters) + text[at:],
                "".join(draw.choices(letters, k=draw.randrange(700))),
            )
        )
        try:
            found = read_cursor(KEY, changed)
        except NotFound:
            continue
        assert found.number == 42  # bits that base64 does not use
        assert found.name == "s"


# --- output ------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_each_match_is_written_as_the_client_reads_it(format: str) -> None:
    pairs = [(i % 5, i * 7 % 4) for i in range(20)]
    batch = build_batch(50, pairs, 4, infinite=True)
    cursors = CursorWriter(KEY, "s", False, PLACE)
    events = list(EventWriter(cursors, "s", format).write_batch(batch))
    assert len(events) == 20
    for number, (event, match) in enumerate(zip(events, batch, strict=True), 50):
        assert event.event == "match"
        assert read_cursor(KEY, event.cursor).number == number
        assert "\n" not in event.data
        assert "\r" not in event.data
        data = json.loads(event.data, parse_constant=pytest.fail)
        if format == "geojson":
            assert data["geometry"]["coordinates"] == [match.lon, match.lat]
            row = data["properties"]
        else:
            row = data
            if format == "cloudevents":
                assert (data["specversion"], data["subject"]) == ("1.0", match.query_id)
                assert data["id"] == f"7-3-{number}"
                row = data["data"]
            assert (row["lon"], row["lat"]) == (match.lon, match.lat)
        assert row["seq"] == number
        assert row["query_id"] == match.query_id
        assert (row["partition"], row["offset"]) == (match.partition, match.offset)
        assert (row["object_id"], row["text"], row["time"]) == (
            match.object_id,
            match.text,
            match.time,
        )
        assert row["attributes"] == {"mag": "Infinity"}
        assert row["payload"] == {"a": [None]}  # beyond what JSON of others can say


def test_matches_of_other_queries_are_left_out() -> None:
    batch = build_batch(1, [(0, 0), (1, 0), (0, 1)], 2)
    writer = EventWriter(CursorWriter(KEY, "s", True, PLACE), "s", "json", "q0")
    numbers = [json.loads(event.data)["seq"] for event in writer.write_batch(batch)]
    assert numbers == [1, 3]


@pytest.mark.parametrize("format", FORMATS)
def test_a_gap_has_its_numbers(format: str) -> None:
    shed = ShedLoad(1, 10, 20, 5, 9, 4, 100, 0.25)
    for gap in (Gap(3, 9, 7), Gap(3, 3, 0, shed)):
        writer = EventWriter(CursorWriter(KEY, "s", True, PLACE), "s", format)
        (event,) = writer.write_batch(build_gap(gap))
        data = json.loads(event.data)
        data = data["data"] if format == "cloudevents" else data
        assert event.event == "gap"
        assert (data["from"], data["to"], data["count"]) == (gap.first, gap.last, gap.count)
        assert data.get("shed") == (None if gap.shed is None else dataclasses.asdict(shed))
        assert read_cursor(KEY, event.cursor).number == gap.last


# --- feeds -------------------------------------------------------------------------


class StandInSubscription:
    """Hands out batches and errors in turn, and notes what was acknowledged."""

    def __init__(self, *items: Matches | Exception) -> None:
        self.items = list(items)
        self.acknowledged: list[int] = []
        self.acked = 0
        self.cursor = PLACE

    async def batches(self, *, manual: bool) -> AsyncIterator[Matches]:
        assert manual
        while self.items:
            item = self.items.pop(0)
            if isinstance(item, Exception):
                raise item
            yield item
        await asyncio.Event().wait()

    def took(self, number: int) -> None:
        self.acknowledged.append(number)

    async def close(self) -> None:
        self.items.clear()


def build_feed(
    stand_in: StandInSubscription, after: int | None = None, **options: Any
) -> SessionFeed:
    return SessionFeed(cast(AsyncSubscription, stand_in), after, **options)


def test_what_was_written_is_kept_for_five_minutes_and_then_acknowledged() -> None:
    stand_in, now = StandInSubscription(), [0.0]
    feed = build_feed(stand_in, clock=lambda: now[0])
    for second in range(400):
        now[0] = float(second)
        for _ in range(3):
            feed.note_written(10 * second + 1, 100)
        feed.acknowledge_old()
        wanted = [10 * s + 1 for s in range(second + 1) if s + KEEP_S <= second]
        assert stand_in.acknowledged == wanted
    assert len(feed._written) <= KEEP_S + 1


def test_what_is_kept_is_bounded() -> None:
    stand_in, now = StandInSubscription(), [0.0]
    feed = build_feed(stand_in, clock=lambda: now[0])
    for second in range(20):
        now[0] = float(second)
        feed.note_written(second + 1, KEEP_BYTES // 8)
        feed.acknowledge_old()
    assert stand_in.acknowledged == list(range(1, 13))  # the last eight are kept


def test_a_service_that_is_away_is_waited_for_and_nothing_else() -> None:
    async def read() -> None:
        batch = build_batch(1, [(0, 0)], 1)
        feed = build_feed(StandInSubscription(batch, Unavailable("away"), TimeoutError(), batch))
        found = [await feed.take(0.01) for _ in range(4)]
        assert [b is not None for b in found] == [True, False, False, True]
        assert await feed.take(0.01) is None
        await feed.close()
        feed = build_feed(StandInSubscription(FailedPrecondition("taken")))
        with pytest.raises(FailedPrecondition):
            await feed.take(0.01)

    asyncio.run(read())


def test_what_is_missing_behind_a_cursor_is_found() -> None:
    feed = build_feed(StandInSubscription(), 5)
    assert feed.find_lost(build_batch(6, [(0, 0), (1, 0)], 1)) is None
    assert feed.find_lost(build_batch(8, [(0, 0)], 1)) is None
    assert feed.find_lost(build_batch(12, [(0, 0)], 1)) == Gap(9, 11, 0)
    assert feed.find_lost(build_gap(Gap(13, 20, 8))) is None
    assert feed.find_lost(build_gap(Gap(25, 26, 2))) == Gap(21, 24, 0)
    assert build_feed(StandInSubscription(), 0).find_lost(build_batch(3, [(0, 0)], 1)) == Gap(
        1, 2, 0
    )


def test_a_reader_without_a_cursor_begins_behind_what_was_acknowledged() -> None:
    stand_in = StandInSubscription()
    stand_in.acked = 499
    feed = build_feed(stand_in)
    assert feed.last == 499
    assert feed.find_lost(build_batch(500, [(0, 0)], 1)) is None
    assert feed.find_lost(build_batch(502, [(0, 0)], 1)) == Gap(501, 501, 0)


# --- callers -----------------------------------------------------------------------


def build_callers(key: str = "", **access: Any) -> Callers:
    gate = PageGate("127.0.0.1", key, False)
    own = cast(Any, object())
    return Callers("localhost:1", {"timeout": 1.0, **access}, own, gate)


def ask(**headers: str) -> Any:
    return make_mocked_request("GET", "/v1/stream", headers=headers)


def test_a_token_is_known_by_a_name_that_hides_it() -> None:
    found = build_callers().identify(ask(Authorization="Bearer ps2s_secret"))
    assert found == name_token("ps2s_secret")
    assert len(found) == 16
    assert "secret" not in found
    callers = build_callers()
    assert callers.identify(ask(Authorization="bearer  ps2s_secret ")) == found
    assert callers.identify(ask(Cookie=f"{callers.cookie}=ps2s_secret")) == found
    assert callers.identify(ask()) == LOCAL
    assert build_callers(token="ps2s_secret").identify(ask()) == found


def test_who_has_neither_token_nor_key_is_nobody() -> None:
    callers = build_callers("the-key", token="ps2s_own")
    for headers in (
        {},
        {"Authorization": "Basic eA=="},
        {"Authorization": "Bearer "},
        {"Cookie": "ps2stream-map-0=other"},
        {"Authorization": "Basic eA==", "Cookie": "ps2stream-map-0=the-key"},
    ):
        with pytest.raises(Unauthenticated):
            callers.identify(ask(**headers))
    keyed = ask(Cookie="ps2stream-map-0=the-key")
    assert callers.identify(keyed) == name_token("ps2s_own")
    other = ask(Authorization="Bearer ps2s_other", Cookie="ps2stream-map-0=the-key")
    assert callers.identify(other) == name_token("ps2s_other")
    assert callers.find_key(other) != callers.find_key(keyed)


def test_clients_are_shared_bounded_and_never_those_of_a_certificate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[dict[str, Any]] = []
    closed: list[str] = []

    class StandInClient:
        def __init__(self, _: str, **access: Any) -> None:
            self.token = access["token"]
            made.append(access)

        async def close(self) -> None:
            closed.append(self.token)

    monkeypatch.setattr(callers_module, "AsyncClient", StandInClient)
    monkeypatch.setattr(callers_module, "MAX_CLIENTS", 3)

    async def use(tmp: Callers) -> None:
        requests = [ask(Authorization=f"Bearer t{i}") for i in range(3)]
        for request in requests:
            client = await tmp.find_client(request)
            assert await tmp.find_client(request) is client
        with pytest.raises(ResourceExhausted, match="3 identities"):
            await tmp.find_client(ask(Authorization="Bearer t3"))
        tmp.release(requests[1])
        last = ask(Authorization="Bearer t3")
        await tmp.find_client(last)
        assert closed == ["t1"]
        assert len(tmp) == 3
        await tmp.close()
        assert sorted(closed) == ["t0", "t1", "t2", "t3"]

    callers = build_callers()
    callers._access |= {"tls_cert": "c", "tls_key": "k", "tls_ca": "a"}
    asyncio.run(use(callers))
    assert [access["token"] for access in made] == ["t0", "t1", "t2", "t3"]
    assert all("tls_cert" not in a and "tls_key" not in a and a["tls_ca"] == "a" for a in made)


# --- parameters and problems -------------------------------------------------------


def test_places_are_read_as_they_are_meant() -> None:
    def region(query: str) -> Any:
        found = read_parameters(make_mocked_request("GET", f"/v1/stream?{query}")).region
        return None if found is None else found.to_json()

    assert region("near=-0.1,51.5,30") == {
        "type": "Circle",
        "lon": -0.1,
        "lat": 51.5,
        "radius_km": 30.0,
    }
    assert region("bbox=170,-10,-170,10")["lon_max"] == -170
    assert region("q=a") is None
    pairs = region("polygon=0,0;2,0;2,2")
    geojson = '{"type":"Polygon","coordinates":[[[0,0],[2,0],[2,2],[0,0]]]}'
    assert pairs == region(f"polygon={geojson}") == region("polygon=0,0%202,0%202,2%200,0")
    assert region("polygon=170,0;190,0;190,5")["type"] == "MultiPolygon"


def test_the_header_counts_more_than_the_address() -> None:
    request = make_mocked_request(
        "GET", "/v1/stream?cursor=old&q=a", headers={"Last-Event-ID": "new"}
    )
    assert read_parameters(request).cursor == "new"


def test_no_parameter_breaks_the_reader() -> None:
    draw = random.Random(2)
    values = ["1,2,3", "1,2,3,4", "{", "[1]", "1;2", '{"type":"Polygon"}', "nan,inf,1e999", "é", ""]
    names = ["q", "near", "bbox", "polygon", "session", "fields", "format", "cursor", "token"]
    for _ in range(300):
        query = "&".join(
            f"{draw.choice(names)}={draw.choice(values)}{draw.choice(['', ',', '[' * 3000])}"
            for _ in range(draw.randrange(4))
        )
        with contextlib.suppress(InvalidArgument):
            found = read_parameters(make_mocked_request("GET", f"/v1/stream?{query}"))
            assert len(found.digest) == 16


def test_a_problem_says_what_and_where() -> None:
    answer = describe_error(invalid("near", "is no place"), "/v1/stream")
    assert answer.content_type == "application/problem+json"
    assert json.loads(answer.text or "") == {
        "type": "urn:ps2stream:problem:invalid-argument",
        "title": "Bad Request",
        "status": 400,
        "detail": "near: is no place",
        "instance": "/v1/stream",
        "violations": [{"field": "near", "problem": "is no place"}],
    }
    refused = describe_error(ResourceExhausted("full", 1500), "/v1/x")
    assert (refused.status, refused.headers["Retry-After"]) == (429, "2")
    stranger = describe_error(Unauthenticated("who?"), "/v1/x")
    assert (stranger.status, stranger.headers["WWW-Authenticate"]) == (401, "Bearer")
    late = describe_error(TimeoutError(), "/v1/x")
    assert (late.status, late.headers["Retry-After"]) == (503, "1")
    assert json.loads(build_problem(405, "no", "/v1/x").text or "")["type"] == "about:blank"
