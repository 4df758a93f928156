"""Predicates on attributes as literals: `severity >= 3`, `source = "usgs"`, `tsunami EXISTS`.

The text of a predicate has a space and does not begin with a double quote or a parenthesis, by
which it differs from those of literal_texts.py and pairs.py. Each predicate has one text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from ps2stream.language.values import Value, read_bare_value, text_value, write_value

EQUAL, EXISTS, COMPARED = "=", "EXISTS", "COMPARED"
"""COMPARED stands in no expression: `mag COMPARED` names the unit of all comparisons of `mag`."""
COMPARISONS: Final = ("<", "<=", ">", ">=", "!=")
"""The operators that are checked of an object's value, in the order of their numbers in
programs."""

COUNTED_LETTERS: Final = 256
"""Longer equalities are not counted in samples, and so are not known by them."""

Attributes = Mapping[str, Value]
NO_ATTRIBUTES: Final[Attributes] = MappingProxyType({})
_BARE_NAME: Final = re.compile(r"(?!(?:AND|OR|NOT|IN|EXISTS|in|exists)\Z)[^\W\d](?:[\w.-]*\w)?\Z")


class Predicate(NamedTuple):
    """A predicate: an attribute's name, EQUAL, EXISTS or one of COMPARISONS, and a value, which
    EXISTS has not."""

    name: str
    op: str
    value: Value | None = None

    def holds(self, attributes: Attributes) -> bool:
        """Returns whether it holds for an object with these attributes: never where the attribute
        is missing, or its value is of another type."""
        found = attributes.get(self.name)
        if found is None or self.value is None:
            return found is not None
        if found.type != self.value.type:
            return False
        mine, wanted = found.key, self.value.key
        match self.op:
            case "=":
                return mine == wanted
            case "!=":
                return mine != wanted
            case "<":
                return mine < wanted
            case "<=":
                return mine <= wanted
            case ">":
                return mine > wanted
        return mine >= wanted


def predicate_text(predicate: Predicate) -> str:
    """Returns the literal of a predicate."""
    name, op, value = predicate
    shown = name if _BARE_NAME.match(name) else f"`{name}`"
    return f"{shown} {op}" if value is None else f"{shown} {op} {write_value(value)}"


def equality_text(name: str, value: Value) -> str | None:
    """Returns the literal that an attribute has this value; None for one that no expression can
    say: an infinity, the year 10000."""
    predicate = Predicate(name, EQUAL, value)
    literal = predicate_text(predicate)
    return literal if predicate_of(literal) == predicate else None


def unit_text(literal: str) -> str:
    """Returns the name of the unit that a literal is posted under: its text, but of a comparison
    `mag COMPARED`, since all of an attribute share a term."""
    if is_predicate(literal) and (predicate := predicate_of(literal)).op in COMPARISONS:
        return predicate_text(Predicate(predicate.name, COMPARED))
    return literal


def is_predicate(literal: str) -> bool:
    """Returns whether a literal is a predicate."""
    return " " in literal and not literal.startswith(('"', "("))


@lru_cache(maxsize=4096)
def predicate_of(literal: str) -> Predicate:
    """Returns the predicate of a literal."""
    if literal.startswith("`"):
        name, _, rest = literal[1:].partition("` ")
    else:
        name, _, rest = literal.partition(" ")
    op, _, written = rest.partition(" ")
    if not written:
        return Predicate(name, op)
    value = _read_text(written) if written.startswith('"') else read_bare_value(written)
    return Predicate(name, op, value)


def _read_text(written: str) -> Value:
    return text_value(json.loads(written, strict=False))
