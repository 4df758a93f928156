"""The attributes and payloads of objects that come as columns of an Arrow record batch.

No object takes a Python step, but for texts that are not ASCII, which are brought into normal form
one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ps2stream.errors import Violation, invalid
from ps2stream.language.batch_tokenizer import check_wanted, is_always_wanted
from ps2stream.limits import ATTRIBUTE_TEXT_BYTES, ATTRIBUTES, BATCH_BYTES
from ps2stream.protocol.frame import (
    I64,
    U8,
    Array,
    concat_ragged,
    sealed,
    strings_to_column,
    take_ragged,
)
from ps2stream.protocol.opaque import OpaqueColumns, pack_opaque
from ps2stream.service import arrow
from ps2stream.service.attribute_kernels import (
    BOOLEAN_TAG,
    BYTES_TAG,
    INTEGER_TAG,
    JSON_TAG,
    NUMBER_TAG,
    TEXT_TAG,
    TIME_TAG,
    encode_bytes,
    encode_numbers,
    join_attributes,
)
from ps2stream.service.attribute_rules import (
    NAN,
    OpaqueProblem,
    OpaqueRows,
    describe_count,
    describe_repeat,
    find_payload_problems,
    no_opaque,
    normalise_name,
    normalise_text,
)

PAYLOAD = "payload"
ATTRIBUTE_TYPES = (
    "an integer, float, double, bool, string, large_string or timestamp, or a sparse union of at "
    "most 8 of these"
)
PAYLOAD_TYPES = "binary or large_binary, or string or large_string for JSON"
_UNION_TYPES = 8  # each is read as a column is
_INTEGER_MOST = np.iinfo(np.int64).max
_BEYOND = "is beyond 64-bit"

Ragged = tuple[I64, U8]


class _ReadColumn(NamedTuple):
    """A column's values as messages, ragged, empty where absent, with (row, problem) of bad
    ones."""

    messages: Ragged
    problems: list[tuple[int, str]]


def find_column_problems(fields: Sequence[pa.Field]) -> list[Violation]:
    """Returns what is wrong with the names and types of columns for attributes and payloads."""
    attributes = [field for field in fields if field.name != PAYLOAD]
    if len(attributes) > ATTRIBUTES:
        return [Violation(arrow.FIELD, describe_count(len(attributes)))]
    bad = []
    if len(fields) > len(attributes) + 1:
        bad.append(Violation(f"{arrow.FIELD}.{PAYLOAD}", arrow.REPEATED))
    seen = set()
    for field in attributes:
        name, problem = normalise_name(field.name)
        if problem:
            bad.append(Violation(arrow.FIELD, f"columns are attributes: {problem}"))
            continue
        if name in seen:
            bad.append(Violation(arrow.FIELD, describe_repeat(name)))
        seen.add(name)
        if not _is_attribute_type(field.type):
            bad.append(_make_type_violation(name, ATTRIBUTE_TYPES, field.type))
    bad += [
        _make_type_violation(PAYLOAD, PAYLOAD_TYPES, field.type)
        for field in fields
        if field.name == PAYLOAD and not _is_payload_type(field.type)
    ]
    return bad


def _make_type_violation(name: str, expected: str, kind: pa.DataType) -> Violation:
    problem = f"wrong column type, expected {expected}, got {kind}"
    return Violation(f"{arrow.FIELD}.{name}", problem)


def _is_attribute_type(kind: pa.DataType) -> bool:
    if pa.types.is_union(kind):  # rows of a dense one could share a text, and so be large
        if kind.mode != "sparse" or not 0 < kind.num_fields <= _UNION_TYPES:
            return False
        return all(_is_scalar_type(kind.field(i).type) for i in range(kind.num_fields))
    return _is_scalar_type(kind)


def _is_scalar_type(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_integer(kind)
        or types.is_float32(kind)
        or types.is_float64(kind)
        or types.is_boolean(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_timestamp(kind)
        or types.is_null(kind)
    )


def _is_payload_type(kind: pa.DataType) -> bool:
    return _is_binary_type(kind) or any(
        is_type(kind)
        for is_type in (pa.types.is_string, pa.types.is_large_string, pa.types.is_null)
    )


def _is_binary_type(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def read_columns(
    batch: pa.RecordBatch, known: Container[str], is_wanted: Callable[[], bool] = is_always_wanted
) -> OpaqueRows:
    """Returns the attributes and payloads of all columns but the `known` ones, which have been
    checked by `find_column_problems`.

    Raises InvalidArgument for a batch whose attributes would be much larger than itself, and
    Cancelled once `is_wanted` reports that the caller has left.
    """
    names = [name for name in batch.schema.names if name not in known]
    if not names:
        return no_opaque()
    n = batch.num_rows
    problems: list[OpaqueProblem] = []
    is_bad = np.zeros(n, np.bool_)  # one problem of its attributes is enough for a row
    columns: list[tuple[bytes, Ragged]] = []
    payloads: Ragged = np.zeros(n + 1, np.int64), np.zeros(0, np.uint8)
    for name in names:
        check_wanted(is_wanted)
        if pa.types.is_null(batch.schema.field(name).type):
            continue
        if name == PAYLOAD:
            payloads, bad = _read_payloads(batch, is_wanted)
            problems += [OpaqueProblem(row, PAYLOAD, problem) for row, problem in bad]
            continue
        normal = normalise_name(name).text
        messages, bad = _read_attribute(batch, name)
        columns.append((normal.encode(), messages))
        for row, problem in bad:
            if not is_bad[row]:
                is_bad[row] = True
                problems.append(OpaqueProblem(row, f"attributes.{normal}", problem))
    attributes = _join_columns(sorted(columns, key=lambda column: column[0]), n)
    return OpaqueRows(*pack_opaque(OpaqueColumns(*attributes, *payloads)), problems)


def _join_columns(columns: list[tuple[bytes, Ragged]], rows: int) -> Ragged:
    """Returns the `Attributes` of each row; the columns rise by name."""
    if not columns:
        return np.zeros(rows + 1, np.int64), np.zeros(0, np.uint8)
    # Names come once a column, but are in each message: a few bytes could become very many.
    size = sum(
        len(data) + len(name) * int(np.count_nonzero(np.diff(off))) for name, (off, data) in columns
    )
    if size > BATCH_BYTES:
        problem = f"attributes of {size} bytes as messages are over the limit batch_bytes"
        raise invalid("batch", f"{problem} {BATCH_BYTES}; send fewer objects at a time")
    name_off, name = strings_to_column([name for name, _ in columns])
    off, value = concat_ragged([messages for _, messages in columns])
    off, data = join_attributes(sealed(name_off), sealed(name), sealed(off), sealed(value), rows)
    return off, data


def _read_attribute(batch: pa.RecordBatch, name: str) -> _ReadColumn:
    """Reads a column as messages of AttributeValue."""
    column = batch.column(name)
    kind = column.type
    if pa.types.is_union(kind):
        return _read_union(column)
    if pa.types.is_null(kind):
        return _ReadColumn((np.zeros(len(column) + 1, np.int64), np.zeros(0, np.uint8)), [])
    is_present = ~arrow.nulls(batch, name)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        off, data = arrow.strings(batch, name)
        (off, data), bad = _normalise_texts(off, data)
        return _ReadColumn(_encode_strings(TEXT_TAG, is_present, off, data), bad)
    if pa.types.is_boolean(kind):
        return _encode_column(BOOLEAN_TAG, is_present, arrow.view_values(column.cast(pa.uint8())))
    if pa.types.is_timestamp(kind):
        value, is_far = arrow.read_milliseconds(column)
        return _encode_column(TIME_TAG, is_present, value, is_far, f"{_BEYOND} milliseconds")
    found = arrow.view_values(column)
    if pa.types.is_floating(kind):
        bits = found.astype(np.float64).view(np.int64)
        return _encode_column(NUMBER_TAG, is_present, bits, np.isnan(found), NAN)
    is_far = found > _INTEGER_MOST if pa.types.is_uint64(kind) else None
    return _encode_column(INTEGER_TAG, is_present, found, is_far, f"{_BEYOND} signed integers")


def _read_union(column: pa.UnionArray) -> _ReadColumn:
    """Reads a column in which each row has its own type."""
    # Its buffer, as pyarrow 26 has zeros at the end of `type_codes` of a slice.
    kind, codes = column.type, column.buffers()[1]
    code = np.frombuffer(codes, np.int8, len(column), column.offset) if codes else np.zeros(0)
    parts: list[Ragged] = []
    order, problems, done = np.zeros(len(column), np.int64), list[tuple[int, str]](), 0
    for i in range(kind.num_fields):
        rows = np.flatnonzero(code == kind.type_codes[i])
        values = column.field(i).take(pa.array(rows))
        found = _read_attribute(pa.record_batch([values], [""]), "")
        parts.append(found.messages)
        problems += [(int(rows[row]), problem) for row, problem in found.problems]
        order[rows] = done + np.arange(len(rows))
        done += len(rows)
    return _ReadColumn(take_ragged(*concat_ragged(parts), order), problems)


def _encode_column(
    tag: int, is_present: Array, value: Array, is_bad: Array | None = None, problem: str = ""
) -> _ReadColumn:
    bad = [] if is_bad is None else np.flatnonzero(is_bad & is_present).tolist()
    flags = sealed(is_present.view(np.uint8))
    off, data = encode_numbers(tag, flags, sealed(value.astype(np.int64)))
    return _ReadColumn((off, data), [(row, problem) for row in bad])


def _encode_strings(tag: int, is_present: Array, off: I64, data: U8) -> Ragged:
    found: Ragged = encode_bytes(tag, sealed(is_present.view(np.uint8)), sealed(off), sealed(data))
    return found


def _read_payloads(batch: pa.RecordBatch, is_wanted: Callable[[], bool]) -> _ReadColumn:
    """Reads the column `payload` as messages of Payload."""
    off, data = arrow.strings(batch, PAYLOAD)
    is_present = ~arrow.nulls(batch, PAYLOAD)
    is_json = not _is_binary_type(batch.schema.field(PAYLOAD).type)
    tag = JSON_TAG if is_json else BYTES_TAG
    messages = _encode_strings(tag, is_present, off, data)
    return _ReadColumn(messages, find_payload_problems(off, data, is_json, is_present, is_wanted))


def _normalise_texts(off: I64, data: U8) -> tuple[Ragged, list[tuple[int, str]]]:
    """Returns texts in normal form, and (row, problem) of those that are too long."""
    size = np.diff(off)
    above = np.zeros(len(data) + 1, np.int64)
    np.cumsum(data >= 0x80, out=above[1:])
    is_plain = above[off[1:]] == above[off[:-1]]
    looked_at = np.flatnonzero(~is_plain | (size > ATTRIBUTE_TEXT_BYTES))
    changed, normal, bad = [], [], []
    for row in looked_at.tolist():
        text = data[off[row] : off[row + 1]].tobytes().decode()
        found = normalise_text(text)
        if found.problem:
            bad.append((row, found.problem))
        elif found.text != text:
            changed.append(row)
            normal.append(found.text)
    if not changed:
        return (off, data), bad
    rows = np.arange(len(size))
    rows[changed] = len(size) + np.arange(len(changed))
    joined = concat_ragged([(off, data), strings_to_column(normal)])
    return take_ragged(*joined, rows), bad
