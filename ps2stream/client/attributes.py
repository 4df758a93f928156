"""Attributes and payloads: values of Python as messages, and messages as values of Python."""

from __future__ import annotations

import base64
import json
import math
import numbers
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ps2stream.errors import invalid, short
from ps2stream.v1 import object_pb2

AttributeScalar = int | float | str | bool | datetime
"""A value of an attribute, as matches have it."""
EXPECTED = "a number, text, a boolean or a datetime with a time zone"
MOST_NESTED = 500
"""Most levels of a payload of JSON that is read."""
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_MARKS = re.compile(r"[\[\]{}]")
_INT_BITS = 63
_EPOCH = datetime.fromtimestamp(0, UTC)
_MILLISECOND = timedelta(milliseconds=1)


def named(value: Any) -> str:
    """Returns the value as an error shows it: a plain value itself, of any other its type."""
    if value is None or isinstance(value, str | bytes | bool | int | float):
        return "None" if value is None else short(value)
    kind = type(value).__name__
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"


def milliseconds(time: Any) -> int:
    """Converts a time to Unix milliseconds, rounded down as those of a table are; a datetime must
    have a time zone."""
    if not isinstance(time, datetime):
        if isinstance(time, bool) or not isinstance(time, numbers.Integral):
            expected = "Unix milliseconds or a datetime with a time zone"
            raise TypeError(f"expected {expected}, got {named(time)}")
        return int(time)
    if time != time:
        raise ValueError("NaT is no time; leave it out, or use None")
    if time.tzinfo is None:
        raise ValueError(f"time {time.isoformat()} has no time zone")
    return (time - _EPOCH) // _MILLISECOND


# --- to messages --------------------------------------------------------------


def fill_attributes(where: str, values: Any, message: object_pb2.Attributes) -> None:
    """Adds attributes, values by name, to a message; a value of None is absent. Raises
    InvalidArgument naming the attribute that cannot be taken."""
    if not isinstance(values, Mapping):
        raise invalid(where, f"expected a mapping of names to values, got {named(values)}")
    for name, value in values.items():
        if value is None:
            continue
        if not isinstance(name, str):
            raise invalid(where, f"expected names that are strings, got {named(name)}")
        try:
            entry = message.values[name]
        except UnicodeError as error:
            raise invalid(where, f"the name {short(name)} is not Unicode text: {error}") from None
        try:
            _fill_value(value, entry)
        except ValueError as error:
            problem = f"is not Unicode text: {error}" if isinstance(error, UnicodeError) else error
            raise invalid(f"{where}.{name}", str(problem)) from None


def to_scalar(value: Any) -> AttributeScalar:
    """Returns a value of an attribute, perhaps a scalar of NumPy, in one of Python's types. A
    datetime may lack a time zone, and a float be NaN. Raises ValueError for what is none."""
    dtype = getattr(value, "dtype", None)
    if dtype is not None and getattr(value, "shape", None) == ():  # a scalar of NumPy
        if getattr(dtype, "kind", "") in "mM":
            raise ValueError(f"expected {EXPECTED}, got {named(value)}, which has no time zone")
        value = value.item()
    if isinstance(value, int):
        if not -(1 << _INT_BITS) <= value < 1 << _INT_BITS:
            raise ValueError(f"{short(value)} is beyond the 64 bits of an integer")
    elif type(value).__name__ == "NAType":  # of pandas
        raise ValueError("NA is no value; leave the attribute out, or use None")
    elif not isinstance(value, float | str | datetime):
        raise ValueError(f"expected {EXPECTED}, got {named(value)}")
    scalar: AttributeScalar = value
    return scalar


def _fill_value(value: Any, message: object_pb2.AttributeValue) -> None:
    value = to_scalar(value)
    if isinstance(value, bool):
        message.boolean = value
    elif isinstance(value, int):
        message.integer = value
    elif isinstance(value, float):
        if math.isnan(value):
            raise ValueError("NaN is no value; leave the attribute out, or use None")
        message.number = value
    elif isinstance(value, str):
        message.text = value
    else:
        message.time_ms = milliseconds(value)


