"""Attributes of objects for the tests: drawn at every border, and as the columns that objects
carry."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from unicodedata import normalize

import numpy as np

from ps2stream.language.predicates import Attributes as ValuesByName
from ps2stream.language.values import (
    Value,
    boolean_value,
    number_value,
    text_value,
    time_value,
)
from ps2stream.protocol.frame import I64, U8
from ps2stream.protocol.opaque import OpaqueColumns, pack_opaque
from ps2stream.v1.object_pb2 import Attributes, AttributeValue
from tests.naive_predicates import Scalar

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAMES = ["a", "A", "severity", "x.y-z", "é", "n" * 64, "é" * 32, "in", "OR-x", "two words", '")"']
_AROUND = [0, 2**53, -(2**53), 2**54, 2**62, 2**63 - 1, -(2**63)]
INTEGERS = [n + d for n in _AROUND for d in (-2, -1, 0, 1, 2) if -(2**63) <= n + d < 2**63]
FLOATS = [0.0, -0.0, 0.1, 0.5, -1.5, 5e-324, -5e-324, 2.0**53, 2.0**63, -(2.0**63), 1e300, 3.0]
INFINITIES = [float("inf"), float("-inf")]
_LONG = "y" * 254
TEXTS = ["", "usgs", "USGS", "é", "x AND y", 'a "b" \\', ") OR (", "a", "a\0", "a\0\0\0\0\0\0\0b"]
TEXTS += [_LONG + end for end in ("y", "yy", "z", "\0", "\0\0", "yz")]
LONGER = [_LONG + end for end in ("yyy", "yyz", "\0\0\0", "é", "éé", "y" * 746)]
TIMES = [EPOCH, EPOCH + timedelta(milliseconds=1), datetime(1, 1, 1, tzinfo=UTC)]
TIMES += [EPOCH - timedelta(milliseconds=1), datetime(9999, 12, 31, 23, 59, 59, 999000, UTC)]


def value_message(value: Scalar) -> AttributeValue:
    """The message of a value."""
    if isinstance(value, bool):
        return AttributeValue(boolean=value)
    if isinstance(value, int):
        return AttributeValue(integer=value)
    if isinstance(value, float):
        return AttributeValue(number=value)
    if isinstance(value, str):
        return AttributeValue(text=normalize("NFC", value))
    return AttributeValue(time_ms=(value - EPOCH) // timedelta(milliseconds=1))


def value_of(value: Scalar) -> Value:
    """The same as expressions have it."""
    if isinstance(value, bool):
        return boolean_value(value)
    if isinstance(value, int | float):
        return number_value(value)
    if isinstance(value, str):
        return text_value(normalize("NFC", value))
    return time_value((value - EPOCH) // timedelta(milliseconds=1))


def values_of(attributes: Mapping[str, Scalar]) -> ValuesByName:
    """The attributes of an object as TextWords has them."""
    return {name: value_of(value) for name, value in attributes.items()}


def opaque_column(objects: Sequence[Mapping[str, Scalar]], payload: bytes = b"") -> tuple[I64, U8]:
    """The opaque column of objects with these attributes, each of them with this payload."""
    rows = []
    for attributes in objects:
        values = {name: value_message(value) for name, value in sorted(attributes.items())}
        rows.append(Attributes(values=values).SerializeToString(deterministic=True))
    payloads = [payload] * len(rows)
    return pack_opaque(OpaqueColumns(*_column(rows), *_column(payloads)))


def _column(rows: Sequence[bytes]) -> tuple[I64, U8]:
    off = np.zeros(len(rows) + 1, np.int64)
    off[1:] = np.cumsum([len(row) for row in rows])
    return off, np.frombuffer(b"".join(rows), np.uint8)


# --- drawn ------------------------------------------------------------------------------


def some_value(rng: random.Random, of_query: bool = False) -> Scalar:
    """A value as an object, or as a query may have it; most are at a border."""
    kind = rng.randrange(7)
    if kind == 0:
        return rng.choice([rng.randrange(-3, 4), rng.choice(INTEGERS)])
    if kind == 1:
        return rng.choice(FLOATS if of_query else FLOATS + INFINITIES)
    if kind == 2:
        near = rng.choice(INTEGERS)
        return float(near) if rng.random() < 0.5 else float(np.nextafter(near, 0))
    if kind in (3, 4):
        return rng.choice(TEXTS if of_query else TEXTS + LONGER)
    return rng.random() < 0.5 if kind == 5 else rng.choice(TIMES)


def some_attributes(rng: random.Random, names: Sequence[str] = NAMES) -> dict[str, Scalar]:
    """The attributes of an object, often none."""
    chosen = rng.sample(names, rng.choice([0, 1, 1, 2, 3, len(names)]))
    return {name: some_value(rng) for name in chosen}


def written(value: Scalar, rng: random.Random) -> str:
    """How a query says a value, in one of several ways."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return rng.choice([str(value), f"{value:+d}"])
    if isinstance(value, float):
        return rng.choice([repr(value), f"{value:.17e}"])
    if isinstance(value, datetime):
        zone = "Z" if value.year in (1, 9999) else rng.choice(["Z", "+00:00"])
        return value.strftime("%Y-%m-%dT%H:%M:%S.%f").rjust(26, "0") + zone
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    plain = not any(c in value for c in '"\\')
    return rng.choice([f'"{quoted}"', f"“{value}”"]) if plain else f'"{quoted}"'


def some_predicate(rng: random.Random, names: Sequence[str] = NAMES) -> str:
    """A correct predicate, with or without spaces where they may be."""
    name = rng.choice(names)
    bare = name.replace(".", "").replace("-", "").isalnum() and not name.startswith("OR")
    shown = name if bare and rng.random() < 0.8 else f"`{name}`"
    gap = rng.choice(["", " ", "  "])
    kind = rng.randrange(8)
    if kind == 0:
        return f"{shown} EXISTS"
    if kind == 1:
        values = [written(some_value(rng, of_query=True), rng) for _ in range(rng.randint(1, 4))]
        return f"{shown} {rng.choice(['IN', 'in'])}{gap}({f'{gap},{gap}'.join(values)}{gap})"
    if kind == 2:  # texts that are too long to be compared may be equal
        return f"{shown}{gap}={gap}{written(rng.choice(TEXTS + LONGER), rng)}"
    op = rng.choice(["=", "!=", "<", "<=", ">", ">=", "≠", "≤", "≥"])
    return f"{shown}{gap}{op}{gap}{written(some_value(rng, of_query=True), rng)}"


def some_source(rng: random.Random, literals: Sequence[str], depth: int = 3) -> str:
    """An expression of these literals; it may match nothing."""
    sign = rng.choice(["", "", "", "NOT ", "-"])
    if depth == 0 or rng.random() < 0.4:
        return sign + rng.choice(literals)
    joint = rng.choice([" ", " AND ", " OR "])
    parts = [some_source(rng, literals, depth - 1) for _ in range(rng.randint(1, 4))]
    return f"{sign}({joint.join(parts)})"
