"""Columns of attributes whose values are objects of Python, NumPy and pandas, of any types.

pyarrow and pandas make one type of all values: true beside 1.5 becomes 1.0, and 5 beside a time its
microsecond. The types of attributes are those of their values, so such a column is a union.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from datetime import date, datetime
from functools import cache
from typing import Any

import pyarrow as pa

from ps2stream.client.attributes import milliseconds, to_scalar
from ps2stream.client.inputs import list_values
from ps2stream.errors import invalid

_TYPES: dict[type, tuple[str, pa.DataType]] = {
    bool: ("boolean", pa.bool_()),  # before int, of which it is one
    int: ("integer", pa.int64()),
    float: ("number", pa.float64()),
    str: ("text", pa.string()),
    datetime: ("time", pa.timestamp("ms", "UTC")),
}
_MISSING = ("NoneType", "NaTType", "NAType")


def is_of_one_type(values: Any) -> bool:
    """Returns whether Arrow converts a column without making another type of some of its values;
    numbers are one type. Only columns of objects are looked at."""
    if not is_of_objects(values):
        return True
    return len(_find_families(values.dropna() if hasattr(values, "dropna") else values)) < 2


def is_of_objects(values: Any) -> bool:
    """Returns whether this is a list, or a column of NumPy or pandas, whose values are objects of
    Python."""
    return isinstance(values, list | tuple) or str(getattr(values, "dtype", "")) == "object"


def _find_families(values: Iterable[Any]) -> set[Any]:
    return {_find_family(kind) for kind in set(map(type, values))} - {None}


@cache
def _find_family(kind: type) -> Any:
    """Returns what types have in common whose values Arrow may convert together; None if there is
    no value."""
    if kind.__name__ in _MISSING:
        return None
    if issubclass(kind, bool) or kind.__name__ in ("bool", "bool_"):  # of NumPy
        return bool
    for family in (numbers.Real, str, datetime, date):
        if issubclass(kind, family):
            return family
    return kind


def build_mixed(name: str, values: Any) -> pa.Array:
    """Returns a column of attributes of any types, a union where they are several. Missing values
    of pandas, also NaN, are absent. Raises InvalidArgument naming the row of a value that is no
    attribute."""
    plain: list[Any] = []
    kinds: list[type | None] = []
    for row, value in enumerate(list_values(values)):
        try:
            one = None if value is None else to_scalar(value)
            kinds.append(_find_kind(one))
            plain.append(milliseconds(one) if isinstance(one, datetime) else one)
            if isinstance(one, str):
                one.encode()
        except ValueError as error:
            problem = f"is not Unicode text: {error}" if isinstance(error, UnicodeError) else error
            raise invalid(f"objects[{row}].attributes.{name}", str(problem)) from None
    there = [kind for kind in _TYPES if kind in set(kinds)]
    if set(there) <= {int, float}:
        try:
            return pa.array(plain, pa.float64() if float in there else pa.int64())
        except pa.ArrowInvalid:
            pass  # an integer that no double holds
    if len(there) == 1:
        return pa.array(plain, _TYPES[there[0]][1])
    places = {None: 0} | {kind: i for i, kind in enumerate(there)}
    parts = [
        pa.array(
            [v if kind is own else None for v, kind in zip(plain, kinds, strict=True)],
            _TYPES[own][1],
        )
        for own in there
    ]
    codes = pa.array([places[kind] for kind in kinds], pa.int8())
    return pa.UnionArray.from_sparse(codes, parts, [_TYPES[kind][0] for kind in there])


def _find_kind(value: Any) -> type | None:
    if value is None:
        return None
    return next(kind for kind in _TYPES if isinstance(value, kind))
