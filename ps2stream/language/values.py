"""The values of attributes: their types, their order, and how an expression writes them.

A value is compared by its key, bytes that sort as the values of its type do. Integers and floats
are one type: the key of a number is that of the largest double that is not above it, and what is
left to a larger integer. So the keys of all 64-bit integers and doubles are exact.
"""

from __future__ import annotations

import json
import re
import struct
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Final, NamedTuple

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_SIGN: Final = 1 << 63
_EXACT: Final = 1 << 53  # up to here every integer is a double
_MANTISSA: Final = 53
_INTEGERS: Final = range(-_SIGN, _SIGN)
_DIGITS: Final = 20  # more than an integer of 64 bits has
_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z", re.ASCII)
_WHOLE: Final = re.compile(r"[+-]?\d+\Z", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[Tt\s]|\Z)", re.ASCII)


class ValueType(IntEnum):
    """The type of a value; values of two types are never equal, and none is above the other."""

    NUMBER = 1
    TEXT = 2
    BOOLEAN = 3
    TIME = 4


class Value(NamedTuple):
    """A value: its type, and the key that it is compared by."""

    type: ValueType
    key: bytes


def number_value(number: float) -> Value:
    """Returns the value of an integer of 64 bits or a double. Raises ValueError for NaN and for
    larger integers."""
    if isinstance(number, int):
        if number not in _INTEGERS:
            raise ValueError("is beyond 64-bit integers")
        excess = abs(number).bit_length() - _MANTISSA
        below = number >> excess << excess if excess > 0 else number
        rest = number - below
        return Value(ValueType.NUMBER, _order_double(float(below)) + rest.to_bytes(2) * (rest > 0))
    if number != number:
        raise ValueError("is not a number (NaN)")
    return Value(ValueType.NUMBER, _order_double(number + 0.0))  # -0.0 becomes 0.0


def _order_double(number: float) -> bytes:
    """Returns the eight bytes of a double, so that they sort as doubles do."""
    (bits,) = struct.unpack(">Q", struct.pack(">d", number))
    return struct.pack(">Q", bits ^ (2 * _SIGN - 1) if bits & _SIGN else bits | _SIGN)


def text_value(text: str) -> Value:
    """Returns the value of a text in Unicode's normal form C."""
    return Value(ValueType.TEXT, text.encode())


def boolean_value(truth: bool) -> Value:
    """Returns the value of true or false."""
    return Value(ValueType.BOOLEAN, bytes((truth,)))


def time_value(time_ms: int) -> Value:
    """Returns the value of a time in Unix milliseconds, which has 64 bits."""
    return Value(ValueType.TIME, struct.pack(">Q", time_ms + _SIGN))


def decode_value(value: Value) -> int | float | str | bool | datetime:
    """Returns what a value stands for; a whole number, also 3.0, as an integer where it has 64
    bits. A time beyond the years of datetime is given in Unix milliseconds."""
    match value.type:
        case ValueType.TEXT:
            return value.key.decode()
        case ValueType.BOOLEAN:
            return value.key != b"\0"
        case ValueType.TIME:
            time_ms: int = struct.unpack(">Q", value.key)[0] - _SIGN
            try:
                return _EPOCH + time_ms * _MILLISECOND
            except OverflowError:
                return time_ms
    (bits,) = struct.unpack(">Q", value.key[:8])
    number: float = struct.unpack(
        ">d", struct.pack(">Q", bits ^ _SIGN if bits & _SIGN else bits ^ (2 * _SIGN - 1))
    )[0]
    if number.is_integer() and (whole := int(number)) in _INTEGERS:
        return whole + int.from_bytes(value.key[8:])
    return number


def write_value(value: Value) -> str:
    """Returns how an expression writes a value: 3, "usgs", true, 2026-11-24T10:00:00Z."""
    found = decode_value(value)
    match found:
        case bool():
            return "true" if found else "false"
        case str():
            return json.dumps(found, ensure_ascii=False)
        case datetime():
            whole = "milliseconds" if found.microsecond else "seconds"
            return found.isoformat(timespec=whole).replace("+00:00", "Z")
    return repr(found)


def read_bare_value(text: str) -> Value | None:
    """Returns the value that an expression writes without quotes; None if it is none.

    Raises ValueError for a number or a time that cannot be.
    """
    text = text.replace("\u2212", "-")  # as phones and typesetters write a minus
    if (lower := text.lower()) in ("true", "false"):
        return boolean_value(lower == "true")
    if _DATE.match(text):
        return _read_time(text)
    if _WHOLE.match(text):
        # Some thousand digits Python would not read.
        size = int(text.lstrip("+-0")[:_DIGITS] or "0")
        return number_value(-size if text.startswith("-") else size)
    if not _NUMBER.match(text):
        return None
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("is beyond the numbers of 64 bits")
    return number_value(number)


def _read_time(text: str) -> Value:
    """Reads a date or a time of ISO 8601. Raises ValueError."""
    try:
        found = datetime.fromisoformat("T".join(text.upper().split()))
    except ValueError:
        raise ValueError("is no date or time") from None
    if len(text) == len("2026-11-24"):
        found = found.replace(tzinfo=UTC)
    if found.tzinfo is None:
        raise ValueError(f"has no time zone; write {text}Z for UTC")
    if found.microsecond % 1000:
        raise ValueError("is finer than a millisecond")
    try:
        found.astimezone(UTC)  # as it is written again
    except OverflowError:
        raise ValueError("is beyond the years 1 to 9999 in UTC") from None
    return time_value((found - _EPOCH) // _MILLISECOND)
