"""Queries as a caller has them, as columns of ids, expressions and regions."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ps2stream.client.inputs import region_of_value
from ps2stream.client.requests import Query
from ps2stream.errors import InvalidArgument, Violation, invalid, short
from ps2stream.language.query_rows import RectColumns, Regions
from ps2stream.planner.counting import ragged
from ps2stream.posts.readers import format_of, read_records
from ps2stream.protocol.frame import F64, I64, U8, strings_to_column
from ps2stream.space.geojson import region_of
from ps2stream.space.regions import RECT_FIELDS, Rect, Region, World

_FIELDS = ("id", "expression", "region")
_KNOWN = (*_FIELDS, *RECT_FIELDS, "session", "canonical", "until")
"""Columns and members of a query. Those behind the sides mean nothing without a service, but
`ps2stream list --json` prints them."""


class QuerySource(NamedTuple):
    """n queries: their ids, string[n]; expressions, ragged UTF-8; regions, one each."""

    ids: pa.Array
    expressions: tuple[I64, U8]
    regions: Regions

    def __len__(self) -> int:
        return len(self.ids)


def read_queries(queries: Any) -> QuerySource:
    """Reads a table of any library that speaks Arrow, a path (Parquet, JSON Lines, CSV), or an
    iterable of what `Client.insert_many` takes: Query, mapping, or (id, expression[, region]).

    A table and a file have the columns id, expression, and region (as JSON) or lon_min, lat_min,
    lon_max and lat_max, degrees; the geometries of a GeoDataFrame are regions. A query without
    expression matches every object in its region, one without region everywhere. Raises
    InvalidArgument naming the first bad field as `queries[i].field`."""
    if isinstance(queries, str | os.PathLike):
        path = os.fspath(queries)
        if format_of(path) != "parquet":
            return _read_records(_drop_absent(record) for _, record in read_records(path, [["id"]]))
        try:
            return _read_table(pq.read_table(path))
        except (pa.ArrowInvalid, OSError) as error:
            raise invalid("queries", f"cannot read {path}: {error}") from None
    if hasattr(type(queries), "__geo_interface__"):
        frame = queries if queries.crs is None else queries.to_crs(4326)
        regions = list(frame.geometry)
        return _read_table(pa.table(frame.drop(columns=frame.geometry.name)), regions)
    if isinstance(queries, pa.Table | pa.RecordBatch) or hasattr(queries, "__arrow_c_stream__"):
        return _read_table(pa.table(queries))
    if isinstance(queries, Mapping) or not isinstance(queries, Iterable):
        raise invalid("queries", f"expected a table, a path or queries, got {short(queries)}")
    return _read_records(queries)


def _read_table(table: pa.Table, shapes: list[Any] | None = None) -> QuerySource:
    names = [n for n in table.schema.names if not n.startswith("__index_level_")]
    if unknown := [name for name in names if name not in _KNOWN]:
        raise invalid("queries", f"unknown column {unknown[0]!r}; expected {', '.join(_KNOWN[:7])}")
    n = len(table)
    ids = _read_strings(table, "id")
    if ids.null_count:
        raise invalid(f"queries[{int(np.argmax(ids.is_null()))}].id", "is required")
    expressions = ragged(_read_strings(table, "expression").fill_null(""))
    if shapes is not None:
        regions: Regions = [_read_region(row, shape) for row, shape in enumerate(shapes)]
    elif "region" in names:
        column = table.column("region").to_pylist()
        regions = [_read_region(row, value) for row, value in enumerate(column)]
    elif any(name in names for name in RECT_FIELDS):
        regions = _read_sides(table)
    else:
        regions = [World()] * n
    return QuerySource(ids, expressions, regions)


def _read_strings(table: pa.Table, name: str) -> pa.Array:
    if name not in table.schema.names:
        if name == "id":
            raise invalid("queries", "there is no column id")
        return pa.nulls(len(table), pa.string())
    try:
        return table.column(name).cast(pa.string()).combine_chunks()
    except pa.ArrowException as error:
        raise invalid(f"queries.{name}", f"expected strings: {error}") from None


def _read_sides(table: pa.Table) -> RectColumns:
    sides, absent = list[F64](), []
    for name in RECT_FIELDS:
        if name not in table.schema.names:
            raise invalid("queries", f"there is no column {name}; expected all of a rectangle")
        try:
            column = table.column(name).cast(pa.float64()).combine_chunks()
        except pa.ArrowException as error:
            raise invalid(f"queries.{name}", f"expected degrees: {error}") from None
        absent.append(column.is_null().to_numpy(zero_copy_only=False))
        sides.append(column.to_numpy(zero_copy_only=False).astype(np.float64))
    world = np.logical_and.reduce(absent)
    west, south, east, north = sides
    return RectColumns(west, south, east, north, world if world.any() else None)


def _read_records(records: Iterable[Any]) -> QuerySource:
    ids, expressions, regions = list[str](), list[str](), list[Region]()
    for row, record in enumerate(records):
        values = _read_fields(row, record)
        for name, into in (("id", ids), ("expression", expressions)):
            value = values.get(name)
            if value is None and name == "expression":
                value = ""
            if not isinstance(value, str):
                problem = "is required" if value is None else f"expected text, got {short(value)}"
                raise invalid(f"queries[{row}].{name}", problem)
            into.append(value)
        region = values.get("region")
        sides = [values.get(name) for name in RECT_FIELDS]
        if region is None and any(side not in (None, "") for side in sides):
            region = _read_rectangle(row, sides)
        regions.append(_read_region(row, region))
    try:
        return QuerySource(pa.array(ids, pa.string()), strings_to_column(expressions), regions)
    except UnicodeEncodeError as error:
        raise invalid("queries", f"expected Unicode text: {error}") from None


def _drop_absent(record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a record of a file without its empty cells, and without the columns of posts that
    readers add."""
    return {name: value for name, value in record.items() if value not in (None, "")}


