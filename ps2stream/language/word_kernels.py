"""Numba kernels of the bounds of words that both paths of analysis share."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import njit

from ps2stream.language.character_tables import (
    HEBREW,
    LETTER,
    MID_EITHER,
    MID_LETTER,
    MID_NUMBER,
    NUMBER,
    QUOTE,
)
from ps2stream.protocol.frame import I64, U8

HASH, PLUS = 35, 43
_APOSTROPHE, _STOP, _UNDERSCORE, _S = 39, 46, 95, 115
ZERO: Any = np.int64(0)
"""A number, where a constant would have a kernel compiled for this one alone."""
PIECE: Final = 2
"""The least characters of a piece that is a side word."""


@njit(inline="always")
def can_join(before: np.int64, joint: np.int64, behind: np.int64) -> bool:
    """Returns whether a character joins what is before and behind it; each is a kind of joint."""
    if before == NUMBER:
        return bool(behind == NUMBER and joint in (MID_NUMBER, MID_EITHER))
    if joint == QUOTE:
        return bool(before == HEBREW and behind == HEBREW)
    return bool(
        before in (LETTER, HEBREW)
        and behind in (LETTER, HEBREW)
        and joint in (MID_LETTER, MID_EITHER)
    )


@njit(inline="always")
def _is_single(data: U8, begin: int, i: int) -> bool:
    """Returns whether one character is between a cut, or `begin`, and i."""
    i -= 1
    while i > begin and data[i] & 0xC0 == 0x80:
        i -= 1
    return bool(i == begin or data[i - 1] in (_UNDERSCORE, _STOP, _APOSTROPHE))


@njit(cache=True, nogil=True)
def find_pieces(data: U8, begin: int, end: int, spans: I64) -> int:
    """Writes the spans of the pieces of a word data[begin:end], UTF-8, to `spans` and returns
    their number, 0 for a word that is not cut."""
    n = 0
    first = begin
    for i in range(begin, end + 1):
        if i < end:
            c = data[i]
            if c not in (_UNDERSCORE, _STOP, _APOSTROPHE):
                continue
            if c != _UNDERSCORE and i + 1 < end and 48 <= data[i + 1] < 58:
                continue
            possessive = i + 2 == end and data[i + 1] == _S
            if c == _APOSTROPHE and not possessive and not _is_single(data, begin, i):
                continue
        elif first == begin:
            return 0
        characters = 0
        for j in range(first, i):
            characters += data[j] & 0xC0 != 0x80
        if characters >= PIECE:
            spans[2 * n] = first
            spans[2 * n + 1] = i
            n += 1
        first = i + 1
    return n
