"""Notifications of WMO's WIS2 as posts: a Feature that says which data there are, and where.

WIS2 Notification Message (WMO-No. 1060, Manual on WIS, volume II, appendix E): properties.data_id
and properties.pubtime are required, as are links. Global Brokers pass on the same notification
several times; its id is the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from ps2stream.connectors.alert_messages import read_moment
from ps2stream.connectors.area_positions import AreaPositions, place_area, read_geometry_area
from ps2stream.connectors.geojson_feed import cut_text, make_id, parse_json
from ps2stream.connectors.mapping import ConvertedPosts
from ps2stream.limits import ATTRIBUTE_TEXT_BYTES, PAYLOAD_BYTES, TEXT_BYTES

TEXTS = ("data_id", "metadata_id", "wigos_station_identifier", "gts")
TIMES = ("pubtime", "datetime", "start_datetime", "end_datetime")
LINKS = ("canonical", "update", "deletion")
"""Relations of the link to the data, the first of which is the notification's."""
_EPOCH = datetime.fromtimestamp(0, UTC)


class Wis2Notices:
    """Makes posts of notifications. A geometry that is an area becomes objects that are spacing_km
    apart, at most `most`."""

    def __init__(self, spacing_km: float, most: int) -> None:
        self._spacing_km = spacing_km
        self._most = most

    def convert_messages(
        self, topics: Sequence[str], payloads: Sequence[bytes], ids: Sequence[str]
    ) -> ConvertedPosts:
        """Returns the posts of notifications."""
        posts: list[dict[str, Any]] = []
        rows: list[int] = []
        bad: dict[int, str] = {}
        for number, (topic, payload) in enumerate(zip(topics, payloads, strict=True)):
            try:
                made = list(self._convert_notice(topic, payload))
            except ValueError as error:
                bad[number] = str(error)
                continue
            posts += made
            rows += [number] * len(made)
        return ConvertedPosts(posts, rows, bad)

    def _convert_notice(self, topic: str, payload: bytes) -> Iterator[dict[str, Any]]:
        notice = parse_json(payload)
        if not isinstance(notice, dict) or notice.get("type") != "Feature":
            raise ValueError("expected a notification, a Feature of GeoJSON")
        id, properties = notice.get("id"), notice.get("properties")
        if not isinstance(id, str) or not id:
            raise ValueError("id: is missing")
        if not isinstance(properties, dict):
            raise ValueError("properties: expected an object")
        if not isinstance(properties.get("data_id"), str):
            raise ValueError("properties.data_id: is missing")
        attributes = _make_attributes(topic, notice, properties)
        post = {
            "time": _read_time(properties, "pubtime"),
            "text": cut_text(f"{topic} {properties['data_id']}", TEXT_BYTES),
            "payload": _make_payload(notice),
        }
        places = self._place_notice(notice)
        alone = len(places.names) == 1
        for lon, lat, name in zip(
            places.lon.tolist(), places.lat.tolist(), places.names, strict=True
        ):
            where = {"id": make_id(id, "", "" if alone else name), "lon": lon, "lat": lat}
            more = {} if alone else {"spacing_km": places.spacing_km}
            yield {**where, **post, "attributes": attributes | more}

    def _place_notice(self, notice: Mapping[str, Any]) -> AreaPositions:
        if notice.get("geometry") is None:
            raise ValueError("geometry: is null, so the notification has no position")
        area = read_geometry_area(notice["geometry"])
        return place_area(area, self._spacing_km, self._most)


def _make_attributes(
    topic: str, notice: Mapping[str, Any], properties: Mapping[str, Any]
) -> dict[str, Any]:
    link = _find_link(notice)
    levels = topic.split("/")
    texts = {
        "topic": topic,
        "centre": levels[3] if len(levels) > 3 else "",
        **{name: properties.get(name) for name in TEXTS},
        **{name: link.get(name) for name in ("rel", "href", "type")},
    }
    found: dict[str, Any] = {
        name: cut_text(value, ATTRIBUTE_TEXT_BYTES)
        for name, value in texts.items()
        if isinstance(value, str) and value
    }
    length = link.get("length")
    if isinstance(length, int) and not isinstance(length, bool) and 0 <= length < 1 << 62:
        found["length"] = length
    for name in TIMES:
        if properties.get(name) is not None:
            found[name] = _EPOCH + timedelta(milliseconds=_read_time(properties, name))
    return found


def _find_link(notice: Mapping[str, Any]) -> Mapping[str, Any]:
    links = notice.get("links")
    found = [link for link in links if isinstance(link, dict)] if isinstance(links, list) else []
    if not found:
        raise ValueError("links: expected at least one")
    by_relation = {link.get("rel"): link for link in reversed(found)
                   if isinstance(link.get("rel"), str)}  # fmt: skip
    return next((by_relation[rel] for rel in LINKS if rel in by_relation), found[0])


def _read_time(properties: Mapping[str, Any], name: str) -> int:
    return read_moment(properties.get(name), f"properties.{name}")


def _make_payload(notice: Mapping[str, Any]) -> str | None:
    """Returns the notification as JSON; without the data in it where it is too large."""
    for dropped in ((), ("content",), ("content", "geometry")):
        kept = dict(notice)
        kept["properties"] = {n: v for n, v in notice["properties"].items() if n not in dropped}
        if "geometry" in dropped:
            del kept["geometry"]
        data = json.dumps(kept, ensure_ascii=False, separators=(",", ":"))
        whole = data.encode("utf-8", "replace")
        if len(whole) <= PAYLOAD_BYTES // 2:
            return whole.decode()
    return None
