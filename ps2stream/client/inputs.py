"""Conversion of what callers pass to the clients into regions, rows and columns.

Apart from the package's own types, the clients take data frames and tables of any library that
speaks Arrow (pandas, pyarrow, polars), geometries of any that has `__geo_interface__` (shapely,
geopandas), and GeoJSON. Anything else is refused with an error that names it.
"""

from __future__ import annotations

import importlib
import importlib.util
import numbers
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any, TypeVar

from google.protobuf.message import Message

from ps2stream.client.attributes import (
    dump_json,
    fill_attributes,
    fill_payload,
    milliseconds,
    named,
)
from ps2stream.errors import invalid
from ps2stream.extras import name_missing_extra
from ps2stream.space import geojson
from ps2stream.space.regions import RECT_FIELDS, Circle, Polygon, Rect, Region, World
from ps2stream.v1 import object_pb2

M = TypeVar("M", bound=Message)
Moment = int | datetime | timedelta
"""The end of a query or an object: Unix milliseconds, a datetime with a time zone, or how long from
now."""
FIELDS = ("id", "time", "lon", "lat", "text", "attributes", "payload", "until")
COLUMNS = ("id", "time", "lon", "lat", "text", "payload", "until")
"""Names of columns with a meaning; a column of any other name is an attribute."""
EXAMPLE = '{"lon": 8.54, "lat": 47.37, "text": "..."}'
_REGIONS = (
    "expected a Rect, Circle or Polygon of ps2stream, GeoJSON, a shapely geometry or four "
    "sides (lon_min, lat_min, lon_max, lat_max)"
)
_TIME = "Unix milliseconds or a datetime with a time zone"
_OF_FEATURE = ("id", "time", "text", "until")
_MEMBERS = frozenset({"type", "id", "bbox", "geometry", "properties"})  # of a Feature
_KINDS = {"id": "a string", "text": "a string", "lon": "a number", "lat": "a number"}


def request_of(kind: type[M], **fields: Any) -> M:
    """Builds a message from these fields. Raises InvalidArgument naming a field of a wrong type."""
    made = kind()
    for name, value in fields.items():
        try:
            if value is None:
                raise TypeError
            made.MergeFrom(kind(**{name: value}))
        except (TypeError, ValueError, OverflowError) as error:
            problem = str(error) if isinstance(error, UnicodeError) else f"cannot be {named(value)}"
            raise invalid(name, problem) from None
    return made


def end_to_milliseconds(where: str, until: Any) -> int | None:
    """Returns an end in Unix milliseconds, None for none. Raises InvalidArgument naming `where`."""
    if until is None:
        return None
    try:
        if isinstance(until, timedelta):
            until = datetime.now(UTC) + until
        found = milliseconds(until)
    except (TypeError, ValueError, OverflowError) as error:
        raise invalid(where, str(error)) from None
    if not -(1 << 63) <= found < 1 << 63:
        raise invalid(where, "is beyond 64-bit milliseconds")
    return found


# --- regions ----------------------------------------------------------------


def region_of_value(value: Any) -> Region | None:
    """Returns the region that a caller means; None is the whole world. Raises InvalidArgument."""
    if value is None or isinstance(value, Rect | Circle | Polygon | World):
        return value
    shape = getattr(value, "__geo_interface__", value)
    if isinstance(shape, Mapping):
        try:
            return geojson.from_json(_extract_geometry(shape))
        except OverflowError:
            raise invalid("region", "a number is too large") from None
    if hasattr(shape, "tolist"):  # an array
        shape = shape.tolist()
    if isinstance(shape, str | bytes) or not isinstance(shape, Sequence):
        raise invalid("region", f"{_REGIONS}, got {named(value)}")
    if len(shape) != len(RECT_FIELDS):
        hint = "; a circle is Circle(lon, lat, radius_km)" if len(shape) == 3 else ""
        raise invalid("region", f"{_REGIONS}, got {len(shape)} values{hint}")
    for name, side in zip(RECT_FIELDS, shape, strict=True):
        if isinstance(side, bool) or not isinstance(side, numbers.Real):
            raise invalid(f"region.{name}", f"expected a number, got {named(side)}")
    return Rect(*(float(side) for side in shape))


