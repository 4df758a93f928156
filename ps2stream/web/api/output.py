"""Matches and gaps as JSON: plain, as GeoJSON Features, or as CloudEvents 1.0 (structured)."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from ps2stream.client.attributes import plain_attributes, plain_payload, write_time
from ps2stream.client.matches import Gap, Matches
from ps2stream.web.api.cursors import CursorWriter

FIELDS = ("text", "position", "time", "attributes", "payload")
FORMATS = ("json", "geojson", "cloudevents")
SOURCE = "/ps2stream/sessions/"
_EPOCH = datetime.fromtimestamp(0, UTC)


class OutputEvent(NamedTuple):
    """An event of a stream: the cursor behind it, its kind, and its data as JSON."""

    cursor: str
    event: str
    data: str


class EventWriter:
    """Writes the events of one stream. With `only`, the id of a query, those of other queries are
    left out."""

    def __init__(self, cursors: CursorWriter, session: str, format: str, only: str = "") -> None:
        self._cursors = cursors
        self._source = SOURCE + session
        self._format = format
        self._only = only

    def write_batch(self, batch: Matches) -> Iterator[OutputEvent]:
        """Yields the matches of a batch, or its gap. Each object is converted once."""
        if batch.gap is not None:
            yield self.write_gap(batch.gap)
            return
        rows: dict[int, dict[str, Any]] = {}
        pairs = zip(batch.query_ids, batch.objects.tolist(), strict=True)
        for number, (query_id, at) in enumerate(pairs, batch.first):
            if self._only and query_id != self._only:
                continue
            row = rows.get(at)
            if row is None:
                row = rows[at] = describe_object(batch, at)
            data = self._describe_match(number, query_id, row)
            yield OutputEvent(self._cursors.write(number), "match", _dump(data))

    def write_gap(self, gap: Gap) -> OutputEvent:
        """Returns the event that tells of missing matches: from, to, count (0: not known), and what
        is known of load that was shed."""
        data: dict[str, Any] = {"from": gap.first, "to": gap.last, "count": gap.count}
        if gap.shed is not None:
            data["shed"] = dataclasses.asdict(gap.shed)
        data["problem"] = str(gap)
        if self._format == "cloudevents":
            data = self._wrap_event("ps2stream.gap", gap.last, None, data)
        return OutputEvent(self._cursors.write(gap.last), "gap", _dump(data))

    def _describe_match(self, number: int, query_id: str, row: dict[str, Any]) -> dict[str, Any]:
        match self._format:
            case "geojson":
                return build_feature(number, query_id, row)
            case "cloudevents":
                data = {"seq": number, "query_id": query_id, **row}
                return self._wrap_event("ps2stream.match", number, query_id, data, row.get("time"))
            case _:
                return {"seq": number, "query_id": query_id, **row}

    def _wrap_event(
        self,
        kind: str,
        number: int,
        subject: str | None,
        data: dict[str, Any],
        time: int | None = None,
    ) -> dict[str, Any]:
        event: dict[str, Any] = {
            "specversion": "1.0",
            "id": self._cursors.write_id(number),
            "source": self._source,
            "type": kind,
        }
        if subject is not None:
            event["subject"] = subject
        if time is not None and (moment := _find_moment(time)) is not None:
            event["time"] = moment
        return event | {"datacontenttype": "application/json", "data": data}


def build_feature(number: int, query_id: str, row: dict[str, Any]) -> dict[str, Any]:
    """Returns a match as a GeoJSON Feature; its geometry is null where no position was wanted."""
    place = {"lon", "lat"}
    geometry = None
    if row.get("lon") is not None:
        geometry = {"type": "Point", "coordinates": [row["lon"], row["lat"]]}
    others = {name: value for name, value in row.items() if name not in place}
    return {
        "type": "Feature",
        "id": f"{row['partition']}-{row['offset']}",
        "geometry": geometry,
        "properties": {"seq": number, "query_id": query_id, **others},
    }


def describe_object(batch: Matches, at: int) -> dict[str, Any]:
    """Returns the fields of one object of a batch that were wanted, as JSON can have them."""
    row: dict[str, Any] = {
        "partition": batch.partition,
        "offset": int(batch.offsets[at]),
        "object_id": batch.object_ids[at],
    }
    if batch.time is not None:
        row["time"] = int(batch.time[at])
    if batch.lon is not None and batch.lat is not None:
        row |= {"lon": float(batch.lon[at]), "lat": float(batch.lat[at])}
    if batch.texts is not None:
        row["text"] = batch.texts[at]
    if batch.attributes is not None and batch.attributes[at]:
        row["attributes"] = plain_attributes(batch.attributes[at])
    if batch.payloads is not None and batch.payloads[at] is not None:
        row |= plain_payload(batch.payloads[at])
    return row


def _find_moment(time_ms: int) -> str | None:
    """Returns a time in RFC 3339, None beyond the years that it has."""
    try:
        return write_time(_EPOCH + timedelta(milliseconds=time_ms))
    except OverflowError:
        return None


def _dump(value: dict[str, Any]) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:  # a payload whose JSON had a number beyond those of Python
        return json.dumps(_replace_infinite(value), ensure_ascii=False, separators=(",", ":"))


def _replace_infinite(value: Any) -> Any:
    match value:
        case dict():
            return {name: _replace_infinite(inner) for name, inner in value.items()}
        case list():
            return [_replace_infinite(inner) for inner in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value
