"""The names of invalid fields, in the words of whoever calls the Python client.

The service names a field as the message of gRPC does; `insert` and `publish` take some by other
names.
"""

from __future__ import annotations

import re

from ps2stream.errors import InvalidArgument, invalid

_QUERY = r"(?:batch\.)?queries\[\d+\]\.|query\.|"
_OBJECT = r"(?:batch\.)?objects\[\d+\]\.|object\."
_END = re.compile(rf"(?P<of>{_OBJECT}|{_QUERY})until_ms")
_SHAPE = re.compile(rf"(?P<of>{_QUERY})region\.(?:rectangle|circle|geojson)\.(?P<field>.+)")


def name_field(field: str) -> str:
    """Returns what the client calls a field of a request: `query.until` of `query.until_ms`,
    `query.region.lat_min` of `query.region.rectangle.lat_min`. All others are called the same."""
    if found := _END.fullmatch(field):
        return f"{found['of']}until"
    if found := _SHAPE.fullmatch(field):
        return f"{found['of']}region.{found['field']}"
    return field


def invalid_field(field: str, description: str) -> InvalidArgument:
    """Returns the error for a field, given as the service names it."""
    return invalid(name_field(field), description)
