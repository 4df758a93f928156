"""Pairs of equalities as units: `(kind = "quake" AND net = "us")`, under which a query may be
posted if each of the two alone is common (Le Subscribe's multi-attribute hash).

A pair is no literal of an expression. Its text is in parentheses, by which it differs from those of
literals; of two equalities the lesser text is the first.
"""

from __future__ import annotations

from functools import lru_cache

from ps2stream.language.predicates import EQUAL, is_predicate, predicate_of, predicate_text

_OPEN, _AND, _CLOSE = "(", " AND ", ")"


def pair_text(a: str, b: str) -> str:
    """Returns the text of the pair of two equalities."""
    return f"{_OPEN}{min(a, b)}{_AND}{max(a, b)}{_CLOSE}"


def is_pair(literal: str) -> bool:
    """Returns whether this is the text of a pair."""
    return literal.startswith(_OPEN)


@lru_cache(maxsize=4096)
def split_pair(text: str) -> tuple[str, str]:
    """Returns the two equalities of a pair. Raises ValueError for what is none."""
    inner = text[len(_OPEN) : -len(_CLOSE)]
    at = inner.find(_AND)
    while at >= 0:
        a, b = inner[:at], inner[at + len(_AND) :]
        if _is_equality(a) and _is_equality(b) and pair_text(a, b) == text:
            return a, b
        at = inner.find(_AND, at + 1)
    raise ValueError(f"{text} is no pair of equalities")


def _is_equality(text: str) -> bool:
    if not is_predicate(text):
        return False
    try:
        predicate = predicate_of(text)
    except ValueError:
        return False
    has_value = predicate.op == EQUAL and predicate.value is not None
    return has_value and predicate_text(predicate) == text
