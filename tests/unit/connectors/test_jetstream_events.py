"""Events of a Jetstream as posts and deletions, and what is wrong with the others."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.connectors.gazetteer import Gazetteer, GazetteerPlace
from ps2stream.connectors.jetstream_events import (
    BadEvent,
    JetstreamDeletion,
    JetstreamOther,
    JetstreamPost,
    choose_time,
    read_event,
)
from tests.support.jetstream_server import id_of, make_commit, make_post

AT = 1_767_600_000_000_000


def read(event: Any, gazetteer: Gazetteer | None = None) -> Any:
    data = event if isinstance(event, bytes) else json.dumps(event).encode()
    return read_event(data, gazetteer)


def row_of(event: Any, gazetteer: Gazetteer | None = None) -> dict[str, Any]:
    found = read(event, gazetteer)
    assert isinstance(found, JetstreamPost)
    assert found.row is not None
    return found.row


def test_a_post_with_a_place_is_a_row() -> None:
    record = {"reply": {"root": {}}, "langs": ["pt-BR", "en"], "createdAt": "2026-01-05T08:00:00Z"}
    row = row_of(make_post(7, "chuva", "-23.55", "-46.63", time_us=AT, record=record))
    assert row == {
        "id": id_of(7), "time": AT // 1000, "text": "chuva", "lon": -46.63, "lat": -23.55,
        "attributes": {
            "place_source": "post", "reply": True, "lang": "pt-BR", "langs": "pt-BR en",
        },
    }  # fmt: skip


def test_neither_language_nor_author_give_a_place() -> None:
    record = {"langs": ["ja"], "embed": {"$type": "community.lexicon.location.geo"}}
    found = read(make_post(1, "地震", record={"langs": record["langs"]}))
    assert found.row is None


def test_a_place_may_be_any_member_or_in_a_list() -> None:
    geo = {"$type": "community.lexicon.location.geo", "latitude": "1", "longitude": "2"}
    other = {"$type": "community.lexicon.location.address", "country": "DE"}
    for record in ({"venue": geo}, {"locations": [other, geo]}):
        row = row_of(make_post(1, "x", record=record))
        assert (row["lat"], row["lon"]) == (1, 2)
    both = {"a": geo, "location": geo | {"latitude": "5", "name": "Here"}}
    row = row_of(make_post(1, "x", record=both))
    assert (row["lat"], row["attributes"]["place_name"]) == (5, "Here")


def test_a_gazetteer_is_asked_only_without_a_place_of_the_author() -> None:
    york = Gazetteer([GazetteerPlace("York", -1.08, 53.96, 8.0, 1.0)])
    assert row_of(make_post(1, "York", "1", "2"), york)["attributes"]["place_source"] == "post"
    row = row_of(make_post(1, "flood in York!"), york)
    assert (row["lon"], row["attributes"]["place_radius_km"]) == (-1.08, 8.0)
    assert read(make_post(1, "flood in Leeds"), york).row is None


@pytest.mark.parametrize(
    ("created", "seen_ms"),
    [
        ("2026-01-05T07:59:59Z", -1000),  # as its author's program says
        ("2026-01-05T09:04:59.5+01:00", 299_500),
        ("2026-01-04T07:59:59Z", 0),  # more than a day before
        ("2026-01-05T08:05:01Z", 0),  # more than five minutes after
        ("2026-01-05T07:59:59", 0),  # of no time zone
        ("yesterday", 0),
        ("0001-01-01T00:00:00+23:59", 0),
        (None, 0),
        (7, 0),
    ],
)
def test_the_time_is_the_events_unless_the_posts_is_credible(created: Any, seen_ms: int) -> None:
    assert choose_time(created, AT) == AT // 1000 + seen_ms


def test_deletions_and_other_events_are_told_apart() -> None:
    found = read(make_commit(3, "delete", time_us=AT))
    assert found == JetstreamDeletion(AT, id_of(3), found.revision)
    for other in (
        make_commit(3, "create", time_us=AT, collection="app.bsky.feed.like"),
        {"did": "did:plc:x", "time_us": AT, "kind": "identity", "identity": {}},
        {"did": "did:plc:x", "time_us": AT, "kind": "account", "account": {"active": False}},
        {"time_us": AT},
    ):
        assert read(other) == JetstreamOther(AT)


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        (b"\xff", "expected a JSON object"),
        (b"[1]", "expected a JSON object, got [1]"),
        (b"[" * 100_000, "expected at most 32 nested objects and arrays"),
        ({"kind": "commit"}, "time_us: expected microseconds since 1970, got null"),
        ({"kind": "commit", "time_us": True}, "time_us"),
        ({"kind": "commit", "time_us": AT}, "commit: expected an object, got null"),
        (make_commit(1, "create"), "commit.record: expected an object, got null"),
        (make_commit(1, "move"), "commit.operation: expected create, update or delete"),
        (make_commit(1, "delete", rkey="a/b"), "commit.rkey: expected the key of a record"),
        (make_commit(1, "delete", rkey="a" * 200), "id: expected at most 128 bytes, got"),
        (make_commit(1, "delete", rev=4), "commit.rev: expected a revision, got 4"),
        (make_commit(1, "delete") | {"did": "did:plc:a b"}, "did: expected a DID"),
        (make_commit(1, "create", record={"text": 5}), "text: expected a string, got 5"),
        (make_post(1, "x", "91", "0"), "location.latitude: expected degrees in [-90, 90]"),
        (make_post(1, "x", "0", "181"), "location.longitude: expected degrees in [-180, 180]"),
        (make_post(1, "x", "1e1", "0"), "location.latitude: expected decimal degrees, got '1e1'"),
        (make_post(1, "x", "nan", "0"), "location.latitude: expected decimal degrees"),
        (make_post(1, "x", "5"), "location.longitude: expected degrees"),
    ],
)
def test_what_is_wrong_is_named(event: Any, problem: str) -> None:
    with pytest.raises(BadEvent) as error:
        read(event)
    assert problem in str(error.value)


def test_brackets_in_texts_are_not_nested() -> None:
    assert row_of(make_post(1, '"[' * 500 + "\\", "1", "2"))["text"].startswith('"[')


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(
    st.sampled_from(["did", "time_us", "kind", "commit"]),
    st.sampled_from(["rev", "operation", "collection", "rkey", "record"]),
    st.sampled_from(["text", "langs", "createdAt", "location", "reply"]),
    VALUES,
)
def test_any_value_anywhere_is_an_event_or_a_bad_one(
    outer: str, middle: str, inner: str, value: Any
) -> None:
    for path in ([outer], ["commit", middle], ["commit", "record", inner]):
        event = make_post(1, "x", "1", "2", time_us=AT)
        at: Any = event
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = value
        with suppress(BadEvent):
            read(event)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_event_or_a_bad_one(data: bytes) -> None:
    with suppress(BadEvent):
        read(data)
