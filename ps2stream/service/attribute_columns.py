"""The attributes and payloads of objects that come as columns of an Arrow record batch.

No object takes a Python step, but for texts that are not ASCII, which are brought into normal form
one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ps2stream.errors import Violation, invalid
from ps2stream.language.batch_tokenizer import check_wanted, is_always_wanted
from ps2stream.limits import (
    ATTRIBUTE_COLUMNS,
    ATTRIBUTE_TEXT_BYTES,
    ATTRIBUTES,
    BATCH_BYTES,
)
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
_SCALAR_TYPES = frozenset(
    kind.id
    for kind in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string()),
        *(pa.timestamp("ms"), pa.null()),
    )
)
_NONE: I64 = np.zeros(0, np.int64)
_INTEGER_MOST = np.iinfo(np.int64).max
_BEYOND = "is beyond 64-bit"

Ragged = tuple[I64, U8]
Problems = list[tuple[I64, Sequence[str]]]
"""Places of bad values among some, and the problem of each."""


class _Part(NamedTuple):
    """The values of one type that a column has: those of the rows of which bool[n] says so. `name`
    is the place of the column among all."""

    name: int
    values: pa.Array
    is_there: Array


def find_column_problems(fields: Sequence[pa.Field]) -> list[Violation]:
    """Returns what is wrong with the names and types of columns for attributes and payloads."""
    attributes = [field for field in fields if field.name != PAYLOAD]
    if (count := count_types(attributes)) > ATTRIBUTE_COLUMNS:
        problem = f"{count} columns are over the limit attribute_columns {ATTRIBUTE_COLUMNS}"
        return [Violation(arrow.FIELD, f"{problem}; a union counts once for each of its types")]
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


def count_types(fields: Sequence[pa.Field]) -> int:
    """Returns how many types columns of attributes have, each by itself, as they are read."""
    if len(fields) > ATTRIBUTE_COLUMNS:
        return len(fields)
    return sum(f.type.num_fields if pa.types.is_union(f.type) else 1 for f in fields)


def _is_attribute_type(kind: pa.DataType) -> bool:
    if pa.types.is_union(kind):  # rows of a dense one could share a text, and so be large
        if kind.mode != "sparse" or not 0 < kind.num_fields <= _UNION_TYPES:
            return False
        return all(kind.field(i).type.id in _SCALAR_TYPES for i in range(kind.num_fields))
    return kind.id in _SCALAR_TYPES


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
    columns: list[tuple[str, pa.Array]] = []
    payloads: Ragged = np.zeros(batch.num_rows + 1, np.int64), np.zeros(0, np.uint8)
    problems: list[OpaqueProblem] = []
    is_plain = True
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in known:
            continue
        is_plain = False
        if name != PAYLOAD:
            columns.append((normalise_name(name).text, column))
        elif not pa.types.is_null(column.type):
            payloads, problems = _read_payloads(batch, is_wanted)
    if is_plain:
        return no_opaque()
    columns.sort(key=lambda column: column[0].encode())
    attributes, bad = _read_attributes(columns, batch.num_rows, is_wanted)
    return OpaqueRows(*pack_opaque(OpaqueColumns(*attributes, *payloads)), problems + bad)


def _read_attributes(
    columns: Sequence[tuple[str, pa.Array]], rows: int, is_wanted: Callable[[], bool]
) -> tuple[Ragged, list[OpaqueProblem]]:
    """Returns the `Attributes` of each row, and the problem of each bad one; the columns rise by
    name. Of many columns a row has few, so that only values that are there take time, those of one
    type together."""
    every = np.ones(rows, np.bool_)
    parts = [
        part for i, (_, column) in enumerate(columns) for part in _list_parts(i, column, every)
    ]
    parts, problems = _drop_overfull(parts, len(columns), every)
    if not parts:
        return (np.zeros(rows + 1, np.int64), np.zeros(0, np.uint8)), problems
    parts.sort(key=_name_kind)
    numbers = np.arange(rows)
    at = [numbers if part.is_there is every else np.flatnonzero(part.is_there) for part in parts]
    name = np.array([part.name for part in parts])
    off, row = np.append(0, np.cumsum([len(some) for some in at])), np.concatenate(at)
    messages, bad = _read_parts(parts, at, is_wanted)
    for bad_row, i, problem in _find_first(bad, row, off, name):
        problems.append(OpaqueProblem(bad_row, f"attributes.{columns[i][0]}", problem))
    # Names come once a column, but are in each message: a few bytes could become very many.
    names = [columns[i][0].encode() for i in name.tolist()]
    size = len(messages[1]) + int(np.diff(off) @ np.array([len(each) for each in names]))
    if size > BATCH_BYTES:
        problem = f"attributes of {size} bytes as messages are over the limit batch_bytes"
        raise invalid("batch", f"{problem} {BATCH_BYTES}; send fewer objects at a time")
    name_off, name_data = strings_to_column(names)
    order = np.argsort(name, kind="stable")
    found: Ragged = join_attributes(
        sealed(name_off), sealed(name_data), sealed(order), sealed(off), sealed(row),
        sealed(messages[0]), sealed(messages[1]), rows,
    )  # fmt: skip
    return found, problems


def _list_parts(name: int, column: pa.Array, every: Array) -> Iterator[_Part]:
    """Yields the types of a column that have a value; `every` is bool[n], all of them True."""
    if not pa.types.is_union(column.type):
        if not column.null_count:
            yield _Part(name, column, every)
        elif column.null_count < len(column):
            yield _Part(name, column, _find_valid(column))
        return
    # Its buffer, as pyarrow 26 has zeros at the end of `type_codes` of a slice.
    codes = np.frombuffer(column.buffers()[1] or b"", np.uint8)[column.offset :][: len(column)]
    places = {code: i for i, code in enumerate(column.type.type_codes)}
    for code in np.flatnonzero(np.bincount(codes)).tolist():
        values = column.field(places[code])
        is_there = codes == code
        if values.null_count:
            is_there &= _find_valid(values)
        if is_there.any():
            yield _Part(name, values, is_there)


def _find_valid(column: pa.Array) -> Array:
    found: Array = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def _drop_overfull(
    parts: list[_Part], columns: int, every: Array
) -> tuple[list[_Part], list[OpaqueProblem]]:
    """Returns parts without the rows that have too many attributes, and these rows' problems."""
    if columns <= ATTRIBUTES:
        return parts, []
    count = np.zeros(len(every), np.int64)
    for part in parts:
        count += part.is_there
    is_good = count <= ATTRIBUTES
    if is_good.all():
        return parts, []
    bad = np.flatnonzero(~is_good).tolist()
    problems = [OpaqueProblem(row, "attributes", describe_count(int(count[row]))) for row in bad]
    kept = [part._replace(is_there=part.is_there & is_good) for part in parts]
    return [part for part in kept if part.is_there.any()], problems


