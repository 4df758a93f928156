"""Alerts as posts: objects over the area of an alert, with what it says as their text.

An update or a cancellation also goes where the earlier messages went that it refers to, once more
with the words and levels of each: whoever got the alert hears that it changed, even if the area
became smaller, the severity less, or nothing is repeated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import shapely

from ps2stream.connectors.alert_messages import (
    WORDS,
    AlertArea,
    AlertInfo,
    AlertMessage,
    describe_shape,
)
from ps2stream.connectors.alert_places import AlertPlaces
from ps2stream.connectors.area_positions import (
    AreaCircle,
    AreaShape,
    find_inside,
    join_shapes,
    place_area,
)
from ps2stream.connectors.counts import ConnectorCounts
from ps2stream.connectors.feed_source import EntryPosts
from ps2stream.connectors.geojson_feed import cut_text, make_id
from ps2stream.limits import ATTRIBUTE_TEXT_BYTES, TEXT_BYTES, VALIDITY_MS

LEVELS = {"Extreme": 4, "Severe": 3, "Moderate": 2, "Minor": 1}
GEOMETRY_BYTES = 4 << 10
"""Most bytes of the geometry in a payload, which each object of an alert has."""
KEPT_BYTES = 64 << 10
KEPT_MS = 7 * 86_400_000
KEPT_MOST = 10_000
KEPT_TOTAL_BYTES = 64 << 20
FACES = 4
"""Most messages with other words whose words an update repeats: the first, and the last ones."""
FACE_BYTES = 4 << 10
"""Most bytes that are kept of the text of a message."""
FACE = ("category", "area", "language", "event", "urgency", "severity", "certainty",
        "severity_level")  # fmt: skip
"""Attributes that are repeated with the words: all that says what is expected where."""
_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class AlertOptions:
    """Options of the posts of alerts. spacing_km: of the objects of an area, at most `most` of
    them. places: areas by code, for alerts that only have codes."""

    spacing_km: float
    most: int
    places: AlertPlaces


class AlertPosts:
    """Makes the posts of alerts. kept: areas of earlier messages by identifier, which the state
    keeps until they expire."""

    def __init__(self, options: AlertOptions, counts: ConnectorCounts) -> None:
        self._options = options
        self._counts = counts

    def make_posts(self, alert: AlertMessage, kept: dict[str, Any], now_ms: int) -> EntryPosts:
        """Returns the posts of a message; none for receipts, which are about messages only."""
        out = EntryPosts()
        if alert.kind in ("Ack", "Error"):
            return out
        known = [kept[id] for id in alert.references if id in kept]
        earlier = [_read_kept(each) for each in known]
        faces, shapes, last = list[dict[str, Any]](), list(earlier), None
        for number, info in enumerate(alert.infos):
            if info.times.get("expires", now_ms + 1) <= now_ms:
                self._counts.add("expired")
                continue
            own = self._find_shape(info, out)
            whole = _join_areas([shape for shape in (own, *earlier) if shape is not None])
            if whole is None:
                if not out.problems:
                    out.problems.append(_explain_no_area(alert))
                continue
            post = _make_post(alert, info, own or whole)
            try:
                out.posts += self._place_post(post, f"{alert.sent_ms}.{number}", own, whole)
            except ValueError as error:
                out.problems.append(str(error))
                continue
            faces.append(_make_face(post))
            shapes.append(whole)
            last = info
        if last is not None or not alert.infos:
            faces = self._repeat_faces(alert, last, known, faces, out) + faces
        if faces:
            whole = _join_areas(shapes)
            assert whole is not None  # each face has an area
            _keep_area(kept, alert, last, whole, faces, now_ms)
        return out

    def _repeat_faces(
        self,
        alert: AlertMessage,
        info: AlertInfo | None,
        known: list[dict[str, Any]],
        own: list[dict[str, Any]],
        out: EntryPosts,
    ) -> list[dict[str, Any]]:
        """Adds the posts with the words of the earlier messages, for those whose queries these
        satisfied, and returns these words, without those that the message has itself."""
        faces: list[dict[str, Any]] = []
        for face in (face for each in known for face in each.get("faces", ())):
            if not any(_is_same(face, other) for other in (*own, *faces)):
                faces.append(face)
        if info is None and not faces:
            out.problems.append(_explain_no_area(alert))
            return faces
        faces[:] = faces[:1] + faces[1:][-(FACES - 1) :]
        whole = _join_areas([_read_kept(each) for each in known])
        for number, face in enumerate(faces):
            assert whole is not None
            post = _make_post(alert, info or _make_bare_info(alert, face), whole)
            kept_attributes = {k: v for k, v in post["attributes"].items() if k not in FACE}
            post["attributes"] = {
                **kept_attributes, **face["attributes"], "words_of": face["alert"]
            }  # fmt: skip
            post["text"] = cut_text(f"{alert.kind}: {face['text']}", TEXT_BYTES)
            try:
                out.posts += self._place_post(post, f"{alert.sent_ms}.w{number}", None, whole)
            except ValueError as error:
                out.problems.append(str(error))
        return faces

    def _find_shape(self, info: AlertInfo, out: EntryPosts) -> AreaShape | None:
        """Returns the area of an info; notes as problems the parts that have none."""
        shapes, circles = [], []
        for area in info.areas:
            found, missing = self._find_area(area)
            shapes += found
            circles += area.circles
            if missing:
                codes = ", ".join(missing[:5])
                problem = "has no polygon or circle, and no place is known for"
                out.problems.append(f"area {cut_text(area.name, 100)!r} {problem} {codes}")
        if not shapes and not circles:
            return None
        return AreaShape(join_shapes(shapes) if shapes else None, tuple(circles))

    def _find_area(self, area: AlertArea) -> tuple[list[Any], list[str]]:
        """Returns the shapes of an area, and what is not known of it."""
        if area.shapes or area.circles:
            return area.shapes, []
        found, missing = self._options.places.find(area.codes)
        return found, missing or ([] if found else ["(no codes)"])

    def _place_post(
        self, post: dict[str, Any], version: str, own: AreaShape | None, whole: AreaShape
    ) -> Iterator[dict[str, Any]]:
        options = self._options
        places = place_area(whole, options.spacing_km, options.most)
        if places.spacing_km > options.spacing_km:
            self._counts.add("coarse")
        inside = places.inside if own is None else find_inside(own, places.lon, places.lat)
        for lon, lat, is_inside, name in zip(
            places.lon.tolist(), places.lat.tolist(), inside, places.names, strict=True
        ):
            more = {"inside": is_inside, "spacing_km": places.spacing_km}
            attributes = post["attributes"] | more
            id = make_id(attributes["alert"], version, name)
            yield {**post, "id": id, "lon": lon, "lat": lat, "attributes": attributes}


def _make_post(alert: AlertMessage, info: AlertInfo, shape: AreaShape) -> dict[str, Any]:
    words = info.words
    names = "; ".join(area.name for area in info.areas if area.name)
    parts = [words[n] for n in ("event", "headline", "description", "instruction")]
    text = "\n".join(part for part in (*parts[:2], names, *parts[2:]) if part)
    post: dict[str, Any] = {
        "time": alert.sent_ms,
        "text": cut_text(text.replace("\0", " "), TEXT_BYTES),
        "attributes": _make_attributes(alert, info, names),
        "payload": _make_payload(alert, info, names, shape),
    }
    expires = info.times.get("expires")
    if expires is not None and alert.sent_ms < expires < alert.sent_ms + VALIDITY_MS:
        post["until"] = expires
    return post


def _make_attributes(alert: AlertMessage, info: AlertInfo, names: str) -> dict[str, Any]:
    words = info.words
    texts = {
        "alert": alert.id,
        "sender": alert.sender,
        "status": alert.status,
        "message": alert.kind,
        "replaces": " ".join(alert.references),
        "category": " ".join(info.categories),
        "area": names,
        **{n: words[n] for n in ("language", "event", "urgency", "severity", "certainty")},
    }
    found: dict[str, Any] = {
        name: cut_text(value, ATTRIBUTE_TEXT_BYTES) for name, value in texts.items() if value
    }
    found["severity_level"] = LEVELS.get(words["severity"], 0)
    moments = {"sent": alert.sent_ms, **info.times}
    found |= {name: _EPOCH + timedelta(milliseconds=at) for name, at in moments.items()}
    return found


def _make_payload(alert: AlertMessage, info: AlertInfo, names: str, shape: AreaShape) -> str:
    circles = [list(circle) for circle in shape.circles]
    geometry: Any = None
    if shape.geometry is not None:
        rounded = shapely.set_precision(shape.geometry, 1e-4, mode="pointwise")
        if len(data := shapely.to_geojson(rounded)) <= GEOMETRY_BYTES:
            geometry = json.loads(data)
    payload: dict[str, Any] = {
        "identifier": alert.id,
        "sender": alert.sender,
        "status": alert.status,
        "msgType": alert.kind,
        "headline": cut_text(info.words["headline"], 1024),
        "web": cut_text(info.words["web"], 1024),
        "areaDesc": cut_text(names, 4096),
        "geometry": geometry,
        "circles": circles[:100],
    }
    if geometry is None and shape.geometry is not None:
        payload |= describe_shape(shape.geometry)
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))


def _explain_no_area(alert: AlertMessage) -> str:
    if alert.references:
        return "has no area, and the messages that it refers to are not known"
    return "has no area"


# --- areas of earlier messages --------------------------------------------------


def _join_areas(shapes: list[AreaShape]) -> AreaShape | None:
    if not shapes:
        return None
    geometries = [shape.geometry for shape in shapes if shape.geometry is not None]
    circles = dict.fromkeys(circle for shape in shapes for circle in shape.circles)
    return AreaShape(join_shapes(geometries) if geometries else None, tuple(circles))


def _keep_area(
    kept: dict[str, Any],
    alert: AlertMessage,
    info: AlertInfo | None,
    shape: AreaShape,
    faces: list[dict[str, Any]],
    now_ms: int,
) -> None:
    data = ""
    if shape.geometry is not None:
        geometry = shape.geometry
        if len(shapely.to_wkb(geometry)) > KEPT_BYTES:  # a larger area is as good
            geometry = shapely.box(*shapely.bounds(geometry).tolist())
        data = shapely.to_wkb(geometry, hex=True)
    expires = 0 if info is None else info.times.get("expires", 0)
    kept[alert.id] = made = {
        "shape": data,
        "circles": [list(circle) for circle in shape.circles[:1000]],
        "until": max(expires, now_ms) + KEPT_MS,
        "faces": faces,
    }
    made["bytes"] = len(json.dumps(made))
    if len(kept) > KEPT_MOST or len(kept) % 100 == 0:
        for id in [id for id, each in kept.items() if each["until"] < now_ms]:
            del kept[id]
    total, left = sum(each.get("bytes", 0) for each in kept.values()), len(kept)
    for id in list(kept):
        if left <= KEPT_MOST and total <= KEPT_TOTAL_BYTES:
            break
        left, total = left - 1, total - kept.pop(id).get("bytes", 0)


def _read_kept(value: Mapping[str, Any]) -> AreaShape:
    geometry = shapely.from_wkb(value["shape"]) if value["shape"] else None
    return AreaShape(geometry, tuple(AreaCircle(*circle) for circle in value["circles"]))


def _make_face(post: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what queries ask for of a message: its words and levels."""
    attributes = post["attributes"]
    found = {name: attributes[name] for name in FACE if name in attributes}
    text = cut_text(post["text"], FACE_BYTES)
    return {"alert": attributes["alert"], "text": text, "attributes": found}


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return bool(one["text"] == other["text"] and one["attributes"] == other["attributes"])


def _make_bare_info(alert: AlertMessage, face: Mapping[str, Any]) -> AlertInfo:
    """Returns the info of a message without any, which repeats the words of an earlier one."""
    event = face["attributes"].get("event", "")
    return AlertInfo(dict.fromkeys(WORDS, "") | {"headline": f"{alert.kind}: {event}"}, [], {}, [])
