"""Events of a Jetstream as posts and deletions: pure, and bounded before anything is parsed.

A post has a place only if its author gave one, as a member of the record of the type
`community.lexicon.location.geo`, or, where a gazetteer is used, if its text names one. The language
of a post, its author and the time zone say nothing of a place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ps2stream.connectors.gazetteer import Gazetteer
from ps2stream.errors import short
from ps2stream.limits import ATTRIBUTE_TEXT_BYTES
from ps2stream.posts.post import CHECKS

COLLECTION = "app.bsky.feed.post"
GEO = "community.lexicon.location.geo"
EARLY_MS = 24 * 3600 * 1000
"""How long before its event a post may say that it was written; otherwise it has the event's
time."""
LATE_MS = 5 * 60 * 1000
DEPTH = 32
"""Nested objects and arrays of an event, at most."""
LANGUAGES = 3
_DID = re.compile(r"did:[a-z]+:[A-Za-z0-9._:%-]{1,256}")
_RKEY = re.compile(r"[A-Za-z0-9._:~-]{1,512}")
_BRACKET = re.compile(rb'[\[\]{}]|"(?:[^"\\]|\\.)*"?', re.DOTALL)
_DEGREES = re.compile(r"[+-]?[0-9]{1,3}(?:\.[0-9]{0,30})?")


class JetstreamPost(NamedTuple):
    """A post that was created or changed: its id, an address of the form at://..., the revision of
    its author's repository, and the post as a row, None without a place."""

    time_us: int
    id: str
    revision: str
    row: dict[str, Any] | None


class JetstreamDeletion(NamedTuple):
    """A post that was deleted at the source, in a revision of its author's repository."""

    time_us: int
    id: str
    revision: str


class JetstreamOther(NamedTuple):
    """An event of another kind or collection."""

    time_us: int


JetstreamEvent = JetstreamPost | JetstreamDeletion | JetstreamOther


class BadEvent(ValueError):
    """An event that is none, or a post that is none. time_us: of the event; 0 if it is unknown."""

    def __init__(self, problem: str, time_us: int = 0) -> None:
        self.time_us = time_us
        super().__init__(problem)


class PlacedAt(NamedTuple):
    """A place in degrees: who says so, `post` or `gazetteer`; how far off it may be; its name."""

    lon: float
    lat: float
    source: str
    radius_km: float | None
    name: str | None


def read_event(data: bytes, gazetteer: Gazetteer | None = None) -> JetstreamEvent:
    """Reads one message of a Jetstream. Raises BadEvent."""
    event = _parse_event(data)
    time_us = event.get("time_us")
    if not isinstance(time_us, int) or isinstance(time_us, bool) or not 0 < time_us < 1 << 62:
        raise BadEvent(f"time_us: expected microseconds since 1970, got {short(time_us)}")
    if event.get("kind") != "commit":
        return JetstreamOther(time_us)
    try:
        return _read_commit(event, time_us, gazetteer)
    except ValueError as error:
        raise BadEvent(str(error), time_us) from None


def _parse_event(data: bytes) -> dict[str, Any]:
    if _measure_depth(data) > DEPTH:
        raise BadEvent(f"expected at most {DEPTH} nested objects and arrays")
    try:
        event = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadEvent(f"expected a JSON object: {error}") from None
    if not isinstance(event, dict):
        raise BadEvent(f"expected a JSON object, got {short(event)}")
    return event


def _measure_depth(data: bytes) -> int:
    """Returns how deep brackets are nested outside of strings."""
    depth = deepest = 0
    for found in _BRACKET.finditer(data):
        first = found[0][:1]
        if first in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif first in b"]}":
            depth -= 1
    return deepest


def _read_commit(
    event: Mapping[str, Any], time_us: int, gazetteer: Gazetteer | None
) -> JetstreamEvent:
    commit = event.get("commit")
    if not isinstance(commit, dict):
        raise ValueError(f"commit: expected an object, got {short(commit)}")
    if commit.get("collection") != COLLECTION:
        return JetstreamOther(time_us)
    id = _make_id(event.get("did"), commit.get("rkey"))
    revision = commit.get("rev")
    if not isinstance(revision, str) or not _RKEY.fullmatch(revision):
        raise ValueError(f"commit.rev: expected a revision, got {short(revision)}")
    operation = commit.get("operation")
    if operation == "delete":
        return JetstreamDeletion(time_us, id, revision)
    if operation not in ("create", "update"):
        raise ValueError(
            f"commit.operation: expected create, update or delete, got {short(operation)}"
        )
    record = commit.get("record")
    if not isinstance(record, dict):
        raise ValueError(f"commit.record: expected an object, got {short(record)}")
    text = _check("text", record.get("text"))
    place = find_place(record) or _look_up(text, gazetteer)
    if place is None:
        return JetstreamPost(time_us, id, revision, None)
    row = {"id": id, "time": choose_time(record.get("createdAt"), time_us), "text": text}
    row |= {"lon": place.lon, "lat": place.lat, "attributes": _list_attributes(record, place)}
    return JetstreamPost(time_us, id, revision, row)


