"""Published objects, from messages or Arrow to checked and analysed columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ps2stream.errors import InvalidArgument, invalid
from ps2stream.language.analyzer import Analyzer
from ps2stream.language.batch_tokenizer import GROWTH, find_overlong, is_always_wanted
from ps2stream.language.literals import NO_LITERALS, LiteralView
from ps2stream.language.object_terms import find_terms
from ps2stream.limits import (
    BATCH_BYTES,
    FOLDED_TEXT_BYTES,
    ID_BYTES,
    LAT_MAX,
    LON_MAX,
    TEXT_BYTES,
)
from ps2stream.protocol.frame import (
    F64,
    I64,
    U8,
    Array,
    concat_ragged,
    sealed,
    strings_to_column,
    take_ragged,
)
from ps2stream.protocol.rows import ObjectRows, concat_ends, concat_optional, no_offsets
from ps2stream.service import arrow
from ps2stream.service.attribute_columns import find_column_problems, read_columns
from ps2stream.service.attribute_messages import read_messages
from ps2stream.service.attribute_rules import OpaqueRows, no_opaque
from ps2stream.service.ends import ENDED, NO_END, find_end_problems, mark_given_ends
from ps2stream.service.object_row_kernels import are_within
from ps2stream.service.plain_columns import PlainColumnReader, PlainColumns
from ps2stream.space.regions import coordinate_problem
from ps2stream.v1 import object_pb2, query_pb2

INVALID = query_pb2.ROW_CODE_INVALID_ARGUMENT
COLUMNS = {
    "lon": arrow.DOUBLE,
    "lat": arrow.DOUBLE,
    "text": arrow.STRING,
    "id": arrow.STRING,
    "time": arrow.TIME,
    "until": arrow.TIME,
}
REQUIRED = ("lon", "lat", "text")
_LIMITS = LON_MAX, LAT_MAX, ID_BYTES, min(TEXT_BYTES, FOLDED_TEXT_BYTES // GROWTH)
"""What no row that is within can be refused for: degrees, and bytes of ids and texts."""
_plain_reader = PlainColumnReader(COLUMNS, REQUIRED)


class RowRefusal(NamedTuple):
    """A row that cannot be accepted."""

    row: int
    field: str
    description: str
    code: query_pb2.RowCode.ValueType = INVALID

    def to_proto(self) -> query_pb2.RowError:
        return query_pb2.RowError(
            row=self.row, code=self.code, field=self.field, description=self.description
        )


@dataclass(frozen=True, eq=False)
class ObjectColumns:
    """A batch of n objects as they came. id and text are ragged UTF-8, time is in ms, lon and lat
    are in degrees, NaN where absent. opaque are attributes and payloads. until are the ends in ms,
    NO_END for none, empty if there are none; `now_ms` is what they were checked by, `end_field` the
    name that the sender has for them."""

    id_off: I64
    id: U8
    time: I64
    lon: F64
    lat: F64
    text_off: I64
    text: U8
    opaque: OpaqueRows = field(default_factory=no_opaque)
    until: I64 = field(default_factory=no_offsets)
    now_ms: int = 0
    end_field: str = "until"

    def __len__(self) -> int:
        return len(self.lon)

    def refusals(
        self, most: int | None = None, is_wanted: Callable[[], bool] = is_always_wanted
    ) -> list[RowRefusal]:
        """Returns the rows that cannot be accepted and why, in row order: all of them, or the first
        `most`.

        Raises Cancelled once `is_wanted` reports that the caller has left.
        """
        columns = sealed(self.lon), sealed(self.lat), sealed(self.id_off), sealed(self.text_off)
        is_plain = not self.opaque.problems and not len(self.until)
        if is_plain and are_within(*columns, _LIMITS):
            return []
        out: list[RowRefusal] = []
        for name, value, limit in (("lon", self.lon, LON_MAX), ("lat", self.lat, LAT_MAX)):
            out += [
                RowRefusal(i, name, _degrees_problem(float(value[i]), limit))
                for i in np.flatnonzero(~(np.abs(value) <= limit))[:most].tolist()
            ]
        for name, off, bound in (
            ("id", self.id_off, ID_BYTES),
            ("text", self.text_off, TEXT_BYTES),
        ):
            size = np.diff(off)
            for i in np.flatnonzero(size > bound)[:most].tolist():
                problem = f"{size[i]} bytes are over the limit {name}_bytes {bound}"
                out.append(RowRefusal(i, name, problem))
        for i, folded in find_overlong(self.text_off, self.text, TEXT_BYTES, is_wanted)[:most]:
            named = f"the limit folded_text_bytes {FOLDED_TEXT_BYTES}"
            out.append(RowRefusal(i, "text", f"{folded} bytes once folded are over {named}"))
        out += [RowRefusal(*problem) for problem in sorted(self.opaque.problems)[:most]]
        ends = find_end_problems(self.until, self.now_ms, self.time)
        out += [RowRefusal(row, self.end_field, problem) for row, problem in ends[:most]]
        return sorted(out)[:most]

    def list_good(self, refused: Sequence[RowRefusal]) -> I64:
        """Returns the rows that are not among those refused."""
        good = np.ones(len(self), np.bool_)
        good[[r.row for r in refused]] = False
        return np.flatnonzero(good)

    def are_over(self, refused: Sequence[RowRefusal]) -> bool:
        """Returns whether all that is wrong with these rows is that their ends have passed."""
        is_end = [r.field == self.end_field for r in refused]
        return all(is_end) and all(self.until[r.row] <= self.now_ms for r in refused)

    def take(self, rows: Array) -> ObjectColumns:
        """Returns these rows, in this order, which must be good ones."""
        return ObjectColumns(
            *take_ragged(self.id_off, self.id, rows),
            self.time[rows],
            self.lon[rows],
            self.lat[rows],
            *take_ragged(self.text_off, self.text, rows),
            opaque=self.opaque.take(rows),
            until=self.until[rows] if len(self.until) else self.until,
            now_ms=self.now_ms,
            end_field=self.end_field,
        )

    def analyse(
        self,
        analyzer: Analyzer,
        is_wanted: Callable[[], bool] = is_always_wanted,
        literals: LiteralView = NO_LITERALS,
    ) -> ObjectRows:
        """Returns the objects with the terms of each text, and those of `literals` that hold and
        that some query has where they are.

        Raises Cancelled once `is_wanted` reports that the caller has left.
        """
        text, opaque = (self.text_off, self.text), (self.opaque.off, self.opaque.data)
        place = self.lon, self.lat
        term_off, term = find_terms(analyzer, text, opaque, literals, is_wanted, place)
        return ObjectRows(
            self.id_off,
            self.id,
            self.time,
            self.lon,
            self.lat,
            self.text_off,
            self.text,
            term_off,
            term,
            self.opaque.off,
            self.opaque.data,
            searched=literals.version,
            until=self.until,
        )


def _degrees_problem(value: float, limit: float) -> str:
    if math.isnan(value):
        return "is missing, or not a number"
    return coordinate_problem(value, limit)


def read_objects(
    batch: object_pb2.ObjectBatch, now_ms: int, is_wanted: Callable[[], bool] = is_always_wanted
) -> ObjectColumns:
    """Returns the columns of a batch, of which unknown fields of attributes and payloads are
    dropped.

    Raises InvalidArgument for what is wrong with the batch as a whole, and Cancelled once
    `is_wanted` reports that the caller has left.
    """
    size = batch.ByteSize()
    if size > BATCH_BYTES:
        problem = f"{size} bytes are over the limit batch_bytes {BATCH_BYTES}"
        raise invalid("batch", problem)
    data = batch.arrow  # every access copies it
    if batch.objects and data:
        raise invalid("batch", "contains both objects and arrow; send one of them")
    if data:
        found = _read_arrow(data, now_ms, is_wanted)
    else:
        found = _read_messages(batch, now_ms, is_wanted)
    if not len(found):
        raise invalid("batch", "contains no objects")
    return found


def join_columns(parts: Sequence[ObjectColumns]) -> ObjectColumns:
    """Returns the columns of several batches end to end, which must have no problems with what is
    opaque; at least one."""
    if len(parts) == 1:
        return parts[0]
    opaque = concat_optional([(p.opaque.off, p.opaque.data, len(p)) for p in parts])
    return ObjectColumns(
        *concat_ragged([(p.id_off, p.id) for p in parts]),
        np.concatenate([p.time for p in parts]),
        np.concatenate([p.lon for p in parts]),
        np.concatenate([p.lat for p in parts]),
        *concat_ragged([(p.text_off, p.text) for p in parts]),
        opaque=OpaqueRows(*opaque),
        until=concat_ends([(p.until, len(p)) for p in parts]),
        now_ms=parts[0].now_ms,
        end_field=parts[0].end_field,
    )


def _read_arrow(data: bytes, now_ms: int, is_wanted: Callable[[], bool]) -> ObjectColumns:
    if (plain := _plain_reader.read(data)) is not None:
        return _make_plain_columns(plain, now_ms)
    batch = arrow.open_batch(data, COLUMNS, REQUIRED, find_column_problems)
    return read_record_batch(batch, now_ms, is_wanted)


def check_schema(schema: pa.Schema) -> None:
    """Raises InvalidArgument unless these are columns of objects."""
    if bad := arrow.find_violations(schema, COLUMNS, REQUIRED, find_column_problems):
        raise InvalidArgument(bad)


def read_record_batch(
    batch: pa.RecordBatch, now_ms: int, is_wanted: Callable[[], bool] = is_always_wanted
) -> ObjectColumns:
    """Returns the columns of a record batch, of which `check_schema` has seen the schema. Raises
    InvalidArgument and Cancelled as `read_objects` does."""
    n = batch.num_rows
    names = batch.schema.names
    if "id" in names:
        id_off, id_ = arrow.strings(batch, "id")
    else:
        id_off, id_ = np.zeros(n + 1, np.int64), np.zeros(0, np.uint8)
    time = arrow.times(batch, "time", now_ms) if "time" in names else np.full(n, now_ms)
    return ObjectColumns(
        id_off,
        id_,
        time,
        arrow.doubles(batch, "lon"),
        arrow.doubles(batch, "lat"),
        *arrow.strings(batch, "text"),
        opaque=read_columns(batch, COLUMNS, is_wanted),
        until=_read_ends(batch) if "until" in names else no_offsets(),
        now_ms=now_ms,
    )


def _read_ends(batch: pa.RecordBatch) -> I64:
    until = mark_given_ends(arrow.times(batch, "until", NO_END))
    return np.where(arrow.nulls(batch, "until"), NO_END, until)


def _make_plain_columns(plain: PlainColumns, now_ms: int) -> ObjectColumns:
    numbers, texts = plain.numbers, plain.texts
    time, until = numbers.get("time"), numbers.get("until")
    id_ = texts.get("id")
    return ObjectColumns(
        *(id_ if id_ is not None else (np.zeros(plain.rows + 1, np.int64), np.zeros(0, np.uint8))),
        time if time is not None else np.full(plain.rows, now_ms),
        numbers["lon"],
        numbers["lat"],
        *texts["text"],
        until=no_offsets() if until is None else mark_given_ends(until),
        now_ms=now_ms,
    )


def _read_messages(
    batch: object_pb2.ObjectBatch, now_ms: int, is_wanted: Callable[[], bool]
) -> ObjectColumns:
    rows = list(batch.objects)  # iterating over the field itself makes each object anew
    n = len(rows)
    nan = float("nan")
    return ObjectColumns(
        *strings_to_column(o.id for o in rows),
        np.fromiter(
            (o.time_ms or (0 if o.HasField("time_ms") else now_ms) for o in rows), np.int64, n
        ),
        np.fromiter((o.lon or (0.0 if o.HasField("lon") else nan) for o in rows), np.float64, n),
        np.fromiter((o.lat or (0.0 if o.HasField("lat") else nan) for o in rows), np.float64, n),
        *strings_to_column(o.text for o in rows),
        opaque=read_messages(rows, is_wanted),
        until=_read_message_ends(rows),
        now_ms=now_ms,
        end_field="until_ms",
    )


def _read_message_ends(rows: Sequence[object_pb2.Object]) -> I64:
    if not any(o.HasField("until_ms") for o in rows):
        return no_offsets()
    ends = ((o.until_ms or ENDED) if o.HasField("until_ms") else NO_END for o in rows)
    return np.fromiter(ends, np.int64, len(rows))
