"""The values of attributes in messages."""

from __future__ import annotations

import unicodedata

from ps2stream.language.values import (
    Value,
    boolean_value,
    number_value,
    text_value,
    time_value,
)
from ps2stream.v1 import object_pb2


def values_of(attributes: object_pb2.Attributes) -> dict[str, Value]:
    """Returns the values of attributes that were checked, by name in Unicode's normal form C."""
    return {
        unicodedata.normalize("NFC", name): _value_of(value)
        for name, value in attributes.values.items()
    }


def _value_of(value: object_pb2.AttributeValue) -> Value:
    match value.WhichOneof("value"):
        case "integer":
            return number_value(value.integer)
        case "number":
            return number_value(value.number)
        case "boolean":
            return boolean_value(value.boolean)
        case "time_ms":
            return time_value(value.time_ms)
    return text_value(unicodedata.normalize("NFC", value.text))
