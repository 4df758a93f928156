"""Posts as Arrow columns; columns of Parquet and Spark are found by name, cast and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ps2stream.errors import short
from ps2stream.posts.post import (
    LIMIT,
    MAX_BYTES,
    NAMES,
    POSTS,
    bad,
    check_head,
    check_records,
)

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("time", pa.int64()),  # Unix ms; null: the time of acceptance
        ("lon", pa.float64()),
        ("lat", pa.float64()),
        ("text", pa.string()),
    ]
)

TIMES = pa.timestamp("ms", "UTC")
"""The type of attributes that are times."""


def of_records(rows: Iterable[tuple[str, Mapping[str, Any]]], first: int = 0, run: str = "") -> Any:
    """Returns a record batch of SCHEMA for (place, record) pairs, as `check_records`."""
    return pa.RecordBatch.from_pydict(check_records(rows, first, run), schema=SCHEMA)


def _is_string(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def post_columns(path: str, schema: Any) -> dict[str, str]:
    """Returns the file's column for each of ours, of an Arrow schema. Raises InvalidArgument for
    a column that is missing, there twice, or of a wrong type."""
    check_head(path, schema.names, POSTS)
    found = {
        name: alias
        for name, aliases in NAMES.items()
        for alias in reversed(aliases)
        if alias in schema.names
    }
    expected: dict[str, tuple[str, Callable[[Any], bool]]] = {
        "id": ("strings or integers", lambda t: _is_string(t) or pa.types.is_integer(t)),
        "time": (
            "timestamps or integers (Unix ms)",
            lambda t: pa.types.is_timestamp(t) or pa.types.is_integer(t),
        ),
        "lon": ("numbers", _is_number),
        "lat": ("numbers", _is_number),
        "text": ("strings", _is_string),
    }
    for name, (what, fits) in expected.items():
        if name in found:
            kind = schema.field(found[name]).type
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            if not fits(kind):
                raise bad(f"{path} column {found[name]}", f"expected {what}, got {kind}")
    return found


def post_column(
    path: str, name: str, columns: dict[str, str], part: Any, start: int, run: str = ""
) -> Any:
    """Returns one of our columns, checked, of a batch whose first row is row `start` of the
    file; absent ids become `run` and the row's number.

    Raises InvalidArgument naming the row of a bad value.
    """
    kind = SCHEMA.field(name).type
    if name not in columns:
        if name == "time":
            return pa.nulls(len(part), kind)
        numbered = pa.array(np.arange(start, start + len(part))).cast(kind)
        return pc.binary_join_element_wise(run, numbered, "") if run else numbered
    values = part.column(columns[name])
    try:
        if pa.types.is_timestamp(values.type):
            values = floor_times(values)
        out = values if values.type == kind else values.cast(kind)
    except pa.ArrowInvalid as error:
        raise bad(f"{path} column {columns[name]}", str(error)) from None
    if name == "time" or _are_within(name, out):
        return out
    wrong = out.is_null().to_numpy(zero_copy_only=False)
    if name in LIMIT:
        numbers = out.to_numpy(zero_copy_only=False)
        wrong |= ~(np.abs(numbers) <= LIMIT[name])
    else:
        size = pc.binary_length(out).fill_null(0).to_numpy(zero_copy_only=False)
        wrong |= size > MAX_BYTES[name]
    if wrong.any():
        row = int(wrong.argmax())
        if name in LIMIT:
            limit = f"degrees in [-{LIMIT[name]:g}, {LIMIT[name]:g}]"
        else:
            limit = f"at most {MAX_BYTES[name]} bytes" if out[row].is_valid else "a value"
        got = short(values[row].as_py())
        raise bad(f"{path} row {start + row} {columns[name]}", f"expected {limit}, got {got}")
    return out


def floor_times(values: Any) -> Any:
    """Returns timestamps as those of milliseconds in UTC, rounded down, as the service rounds them.
    Raises ArrowInvalid for one beyond 64 bits."""
    exact = values.cast(pa.timestamp(values.type.unit, "UTC"))
    is_finer = values.type.unit in ("us", "ns")
    cut = exact.cast(TIMES, safe=not is_finer)  # towards zero
    if not is_finer:
        return cut
    is_above = pc.greater(cut.cast(exact.type), exact)
    return pc.subtract(cut.cast(pa.int64()), is_above.cast(pa.int64())).cast(TIMES)


def _are_within(name: str, column: Any) -> bool:
    """Returns whether all values are there, and within the limits of the column of this name."""
    if column.null_count or not len(column):
        return not len(column)
    if name in LIMIT:
        numbers = column.to_numpy()
        return bool(-LIMIT[name] <= numbers.min() and numbers.max() <= LIMIT[name])  # never by NaN
    off = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset)
    return bool(np.diff(off).max() <= MAX_BYTES[name])
