"""JSON schemas of what the HTTP interface takes and answers.

The words are those that OpenAPI 3.1 (JSON Schema 2020-12) and AsyncAPI 3.0 (draft 7) share. Answers
that are messages of the service in JSON get their schema from the message itself.
"""

from __future__ import annotations

import dataclasses
from typing import Any, get_type_hints

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from ps2stream.client.shed_load import ShedLoad
from ps2stream.limits import (
    ATTRIBUTES,
    BATCH_ROWS,
    EXPRESSION_BYTES,
    ID_BYTES,
    LAT_MAX,
    LON_MAX,
    RADIUS_KM,
    SESSION_BYTES,
    TEXT_BYTES,
)
from ps2stream.posts.post import NAMES
from ps2stream.space.regions import RECT_FIELDS
from ps2stream.v1 import explain_pb2, query_pb2

Schema = dict[str, Any]
NUMBER: Schema = {"type": "number"}
INTEGER: Schema = {"type": "integer"}
BOOLEAN: Schema = {"type": "boolean"}
TEXT: Schema = {"type": "string"}
ANYTHING: Schema = {}
_ID: Schema = {"type": "string", "minLength": 1, "maxLength": ID_BYTES}
_SESSION: Schema = {"type": "string", "maxLength": SESSION_BYTES}
_MOMENT: Schema = {
    "type": ["integer", "string"],
    "description": "Unix milliseconds, or an ISO 8601 time",
}
_POSITION: Schema = {"type": "array", "items": NUMBER, "minItems": 2}
_RING: Schema = {"type": "array", "items": _POSITION, "minItems": 4}
_RINGS: Schema = {"type": "array", "items": _RING, "minItems": 1}
_ATTRIBUTES: Schema = {
    "type": "object",
    "maxProperties": ATTRIBUTES,
    "additionalProperties": {"type": ["number", "string", "boolean"]},
}
_OF_POST: dict[str, Schema] = {
    "id": {"type": ["string", "integer"]},
    "time": _MOMENT,
    "lon": {"type": ["number", "string"], "minimum": -LON_MAX, "maximum": LON_MAX},
    "lat": {"type": ["number", "string"], "minimum": -LAT_MAX, "maximum": LAT_MAX},
    "text": {"type": "string", "maxLength": TEXT_BYTES},
}
_OF_JSON: dict[str, str] = {"int": "integer", "float": "number", "str": "string"}
_OF_PROTO = {
    FieldDescriptor.CPPTYPE_STRING: "string",
    FieldDescriptor.CPPTYPE_BOOL: "boolean",
    FieldDescriptor.CPPTYPE_DOUBLE: "number",
    FieldDescriptor.CPPTYPE_FLOAT: "number",
}


def refer(name: str) -> Schema:
    """Returns the reference to a schema of `build_schemas`."""
    return {"$ref": f"#/components/schemas/{name}"}


def list_of(schema: Schema, **more: Any) -> Schema:
    """Returns the schema of a list."""
    return {"type": "array", "items": schema, **more}


def record(
    fields: dict[str, Schema], optional: tuple[str, ...] = (), closed: bool = True
) -> Schema:
    """Returns the schema of an object, all of whose fields are required but the optional ones."""
    required = [name for name in fields if name not in optional]
    made: Schema = {"type": "object", "properties": fields}
    if required:
        made["required"] = required
    if closed:
        made["additionalProperties"] = False
    return made


def or_null(schema: Schema) -> Schema:
    """Returns the schema that also takes null."""
    return {"anyOf": [schema, {"type": "null"}]}


def describe_message(descriptor: Descriptor, **replaced: Schema) -> Schema:
    """Returns the schema of a message as the client's answers show it: every field is there, and an
    optional one that is absent is null. `replaced` are schemas of fields that are shown otherwise.
    A message within itself is not followed further."""
    return _describe_fields(descriptor, (), replaced)


def _describe_fields(
    descriptor: Descriptor, within: tuple[str, ...], replaced: dict[str, Schema]
) -> Schema:
    within = (*within, descriptor.full_name)
    fields: dict[str, Schema] = {}
    for field in descriptor.fields:
        kind = field.message_type
        if field.name in replaced:
            fields[field.name] = replaced[field.name]
            continue
        if kind is None:
            made: Schema = {"type": _OF_PROTO.get(field.cpp_type, "integer")}
        elif kind.full_name in within:
            made = {"type": "object"}
        else:
            made = _describe_fields(kind, within, {})
        if field.is_repeated:
            made = list_of(made)
        elif field.has_presence:
            made = or_null(made)
        fields[field.name] = made
    return record(fields)


