"""Inserts and deletes of queries as rows, and the queries that are live after them.

Columns of a file: id; expression; region (GeoJSON or {"rect": ...}, {"circle": ...}, in CSV and
Parquet as JSON text) or lon_min, lat_min, lon_max, lat_max; op: `insert` or `delete` of the
sample's period, or `live`, the default, for a query that existed before; time (ts, timestamp), by
which updates of one id are ordered. A delete needs only id and time.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from ps2stream.errors import InvalidArgument, Violation, short
from ps2stream.language.query_rows import RectColumns
from ps2stream.planner.counting import QUERIES
from ps2stream.posts.post import CHECKS, NAMES, bad
from ps2stream.protocol.frame import F64
from ps2stream.space.geojson import region_of
from ps2stream.space.region_rows import boxes_of
from ps2stream.space.regions import RECT_FIELDS, Rect, Region, World

LIVE, INSERT, DELETE = 0, 1, 2
UPDATES = pa.schema(
    [
        ("id", pa.string()),
        ("time", pa.int64()),  # Unix ms; absent: before all others
        ("op", pa.int64()),  # LIVE, INSERT or DELETE
        ("expression", pa.string()),
        ("box", pa.binary()),  # as in counting.QUERIES
    ]
)
ORDER = ("id", "time", "op", "expression", "box")
_OPS = {"live": LIVE, "insert": INSERT, "delete": DELETE}
_SURROGATE = re.compile("[\ud800-\udfff]")
_NO_TIME = np.iinfo(np.int64).min


def of_records(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> Any:
    """Returns a batch of UPDATES from (place, record). Raises InvalidArgument naming the place."""
    found = [_parse_update(where, record) for where, record in rows]
    columns: Iterable[Any] = zip(*found, strict=True) if found else [()] * len(ORDER)
    kinds = UPDATES.types
    return pa.record_batch([pa.array(c, k) for c, k in zip(columns, kinds, strict=True)], UPDATES)


def of_rects(id: list[str], op: Any, time: Any, expression: list[str], rect: F64) -> Any:
    """Returns a batch of UPDATES. op, time int64[n]; rect float64[n, 4], as in RectColumns."""
    _, _, (off, box) = RectColumns(*rect.T).pack()
    raw = box.astype("<f8").tobytes()
    at = (off * 8).tolist()
    parts = [raw[a:b] for a, b in itertools.pairwise(at)]
    return pa.record_batch([id, time, op, expression, parts], UPDATES)


def _parse_update(where: str, record: Mapping[str, Any]) -> tuple[str, int, int, str, bytes]:
    op = record.get("op") or "live"
    if op not in _OPS:
        raise bad(f"{where} op", f"expected insert, delete or live, got {short(op)}")
    try:
        id_ = CHECKS["id"](record.get("id"))
    except ValueError as error:
        raise bad(f"{where} id", str(error)) from None
    time = _parse_time(where, record)
    if op == "delete":
        if time is None:
            raise bad(f"{where} time", "expected the time of the delete, got null")
        return id_, time, DELETE, "", b""
    expression = record.get("expression")
    if expression is not None and not isinstance(expression, str):
        raise bad(f"{where} expression", f"expected a string, got {short(expression)}")
    if expression and _SURROGATE.search(expression):
        raise bad(f"{where} expression", f"expected Unicode text, got {short(expression)}")
    region = _parse_region(where, record)
    if not expression and isinstance(region, World):
        raise bad(where, "a query needs an expression or a region")
    box = boxes_of(region).astype("<f8").tobytes()
    return id_, _NO_TIME if time is None else time, _OPS[op], expression or "", box


def _parse_time(where: str, record: Mapping[str, Any]) -> int | None:
    value = next((record[n] for n in NAMES["time"] if record.get(n) not in (None, "")), None)
    if isinstance(value, datetime):
        value = round(value.replace(tzinfo=value.tzinfo or UTC).timestamp() * 1000)
    try:
        found: int | None = CHECKS["time"](value)
    except ValueError as error:
        raise bad(f"{where} time", str(error)) from None
    return found


def _parse_region(where: str, record: Mapping[str, Any]) -> Region:
    region = record.get("region")
    if isinstance(region, str) and region.strip():
        try:
            region = json.loads(region)
        except (ValueError, RecursionError) as error:
            raise bad(f"{where} region", f"expected JSON: {error}") from None
    if region:
        return region_of(where, region)
    sides = [record.get(name) for name in RECT_FIELDS]
    if all(side is None or side == "" for side in sides):
        return World()
    try:
        return Rect(*(float(side) for side in sides))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        names = ", ".join(RECT_FIELDS)
        raise bad(where, f"expected numbers for {names}, got {short(sides)}") from None
    except InvalidArgument as error:
        raise InvalidArgument(
            [Violation(f"{where} {v.field}", v.description) for v in error.violations]
        ) from None


def standing(updates: Any) -> Any:
    """Returns QUERIES of a table of UPDATES in any order. An insert of an id that is live, and a
    delete of one that is not, change nothing."""
    rows = updates.sort_by([(name, "ascending") for name in ORDER])
    if not len(rows):
        return QUERIES.empty_table()
    id_, op = rows["id"].to_numpy(), rows["op"].to_numpy()
    is_delete = op == DELETE
    later = np.r_[False, id_[1:] == id_[:-1]]
    alive = later & ~np.r_[True, is_delete[:-1]]
    starts, ends = ~is_delete & ~alive, is_delete & alive
    turns = np.flatnonzero(starts | ends)
    begun = np.flatnonzero(starts[turns])
    ended = np.r_[ends[turns], False][begun + 1]
    queries = rows.take(pa.array(turns[begun]))
    counts = (~ended, op[turns[begun]] == INSERT, ended)
    return pa.table(
        [
            *(queries[name] for name in ("id", "expression", "box")),
            *(c.astype(np.int64) for c in counts),
        ],
        schema=QUERIES,
    )