def _name_kind(part: _Part) -> tuple[int, str]:
    """Returns a key that parts have in common whose values are read together."""
    kind = part.values.type
    return kind.id, kind.unit if pa.types.is_timestamp(kind) else ""  # in whatever zone


def _read_parts(
    parts: Sequence[_Part], at: Sequence[I64], is_wanted: Callable[[], bool]
) -> tuple[Ragged, Problems]:
    """Returns the values of parts, which are ordered by `_name_kind`, at these rows of each, as
    messages of AttributeValue; and the problems of bad ones, by their places among all."""
    found: list[Ragged] = []
    bad: Problems = []
    done = 0
    pairs = zip(parts, at, strict=True)
    for (_, unit), group in itertools.groupby(pairs, lambda pair: _name_kind(pair[0])):
        check_wanted(is_wanted)
        taken = []
        for part, rows in group:
            values = part.values.view(pa.timestamp(unit)) if unit else part.values
            taken.append(values if len(rows) == len(values) else values.take(pa.array(rows)))
        values = taken[0] if len(taken) == 1 else pa.concat_arrays(taken)
        messages, problems = _read_values(values, is_wanted)
        found.append(messages)
        bad += [(places + done, problem) for places, problem in problems]
        done += len(values)
    return found[0] if len(found) == 1 else concat_ragged(found), bad


