"""ps2stream/connectors/geojson_feed.py and wis2_notices.py: Features as posts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ps2stream.connectors.counts import ConnectorCounts
from ps2stream.connectors.feed_source import EntryPosts, FeedEntry
from ps2stream.connectors.geojson_feed import GeoJsonFeed, make_id
from ps2stream.connectors.mapping import RecordFields
from ps2stream.connectors.wis2_notices import Wis2Notices
from ps2stream.posts.members import AttributeChoice

SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [0.2, 0], [0.2, 0.2], [0, 0.2], [0, 0]]]}


def feature(id: Any = "a", geometry: Any = None, **properties: Any) -> dict[str, Any]:
    point = {"type": "Point", "coordinates": [1, 2, 30]}
    return {
        "type": "Feature",
        "id": id,
        "geometry": geometry or point,
        "properties": {"title": "flood", **properties},
    }


def convert(*features: Any, spec: str | None = None) -> tuple[list[FeedEntry], list[EntryPosts]]:
    fields = RecordFields("text=title", choice=AttributeChoice(spec))
    feed = GeoJsonFeed(fields, "updated", 10.0, 500, ConnectorCounts("coarse"))
    whole = {"type": "FeatureCollection", "features": features}
    entries = feed.list_entries(json.dumps(whole).encode())
    return entries, feed.convert(entries, [None] * len(entries), {})


def test_a_version_is_a_property_or_the_content() -> None:
    one, two, changed = (
        convert(each)[0][0]
        for each in (feature(updated=5), feature(updated=5, mag=2), feature(updated=6))
    )
    assert (one.id, one.version) == (two.id, two.version) == ("a", "5")
    assert changed.version == "6"
    plain, other = (convert(each)[0][0] for each in (feature(), feature(mag=1)))
    assert plain.id == other.id
    assert plain.version != other.version


def test_a_feature_without_an_id_is_known_by_its_content() -> None:
    for id in (None, "", True, [1]):
        [entry] = convert(feature(id))[0]
        assert entry.id == entry.version
    assert convert(feature(7))[0][0].id == "7"


def test_a_point_is_one_object_with_its_feature_as_payload() -> None:
    given = feature(updated=5, mag=4.5, type="earthquake")
    _, [found] = convert(given)
    [post] = found.posts
    assert (post["id"], post["lon"], post["lat"], post["text"]) == ("a/5", 1.0, 2.0, "flood")
    assert post["attributes"]["feature"] == "a"
    assert post["attributes"]["mag"] == 4.5
    assert post["attributes"]["type"] == "earthquake"
    assert json.loads(post["payload"]) == given


def test_an_area_is_several_objects_also_with_chosen_attributes() -> None:
    _, [found] = convert(feature(geometry=SQUARE, mag=1, other=2), spec="mag")
    assert len(found.posts) > 20
    assert len({post["id"] for post in found.posts}) == len(found.posts)
    for post in found.posts:
        assert set(post["attributes"]) == {"mag", "feature", "inside", "spacing_km"}


def test_what_is_wrong_with_one_is_told_of_that_one() -> None:
    null = feature() | {"geometry": None}
    _, found = convert(feature("a"), "x", null, feature("b", title=5), feature("c"))
    assert [len(each.posts) for each in found] == [1, 0, 0, 0, 1]
    assert [each.problems for each in found] == [
        [], ["expected a Feature, got 'x'"],
        ["geometry: is null, so the feature has no position"],
        ["text: expected a string, got 5"], [],
    ]  # fmt: skip


def test_a_number_that_would_be_infinite_is_told_of_its_feature() -> None:
    feed = GeoJsonFeed(RecordFields("text=title"), "updated", 10.0, 500, ConnectorCounts("coarse"))
    whole = {"type": "FeatureCollection", "features": [feature(mag=n) for n in (1, 4004, 3)]}
    entries = feed.list_entries(json.dumps(whole).replace("4004", "4e400").encode())
    found = feed.convert(entries, [None] * 3, {})
    assert [len(each.posts) for each in found] == [1, 0, 1]
    assert "not JSON compliant" in found[1].problems[0]
    assert [post["attributes"]["mag"] for each in found for post in each.posts] == [1, 3]


def test_ids_are_bounded_and_stay_apart() -> None:
    assert make_id("a", "1", "2.3") == "a/1/2.3"
    long = [make_id("é" * 200, version, "1.2") for version in "12"]
    assert all(len(each.encode()) <= 128 for each in long)
    assert long[0] != long[1]


# --- WIS2 -----------------------------------------------------------------------


def notice(**more: Any) -> dict[str, Any]:
    properties = {"data_id": "x/synop/1", "pubtime": "2026-01-05T08:00:00Z"}
    return {
        "id": "n1", "type": "Feature", "geometry": {"type": "Point", "coordinates": [6, 46]},
        "properties": properties, "links": [{"rel": "canonical", "href": "https://a.example/x"}],
    } | more  # fmt: skip


def notices(*values: Any) -> Any:
    data = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in values]
    topics = ["cache/a/wis2/ch-x/data/core/weather"] * len(data)
    return Wis2Notices(10.0, 500).convert_messages(topics, data, ["?"] * len(data))


def test_a_notification_is_an_object() -> None:
    [post] = notices(notice()).posts
    assert (post["id"], post["time"]) == ("n1", 1767600000000)
    assert "synop" in post["text"]
    assert "weather" in post["text"]
    assert post["attributes"]["centre"] == "ch-x"
    assert post["attributes"]["rel"] == "canonical"


def test_a_notification_with_an_area_is_several() -> None:
    found = notices(notice(geometry=SQUARE), notice())
    assert len(found.posts) > 20
    assert found.rows[-1] == 1
    assert set(found.rows[:-1]) == {0}


def test_inlined_data_are_dropped_before_the_notification_is() -> None:
    big = notice()
    big["properties"] = big["properties"] | {"content": {"value": "x" * 60_000}}
    [post] = notices(big).posts
    assert "content" not in json.loads(post["payload"])["properties"]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"no", "Expecting value"),
        (b"[" * 100_000, "nested too deeply"),
        ([1], "expected a notification"),
        (notice(id=5), "id: is missing"),
        (notice(properties=None), "properties: expected an object"),
        (notice(properties={"pubtime": "x"}), "properties.data_id: is missing"),
        (notice(properties={"data_id": "d"}), "properties.pubtime: expected an ISO 8601 time"),
        (notice(geometry=None), "geometry: is null"),
        (notice(links=[]), "links: expected at least one"),
    ],
)
def test_what_is_no_notification_is_told(value: Any, problem: str) -> None:
    found = notices(notice(), value, notice(id="n2"))
    assert [post["id"] for post in found.posts] == ["n1", "n2"]
    assert list(found.rows) == [0, 2]
    assert list(found.bad) == [1]
    assert problem in found.bad[1]
