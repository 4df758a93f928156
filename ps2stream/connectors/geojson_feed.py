"""Feeds of GeoJSON, such as those of earthquakes: each Feature is an entry."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ps2stream.connectors.area_positions import AreaPositions, place_area, read_geometry_area
from ps2stream.connectors.counts import ConnectorCounts
from ps2stream.connectors.feed_source import EntryPosts, FeedEntry
from ps2stream.connectors.mapping import RecordFields
from ps2stream.errors import short
from ps2stream.limits import ID_BYTES, PAYLOAD_BYTES
from ps2stream.posts.readers import nest_attributes

FEATURES = 100_000
DEPTH = 64


class GeoJsonFeed:
    """Reads FeatureCollections. A Feature is published again if its `version` (a name of its
    properties) changes, or its content if it has none. An object's id is the id of the Feature, its
    version and, for an area, the place in the grid."""

    batch = 500

    def __init__(
        self,
        fields: RecordFields,
        version: str,
        spacing_km: float,
        most: int,
        counts: ConnectorCounts,
    ) -> None:
        self._fields = fields
        self._version = version
        self._spacing_km = spacing_km
        self._most = most
        self._counts = counts

    def list_entries(self, body: bytes) -> list[FeedEntry]:
        """Returns the Features of a document. Raises ValueError."""
        whole = parse_json(body)
        features = whole.get("features") if isinstance(whole, dict) else None
        if not isinstance(features, list):
            raise ValueError("expected a FeatureCollection")
        if len(features) > FEATURES:
            raise ValueError(f"has more than {FEATURES} features")
        return [self._make_entry(feature) for feature in features]

    def _make_entry(self, feature: Any) -> FeedEntry:
        found: Mapping[str, Any] = feature if isinstance(feature, dict) else {}
        properties = found.get("properties")
        version = properties.get(self._version) if isinstance(properties, dict) else None
        digest = hash_json(feature)
        id = found.get("id")
        if isinstance(id, bool) or not isinstance(id, str | int) or id == "":
            return FeedEntry(digest, digest, feature)
        if isinstance(version, bool) or not isinstance(version, str | int | float):
            version = digest
        return FeedEntry(str(id), str(version)[:200], feature)

    def convert(
        self, entries: Sequence[FeedEntry], bodies: Sequence[bytes | None], kept: dict[str, Any]
    ) -> list[EntryPosts]:
        """Returns the posts of each Feature."""
        out = [EntryPosts() for _ in entries]
        places: dict[int, AreaPositions] = {}
        records: list[bytes | None] = []
        for number, entry in enumerate(entries):
            try:
                place = self._place_feature(entry.record)
                record = _make_record(entry.record, place)
                records.append(json.dumps(record, allow_nan=False).encode())
                places[number] = place
            except ValueError as error:
                out[number].problems.append(str(error))
        numbers = list(places)
        found = self._fields.convert(records, [entries[i].id for i in numbers])
        for row, reason in found.bad.items():
            out[numbers[row]].problems.append(reason)
        posts: Any = found.posts
        rows = posts if isinstance(posts, list) else map(nest_attributes, posts.to_pylist())
        for row, post in zip(found.rows, rows, strict=True):
            number = numbers[row]
            out[number].posts += spread_post(post, entries[number], places[number])
        return out

    def _place_feature(self, feature: Any) -> AreaPositions:
        if not isinstance(feature, dict) or feature.get("type") != "Feature":
            raise ValueError(f"expected a Feature, got {short(feature)}")
        if feature.get("geometry") is None:
            raise ValueError("geometry: is null, so the feature has no position")
        area = read_geometry_area(feature["geometry"])
        found = place_area(area, self._spacing_km, self._most)
        if found.spacing_km > self._spacing_km:
            self._counts.add("coarse")
        return found


def spread_post(
    post: Mapping[str, Any], entry: FeedEntry, places: AreaPositions
) -> Iterator[dict[str, Any]]:
    """Yields a post at each position of an area, with the attributes `feature` (the id of the
    entry) and, unless the area is one point, `inside` and `spacing_km`."""
    shared = {**post.get("attributes", {}), "feature": cut_text(entry.id, 1024)}
    alone = len(places.names) == 1
    for lon, lat, inside, name in zip(
        places.lon.tolist(), places.lat.tolist(), places.inside, places.names, strict=True
    ):
        more = {} if alone else {"inside": inside, "spacing_km": places.spacing_km}
        id = make_id(entry.id, entry.version, "" if alone else name)
        yield {**post, "id": id, "lon": lon, "lat": lat, "attributes": shared | more}


def make_id(id: str, version: str, place: str = "") -> str:
    """Returns the id of an object, the same for the same parts; a hash of them if it is too
    long."""
    whole = "/".join(part for part in (id, version, place) if part)
    data = whole.encode("utf-8", "replace")
    if len(data) <= ID_BYTES and whole.isprintable():
        return data.decode()
    digest = hashlib.sha256(f"{id}/{version}".encode("utf-8", "replace")).hexdigest()[:40]
    return f"{digest}/{place}" if place else digest


def parse_json(body: bytes) -> Any:
    """Returns the value of a document of JSON. Raises ValueError, also for NaN."""
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def hash_json(value: Any) -> str:
    """Returns a hash of a value of JSON that does not depend on the order of members."""
    data = json.dumps(value, sort_keys=True, ensure_ascii=True).encode()
    return hashlib.sha256(data).hexdigest()[:16]


def cut_text(text: str, most: int) -> str:
    """Returns at most `most` bytes of a text, cut between letters."""
    data = text.encode("utf-8", "replace")
    return data[:most].decode("utf-8", "ignore")


def _make_record(feature: Mapping[str, Any], places: AreaPositions) -> dict[str, Any]:
    """Returns the properties of a Feature at the first of its positions. A property may be called
    `type`, so the record is no Feature itself; that is its payload, if it has none and is not too
    large."""
    properties = feature.get("properties")
    record = dict(properties) if isinstance(properties, dict) else {}
    if "payload" not in record and len(json.dumps(feature)) <= PAYLOAD_BYTES // 4:
        record["payload"] = feature
    place = {"lon": places.lon[0].item(), "lat": places.lat[0].item()}
    return record | place | {"id": "-"}  # the id is made of the entry


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"expected JSON, got {name}")