def build_schemas() -> dict[str, Schema]:
    """Returns all schemas by name."""
    query: dict[str, Schema] = {
        "id": _ID,
        "session": _SESSION,
        "expression": TEXT,
        "region": or_null(refer("Region")),
    }
    inserted = {
        "id": _ID,
        "session": _SESSION,
        "lsn": INTEGER,
        "canonical": TEXT,
        "area": or_null(describe_message(query_pb2.AreaSummary.DESCRIPTOR)),
        "warnings": list_of(TEXT),
    }
    found: dict[str, Schema] = {
        "Problem": _build_problem(),
        "Region": {"anyOf": [refer(n) for n in ("Rect", "Circle", "Polygon", "MultiPolygon")]},
        "Rect": record({"type": {"const": "Rect"}} | dict.fromkeys(RECT_FIELDS, NUMBER)),
        "Circle": record(
            {
                "type": {"const": "Circle"},
                "lon": NUMBER,
                "lat": NUMBER,
                "radius_km": {"type": "number", "exclusiveMinimum": 0, "maximum": RADIUS_KM},
            }
        ),
        "Polygon": record({"type": {"const": "Polygon"}, "coordinates": _RINGS}),
        "MultiPolygon": record({"type": {"const": "MultiPolygon"}, "coordinates": list_of(_RINGS)}),
        "NewQuery": _build_new_query(),
        "InsertedQuery": record(inserted),
        "Query": record(
            query | {"canonical": TEXT, "until": or_null(INTEGER), "lsn": INTEGER}, ("lsn",)
        ),
        "QueryPage": record({"queries": list_of(refer("Query")), "next": or_null(TEXT)}),
        "Deletion": record({"lsn": INTEGER}),
        **_build_posts(),
        "Receipt": record(
            {
                "accepted": INTEGER,
                "level": TEXT,
                "lsn": INTEGER,
                "partition": INTEGER,
                "first_offset": INTEGER,
                "left_out": list_of(TEXT),
            }
        ),
        "Price": describe_message(explain_pb2.PriceQueryResponse.DESCRIPTOR),
        "Explanation": describe_message(
            explain_pb2.ExplainMatchResponse.DESCRIPTOR,
            query=record(query | {"id": TEXT, "session": TEXT}),  # of one not inserted: empty
        ),
    }
    return found | build_event_schemas()


def build_event_schemas() -> dict[str, Schema]:
    """Returns the schemas of the events of a stream by name."""
    thing: dict[str, Schema] = {
        "partition": INTEGER,
        "offset": INTEGER,
        "object_id": TEXT,
        "time": INTEGER,
        "lon": NUMBER,
        "lat": NUMBER,
        "text": TEXT,
        "attributes": _ATTRIBUTES,
        "payload": ANYTHING,
        "payload_base64": TEXT,
    }
    wanted = ("time", "lon", "lat", "text", "attributes", "payload", "payload_base64")
    match = {"seq": INTEGER, "query_id": TEXT, **thing}
    placeless = {name: value for name, value in match.items() if name not in ("lon", "lat")}
    hints = get_type_hints(ShedLoad)
    shed = {
        f.name: {"type": _OF_JSON[hints[f.name].__name__]} for f in dataclasses.fields(ShedLoad)
    }
    gap = {"from": INTEGER, "to": INTEGER, "count": INTEGER, "shed": record(shed), "problem": TEXT}
    ready = {"session": TEXT, "query_id": TEXT, "expression": TEXT, "warnings": list_of(TEXT)}
    return {
        "Ready": record(ready, tuple(ready)),
        "Match": record(match, wanted),
        "MatchFeature": record(
            {
                "type": {"const": "Feature"},
                "id": TEXT,
                "geometry": or_null(refer("Point")),
                "properties": record(placeless, wanted),
            }
        ),
        "MatchEvent": _build_cloud_event("ps2stream.match", refer("Match")),
        "Gap": record(gap, ("shed",)),
        "GapEvent": _build_cloud_event("ps2stream.gap", refer("Gap")),
    }


def _build_cloud_event(kind: str, data: Schema) -> Schema:
    fields = {
        "specversion": {"const": "1.0"},
        "id": TEXT,
        "source": {"type": "string", "format": "uri-reference"},
        "type": {"const": kind},
        "subject": TEXT,
        "time": {"type": "string", "format": "date-time"},
        "datacontenttype": {"const": "application/json"},
        "data": data,
    }
    return record(fields, ("subject", "time"))


def _build_problem() -> Schema:
    violation = record({"field": TEXT, "problem": TEXT})
    fields = {
        "type": {"type": "string", "format": "uri-reference"},
        "title": TEXT,
        "status": INTEGER,
        "detail": TEXT,
        "instance": {"type": "string", "format": "uri-reference"},
        "violations": list_of(violation),
    }
    return record(fields, closed=False)


def _build_new_query() -> Schema:
    fields: dict[str, Schema] = {
        "id": or_null(_ID | {"description": "made by the server where it is absent"}),
        "expression": or_null({"type": "string", "maxLength": EXPRESSION_BYTES}),
        "region": or_null(refer("Region")),
        "session": or_null(_SESSION | {"description": "default where it is absent"}),
        "until": or_null(_MOMENT),
        "replace": or_null(BOOLEAN),
        "retro": or_null(BOOLEAN),
        "if_lsn": or_null(INTEGER | {"minimum": 0}),
    }
    return record(fields, tuple(fields))


def _build_posts() -> dict[str, Schema]:
    """Returns the schemas of posts, whose columns may have the names of `posts.post.NAMES`."""
    columns = {alias: _OF_POST[name] for name, names in NAMES.items() for alias in names}
    columns |= {"attributes": _ATTRIBUTES, "payload": ANYTHING, "until": or_null(_MOMENT)}
    needed = [
        {"anyOf": [{"required": [alias]} for alias in NAMES[name]]} for name in ("lon", "lat")
    ]
    others = {name: schema for name, schema in columns.items() if name not in NAMES["lon"]}
    others = {name: schema for name, schema in others.items() if name not in NAMES["lat"]}
    feature = {
        "type": {"const": "Feature"},
        "id": _OF_POST["id"],
        "geometry": refer("Point"),
        "properties": {"type": "object", "properties": others, "required": ["text"]},
    }
    collection = {
        "type": {"const": "FeatureCollection"},
        "features": list_of(refer("Feature"), minItems=1, maxItems=BATCH_ROWS),
    }
    return {
        "Post": {
            "type": "object",
            "description": "members of other names become attributes",
            "properties": columns,
            "required": ["text"],
            "allOf": needed,
        },
        "Posts": list_of(refer("Post"), minItems=1, maxItems=BATCH_ROWS),
        "Point": record({"type": {"const": "Point"}, "coordinates": _POSITION}),
        "Feature": record(feature, ("id",), closed=False),
        "FeatureCollection": record(collection, closed=False),
    }
