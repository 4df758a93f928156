"""Reading predicates as they are typed: `severity >= 3`, `source in ("usgs", "noaa")`."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Final

from ps2stream.language.lexemes import LISTED_VALUE, PREDICATE_PARTS, VALUE
from ps2stream.language.predicates import EXISTS, Predicate
from ps2stream.language.values import Value, ValueType, read_bare_value, text_value
from ps2stream.limits import (
    ATTRIBUTE_NAME_BYTES,
    ATTRIBUTE_TEXT_BYTES,
    COMPARED_TEXT_BYTES,
    EXPRESSION_TERMS,
)

_SIGNS: Final = {"≠": "!=", "≤": "<=", "≥": ">="}
_DOUBLED: Final = {
    "==": "= for equal, >= or <= for the rest",
    "<>": "!= for not equal",
    "=>": ">= for at least",
    "=<": "<= for at most",
}
_SHOWN: Final = 40


class PredicateError(ValueError):
    """What is wrong with a predicate, and at which character of it, from 0."""

    def __init__(self, at: int, problem: str) -> None:
        self.at = at
        super().__init__(problem)


def name_problem_of(name: str) -> str | None:
    """Returns what is wrong with the name of an attribute, None if it can be one."""
    if not name:
        return "an attribute has a name"
    if (size := len(name.encode("utf-8", "surrogatepass"))) > ATTRIBUTE_NAME_BYTES:
        limit = f"the limit attribute_name_bytes {ATTRIBUTE_NAME_BYTES}"
        return f"the name of an attribute has {size} bytes, over {limit}"
    if any(c == "`" or unicodedata.category(c) in ("Cc", "Cs") for c in name):
        return "the name of an attribute contains a control character or a backquote"
    return None


def read_predicates(source: str) -> list[Predicate]:
    """Returns the predicates of a PREDICATE lexeme, of which one must hold: more than one of a list
    of values. Raises PredicateError."""
    parts = PREDICATE_PARTS.match(source)
    if parts is None:
        raise PredicateError(0, f"{source[:_SHOWN]!r} is no comparison")
    typed, op = parts["name"], parts["op"]
    name = unicodedata.normalize("NFC", typed[1:-1] if typed.startswith("`") else typed)
    if problem := name_problem_of(name):
        raise PredicateError(0, problem)
    op = _SIGNS.get(op, op)
    if op == "NOT":
        raise PredicateError(parts.start("op"), f"NOT stands before the attribute: NOT {typed} ...")
    if op.upper() == EXISTS:
        return [Predicate(name, EXISTS)]
    if op.upper() == "IN":
        values = _read_list(source, parts.start("rest") + 1)
        return [Predicate(name, "=", value) for value in values]
    value, end = _read_value(source, parts.start("rest"), VALUE)
    if end < len(source):
        raise PredicateError(end, f"{source[end:][:_SHOWN]!r} behind a value")
    if value.type is ValueType.TEXT and op != "=" and len(value.key) > COMPARED_TEXT_BYTES:
        limit = f"the limit compared_text_bytes {COMPARED_TEXT_BYTES}"
        raise PredicateError(
            parts.start("rest"),
            f"a text of {len(value.key)} bytes is compared by {op}, over {limit}",
        )
    return [Predicate(name, op, value)]


def _read_list(source: str, at: int) -> list[Value]:
    """Reads the values from behind a parenthesis to its end."""
    found: dict[Value, None] = {}
    end = len(source) - 1
    while True:
        value, at = _read_value(source[:end], at, LISTED_VALUE)
        found[value] = None
        if len(found) > EXPRESSION_TERMS:
            raise PredicateError(
                at, f"more than {EXPRESSION_TERMS} distinct terms (limit expression_terms)"
            )
        if at == end:
            return list(found)
        if source[at] != ",":
            raise PredicateError(at, "a comma stands between two values")
        at += 1


def _read_value(source: str, at: int, pattern: re.Pattern[str]) -> tuple[Value, int]:
    """Reads the value at a place; returns it and where the next thing begins."""
    found = pattern.match(source, at)
    if found is None:
        raise PredicateError(at, "a value is missing: a number, a text in quotes, true or false")
    typed, at = found["value"], found.start("value")
    if found["text"]:
        text = typed[1:-1]
        if typed.startswith('"'):
            try:
                text = json.loads(typed, strict=False)
            except ValueError:
                raise PredicateError(
                    at, r'in a text, \ stands before " or another \ (or as in JSON)'
                ) from None
        return _make_text(text, at), found.end()
    if typed[0] in "=<>":
        known = _DOUBLED.get(source[at - 1 : at + 1], "one of =, !=, <, <=, > and >=")
        raise PredicateError(at, f"write {known}")
    try:
        value = read_bare_value(typed)
    except ValueError as error:
        raise PredicateError(at, f"{typed[:_SHOWN]} {error}") from None
    if value is None:
        shown = typed.strip("'‘’")[:_SHOWN]
        raise PredicateError(
            at, f'{typed[:_SHOWN]} is no value; a text stands in quotes: "{shown}"'
        )
    return value, found.end()


def _make_text(text: str, at: int) -> Value:
    """Returns the value of a text. Raises PredicateError."""
    text = unicodedata.normalize("NFC", text)
    try:
        value = text_value(text)
    except UnicodeEncodeError:
        raise PredicateError(at, "a text contains half a surrogate pair") from None
    if len(value.key) > ATTRIBUTE_TEXT_BYTES:
        limit = f"the limit attribute_text_bytes {ATTRIBUTE_TEXT_BYTES}"
        raise PredicateError(at, f"a text has {len(value.key)} bytes, over {limit}")
    return value
