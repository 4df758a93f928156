"""Numba kernels that read the literals of expressions that compound_kernels.py compiles."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numba import njit

from ps2stream.language.area_kernels import Integer
from ps2stream.language.word_kernels import ZERO
from ps2stream.limits import EXPRESSION_TERMS, PHRASE_WORDS, TOKEN_BYTES
from ps2stream.protocol.frame import I64, U8

ASKED, NEGATED, CHOICE = 0, 1, 2
"""Parts of literals: of the conjunction, behind NOT, and of the disjunction."""
QUOTE = 34
_HASH, _OPEN, _CLOSE, _STAR, _MINUS, _AT = 35, 40, 41, 42, 45, 64
_CONJUNCTION, _DISJUNCTION = 1, 2  # kinds of what stands at one level; 0 of one literal
_EXISTS: Final = np.frombuffer(b"exists", np.uint8)


class RowLiterals(NamedTuple):
    """The literals of one expression. text uint8[]: their texts end to end, as literal_texts.py
    writes them; int64[EXPRESSION_TERMS] each: begin and size of the text of each, its part, and
    its number of words; order: the distinct ones by their texts."""

    text: U8
    begin: I64
    size: I64
    part: I64
    words: I64
    order: I64


@njit(inline="always")
def is_space(c: Integer) -> bool:
    """Returns what str.isspace does for ASCII."""
    return bool(c == 32 or 9 <= c <= 13 or 28 <= c <= 31)


@njit(inline="always")
def _is_closed(data: U8, i: Integer, end: Integer) -> bool:
    """Returns whether nothing stands right behind a literal but the end, a space or a closing
    parenthesis."""
    return bool(i == end or is_space(data[i]) or data[i] == _CLOSE)


@njit(inline="always")
def _is_reserved(text: U8, at: Integer, size: Integer) -> bool:
    """Returns whether a folded word is `in` or `exists`, which may belong to an attribute."""
    if size == 2:
        return bool(text[at] == 105 and text[at + 1] == 110)
    differs = size != _EXISTS.shape[0]
    if not differs:
        for i in range(size):
            differs |= text[at + i] != _EXISTS[i]
    return not differs


@njit(cache=True, nogil=True)
def _read_word(data: U8, lut: U8, i: Integer, end: Integer, text: U8, at: Integer) -> Integer:
    """Folds the word that begins at i into `text`; returns its size, or 0 if that is no word."""
    letters = False
    p = i
    while i < end and lut[data[i]]:
        letters |= data[i] != 95
        text[at + i - p] = lut[data[i]]
        i += 1
    return np.int64(i - p if letters and i - p <= TOKEN_BYTES else 0)


@njit(cache=True, nogil=True)
def _read_phrase(
    data: U8, lut: U8, i: Integer, end: Integer, text: U8, at: Integer
) -> tuple[np.int64, np.int64, np.int64]:
    """Writes the words of a phrase whose quote stands before i to `text`, with a space between
    them; returns where the closing quote stands, the end of what was written, and the number of
    words, 0 if that is no phrase."""
    words = 0
    while True:
        while i < end and is_space(data[i]):
            i += 1
        if i == end or data[i] == QUOTE:
            break
        if words:
            text[at] = 32
            at += 1
        size = _read_word(data, lut, i, end, text, at)
        words += 1
        if size == 0 or words > PHRASE_WORDS:
            return np.int64(i), np.int64(at), ZERO
        i += size
        at += size
    return np.int64(i), np.int64(at), np.int64(words if i < end else 0)


@njit(cache=True, nogil=True)
def read_literals(
    data: U8, lut: U8, first: Integer, end: Integer, found: tuple[U8, I64, I64, I64, I64, I64]
) -> Integer:
    """Fills in the literals of an expression but their order; returns their number, or -1."""
    row = RowLiterals(*found)
    text, begin, size, part, words = row.text, row.begin, row.size, row.part, row.words
    n = ZERO
    at = ZERO  # the end of the text
    i = np.int64(first)
    kind = outer = 0  # of this level, and of the one around the parentheses
    group = ZERO  # the first literal in the parentheses
    is_inside = is_grouped = has_choice = negated = False
    is_due = True  # a literal is
    while True:
        while i < end and is_space(data[i]):
            i += 1
        if i == end:
            break
        c = data[i]
        if c == _OPEN:
            if is_inside or negated or kind == _DISJUNCTION:
                return np.int64(-1)
            if i > first and not is_space(data[i - 1]):
                return np.int64(-1)
            outer = kind if is_due else _CONJUNCTION
            kind, group, is_inside, is_grouped, is_due = 0, n, True, True, True
            i += 1
            continue
        if c == _CLOSE:
            i += 1
            if not is_inside or is_due or negated or not (i == end or is_space(data[i])):
                return np.int64(-1)
            if kind == _DISJUNCTION:
                if has_choice:
                    return np.int64(-1)
                has_choice = True
                for k in range(group, n):
                    if part[k] == NEGATED:
                        return np.int64(-1)
                    part[k] = CHOICE
            kind, is_inside = outer, False
            continue
        is_excluded = c == _MINUS
        if is_excluded:
            i += 1
            if negated or i == end:
                return np.int64(-1)
            c = data[i]
        if n == EXPRESSION_TERMS:
            return np.int64(-1)
        begin[n] = at
        if c == QUOTE:
            text[at] = QUOTE
            i, at, count = _read_phrase(data, lut, i + 1, end, text, at + 1)
            i += 1
            if count == 0 or not _is_closed(data, i, end):
                return np.int64(-1)
            words[n] = count
            if count == 1:
                begin[n] += 1
            else:
                text[at] = QUOTE
                at += 1
        else:
            is_marked = c in (_HASH, _AT)
            i += is_marked
            width = _read_word(data, lut, i, end, text, at)
            if width == 0 or _is_reserved(text, at, width):
                return np.int64(-1)
            p = i
            i += width
            words[n] = 1
            is_prefix = i < end and data[i] == _STAR
            i += is_prefix
            if not _is_closed(data, i, end):
                return np.int64(-1)
            if is_prefix:
                if width < 2:
                    return np.int64(-1)
                text[at + width] = _STAR
                words[n] = 0
            elif not is_marked:
                a, b = data[p], data[p + 1] if width > 1 else data[p]
                is_or = width == 2 and a == 79 and b == 82
                is_and = width == 3 and a == 65 and b == 78 and data[p + 2] == 68
                is_not = width == 3 and a == 78 and b == 79 and data[p + 2] == 84
                if is_or or is_and or is_not:
                    if is_excluded or negated:
                        return np.int64(-1)
                    if is_not:
                        negated = True
                        continue
                    mine = _DISJUNCTION if is_or else _CONJUNCTION
                    if is_due or kind == _DISJUNCTION - mine + _CONJUNCTION:
                        return np.int64(-1)
                    if is_or and is_grouped and not is_inside:
                        return np.int64(-1)
                    kind, is_due = mine, True
                    continue
            at += width + is_prefix
        if not is_due:
            if kind == _DISJUNCTION:
                return np.int64(-1)
            kind = _CONJUNCTION
        size[n] = at - begin[n]
        part[n] = NEGATED if negated or is_excluded else ASKED
        n += 1
        is_due = negated = False
    if is_due or negated or is_inside:
        return np.int64(-1)
    if kind == _DISJUNCTION:
        for k in range(n):
            if part[k] == NEGATED:
                return np.int64(-1)
            part[k] = CHOICE
    return n


@njit(cache=True, nogil=True)
def order_literals(n: Integer, found: tuple[U8, I64, I64, I64, I64, I64]) -> Integer:
    """Fills in the order of the distinct literals; returns their number, or -1 where one stands in
    two parts."""
    row = RowLiterals(*found)
    text, begin, size, part, order = row.text, row.begin, row.size, row.part, row.order
    k = ZERO
    for i in range(n):
        j = k
        is_new = True
        while j > 0:
            other = order[j - 1]
            width = min(size[i], size[other])
            d = size[i] - size[other]
            for x in range(width):
                a, b = text[begin[i] + x], text[begin[other] + x]
                if a != b:
                    d = np.int64(a) - np.int64(b)
                    break
            if d == 0:
                if part[i] != part[other]:
                    return np.int64(-1)
                is_new = False
            if d >= 0:
                break
            j -= 1
        if not is_new:
            continue
        for x in range(k, j, -1):
            order[x] = order[x - 1]
        order[j] = i
        k += 1
    return k
