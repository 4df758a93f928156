"""Texts of posts on their way to a language model: cut, and with nothing in them that is invisible.

Whoever publishes decides what a post says. It reaches the model as data in a field that says so.
Characters that people do not see but a model reads, such as tags and changes of direction, are
written out.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Any

MAX_TEXT = 2000
"""Characters of a text that are passed on."""
MAX_ATTRIBUTES = 2000
"""Characters of the attributes of a post, as JSON."""
_JOINERS = "\u200c\u200d"
"""Characters without a width of their own that words and emoji need."""
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_SELECTORS = range(0xE0100, 0xE01F0)
"""Selectors of variants beyond the usual ones: a row of them can hide a text."""


def write_out(text: str) -> str:
    """Returns a text with each hidden character written out: <U+202E>."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(f"<U+{ord(c):04X}>" if _is_hidden(c) else c for c in text)


def describe_untrusted(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of a post that its publisher chose, cut to what is passed on: id, text and
    attributes. `cut` names the fields that are not complete."""
    cut = []
    text = row.get("text") or ""
    if len(text) > MAX_TEXT:
        text = text[:MAX_TEXT]
        cut.append("untrusted_text")
    attributes = row.get("attributes") or {}
    if len(json.dumps(attributes)) > MAX_ATTRIBUTES:
        attributes = {}
        cut.append("untrusted_attributes")
    return {
        "untrusted_id": write_out(row["object_id"]),
        "untrusted_text": write_out(text),
        "untrusted_attributes": {
            write_out(name): write_out(value) if isinstance(value, str) else value
            for name, value in attributes.items()
        },
        "cut": cut,
    }


def _is_hidden(c: str) -> bool:
    if c in "\n\t" or c in _JOINERS:
        return False
    return unicodedata.category(c) in _HIDDEN or ord(c) in _SELECTORS
