"""Rows of a partition as posts: bad ones apart, the others in chunks that do not depend on how the
rows arrived."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ps2stream.errors import InvalidArgument
from ps2stream.limits import BATCH_ROWS
from ps2stream.posts.arrow_columns import SCHEMA, post_column, post_columns
from ps2stream.posts.attribute_columns import check_payloads, convert_column, limit_attributes
from ps2stream.posts.members import AttributeChoice
from ps2stream.posts.post import bad

CHUNK_BYTES = 2 << 20
"""Most bytes of texts in a chunk of several rows; what requests may have is twice as much."""
ROW_BYTES = 64
"""What a row counts besides its texts."""


class BadRow(NamedTuple):
    """A row that cannot be a post: its number in the partition, why, and its values."""

    row: int
    reason: str
    values: dict[str, Any]


class RowConverter:
    """Converts record batches of id, time, lon, lat, text, until, payload and attributes.

    attributes: the type of each (members.TYPES, empty: the column's own), as choose_columns gives
    it. prefix: of the ids where there is no column id: the row's number in the partition follows.
    """

    def __init__(self, attributes: Mapping[str, str], choice: AttributeChoice, prefix: str) -> None:
        self._attributes = dict(attributes)
        self._choice = choice
        self._prefix = prefix

    def convert(self, part: pa.RecordBatch, start: int) -> tuple[pa.RecordBatch, list[BadRow]]:
        """Returns the posts of a batch whose first row is row `start` of the partition, and the
        rows that are no posts."""
        good, wrong = list[pa.RecordBatch](), list[BadRow]()
        self._convert_halves(part, start, good, wrong)
        if len(good) == 1:
            return good[0], wrong
        if not good:
            return self._convert_whole(part.slice(0, 0), start), wrong
        return pa.Table.from_batches(good).combine_chunks().to_batches()[0], wrong

    def _convert_halves(
        self, part: pa.RecordBatch, start: int, good: list[pa.RecordBatch], wrong: list[BadRow]
    ) -> None:
        """Converts a batch; one with bad rows by halves, until they are alone."""
        try:
            good.append(self._convert_whole(part, start))
            return
        except InvalidArgument as error:
            if len(part) == 1:
                wrong.append(BadRow(start, str(error), read_values(part)))
                return
        half = len(part) // 2
        self._convert_halves(part.slice(0, half), start, good, wrong)
        self._convert_halves(part.slice(half), start + half, good, wrong)

    def _convert_whole(self, part: pa.RecordBatch, start: int) -> pa.RecordBatch:
        """Converts a batch. Raises InvalidArgument if any row is bad."""
        where = "posts"
        try:
            part.validate(full=True)  # texts of Kafka and of files may be no UTF-8
        except pa.ArrowInvalid as error:
            raise bad(where, str(error)) from None
        columns = post_columns(where, pa.schema([f for f in part.schema if f.name in SCHEMA.names]))
        out = {
            name: post_column(where, name, columns, part, start, self._prefix)
            for name in SCHEMA.names
        }
        attributes: dict[str, Any] = {}
        for name, kind in self._attributes.items():
            if kind == "number" and pa.types.is_string(part.column(name).type):
                # Of one type, whatever the numbers of this batch look like.
                index = part.schema.get_field_index(name)
                part = part.set_column(index, name, _cast_numbers(name, part.column(name)))
            attributes[name] = convert_column(where, name, kind, part, start, self._choice)
        out |= limit_attributes(where, attributes, start, self._choice)
        if "payload" in part.schema.names:
            out["payload"] = check_payloads(where, part, start)
        if "until" in part.schema.names:
            out["until"] = part.column("until")
        return pa.RecordBatch.from_pydict(out)


def _cast_numbers(name: str, values: Any) -> Any:
    try:
        return values.cast(pa.float64())
    except pa.ArrowInvalid as error:
        raise bad(f"posts column {name}", f"expected a number: {error}") from None


def read_values(part: pa.RecordBatch) -> dict[str, Any]:
    """Returns the values of a batch of one row, as JSON can hold them."""
    found: dict[str, Any] = {}
    for name, column in zip(part.schema.names, part.columns, strict=True):
        try:
            value = column[0].as_py()
        except (UnicodeDecodeError, ValueError, OverflowError):
            value = column.cast(pa.binary())[0].as_py()
        if isinstance(value, bytes):
            value = value.decode("utf-8", "backslashreplace")
        found[name] = value if value is None or isinstance(value, int | str) else _show_value(value)
    return found


def _show_value(value: Any) -> Any:
    if isinstance(value, float) and np.isfinite(value):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def cut_chunks(
    parts: Iterable[pa.RecordBatch], rows: int = BATCH_ROWS, size: int = CHUNK_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of all parts in chunks of at most `rows` rows, and `size` bytes or one row.

    Where a chunk ends depends on the rows alone, not on the parts in which they arrive, and equal
    rows make equal bytes: so a chunk that is made again is the same publication.
    """
    rest: pa.RecordBatch | None = None
    for part in parts:
        if not len(part):
            continue
        joined = part if rest is None else _join_parts([rest, part])
        sizes = np.cumsum(measure_rows(joined))
        first = 0
        while (end := _find_end(sizes, first, rows, size)) < len(joined) or end - first == rows:
            yield _copy_rows(joined, first, end)
            first = end
            if first == len(joined):
                break
        rest = joined.slice(first) if first < len(joined) else None
    if rest is not None:
        yield _copy_rows(rest, 0, len(rest))


def _find_end(sizes: Any, first: int, rows: int, size: int) -> int:
    """Returns the row before which the chunk that begins with row `first` ends."""
    before = int(sizes[first - 1]) if first else 0
    end = int(np.searchsorted(sizes, before + size, "right"))
    return min(max(end, first + 1), first + rows, len(sizes))


def measure_rows(part: pa.RecordBatch) -> Any:
    """Returns the bytes that each row counts, int64[rows]."""
    found = np.full(len(part), ROW_BYTES, np.int64)
    for column in part.columns:
        if _is_bytes(column.type):
            found += pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    return found


def _join_parts(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(parts).combine_chunks().to_batches()[0]


def _copy_rows(part: pa.RecordBatch, first: int, end: int) -> pa.RecordBatch:
    """Returns some rows in buffers that hold them alone. Arrow sends what lies behind nulls and,
    up to the next 64 bytes, behind the last row."""
    columns = [_copy_column(column) for column in part.slice(first, end - first).columns]
    return pa.RecordBatch.from_arrays(columns, schema=part.schema)


def _copy_column(column: Any) -> Any:
    """Returns a column whose nulls lie on zeros, and whose buffers end with its last row."""
    kind = column.type
    if pa.types.is_null(kind):
        return column
    valid = pc.is_valid(column)
    has_nulls = column.null_count > 0
    bits = _pack_bits(valid) if has_nulls else None
    if pa.types.is_boolean(kind):
        buffers = [_pack_bits(pc.fill_null(column, False))]
    elif _is_bytes(kind):
        if has_nulls:
            column = pc.if_else(valid, column, pa.scalar(b"").cast(kind))
        buffers = _copy_bytes(column)
    else:
        buffers = pc.if_else(valid, column, pa.scalar(0).cast(kind)).buffers()[1:]
    return pa.Array.from_buffers(kind, len(column), [bits, *buffers])


def _is_bytes(kind: Any) -> bool:
    return any(
        test(kind)
        for test in (
            pa.types.is_string, pa.types.is_binary,
            pa.types.is_large_string, pa.types.is_large_binary,
        )
    )  # fmt: skip


def _copy_bytes(column: Any) -> list[Any]:
    """Returns the offsets and the bytes of a column of texts, without a copy of these."""
    _, offsets, data = column.buffers()
    width = np.int64 if str(column.type).startswith("large") else np.int32
    ends = np.frombuffer(offsets, width)[column.offset : column.offset + len(column) + 1]
    if data is None:
        data = pa.py_buffer(b"")
    return [pa.py_buffer(ends - ends[0]), data.slice(int(ends[0]), int(ends[-1] - ends[0]))]


def _pack_bits(values: Any) -> Any:
    return pa.py_buffer(np.packbits(values.to_numpy(zero_copy_only=False), bitorder="little"))