def _read_fields(row: int, record: Any) -> Mapping[str, Any]:
    if isinstance(record, Query):
        return {name: getattr(record, name) for name in _FIELDS}
    if isinstance(record, tuple | list) and len(record) <= len(_FIELDS):
        return dict(zip(_FIELDS, record, strict=False))
    if not isinstance(record, Mapping):
        problem = f"expected a Query, a mapping or ({', '.join(_FIELDS)}), got {short(record)}"
        raise invalid(f"queries[{row}]", problem)
    if unknown := [str(name) for name in record if name not in _KNOWN]:
        problem = f"unknown field {unknown[0]!r}; expected {', '.join(_KNOWN[:7])}"
        raise invalid(f"queries[{row}]", problem)
    return record


def _read_rectangle(row: int, sides: list[Any]) -> Rect:
    try:
        return Rect(*(float(side) for side in sides))
    except (TypeError, ValueError, OverflowError):
        problem = f"expected numbers for {', '.join(RECT_FIELDS)}, got {short(sides)}"
        raise invalid(f"queries[{row}]", problem) from None
    except InvalidArgument as error:
        raise _place(error, row) from None


def _read_region(row: int, value: Any) -> Region:
    """Reads a region in any of the forms that clients and files of queries take; absent: the whole
    world."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return World()
    try:
        if isinstance(value, str):
            value = json.loads(value)
        if isinstance(value, Mapping) and "type" not in value:
            return region_of("region", dict(value))
        return region_of_value(value) or World()
    except (ValueError, RecursionError) as error:
        raise invalid(f"queries[{row}].region", f"expected JSON: {error}") from None
    except InvalidArgument as error:
        raise _place(error, row) from None


def _place(error: InvalidArgument, row: int) -> InvalidArgument:
    """Returns the error with its fields named as those of a query."""
    found = (Violation(f"queries[{row}].{v.field}", v.description) for v in error.violations)
    return InvalidArgument(list(_drop_repeated_prefix(found)))


def _drop_repeated_prefix(violations: Iterable[Violation]) -> Iterator[Violation]:
    for violation in violations:
        yield violation._replace(field=violation.field.replace(".region region", ".region"))