def fill_payload(where: str, value: Any, message: object_pb2.Payload) -> None:
    """Sets the payload: bytes as they are, a mapping or sequence as JSON, and a string, which is
    JSON text, as it is. Raises InvalidArgument for anything else."""
    try:
        if isinstance(value, bytes | bytearray | memoryview):
            message.bytes = bytes(value)
        elif isinstance(value, str):
            message.json = value
        elif isinstance(value, dict | list | tuple):
            message.json = dump_json(value)
        else:
            expected = "expected bytes, a dict or list, or a string of JSON"
            raise invalid(where, f"{expected}, got {named(value)}")
    except UnicodeError as error:
        raise invalid(where, f"is not Unicode text: {error}") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise invalid(where, f"is not JSON: {error}") from None


def dump_json(value: Any) -> str:
    """Returns compact JSON. Raises TypeError, ValueError or RecursionError for what is none."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


# --- from messages ------------------------------------------------------------


def read_attributes(message: object_pb2.Attributes) -> dict[str, AttributeScalar]:
    """Returns the values by name, in the order of the names. A time is a datetime in UTC; one
    beyond the years 1 to 9999, which Python does not have, stays an int of Unix milliseconds."""
    return {name: _read_value(value) for name, value in sorted(message.values.items())}


def _read_value(message: object_pb2.AttributeValue) -> AttributeScalar:
    kind = message.WhichOneof("value")
    if kind is None:  # the service stores none
        return ""
    value: AttributeScalar = getattr(message, kind)
    if kind != "time_ms":
        return value
    assert isinstance(value, int)
    try:
        return _EPOCH + value * _MILLISECOND
    except OverflowError:
        return value


def write_time(time: datetime) -> str:
    """Returns a time as ISO 8601 in UTC, such as 2026-11-24T10:00:00Z."""
    moment = time.astimezone(UTC)
    kind = "milliseconds" if moment.microsecond else "seconds"
    return moment.isoformat(timespec=kind).replace("+00:00", "Z")


def read_payload(message: object_pb2.Payload) -> Any:
    """Returns the bytes, or what the JSON text says, or None where there is none. Text that Python
    does not parse, and text nested deeper than MOST_NESTED, is returned as it is."""
    match message.WhichOneof("content"):
        case "bytes":
            return message.bytes
        case "json":
            if _is_nested_deeply(message.json):
                return message.json
            try:
                return json.loads(message.json)
            except (ValueError, RecursionError):
                return message.json
        case _:
            return None


def _is_nested_deeply(text: str) -> bool:
    """Returns whether JSON has more levels than MOST_NESTED. Python parses some more, but what it
    has parsed it may not be able to write: that depends on who calls."""
    if text.count("[") + text.count("{") <= MOST_NESTED:
        return False
    level = 0
    for mark in _MARKS.findall(_STRING.sub("", text)):
        level += 1 if mark in "[{" else -1
        if level > MOST_NESTED:
            return True
    return False


# --- as JSON ------------------------------------------------------------------


def plain_attributes(values: Mapping[str, AttributeScalar]) -> dict[str, Any]:
    """Returns attributes as JSON can have them: times in ISO 8601, infinities as text."""
    return {name: _plain_value(value) for name, value in values.items()}


def _plain_value(value: AttributeScalar) -> Any:
    if isinstance(value, datetime):
        return write_time(value)
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def format_attributes(values: Mapping[str, AttributeScalar]) -> str:
    """Returns attributes as people read them, such as `mag=4.5 source="usgs"`."""
    pairs = plain_attributes(values).items()
    return " ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in pairs)


def plain_payload(payload: Any) -> dict[str, Any]:
    """Returns the member of a JSON object that holds a payload: `payload`, or `payload_base64` for
    bytes."""
    if isinstance(payload, bytes):
        return {"payload_base64": base64.b64encode(payload).decode()}
    return {"payload": payload}
