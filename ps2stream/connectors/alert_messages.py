"""Alerts as values, read from CAP 1.2 (1.1 and 1.0 differ in nothing that is read here) and from
the GeoJSON of the National Weather Service."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.etree.ElementTree import Element

import shapely

from ps2stream.connectors.area_positions import (
    VERTICES,
    AreaCircle,
    check_position,
    make_polygon,
    read_geometry_area,
)
from ps2stream.connectors.bounded_xml import child_text, child_texts, list_children, local_name
from ps2stream.errors import short
from ps2stream.limits import RADIUS_KM
from ps2stream.posts.members import check_time

INFOS = 64
AREAS = 4096
KINDS = ("Alert", "Update", "Cancel", "Ack", "Error")
CODES = 10_000
END_MS = 253_402_300_800_000
"""The end of the year 9999."""


@dataclass(slots=True)
class AlertArea:
    """Area of an alert: what it is called, its shapes, and the codes of places such as zones."""

    name: str = ""
    shapes: list[Any] = field(default_factory=list)
    circles: list[AreaCircle] = field(default_factory=list)
    codes: list[tuple[str, str]] = field(default_factory=list)


@dataclass(slots=True)
class AlertInfo:
    """What an alert says in one language, or of one phase. times: Unix ms by name."""

    words: dict[str, str]
    categories: list[str]
    times: dict[str, int]
    areas: list[AlertArea]


@dataclass(slots=True)
class AlertMessage:
    """An alert, update or cancellation. references: identifiers of the earlier messages that it is
    about."""

    id: str
    sender: str
    sent_ms: int
    status: str
    kind: str
    references: list[str]
    infos: list[AlertInfo]


WORDS = (
    "language", "event", "urgency", "severity", "certainty", "headline", "description",
    "instruction", "senderName", "web",
)  # fmt: skip
TIMES = ("effective", "onset", "expires")


def read_cap_alert(root: Element) -> AlertMessage:
    """Reads an alert element of CAP. Raises ValueError that names the element."""
    if local_name(root) != "alert":
        raise ValueError(f"expected a CAP alert, got the element {short(local_name(root))}")
    infos = list_children(root, "info")
    if len(infos) > INFOS:
        raise ValueError(f"info: has {len(infos)}, more than the limit {INFOS}")
    references = [_read_reference(one) for one in child_text(root, "references").split()]
    return AlertMessage(
        _need(child_text(root, "identifier"), "identifier"),
        child_text(root, "sender"),
        read_moment(_need(child_text(root, "sent"), "sent"), "sent"),
        _need(child_text(root, "status"), "status"),
        _check_kind(child_text(root, "msgType"), "msgType"),
        references,
        [_read_info(info) for info in infos],
    )


def read_nws_feature(feature: Any) -> AlertMessage:
    """Reads a Feature of the National Weather Service. Raises ValueError that names the member."""
    found = feature.get("properties") if isinstance(feature, dict) else None
    if not isinstance(found, dict):
        raise ValueError("properties: expected an object")
    sent = read_moment(found.get("sent"), "sent")
    words = {name: _read_word(found, name) for name in WORDS}
    times = {name: read_moment(found[name], name) for name in (*TIMES, "ends") if found.get(name)}
    area = AlertArea(_read_word(found, "areaDesc"), codes=_read_nws_codes(found))
    if feature.get("geometry") is not None:
        area.shapes.append(read_geometry_area(feature["geometry"]).geometry)
    references = found.get("references")
    return AlertMessage(
        _need(found.get("id"), "id"),
        _read_word(found, "sender"),
        sent,
        _need(found.get("status"), "status"),
        _check_kind(found.get("messageType"), "messageType"),
        [
            one["identifier"]
            for one in (references if isinstance(references, list) else ())
            if isinstance(one, dict) and isinstance(one.get("identifier"), str)
        ],
        [AlertInfo(words, [_read_word(found, "category")], times, [area])],
    )


# --- parts of CAP ---------------------------------------------------------------


def _read_info(info: Element) -> AlertInfo:
    words = {name: child_text(info, name) for name in WORDS}
    times = {name: read_moment(text, name) for name in TIMES if (text := child_text(info, name))}
    areas = list_children(info, "area")
    if len(areas) > AREAS:
        raise ValueError(f"area: has {len(areas)}, more than the limit {AREAS}")
    left = [VERTICES]
    return AlertInfo(
        words, child_texts(info, "category"), times, [_read_area(area, left) for area in areas]
    )


def _read_area(area: Element, left: list[int]) -> AlertArea:
    codes = [(child_text(c, "valueName"), child_text(c, "value")) for c in area
             if local_name(c) == "geocode"]  # fmt: skip
    return AlertArea(
        child_text(area, "areaDesc"),
        [_read_polygon(text, left) for text in child_texts(area, "polygon")],
        [_read_circle(text) for text in child_texts(area, "circle")],
        [code for code in codes if code[1]][:CODES],
    )


def _read_polygon(text: str, left: list[int]) -> Any:
    pairs = text.split()
    left[0] -= len(pairs)
    if left[0] < 0:
        raise ValueError(f"polygon: the areas have more than {VERTICES} positions")
    try:
        return make_polygon([[_read_pair(pair) for pair in pairs]])
    except ValueError as error:
        raise ValueError(f"polygon: {error}") from None


def _read_circle(text: str) -> AreaCircle:
    center, _, radius = text.strip().partition(" ")
    try:
        lon, lat = _read_pair(center)
        radius_km = float(radius)
    except ValueError as error:
        raise ValueError(f"circle: expected LAT,LON RADIUS: {error}") from None
    if not 0 <= radius_km <= RADIUS_KM:
        raise ValueError(f"circle: expected a radius in km from 0 to {RADIUS_KM}, got {radius_km}")
    return AreaCircle(lon, lat, radius_km)


def _read_pair(pair: str) -> tuple[float, float]:
    lat, comma, lon = pair.partition(",")
    try:
        values = float(lat), float(lon)
    except ValueError:
        raise ValueError(f"expected LAT,LON, got {short(pair)}") from None
    if not comma or not all(map(math.isfinite, values)):
        raise ValueError(f"expected LAT,LON, got {short(pair)}")
    return check_position(values[1], values[0])


def _read_reference(text: str) -> str:
    """Returns the identifier of a reference: SENDER,IDENTIFIER,SENT."""
    parts = text.split(",")
    return parts[1] if len(parts) == 3 else text


# --- shared ---------------------------------------------------------------------


def _need(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name}: is missing")
    return value


def _check_kind(value: Any, name: str) -> str:
    if value not in KINDS:
        raise ValueError(f"{name}: expected {', '.join(KINDS)}, got {short(value)}")
    return str(value)


def read_moment(value: Any, name: str) -> int:
    """Returns Unix ms of an ISO 8601 time. Raises ValueError that names the member."""
    try:
        if isinstance(value, str) and 0 <= (at_ms := check_time(value)) < END_MS:
            return at_ms
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{name}: expected an ISO 8601 time from 1970, got {short(value)}")


def _read_word(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    return value.strip() if isinstance(value, str) else ""


def _read_nws_codes(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    geocode = found.get("geocode")
    out = []
    for name, values in geocode.items() if isinstance(geocode, dict) else ():
        out += [(str(name), v) for v in values if isinstance(v, str)] if values else []
    zones = found.get("affectedZones")
    if not out and isinstance(zones, list):
        out = [("UGC", zone.rpartition("/")[2]) for zone in zones if isinstance(zone, str)]
    return out[:CODES]


def describe_shape(geometry: Any) -> dict[str, Any]:
    """Returns the sides of a geometry, as a payload has them where the geometry is too large."""
    return {"bbox": [round(side, 5) for side in shapely.bounds(geometry).tolist()]}