def _read_values(column: pa.Array, is_wanted: Callable[[], bool]) -> tuple[Ragged, Problems]:
    """Returns values of one type, all of which are there, as messages of AttributeValue, and the
    problems of bad ones."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        texts = arrow.strings(pa.record_batch([column], [""]), "")
        (off, data), bad = _normalise_texts(*texts, is_wanted)
        return _encode_strings(TEXT_TAG, np.ones(len(column), np.bool_), off, data), bad
    if pa.types.is_boolean(kind):
        return _encode(BOOLEAN_TAG, arrow.view_values(column.cast(pa.uint8()))), []
    if pa.types.is_timestamp(kind):
        value, is_far = arrow.read_milliseconds(column)
        return _encode(TIME_TAG, value), _note_problems(is_far, f"{_BEYOND} milliseconds")
    value = arrow.view_values(column)
    if pa.types.is_floating(kind):
        bits = value.astype(np.float64).view(np.int64)
        return _encode(NUMBER_TAG, bits), _note_problems(np.isnan(value), NAN)
    is_far = value > _INTEGER_MOST if pa.types.is_uint64(kind) else None
    return _encode(INTEGER_TAG, value), _note_problems(is_far, f"{_BEYOND} signed integers")


def _encode(tag: int, value: Array) -> Ragged:
    found: Ragged = encode_numbers(tag, sealed(value.astype(np.int64)))
    return found


def _note_problems(is_bad: Array | None, problem: str) -> Problems:
    places = np.flatnonzero(is_bad) if is_bad is not None else _NONE
    return [(places, [problem] * len(places))] if len(places) else []


def _find_first(bad: Problems, row: I64, off: I64, name: I64) -> Iterator[tuple[int, int, str]]:
    """Yields (row, name, problem) of the first bad value by name of each row that has one."""
    if not bad:
        return
    places = np.concatenate([places for places, _ in bad])
    problems = [problem for _, some in bad for problem in some]
    names = name[np.searchsorted(off, places, "right") - 1]
    order = np.lexsort((names, row[places]))
    for i in order[np.flatnonzero(np.diff(row[places[order]], prepend=-1))].tolist():
        yield int(row[places[i]]), int(names[i]), problems[i]


def _encode_strings(tag: int, is_present: Array, off: I64, data: U8) -> Ragged:
    found: Ragged = encode_bytes(tag, sealed(is_present.view(np.uint8)), sealed(off), sealed(data))
    return found


def _read_payloads(
    batch: pa.RecordBatch, is_wanted: Callable[[], bool]
) -> tuple[Ragged, list[OpaqueProblem]]:
    """Reads the column `payload` as messages of Payload."""
    off, data = arrow.strings(batch, PAYLOAD)
    is_present = ~arrow.nulls(batch, PAYLOAD)
    is_json = not _is_binary_type(batch.schema.field(PAYLOAD).type)
    tag = JSON_TAG if is_json else BYTES_TAG
    bad = find_payload_problems(off, data, is_json, is_present, is_wanted)
    problems = [OpaqueProblem(row, PAYLOAD, problem) for row, problem in bad]
    return _encode_strings(tag, is_present, off, data), problems


def _normalise_texts(off: I64, data: U8, is_wanted: Callable[[], bool]) -> tuple[Ragged, Problems]:
    """Returns texts in normal form, and the problems of those that are too long."""
    size = np.diff(off)
    above = np.zeros(len(data) + 1, np.int64)
    np.cumsum(data >= 0x80, out=above[1:])
    is_plain = above[off[1:]] == above[off[:-1]]
    looked_at = np.flatnonzero(~is_plain | (size > ATTRIBUTE_TEXT_BYTES))
    changed, normal, bad, problems = [], [], [], []
    for row in looked_at.tolist():
        check_wanted(is_wanted)
        text = data[off[row] : off[row + 1]].tobytes().decode()
        found = normalise_text(text)
        if found.problem:
            bad.append(row)
            problems.append(found.problem)
        elif found.text != text:
            changed.append(row)
            normal.append(found.text)
    noted: Problems = [(np.array(bad), problems)] if bad else []
    if not changed:
        return (off, data), noted
    rows = np.arange(len(size))
    rows[changed] = len(size) + np.arange(len(changed))
    joined = concat_ragged([(off, data), strings_to_column(normal)])
    return take_ragged(*joined, rows), noted
