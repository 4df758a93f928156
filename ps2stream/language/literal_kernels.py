"""Numba kernels of watched literals: their terms, tables of them, and the search in texts."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import njit

from ps2stream.protocol.frame import I16, I64, U8, U16, U64
from ps2stream.protocol.rows import PROG_NOTES

_PHRASE: Final = np.uint64(0xA0761D6478BD642F)
_PREFIX: Final = np.uint64(0xE7037ED1A0B428DB)
_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_SPREAD: Final = np.uint64(0xD6E8FEB86659FD93)
_HALF: Final = np.uint64(32)
_FREE: Final = np.uint64(0)
_ONE: Final = np.uint64(1)

RECENT: Final = 256  # phrases, a power of 2
NAME_MARKS: Final = 256  # marks of names of attributes that are in pairs
PAIR_MARKS: Final = NAME_MARKS + NAME_MARKS * NAME_MARKS // 8
HEADS: Final = 256  # hashes of the two bytes that a prefix begins with
LONG_SIZE: Final = 7  # the bit of all prefixes of nine bytes or more; bit 0 is of two bytes

Integer = Any  # a plain integer, or one of NumPy's


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


def hash_start(first: Integer, second: Integer) -> Integer:
    """Returns the hash of the two bytes that a prefix begins with, below HEADS."""
    return np.int64(first) * 31 + np.int64(second) & 255


hash_head = njit(inline="always")(hash_start)


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


@njit(cache=True, nogil=True)
def list_watched(term_off: I64, term: U64, prog_off: I64, prog: I16) -> tuple[U64, U8, U16]:
    """Returns the watched literals of queries, by the notes behind their programs (rows.py)."""
    room = prog.shape[0] // 2 + 1
    found, kind, size = (
        np.empty(room, np.uint64),
        np.empty(room, np.uint8),
        np.empty(room, np.uint16),
    )
    n = 0
    for row in range(term_off.shape[0] - 1):
        last = prog_off[row + 1] - 1
        if last < prog_off[row] or prog[last] > PROG_NOTES:
            continue
        notes = PROG_NOTES - np.int64(prog[last])
        for at in range(last - 2 * notes, last, 2):
            if prog[at] >> 8 == 0:  # of validity, see protocol/validity.py
                break
            found[n] = term[term_off[row] + (prog[at] & 0xFF)]
            kind[n] = prog[at] >> 8
            size[n] = prog[at + 1] & 0xFFFF
            n += 1
    return found[:n].copy(), kind[:n].copy(), size[:n].copy()


@njit(inline="always")
def find_literal(table: U64, term: Integer) -> Integer:
    """Returns where a term is in a table with a free place, or -1 - the place where it would go."""
    mask = np.uint64(table.shape[0] - 1)
    at = term & mask
    while table[at] != _FREE:
        if table[at] == term:
            return np.int64(at)
        at = (at + _ONE) & mask
    return -1 - np.int64(at)


@njit(cache=True, nogil=True)
def hold_terms(table: U64, terms: U64) -> None:
    """Adds terms to a table, which keeps a free place."""
    for term in terms:
        at = find_literal(table, term)
        if at < 0:
            table[-1 - at] = term


@njit(cache=True, nogil=True)
def list_phrases(
    table: U64,
    of_size: U8,
    words: U64,
    begin: Integer,
    end: Integer,
    recent: U64,
    found: U64,
    n: Integer,
) -> Integer:
    """Appends the phrases of a table among the adjacent words[begin:end] to `found` at n, perhaps
    some more than once; returns the new end, or -1 if `found` has not enough room. recent
    uint64[RECENT], zeros: those that were found last, so that a text of one word has each once."""
    longest = np.int64(of_size[0])
    for i in range(begin, end):
        sum_ = start_phrase()
        for size in range(1, min(longest, end - i) + 1):
            sum_ = extend_phrase(sum_, words[i + size - 1])
            if not of_size[size]:
                continue
            term = finish_phrase(sum_, size)
            at = np.int64(term & np.uint64(RECENT - 1))
            if recent[at] == term or find_literal(table, term) < 0:
                continue
            if n == found.shape[0]:
                return -1
            recent[at] = term
            found[n] = term
            n += 1
    return n


@njit(cache=True, nogil=True)
def count_up(
    table: U64, columns: tuple[I64, U8, U16], literals: tuple[U64, U8, U16], more: I64
) -> tuple[int, int]:
    """Adds `more` to the counts of literals (term, kind, size) in a table with room for them, whose
    `columns` are count, kind and size by place. Returns how many it did not hold, and of how many
    the count was 0."""
    count, kinds, sizes = columns
    term, kind, size = literals
    fresh = begun = 0
    for i in range(term.shape[0]):
        at = find_literal(table, term[i])
        if at < 0:
            at = -1 - at
            kinds[at], sizes[at] = kind[i], size[i]
            table[at] = term[i]
            fresh += 1
        begun += count[at] == 0
        count[at] += more[i]
    return fresh, begun


@njit(cache=True, nogil=True)
def count_down(table: U64, count: I64, term: U64) -> int:
    """Takes one from the count of each term, all of which the table holds. Returns how many have
    none left."""
    ended = 0
    for i in range(term.shape[0]):
        at = find_literal(table, term[i])
        count[at] -= 1
        ended += count[at] == 0
    return ended
