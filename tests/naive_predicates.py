"""Predicates on attributes by brute force, written from their definition and from no code of the
package: part of naive.py.

A predicate is `name op value` with one of = != < <= > >= (also ≠ ≤ ≥), `name IN (value, ...)` or
`name EXISTS`. Numbers compare as real numbers, texts by the bytes of their normal form C, times by
whole milliseconds. An attribute that is missing, or whose value has another type, satisfies none.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

Scalar = int | float | str | bool | datetime
Tree = tuple[Any, ...]

PARENS = "()\uff08\uff09"
QUOTES = '"\u201c\u201d\u201e\u201f\u00ab\u00bb\uff02' + "「」『』〝〞〟﹁﹂﹃﹄｢｣"
SIGNS = {"≠": "!=", "≤": "<=", "≥": ">="}
SPACED = re.compile(r"\d{4}-\d\d-\d\d\s+\d\d?:")
MISPLACED = re.compile(r"\s+(?:IN\s*\(|EXISTS\b)")
OPERATORS = ("!=", "<=", ">=", "=", "<", ">", *SIGNS)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def holds(leaf: Tree, attributes: Mapping[str, Scalar]) -> bool:
    """Whether ("is", name, op, value) holds for these attributes."""
    _, name, op, wanted = leaf
    if name not in attributes:
        return False
    if op == "EXISTS":
        return True
    found = comparable(attributes[name])
    if found[0] != wanted[0]:
        return False
    truth: dict[str, bool] = {
        "=": found == wanted,
        "!=": found != wanted,
        "<": found < wanted,
        "<=": found <= wanted,
        ">": found > wanted,
        ">=": found >= wanted,
    }
    return truth[op]


def comparable(value: Scalar) -> tuple[Any, ...]:
    """The type of a value and what it is compared by."""
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, str):
        return "text", unicodedata.normalize("NFC", value).encode()
    if isinstance(value, datetime):
        return "time", (value - EPOCH) // timedelta(milliseconds=1)
    if value in (float("inf"), float("-inf")):
        return "number", 1 if value > 0 else -1, Fraction(0)
    return "number", 0, Fraction(value)


# --- how they are written --------------------------------------------------------------


def find(source: str, at: int) -> int:
    """Where the predicate ends that begins at a place; 0 if none does."""
    name = name_end(source, at)
    if not name:
        return 0
    op = skip_space(source, name)
    sign = next((x for x in OPERATORS if source.startswith(x, op)), None)
    if sign is not None:
        begin = skip_space(source, op + len(sign))
        return text_end(source, begin) or value_end(source, begin, commas=True) or begin
    word = re.compile(r"\w*").match(source, op)
    if op == name or word is None:
        return 0
    behind = skip_space(source, word.end())
    if word[0] == "NOT" and (misplaced := MISPLACED.match(source, word.end())):
        return misplaced.end()
    if word[0] == "EXISTS":
        return word.end()
    if word[0] == "exists":
        rest = source[behind:]
        if not rest or rest[0] in PARENS[1::2]:
            return word.end()
        joined = behind > word.end() and re.match(r"(?:AND|OR)\b", rest) is not None
        return word.end() if joined else 0
    if word[0] in ("IN", "in") and source.startswith("(", behind):
        return list_end(source, behind + 1, sure=word[0] == "in")
    return 0


def skip_space(source: str, at: int) -> int:
    while at < len(source) and source[at].isspace():
        at += 1
    return at


def name_end(source: str, at: int) -> int:
    """Behind the name at a place; 0 if there is none."""
    if source[at] == "`":
        return source.find("`", at + 1) + 1
    end = at
    while end < len(source) and (is_word(source[end]) or source[end] in ".-"):
        end += 1
    while end > at and source[end - 1] in ".-":
        end -= 1
    name = source[at:end]
    begins = bool(name) and is_word(name[0]) and not name[0].isdecimal()
    return end if begins and name not in ("AND", "OR", "NOT") else 0


def is_word(c: str) -> bool:
    return c == "_" or c.isalnum()


def text_end(source: str, at: int) -> int:
    """Behind the text in quotes at a place; 0 if there is none."""
    if source.startswith('"', at):
        end = at + 1
        while end < len(source) and source[end] != '"':
            end += 2 if source[end] == "\\" else 1
        return end + 1 if end < len(source) else 0
    if at == len(source) or source[at] not in QUOTES:
        return 0
    end = next((i for i in range(at + 1, len(source)) if source[i] in QUOTES), len(source))
    return end + 1 if end < len(source) and source[end] != '"' else 0


def bare_end(source: str, at: int) -> int:
    """Behind what is written without quotes at a place; 0 if there is nothing."""
    end = at
    while (
        end < len(source) and not source[end].isspace() and source[end] not in "," + PARENS + QUOTES
    ):
        end += 1
    return end if end > at else 0


def value_end(source: str, at: int, commas: bool = False) -> int:
    """As `bare_end`, but a date and a time may have a space between them."""
    spaced = SPACED.match(source, at)
    end = bare_end(source, spaced.end() if spaced else at)
    while commas and end and source.startswith(",", end):
        end = bare_end(source, end + 1) or end + 1
    if commas and not end and source.startswith(",", at):
        return value_end(source, at + 1, commas) or at + 1
    return end


def list_end(source: str, at: int, sure: bool) -> int:
    """Behind the parenthesis that ends the list at a place; 0 if it is none. sure: that begins
    with what can only be a value, and has nothing or a comma behind it."""
    if sure:
        at = skip_space(source, at)
        end = text_end(source, at) or bare_end(source, at)
        if not end or not (
            source[at] in QUOTES
            or source[at:end].lower() in ("true", "false")
            or re.match(r"[+-]?\.?\d", source[at:end])
        ):
            return 0
        at = skip_space(source, end) + 1
        if source[at - 1 : at] == ")":
            return at
        if source[at - 1 : at] != ",":
            return 0
    while at < len(source) and source[at] != ")":
        end = text_end(source, at)
        if not end and source[at] in "(" + QUOTES:
            return 0
        at = end or at + 1
    return at + 1 if at < len(source) else 0


def parsed(source: str) -> Tree:
    """The tree of a whole predicate: ("is", name, op, value), or an "or" of these. ValueError."""
    end = name_end(source, 0)
    name = unicodedata.normalize("NFC", source[:end].strip("`"))
    if not 1 <= len(name.encode()) <= 64:
        raise ValueError("a name of no or too many bytes")
    if any(unicodedata.category(c) == "Cc" for c in name):
        raise ValueError("a control character in a name")
    rest = source[end:].strip()
    if rest.startswith("NOT"):
        raise ValueError("NOT behind a name")
    if rest.upper() == "EXISTS":
        return ("is", name, "EXISTS", None)
    if rest[:2].upper() == "IN":
        found = values_of(rest[2:].strip()[1:-1])
        return ("or", *(("is", name, "=", value) for value in found))
    op = next(x for x in OPERATORS if rest.startswith(x))
    value = value_of(rest[len(op) :].strip())
    op = SIGNS.get(op, op)
    if op != "=" and value[0] == "text" and len(value[1]) > 256:
        raise ValueError("a text too long to be compared")
    return ("is", name, op, value)


def values_of(source: str) -> list[tuple[Any, ...]]:
    """The values between two parentheses."""
    found, at = [], 0
    while True:
        at = skip_space(source, at)
        end = text_end(source, at) or value_end(source, at)
        found.append(value_of(source[at:end]))
        at = skip_space(source, end)
        if at == len(source):
            return found
        if source[at] != ",":
            raise ValueError("no comma between two values")
        at += 1


def value_of(written: str) -> tuple[Any, ...]:
    """The value that is written so, as `comparable`."""
    if written[:1] == '"':
        text = json.loads(written, strict=False)
    elif written[:1] and written[0] in QUOTES:
        text = written[1:-1]
    else:
        return bare_value(written)
    value = comparable(text)
    if len(value[1]) > 1024:
        raise ValueError("a text too long")
    return value


def bare_value(written: str) -> tuple[Any, ...]:
    written = written.replace("\u2212", "-")
    if written.lower() in ("true", "false"):
        return "boolean", written.lower() == "true"
    if not written.isascii():
        raise ValueError("no value")
    if re.match(r"\d{4}-\d\d-\d\d", written):
        written = "T".join(written.split())
        day = len(written) == 10
        found = datetime.fromisoformat(f"{written}T00:00Z" if day else written.upper())
        if found.tzinfo is None or (not day and written[10] not in "Tt"):
            raise ValueError("no time with a zone")
        if found.microsecond % 1000:
            raise ValueError("finer than a millisecond")
        found.astimezone(UTC)  # OverflowError beyond its years
        return comparable(found)
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", written):
        raise ValueError("no value")
    if re.fullmatch(r"[+-]?\d+", written):
        size = Fraction(written.lstrip("+-").lstrip("0")[:40] or "0")
        whole = -int(size) if written[0] == "-" else int(size)
        if not -(2**63) <= whole < 2**63:
            raise ValueError("beyond 64 bits")
        return comparable(whole)
    value = float(written)
    if value in (float("inf"), float("-inf")):
        raise ValueError("beyond a double")
    return comparable(value)
