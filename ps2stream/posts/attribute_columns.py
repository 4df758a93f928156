"""Columns of a file that become attributes and payloads of its posts, without a loop over rows."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ps2stream.errors import short
from ps2stream.limits import (
    ATTRIBUTE_COLUMNS,
    ATTRIBUTE_TEXT_BYTES,
    ATTRIBUTES,
    PAYLOAD_BYTES,
)
from ps2stream.posts.arrow_columns import TIMES, floor_times
from ps2stream.posts.members import AttributeChoice, check_time, find_name_problem, normalise
from ps2stream.posts.post import bad

_INTEGER_MOST = (1 << 63) - 1
_PAYLOAD_TYPES = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def choose_columns(
    path: str, schema: Any, used: Container[str], choice: AttributeChoice
) -> dict[str, str]:
    """Returns the type (members.TYPES, empty: the column's own) of each column of an Arrow schema
    that is an attribute. Raises InvalidArgument for a chosen column that cannot be one."""
    found: dict[str, str] = {}
    for field in schema:
        name = normalise(field.name)
        if name in used or (choice.types is not None and name not in choice.types):
            continue
        choice.note_seen(name)
        problem = _find_type_problem(field.type) or find_name_problem(field.name)
        if choice.types is not None:
            if problem:
                raise bad(f"{path} column {field.name}", f"cannot be an attribute: {problem}")
            found[field.name] = choice.types[name]
        elif problem:
            choice.leave_out(field.name, problem)
        elif len(found) >= ATTRIBUTE_COLUMNS:
            choice.leave_out(field.name, f"one of more than {ATTRIBUTE_COLUMNS} columns")
        else:
            found[field.name] = ""
    return found


def _find_type_problem(kind: Any) -> str:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    fits: tuple[Callable[[Any], bool], ...] = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_boolean,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_timestamp,
        pa.types.is_date,
        pa.types.is_null,
    )
    return "" if any(test(kind) for test in fits) else f"of the type {kind}"


def convert_columns(
    path: str, kinds: Mapping[str, str], part: Any, start: int, choice: AttributeChoice
) -> dict[str, Any]:
    """Returns the columns of attributes of these types by name, as `convert_column` and
    `limit_attributes` do."""
    found = {n: convert_column(path, n, kind, part, start, choice) for n, kind in kinds.items()}
    return limit_attributes(path, found, start, choice)


def limit_attributes(
    path: str, columns: dict[str, Any], start: int, choice: AttributeChoice
) -> dict[str, Any]:
    """Returns columns in which no row has more attributes than an object may have: the later ones
    are left out. Raises InvalidArgument naming the first such row if columns were chosen."""
    if len(columns) <= ATTRIBUTES:
        return columns
    is_there = {n: c.is_valid().to_numpy(zero_copy_only=False) for n, c in columns.items()}
    count = np.sum(list(is_there.values()), axis=0)
    if count.max(initial=0) <= ATTRIBUTES:
        return columns
    if choice.types is not None:
        row = int(np.argmax(count > ATTRIBUTES))
        problem = f"expected at most {ATTRIBUTES}, got {count[row]}"
        raise bad(f"{path} row {start + row} attributes", problem)
    out, before = dict[str, Any](), np.zeros(len(count), np.int64)
    for name, column in columns.items():
        is_beyond = is_there[name] & (before >= ATTRIBUTES)
        before += is_there[name]
        if is_beyond.any():
            choice.leave_out(name, f"one of more than {ATTRIBUTES}")
            column = _drop(column, pa.array(is_beyond))
        out[name] = column
    return out


def convert_column(
    path: str, name: str, kind: str, part: Any, start: int, choice: AttributeChoice
) -> Any:
    """Returns the column of an attribute, of a batch whose first row is row `start` of the file.

    Raises InvalidArgument for a value that cannot be of the type, and, if the column was chosen,
    naming the row of a value that cannot be an attribute; else such values are left out.
    """
    values = part.column(name)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_uint64(values.type) and choice.types is None:
        is_far = pc.greater(values, pa.scalar(_INTEGER_MOST, pa.uint64()))
        if pc.any(is_far).as_py():
            choice.leave_out(name, "values beyond 64 bits")
            values = _drop(values, is_far)
    try:
        out = _cast_values(values, kind)
    except pa.ArrowException as error:
        raise bad(f"{path} column {name}", f"expected a {kind or 'number'}: {error}") from None
    if pa.types.is_string(out.type) or pa.types.is_large_string(out.type):
        wrong = pc.greater(pc.binary_length(out), ATTRIBUTE_TEXT_BYTES)
        problem = f"more than {ATTRIBUTE_TEXT_BYTES} bytes"
    elif pa.types.is_floating(out.type):
        wrong, problem = pc.is_nan(out), "not a number"
    else:
        return out
    if not pc.any(wrong).as_py():
        return out
    if choice.types is not None and problem != "not a number":  # NaN is how tables say absent
        row = int(wrong.fill_null(False).to_numpy(zero_copy_only=False).argmax())
        got = short(out[row].as_py())
        raise bad(
            f"{path} row {start + row} {name}", f"expected an attribute, got {got}: {problem}"
        )
    if problem != "not a number":
        choice.leave_out(name, f"values of {problem}")
    return _drop(out, wrong)


def _drop(values: Any, wrong: Any) -> Any:
    """Returns values with null for wrong ones."""
    return pc.if_else(wrong.fill_null(False), pa.scalar(None, values.type), values)


def _cast_values(values: Any, kind: str) -> Any:
    source = values.type
    is_text = pa.types.is_string(source) or pa.types.is_large_string(source)
    if pa.types.is_null(source):
        return values
    if kind == "text":
        return values if is_text else values.cast(pa.string())
    if kind == "boolean":
        if is_text:
            return _parse_booleans(values)
        _check_kind(source, pa.types.is_boolean)
        return values
    if kind == "time" or pa.types.is_date(source) or pa.types.is_timestamp(source):
        if is_text:
            return _parse_times(values)
        return _to_times(values)
    if kind == "number" and is_text:
        return _parse_numbers(values)
    if kind == "number":
        _check_kind(source, pa.types.is_integer, pa.types.is_floating)
    if pa.types.is_uint64(source):
        return values.cast(pa.int64())
    return values.cast(pa.float64()) if pa.types.is_float16(source) else values


def _check_kind(source: Any, *fits: Callable[[Any], bool]) -> None:
    """Raises ArrowInvalid unless a type fits: types of attributes are not converted, as true is no
    number."""
    if not any(test(source) for test in fits):
        raise pa.ArrowInvalid(f"the column is of the type {source}")


def _parse_booleans(values: Any) -> Any:
    texts = pc.utf8_lower(pc.utf8_trim_whitespace(values))
    is_true, is_false = pc.equal(texts, "true"), pc.equal(texts, "false")
    wrong = pc.invert(pc.or_(is_true, is_false))
    if pc.any(wrong).as_py():
        raise pa.ArrowInvalid(f"got {short(values.filter(wrong)[0].as_py())}")
    return is_true


def _to_times(values: Any) -> Any:
    """Returns timestamps, dates or Unix milliseconds as times in UTC."""
    if pa.types.is_timestamp(values.type):
        return floor_times(values)
    if not pa.types.is_date(values.type):
        _check_kind(values.type, pa.types.is_integer)
        values = values.cast(pa.int64())
    return values.cast(TIMES)


def _parse_times(values: Any) -> Any:
    """Returns the times of texts as `check_time` reads them. Where not all are of one form, those
    that differ are read one by one."""
    for kind in (pa.timestamp("us", "UTC"), pa.timestamp("us")):
        try:
            return floor_times(values.cast(kind))
        except pa.ArrowInvalid:
            continue
    distinct = values.dictionary_encode()
    found = []
    for text in distinct.dictionary.to_pylist():
        try:
            found.append(check_time(text))
        except ValueError:
            raise pa.ArrowInvalid(f"got {short(text)}") from None
    return pa.array(found, pa.int64()).take(distinct.indices).cast(TIMES)


def _parse_numbers(values: Any) -> Any:
    """Returns the numbers of texts: integers, or floats if these hold all of them exactly."""
    texts = pc.utf8_trim_whitespace(values)
    try:
        return texts.cast(pa.int64())
    except pa.ArrowInvalid:
        found = texts.cast(pa.float64())
    if pc.any(pc.is_nan(found)).as_py():
        raise pa.ArrowInvalid("got nan: not a number")
    is_far = pc.and_(pc.is_inf(found), pc.match_substring_regex(texts, "[0-9]"))
    if pc.any(is_far).as_py():
        got = short(texts.filter(is_far)[0].as_py())
        raise pa.ArrowInvalid(f"got {got}: beyond the numbers of 64 bits")
    is_whole = pc.match_substring_regex(texts, "^[+-]?[0-9]+$")
    texts.filter(is_whole).cast(pa.int64()).cast(pa.float64())
    return found


def check_payloads(path: str, part: Any, start: int) -> Any:
    """Returns the column payload of a batch, bytes or JSON text. Raises InvalidArgument for one of
    another type or a value that is too large."""
    values = part.column("payload")
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if values.type not in _PAYLOAD_TYPES:
        problem = f"expected binary, or strings of JSON, got {values.type}"
        raise bad(f"{path} column payload", problem)
    sizes = pc.binary_length(values).fill_null(0).to_numpy(zero_copy_only=False)
    if (sizes > PAYLOAD_BYTES).any():
        row = int(np.argmax(sizes > PAYLOAD_BYTES))
        problem = f"expected at most {PAYLOAD_BYTES} bytes, got {sizes[row]}"
        raise bad(f"{path} row {start + row} payload", problem)
    return values
