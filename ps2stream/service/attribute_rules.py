"""What attributes and payloads of objects may be, however they come."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ps2stream.errors import short
from ps2stream.language.batch_tokenizer import check_wanted, is_always_wanted
from ps2stream.limits import (
    ATTRIBUTE_NAME_BYTES,
    ATTRIBUTE_TEXT_BYTES,
    ATTRIBUTES,
    PAYLOAD_BYTES,
)
from ps2stream.protocol.frame import I64, U8, Array
from ps2stream.protocol.opaque import take_opaque
from ps2stream.protocol.rows import no_offsets

SHRINKING = 4
"""The normal form C of a text has more than one byte for so many of the text."""
NAN = "is not a number (NaN)"


class OpaqueProblem(NamedTuple):
    """What is wrong with a field of a row."""

    row: int
    field: str
    description: str


class OpaqueRows(NamedTuple):
    """The opaque column of n objects (protocol/opaque.py), of which `off` is empty where no object
    has attributes or a payload. What rows with problems have means nothing; a row has at most one
    problem with its attributes and one with its payload."""

    off: I64
    data: U8
    problems: Sequence[OpaqueProblem] = ()

    def take(self, rows: I64) -> OpaqueRows:
        """Returns these rows, in this order, which must have no problems."""
        off, data = take_opaque(self.off, self.data, rows)
        return OpaqueRows(off, data) if len(data) else no_opaque()


def no_opaque() -> OpaqueRows:
    """Returns the column of objects of which none has attributes or a payload."""
    return OpaqueRows(no_offsets(), np.zeros(0, np.uint8))


class NormalText(NamedTuple):
    """A text in Unicode's normal form C, or the problem with it; one of them is empty."""

    text: str
    problem: str = ""


def normalise_name(name: str) -> NormalText:
    """Returns the normal form of an attribute's name."""
    if not name:
        return NormalText("", "a name is empty")
    is_plain = name.isascii() and name.isprintable() and "`" not in name
    if is_plain and len(name) <= ATTRIBUTE_NAME_BYTES:
        return NormalText(name)
    found = _normalise_text(name, ATTRIBUTE_NAME_BYTES, "attribute_name_bytes")
    if found.problem:
        return NormalText("", f"the name {short(name)} is too long: {found.problem}")
    if any(unicodedata.category(c) == "Cc" or c == "`" for c in found.text):
        return NormalText("", f"the name {short(name)} contains a control character or a backquote")
    return found


def normalise_text(text: str) -> NormalText:
    """Returns the normal form of an attribute's text."""
    return _normalise_text(text, ATTRIBUTE_TEXT_BYTES, "attribute_text_bytes")


def _normalise_text(text: str, limit: int, name: str) -> NormalText:
    size = len(text) if text.isascii() else len(text.encode())
    if size <= SHRINKING * limit:  # normalising what is much too long could take very long
        if unicodedata.is_normalized("NFC", text):
            normal = text
        else:
            normal = unicodedata.normalize("NFC", text)
            size = len(normal.encode())
        if size <= limit:
            return NormalText(normal)
    return NormalText("", describe_excess(size, name, limit))


def describe_excess(size: int, name: str, limit: int) -> str:
    """Returns the error text for so many bytes."""
    return f"{size} bytes are over the limit {name} {limit}"


def describe_count(count: int) -> str:
    """Returns the error text for so many attributes of one object."""
    return f"{count} attributes are over the limit attributes {ATTRIBUTES}"


def describe_repeat(name: str) -> str:
    """Returns the error text for two names that are equal in normal form."""
    return f"two names are {short(name)} in Unicode's normal form C"


def find_payload_problems(
    off: I64,
    data: U8,
    is_json: bool,
    is_present: Array | None = None,
    is_wanted: Callable[[], bool] = is_always_wanted,
) -> list[tuple[int, str]]:
    """Returns (row, problem) of payloads, a ragged column, in row order; `is_json` if they are to
    be JSON. All are present, or those of which bool[n] says so.

    Raises Cancelled once `is_wanted` reports that the caller has left.
    """
    size = np.diff(off)
    problems = {
        row: describe_excess(int(size[row]), "payload_bytes", PAYLOAD_BYTES)
        for row in np.flatnonzero(size > PAYLOAD_BYTES).tolist()
    }
    rows = range(len(size)) if is_present is None else np.flatnonzero(is_present).tolist()
    at = off.tolist()
    for row in rows if is_json else ():
        if row not in problems:
            check_wanted(is_wanted)
            if problem := _find_json_problem(data[at[row] : at[row + 1]].tobytes()):
                problems[row] = problem
    return sorted(problems.items())


def _find_json_problem(text: bytes) -> str:
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        return f"is not JSON: {error}"
    except RecursionError:
        return "is JSON that is nested too deeply"
    return ""


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no value of JSON")
