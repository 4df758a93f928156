"""Records of other systems as posts: which of their fields is what, and what is wrong.

A chunk of JSON records is read as columns. What columns cannot express (a bad record, times as
people write them) is converted record by record, and gives the same posts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from ps2stream.errors import InvalidArgument, short
from ps2stream.posts.arrow_columns import SCHEMA, post_column, post_columns
from ps2stream.posts.post import CHECKS, NAMES, bad

Unit = Literal["ms", "s"]
Path = tuple[str, ...]


class ConvertedPosts(NamedTuple):
    """Result of a conversion. posts: of posts.SCHEMA, row i of record `rows[i]`. bad: what is
    wrong, by record."""

    posts: pa.RecordBatch
    rows: Sequence[int]
    bad: dict[int, str]


class RecordFields:
    """Places of the values of a post in a JSON record.

    spec: `text=body,lat=place.lat,lon=geometry.coordinates.0`, of the names id, time, lon, lat and
    text; dots lead into objects, numbers into arrays. A name without a path has its usual
    ones (posts.NAMES), one with an empty path (`id=`) has none. unit: of times that are numbers;
    times that are texts are ISO 8601. Raises InvalidArgument.
    """

    def __init__(self, spec: str = "", unit: Unit = "ms") -> None:
        self._paths: dict[str, tuple[Path, ...]] = {
            name: tuple((alias,) for alias in aliases) for name, aliases in NAMES.items()
        }
        self._factor = 1000 if unit == "s" else 1
        for part in filter(None, (p.strip() for p in spec.split(","))):
            name, equals, path = part.partition("=")
            if not equals or name not in NAMES:
                wanted = ", ".join(NAMES)
                raise bad("fields", f"expected NAME=PATH with a NAME of {wanted}, got {part!r}")
            if not path and name in ("lon", "lat", "text"):
                raise bad("fields", f"a post needs {name}")
            self._paths[name] = (tuple(path.split(".")),) if path else ()

    def convert(self, records: Sequence[bytes | None], ids: Sequence[str]) -> ConvertedPosts:
        """Converts JSON records to posts; record i without an id of its own gets ids[i]."""
        try:
            return ConvertedPosts(self._convert_columns(records, ids), range(len(records)), {})
        except (ValueError, TypeError, pa.ArrowException, InvalidArgument):
            return self._convert_records(records, ids)

    def _convert_columns(
        self, records: Sequence[bytes | None], ids: Sequence[str]
    ) -> pa.RecordBatch:
        """Converts records as columns. Raises unless all are good, one a line, and of one shape."""
        data = b"\n".join(records)  # type: ignore[arg-type]  # None: TypeError
        lines = len(records) - 1
        # Each line begins an object, so that as many rows as lines are one a line.
        if not data.startswith(b"{") or {data.count(b"\n"), data.count(b"\n{")} != {lines}:
            raise ValueError("expected one object per line")
        options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1)
        table = pyarrow.json.read_json(pa.BufferReader(data), options)
        if len(table) != len(records):
            raise ValueError("expected one object per line")
        columns: dict[str, Any] = {}
        for name, paths in self._paths.items():
            there = [p for p in paths if p[0] in table.schema.names]
            if len(there) > 1:
                raise ValueError("several places could hold the value")
            for path in there:
                columns[name] = self._extract_column(name, table, path)
        columns.setdefault("id", pa.array(ids, pa.string()))
        part = pa.RecordBatch.from_pydict(columns)
        found = post_columns("record", part.schema)
        return pa.RecordBatch.from_arrays(
            [post_column("record", name, found, part, 0) for name in SCHEMA.names], schema=SCHEMA
        )

    def _extract_column(self, name: str, table: Any, path: Path) -> Any:
        column = table.column(path[0])
        if len(path) > 1:
            column = pc.struct_field(column, list(path[1:]))
        column = column.combine_chunks()
        if name == "time" and self._factor != 1 and pa.types.is_integer(column.type):
            return pc.multiply_checked(column, self._factor)
        return column

    def _convert_records(
        self, records: Sequence[bytes | None], ids: Sequence[str]
    ) -> ConvertedPosts:
        columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
        rows: list[int] = []
        wrong: dict[int, str] = {}
        for number, (record, id) in enumerate(zip(records, ids, strict=True)):
            try:
                values = self._convert_record(record, id)
            except ValueError as error:
                wrong[number] = str(error)
                continue
            rows.append(number)
            for name, column in columns.items():
                column.append(values[name])
        return ConvertedPosts(pa.RecordBatch.from_pydict(columns, schema=SCHEMA), rows, wrong)

    def _convert_record(self, record: bytes | None, id: str) -> dict[str, Any]:
        """Converts one record. Raises ValueError for what is wrong first."""
        if record is None:
            raise ValueError("expected a JSON object, got no value")
        try:
            found = json.loads(record)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"expected a JSON object: {error}") from None
        if not isinstance(found, dict):
            raise ValueError(f"expected a JSON object, got {short(found)}")
        out: dict[str, Any] = {}
        for name, check in CHECKS.items():
            value = next(
                (v for p in self._paths[name] if (v := _find_value(found, p)) is not None), None
            )
            if value is None and name == "id":
                value = id
            if name == "time":
                value = self._convert_time(value)
            try:
                out[name] = check(value)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return out

    def _convert_time(self, value: Any) -> Any:
        if self._factor == 1 or isinstance(value, bool) or not isinstance(value, int | float):
            return value
        try:
            return round(value * self._factor)
        except (OverflowError, ValueError):  # infinite, or nan
            return value


def _find_value(record: Mapping[str, Any], path: Path) -> Any:
    """Returns the value at a path; None where there is none."""
    value: Any = record
    for step in path:
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value
