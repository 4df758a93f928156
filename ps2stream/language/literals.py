"""Watched literals: phrases and prefixes, which are terms of an object only if a live query has
them.

A literal of an expression is a term like any other: a phrase is the hash of the hashes of its
words, a prefix the hash of its bytes, marked. An object has those that hold for its text and that
some live query uses, so nothing is added where no query uses any (docs/decisions/0019).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np
from numba import njit

from ps2stream.protocol.frame import U64

_PHRASE: Final = np.uint64(0xA0761D6478BD642F)
_PREFIX: Final = np.uint64(0xE7037ED1A0B428DB)
_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_SPREAD: Final = np.uint64(0xD6E8FEB86659FD93)
_HALF: Final = np.uint64(32)


class LiteralKind(IntEnum):
    """The kind of a watched literal, and what its size counts."""

    PHRASE = 1  # words
    PREFIX = 2  # bytes of UTF-8


@njit(inline="always")
def extend_phrase(sum_: np.uint64, word: np.uint64) -> np.uint64:
    """Returns the hash of a phrase with one word more; the first is added to `start_phrase`."""
    sum_ = (sum_ ^ word) * _STEP
    return sum_ ^ sum_ >> _HALF


@njit(inline="always")
def start_phrase() -> np.uint64:
    """Returns the hash of no words."""
    return _PHRASE


@njit(inline="always")
def finish_phrase(sum_: np.uint64, words: int) -> np.uint64:
    """Returns the term of a phrase of so many words."""
    sum_ = (sum_ + np.uint64(words)) * _SPREAD
    return sum_ ^ sum_ >> _HALF


@njit(inline="always")
def mark_prefix(hashed: np.uint64) -> np.uint64:
    """Returns the term of a prefix, from the hash of its bytes as a word."""
    marked = (hashed ^ _PREFIX) * _SPREAD
    return marked ^ marked >> _HALF


@njit(cache=True, nogil=True)
def phrase_term(words: U64) -> np.uint64:
    """Returns the term of a phrase, from the hashes of its words."""
    sum_ = start_phrase()
    for word in words:
        sum_ = extend_phrase(sum_, word)
    return finish_phrase(sum_, words.shape[0])


@njit(cache=True, nogil=True)
def prefix_terms(words: U64) -> U64:
    """Returns the terms of prefixes, from the hashes of their bytes as words."""
    out = np.empty_like(words)
    for i in range(words.shape[0]):
        out[i] = mark_prefix(words[i])
    return out