def _extract_geometry(shape: Mapping[str, Any]) -> Any:
    """Returns the geometry of a Feature, or of a collection of one; anything else unchanged."""
    features = shape.get("features")
    if shape.get("type") == "FeatureCollection" and isinstance(features, list | tuple):
        if len(features) != 1 or not isinstance(features[0], Mapping):
            raise invalid("region", f"a FeatureCollection of {len(features)}; give one Feature")
        shape = features[0]
    if shape.get("type") != "Feature":
        return shape
    geometry = shape.get("geometry")
    if not isinstance(geometry, Mapping):
        raise invalid("region.geometry", "the Feature has none")
    return geometry


# --- objects ----------------------------------------------------------------


def object_batch(objects: Any) -> object_pb2.ObjectBatch:
    """Builds the message of a batch from rows that are mappings (lon, lat, text, id, time,
    attributes, payload, until), columns, a table or data frame, or GeoJSON features. A time is in
    Unix milliseconds or a datetime with a time zone; until may also be a timedelta from now.

    Columns of other names than those are attributes. So are the other properties of a Feature,
    except null, objects and arrays, which are dropped; its payload is any JSON. A message that is
    built stays as it is.

    Raises InvalidArgument naming the row and field that cannot be taken.
    """
    if isinstance(objects, object_pb2.ObjectBatch):
        return objects
    if hasattr(objects, "__arrow_c_stream__"):
        return object_pb2.ObjectBatch(arrow=import_frames().encode_table(objects))
    if isinstance(objects, Mapping):
        if objects.get("type") == "FeatureCollection":
            return object_batch(objects.get("features"))
        is_row = objects.get("type") == "Feature" or any(
            isinstance(objects.get(name), numbers.Real) for name in ("lon", "lat")
        )
        return object_batch([objects]) if is_row else _build_batch(objects)
    if isinstance(objects, str | bytes) or not isinstance(objects, Iterable):
        raise invalid("objects", f"expected rows such as {EXAMPLE}, got {named(objects)}")
    rows = [_read_object(f"objects[{row}]", value) for row, value in enumerate(objects)]
    return object_pb2.ObjectBatch(objects=rows)


def _build_batch(columns: Mapping[str, Any]) -> object_pb2.ObjectBatch:
    for name, values in columns.items():
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            problem = f"expected a column of values, got {named(values)}"
            raise invalid(f"objects.{name}", problem)
    columns = {name: _keep_values(values) for name, values in columns.items()}
    if importlib.util.find_spec("pyarrow"):
        data = import_frames().encode_columns(columns)
        if data is not None:
            return object_pb2.ObjectBatch(arrow=data)
    lists = {name: list_values(values) for name, values in columns.items()}
    if len({len(values) for values in lists.values()}) > 1:
        raise invalid("objects", "columns of different lengths")
    return object_batch([_join_row(lists, row) for row in zip(*lists.values(), strict=True)])


def _keep_values(values: Any) -> Any:
    """Returns a column that can be read twice."""
    return values if hasattr(values, "__len__") else list(values)


def list_values(values: Any) -> list[Any]:
    """Returns the values of a column, None where those of pandas are missing."""
    if hasattr(values, "isna"):
        return [None if gone else v for v, gone in zip(values, values.isna(), strict=True)]
    return list(values)


def _join_row(names: Iterable[str], values: Sequence[Any]) -> dict[str, Any]:
    """Returns the row of a batch of columns, those of attributes under "attributes"."""
    row: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    for name, value in zip(names, values, strict=True):
        if name == "attributes" and isinstance(value, Mapping):
            attributes |= value
        else:
            (row if name in COLUMNS else attributes)[name] = value
    return row | {"attributes": attributes} if attributes else row


