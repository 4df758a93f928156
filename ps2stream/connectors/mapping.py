"""Records of other systems as posts: which of their fields is what, and what is wrong.

A chunk of JSON records is read as columns. What columns cannot express (a bad record, times as
people write them) is converted record by record, and gives the same posts.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from ps2stream.errors import InvalidArgument, short
from ps2stream.limits import ATTRIBUTES
from ps2stream.posts.arrow_columns import SCHEMA, post_column, post_columns
from ps2stream.posts.attribute_columns import convert_column
from ps2stream.posts.members import AttributeChoice, BadNumberError, find_name_problem, load_record
from ps2stream.posts.post import CHECKS, NAMES, bad, check_moment, check_payload
from ps2stream.posts.readers import make_rows

log = logging.getLogger(__name__)

Unit = Literal["ms", "s"]
Path = tuple[str, ...]


_PLAIN: dict[Any, tuple[str, ...]] = {
    pa.int64(): ("", "number"),
    pa.float64(): ("", "number"),
    pa.bool_(): ("", "boolean"),
    pa.string(): ("", "text"),
    pa.null(): ("", "number", "boolean", "text", "time"),
}
"""Types of columns that are attributes as they are, with the types of members that they are of."""


_FEATURE = frozenset({"type", "geometry", "properties", "bbox"})
"""Members of a GeoJSON Feature that say nothing of the post."""
_SILENT = frozenset({"type", "bbox"})
"""Those that no path leads through."""


class ConvertedPosts(NamedTuple):
    """Result of a conversion. posts: post i of record `rows[i]`, as a record batch of posts.SCHEMA
    and a column for each attribute, or as a list where columns cannot express them. bad: what is
    wrong, by record."""

    posts: pa.RecordBatch | list[dict[str, Any]]
    rows: Sequence[int]
    bad: dict[int, str]


class RecordFields:
    """Places of the values of a post in a JSON record.

    spec: `text=body,lat=place.lat,lon=geometry.coordinates.0`, of the names id, time, lon, lat and
    text; dots lead into objects, numbers into arrays. A name without a path has its usual
    ones (posts.NAMES), one with an empty path (`id=`) has none. A record that is a GeoJSON Feature
    has its properties, and the position of its Point, as if they were members of the record.
    unit: of times that are numbers; times that are texts are ISO 8601. choice: of the members that
    become attributes, of those that no path leads to. Raises InvalidArgument.
    """

    def __init__(
        self, spec: str = "", unit: Unit = "ms", choice: AttributeChoice | None = None
    ) -> None:
        self._choice = choice or AttributeChoice()
        self._texts: set[str] = set()  # members that look like times to Arrow, and are texts
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
        steps = {path[0] for paths in self._paths.values() for path in paths}
        self._used = frozenset({*steps, *SCHEMA.names, "payload", "until"})
        led = {
            p[1] for paths in self._paths.values() for p in paths if p[0] == "properties" and p[1:]
        }
        self._used_of_features = self._used | led

    def convert(self, records: Sequence[bytes | None], ids: Sequence[str]) -> ConvertedPosts:
        """Converts JSON records to posts; record i without an id of its own gets ids[i]."""
        try:
            found = ConvertedPosts(self._convert_columns(records, ids), range(len(records)), {})
        except (ValueError, TypeError, pa.ArrowException, InvalidArgument):
            found = self._convert_records(records, ids)
        for line in self._choice.pop_left_out():
            log.warning("left out, as no attribute: %s", line)
        return found

    def _convert_columns(
        self, records: Sequence[bytes | None], ids: Sequence[str]
    ) -> pa.RecordBatch:
        """Converts records as columns. Raises unless all are good, one a line, and of one shape."""
        data = b"\n".join(records)  # type: ignore[arg-type]  # None: TypeError
        lines = len(records) - 1
        # Each line begins an object, so that as many rows as lines are one a line.
        if not data.startswith(b"{") or {data.count(b"\n"), data.count(b"\n{")} != {lines}:
            raise ValueError("expected one object per line")
        table = self._read_table(data)
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
        posts = {name: post_column("record", name, found, part, 0) for name in SCHEMA.names}
        return pa.RecordBatch.from_pydict(posts | self._find_attributes(table))

    def _read_table(self, data: bytes) -> Any:
        """Reads lines of JSON as columns; texts that Arrow would read as times as texts."""
        options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1)
        while True:
            schema = pa.schema([(name, pa.string()) for name in sorted(self._texts)])
            parsing = pyarrow.json.ParseOptions(explicit_schema=schema)
            table = pyarrow.json.read_json(pa.BufferReader(data), options, parsing)
            more = {
                field.name
                for field in table.schema
                if field.name not in self._used and pa.types.is_timestamp(field.type)
            }
            if not more:
                return table.combine_chunks()
            self._texts |= more

    def _find_attributes(self, table: Any) -> dict[str, Any]:
        """Returns the columns that are attributes. Raises ValueError where the members need to be
        looked at one by one."""
        found: dict[str, Any] = {}
        choice = self._choice
        names = set(table.schema.names)
        if {"payload", "until", "attributes"} & names or names >= {"geometry", "properties"}:
            raise ValueError("not of plain members")
        for field in table.schema:
            name, kind = field.name, field.type
            if name in self._used or (choice.types is not None and name not in choice.types):
                continue
            if choice.types is not None and choice.types[name] not in _PLAIN.get(kind, ()):
                raise ValueError(f"{name} is of another type")
            if pa.types.is_null(kind):
                continue
            if kind not in _PLAIN or find_name_problem(name):
                problem = "an array" if pa.types.is_list(kind) else "an object"
                choice.leave_out(name, find_name_problem(name) or problem)
                continue
            column = table.column(name)
            if pa.types.is_floating(kind) and not pc.all(_is_exact(column)).as_py():
                raise ValueError(f"{name} has numbers that need a look")
            choice.note_seen(name)
            found[name] = convert_column("record", name, "", table, 0, choice).combine_chunks()
        if len(found) > ATTRIBUTES:
            raise ValueError("too many members")
        return found

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
        columns: dict[str, list[Any]] = {
            name: [] for name in (*SCHEMA.names, "attributes", "payload", "until")
        }
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
        if any(any(columns[name]) for name in ("attributes", "payload", "until")):
            return ConvertedPosts(make_rows(columns), rows, wrong)
        plain = {name: columns[name] for name in SCHEMA.names}
        return ConvertedPosts(pa.RecordBatch.from_pydict(plain, schema=SCHEMA), rows, wrong)

    def _convert_record(self, record: bytes | None, id: str) -> dict[str, Any]:
        """Converts one record. Raises ValueError for what is wrong first."""
        if record is None:
            raise ValueError("expected a JSON object, got no value")
        try:
            found = load_record(record)
        except BadNumberError as error:
            raise ValueError(str(error)) from None
        except (ValueError, RecursionError) as error:
            raise ValueError(f"expected a JSON object: {error}") from None
        if not isinstance(found, dict):
            raise ValueError(f"expected a JSON object, got {short(found)}")
        used = self._used
        if found.get("type") == "Feature" and isinstance(found.get("properties"), dict):
            # A property may be called as a member that says nothing: it is the property's name.
            used = self._used_of_features | (_FEATURE - (_SILENT & found["properties"].keys()))
            found = _unfold_feature(found)
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
        out["attributes"] = self._choice.read(found, used)
        try:
            out["payload"] = check_payload(found.get("payload"))
        except ValueError as error:
            raise ValueError(f"payload: {error}") from None
        try:
            out["until"] = check_moment(found.get("until"))
        except ValueError as error:
            raise ValueError(f"until: {error}") from None
        return out

    def _convert_time(self, value: Any) -> Any:
        if self._factor == 1 or isinstance(value, bool) or not isinstance(value, int | float):
            return value
        try:
            return round(value * self._factor)
        except (OverflowError, ValueError):  # infinite, or nan
            return value


def _unfold_feature(feature: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a Feature with its properties, and the position of its Point, beside its members, as
    the readers of files have them."""
    record: dict[str, Any] = dict(feature["properties"])
    record |= {name: feature[name] for name in (_FEATURE - _SILENT) & feature.keys()}
    if feature.get("id") is not None:
        record["id"] = feature["id"]
    geometry = feature.get("geometry")
    if isinstance(geometry, dict) and geometry.get("type") == "Point":
        point = geometry.get("coordinates")
        if isinstance(point, list) and len(point) >= 2:
            record["lon"], record["lat"] = point[:2]
    return record


def _is_exact(column: Any) -> Any:
    """Returns whether each number of a column is what its record says, as far as that is known: an
    integer that no double holds is among the others."""
    return pc.less(pc.abs(column), 1 << 53)


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