def _make_id(did: Any, rkey: Any) -> str:
    """Returns the address of a post. Raises ValueError, also for one too long to be an id."""
    if not isinstance(did, str) or not _DID.fullmatch(did):
        raise ValueError(f"did: expected a DID, got {short(did)}")
    if not isinstance(rkey, str) or not _RKEY.fullmatch(rkey):
        raise ValueError(f"commit.rkey: expected the key of a record, got {short(rkey)}")
    return str(_check("id", f"at://{did}/{COLLECTION}/{rkey}"))


def _check(name: str, value: Any) -> Any:
    try:
        return CHECKS[name](value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def choose_time(created: Any, time_us: int) -> int:
    """Returns the time of a post, Unix ms: what its author's program says if that is credible, at
    most a day before the event and five minutes after it; otherwise the time of the event."""
    seen = time_us // 1000
    if not isinstance(created, str) or len(created) > 64:
        return seen
    try:
        found = datetime.fromisoformat(created)
    except ValueError:
        return seen
    if found.tzinfo is None:
        return seen
    said = round((found - datetime.fromtimestamp(0, UTC)).total_seconds() * 1000)
    return said if seen - EARLY_MS <= said <= seen + LATE_MS else seen


def find_place(record: Mapping[str, Any]) -> PlacedAt | None:
    """Returns the place that a record has: of its members the first, or the first of a list, that
    is of the type GEO. Its degrees are texts, or, against the lexicon, numbers. Raises ValueError
    if they are none."""
    for name, value in _list_places(record):
        lat = _read_degrees(f"{name}.latitude", "lat", value.get("latitude"))
        lon = _read_degrees(f"{name}.longitude", "lon", value.get("longitude"))
        called = value.get("name")
        return PlacedAt(lon, lat, "post", None, called if isinstance(called, str) else None)
    return None


def _list_places(record: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name in sorted(record, key=lambda name: (name not in ("location", "locations"), name)):
        value = record[name]
        for each in value[:16] if isinstance(value, list) else (value,):
            if isinstance(each, dict) and each.get("$type") == GEO:
                yield short(name).strip("'"), each


def _read_degrees(where: str, name: str, value: Any) -> float:
    if isinstance(value, str) and not _DEGREES.fullmatch(value):
        raise ValueError(f"{where}: expected decimal degrees, got {short(value)}")
    try:
        return float(CHECKS[name](value))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _look_up(text: str, gazetteer: Gazetteer | None) -> PlacedAt | None:
    found = None if gazetteer is None else gazetteer.find(text)
    if found is None:
        return None
    return PlacedAt(found.lon, found.lat, "gazetteer", found.radius_km, found.name)


def _list_attributes(record: Mapping[str, Any], place: PlacedAt) -> dict[str, Any]:
    """Returns the attributes of a post: `lang` is the first of its languages, and `langs` has all
    of them, if there are several."""
    found: dict[str, Any] = {
        "place_source": place.source,
        "reply": isinstance(record.get("reply"), dict),
    }
    if place.radius_km is not None:
        found["place_radius_km"] = place.radius_km
    if place.name and len(place.name.encode("utf-8", "replace")) <= ATTRIBUTE_TEXT_BYTES:
        found["place_name"] = place.name.encode("utf-8", "replace").decode()
    given = record.get("langs")
    langs = [
        each
        for each in (given[:LANGUAGES] if isinstance(given, list) else [])
        if isinstance(each, str) and re.fullmatch(r"[A-Za-z]{2,8}(?:-[A-Za-z0-9]{1,8}){0,4}", each)
    ]
    if langs:
        found["lang"] = langs[0]
    if len(langs) > 1:
        found["langs"] = " ".join(langs)
    return found