def import_frames() -> ModuleType:
    """Imports what needs Arrow. Raises FailedPrecondition where that is not installed."""
    with name_missing_extra("a table or data frame"):
        return importlib.import_module("ps2stream.client.frames")


def _read_object(where: str, value: Any) -> object_pb2.Object:
    """Builds an object from a mapping, a named tuple or a GeoJSON Feature of a Point."""
    if not isinstance(value, Mapping) and hasattr(value, "_asdict"):
        value = value._asdict()
    if not isinstance(value, Mapping):
        raise invalid(where, f"expected a mapping such as {EXAMPLE}, got {named(value)}")
    if value.get("type") == "Feature":
        value = _read_feature(where, value)
    if unknown := sorted(str(name) for name in value if name not in FIELDS):
        problem = f"unknown field {unknown[0]!r}; expected {', '.join(FIELDS)}; an attribute goes"
        raise invalid(where, f'{problem} under "attributes"')
    made = object_pb2.Object()
    for name, given in value.items():
        if given is None:
            continue
        if name == "attributes":
            fill_attributes(f"{where}.{name}", given, made.attributes)
            continue
        if name == "payload":
            fill_payload(f"{where}.{name}", given, made.payload)
            continue
        if name == "until":
            made.until_ms = end_to_milliseconds(f"{where}.{name}", given) or 0
            continue
        try:
            if isinstance(given, bool):
                raise TypeError
            if name == "time":
                made.time_ms = milliseconds(given)
            else:
                is_whole = name == "id" and isinstance(given, int)
                setattr(made, name, str(given) if is_whole else given)
        except UnicodeError as error:
            raise invalid(f"{where}.{name}", f"is not Unicode text: {error}") from None
        except (TypeError, ValueError, OverflowError) as error:
            kind = _KINDS.get(name, _TIME)
            problem = str(error) if isinstance(given, datetime) else f"got {named(given)}"
            raise invalid(f"{where}.{name}", f"expected {kind}, {problem}") from None
    return made


def _read_feature(where: str, feature: Mapping[str, Any]) -> dict[str, Any]:
    """Returns lon and lat of the Feature's Point, and id, time, text, until and payload of its
    properties. Its other properties, those of an object `attributes`, and what the Feature has
    beside its properties are attributes, except null, objects and arrays, which are dropped."""
    geometry, found = feature.get("geometry"), feature.get("properties")
    properties = {name: value for name, value in feature.items() if name not in _MEMBERS}
    properties |= found if isinstance(found, Mapping) else {}
    point = geometry.get("coordinates") if isinstance(geometry, Mapping) else None
    is_point = isinstance(geometry, Mapping) and geometry.get("type") == "Point"
    if not (is_point and isinstance(point, list | tuple) and len(point) >= 2):
        raise invalid(f"{where}.geometry", "expected a Point")
    row = {name: properties[name] for name in _OF_FEATURE if name in properties}
    if feature.get("id") is not None:
        row["id"] = feature["id"]
    payload, nested = properties.get("payload"), properties.get("attributes")
    if isinstance(payload, str | bool | int | float):  # of JSON, and no text that is JSON
        try:
            payload = dump_json(payload)
        except ValueError as error:
            raise invalid(f"{where}.payload", f"is not JSON: {error}") from None
    beside = {n: v for n, v in properties.items() if n not in ("payload", *_OF_FEATURE)}
    attributes = _keep_scalars(nested) if isinstance(nested, Mapping) else {}
    plain = _keep_scalars(beside)
    if twice := sorted(attributes.keys() & plain.keys(), key=str):
        raise invalid(f"{where}.attributes.{twice[0]}", "expected it once, got it twice")
    row |= {"payload": payload, "attributes": attributes | plain or None}
    return {"lon": point[0], "lat": point[1], **row}


def _keep_scalars(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {n: v for n, v in properties.items() if not isinstance(v, Mapping | list | tuple | None)}
