"""Numba kernels that fold what is not plain: `tokenizer.fold` without Python.

They hold no GIL and take linear time. A text is an array of code points; each step of
tokenizer.py is one function here, and the tests compare them on all of Unicode.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numba import njit

from ps2stream.language.character_tables import (
    BY_CASE,
    BY_CHOICE,
    BY_NFKD,
    CLASS,
    CLASS_SHIFT,
    COMPOSES,
    CONSONANT,
    CONTROL,
    DECOMPOSES,
    EXTEND,
    FOLDS,
    HANGUL,
    IGNORABLE,
    JOINER,
    KEYCAP,
    LINKER,
    LINKING,
    MARK,
    OPTIONAL,
    PICTOGRAPHIC,
    PICTURE,
    PREPEND,
    REGIONAL,
    SPACING,
    VARIATION,
    CharacterTables,
    first_slot,
)
from ps2stream.protocol.frame import I64, U8, U32

Integer: TypeAlias = Any
"""An int64 to numba; what NumPy's scalars are to mypy changes with each operation."""

_DAMAGED = 0xFFFD
_LONG_RUN = 32  # marks that tokenizer.py orders by itself
# Typed, because numba compiles a function once more for each literal.
START: Integer = np.int64(0)
_BY_NFKD: Integer = np.int64(BY_NFKD)
_BY_CASE: Integer = np.int64(BY_CASE)
_BY_CHOICE: Integer = np.int64(BY_CHOICE)
_BY_NFKD_WITH_RUNS: Integer = np.int64(-1)
_find_slot = njit(inline="always")(first_slot)


@njit(cache=True, nogil=True)
def decode_utf8(text: U8, begin: Integer, end: Integer, out: U32) -> Integer:
    """Writes the code points of text[begin:end] to `out`; U+FFFD for each byte that is damaged.

    Python makes one of several such bytes; tokens do not show the difference.
    """
    n = 0
    i = begin
    while i < end:
        c: Integer = np.int64(text[i])
        i += 1
        if c >= 128:
            width = 0
            if 0xC2 <= c < 0xF5:
                width = 1 if c < 0xE0 else 2 if c < 0xF0 else 3
            sound: Integer = width > 0 and i + width <= end
            code: Integer = c & (0x3F >> width)
            for j in range(i, i + width if sound else i):
                sound = sound and text[j] & 0xC0 == 0x80
                code = code << 6 | np.int64(text[j]) & 0x3F
            if width == 2:
                sound = sound and code >= 0x800 and not 0xD800 <= code < 0xE000
            elif width == 3:
                sound = sound and 0x10000 <= code < 0x110000
            if sound:
                c = code
                i += width
            else:
                c = _DAMAGED
        out[n] = c
        n += 1
    return n


@njit(cache=True, nogil=True)
def _find_expansion(key: Integer, keys: I64) -> Integer:
    """Returns the slot of an expansion that exists."""
    size = keys.shape[0]
    at = _find_slot(key, size)
    while keys[at] != key:
        at = (at + 1) & (size - 1)
    return at


@njit(cache=True, nogil=True)
def _compose_pair(first: Integer, second: Integer, tables: CharacterTables) -> Integer:
    """Returns the character that two characters compose to, or 0."""
    if 0x1161 <= second < 0x1176 and 0x1100 <= first < 0x1113:
        return 0xAC00 + ((first - 0x1100) * 21 + second - 0x1161) * 28
    if 0x11A8 <= second < 0x11C3 and 0xAC00 <= first < 0xD7A4 and (first - 0xAC00) % 28 == 0:
        return first + second - 0x11A7
    key = first << 32 | second
    size = tables.pair_key.shape[0]
    at = _find_slot(key, size)
    while tables.pair_key[at] >= 0:
        if tables.pair_key[at] == key:
            return tables.pair[at]
        at = (at + 1) & (size - 1)
    return 0


@njit(cache=True, nogil=True)
def _any_bits(chars: U32, n: Integer, bits_of: U32) -> Integer:
    """Returns the bits that any of the characters has."""
    bits = np.uint32(0)
    for i in range(n):
        bits |= bits_of[chars[i]]
    return np.int64(bits)


@njit(cache=True, nogil=True)
def _order_marks(chars: U32, begin: Integer, end: Integer, bits_of: U32) -> None:
    """Sorts chars[begin:end] by combining class, stably."""
    if end - begin <= _LONG_RUN:
        for i in range(begin + 1, end):
            c = chars[i]
            rank = bits_of[c] >> CLASS_SHIFT
            j = i - 1
            while j >= begin and bits_of[chars[j]] >> CLASS_SHIFT > rank:
                chars[j + 1] = chars[j]
                j -= 1
            chars[j + 1] = c
        return
    at = np.zeros(257, np.int64)
    for i in range(begin, end):
        at[(bits_of[chars[i]] >> CLASS_SHIFT) + 1] += 1
    for i in range(1, 257):
        at[i] += at[i - 1]
    marks = chars[begin:end].copy()
    for c in marks:
        rank = bits_of[c] >> CLASS_SHIFT
        chars[begin + at[rank]] = c
        at[rank] += 1


@njit(cache=True, nogil=True)
def _expand_characters(
    chars: U32, n: Integer, way: Integer, tables: CharacterTables
) -> tuple[U32, Integer]:
    """Expands every character in one of the ways, though not yet in canonical order.

    _BY_NFKD_WITH_RUNS orders the long runs of marks as tokenizer.py does, with what
    `unicodedata` does not know to be marks in front.
    """
    order_runs = way == _BY_NFKD_WITH_RUNS
    way = max(way, START)
    by_nfkd = way == BY_NFKD
    which = DECOMPOSES if by_nfkd else FOLDS if way == BY_CASE else OPTIONAL
    size = START
    for i in range(n):
        bits = tables.bits[chars[i]]
        if bits & which:
            at = _find_expansion(4 * np.int64(chars[i]) + way, tables.expansion_key)
            size += tables.expansion_end[at] - tables.expansion_begin[at]
        else:
            size += 3 if bits & HANGUL and by_nfkd else 1
    out = np.empty(size, np.uint32)
    m = START
    run = START  # number of marks in the run
    run_begin = START
    for i in range(n):
        c = np.int64(chars[i])
        bits = tables.bits[c]
        if order_runs:
            if bits & MARK:
                run_begin = run_begin if run else m
                run += 1
            else:
                if run >= _LONG_RUN:
                    _order_marks(out, run_begin, m, tables.bits)
                run = START
        if bits & which:
            at = _find_expansion(4 * c + way, tables.expansion_key)
            for j in range(tables.expansion_begin[at], tables.expansion_end[at]):
                out[m] = tables.expansion[j]
                m += 1
        elif bits & HANGUL and by_nfkd:
            syllable = c - 0xAC00
            out[m] = 0x1100 + syllable // 588
            out[m + 1] = 0x1161 + syllable % 588 // 28
            m += 2
            if syllable % 28:
                out[m] = 0x11A7 + syllable % 28
                m += 1
        else:
            out[m] = c
            m += 1
    if run >= _LONG_RUN:
        _order_marks(out, run_begin, m, tables.bits)
    return out, m


@njit(cache=True, nogil=True)
def _normalize_characters(
    chars: U32, n: Integer, way: Integer, tables: CharacterTables
) -> tuple[U32, Integer]:
    """Returns NFKC, by either way of NFKD."""
    if not _any_bits(chars, n, tables.bits) & (DECOMPOSES | COMPOSES | CLASS):
        return chars, n
    out, m = _expand_characters(chars, n, way, tables)
    begin = START
    for i in range(m + 1):
        if i == m or not tables.bits[out[i]] & CLASS:
            if i - begin > 1:
                _order_marks(out, begin, i, tables.bits)
            begin = i + 1
    k = START
    starter = -1
    last = np.uint32(0)  # the class of the last character behind the starter, 0 = none
    for i in range(m):
        c = np.int64(out[i])
        bits = tables.bits[c]
        rank = bits >> CLASS_SHIFT
        if starter >= 0 and bits & COMPOSES and (last < rank or last == 0):
            composed = _compose_pair(np.int64(out[starter]), c, tables)
            if composed:
                out[starter] = composed
                continue
        if rank == 0:
            starter = k
        last = rank
        out[k] = c
        k += 1
    return out, k


@njit(inline="always")
def follow_pictograph(state: Integer, bits: Integer) -> Integer:
    """Returns 1 if a pictograph and its extensions end here, 2 if these and a joiner do, else 0."""
    if bits & EXTEND:
        return 1 if state == 1 else 0
    if bits & PICTOGRAPHIC:
        return 1
    return 2 if bits & JOINER and state == 1 else 0


@njit(inline="always")
def follow_linker(state: Integer, bits: Integer) -> Integer:
    """Returns whether a linker of consonants, and what may follow it, ends here."""
    if bits & LINKER:
        return 1
    return state if bits & LINKING else 0


@njit(cache=True, nogil=True)
def is_keycap_tail(chars: U32, i: Integer, n: Integer) -> bool:
    """Returns whether the characters from i complete a keycap."""
    return bool(i < n and chars[i] == 0x20E3)


@njit(cache=True, nogil=True)
def find_emoji_end(
    chars: U32,
    i: Integer,
    n: Integer,
    pictograph: Integer,
    linker: Integer,
    bits_of: U32,
) -> Integer:
    """Returns the end of the emoji sequence that begins at i, or i, as the pattern of
    tokenizer.py.

    `pictograph`, `linker`: the states before i, because clusters look back that far. bits_of:
    the bits of all characters; kernels take one array faster than all of CharacterTables.
    """
    bits = np.int64(bits_of[chars[i]])
    if bits & KEYCAP:
        if not is_keycap_tail(chars, i + 1, n):
            return i
        return i + 2
    if bits & REGIONAL:
        i += 1
        if i < n and bits_of[chars[i]] & REGIONAL:
            i += 1
        while i < n and bits_of[chars[i]] & (EXTEND | JOINER | SPACING):
            i += 1
        return i
    if not bits & PICTURE:
        return i
    while True:
        pictograph = follow_pictograph(pictograph, bits)
        linker = follow_linker(linker, bits)
        before = bits
        i += 1
        if i == n:
            return i
        bits = np.int64(bits_of[chars[i]])
        if (before | bits) & CONTROL:
            return i
        if bits & (EXTEND | JOINER | SPACING) or before & PREPEND:
            continue
        if bits & CONSONANT and linker:
            continue
        if bits & PICTOGRAPHIC and pictograph == 2:
            continue
        return i


@njit(cache=True, nogil=True)
def _drop_ignorable(chars: U32, n: Integer, tables: CharacterTables) -> tuple[U32, Integer]:
    """Returns the characters without variation selectors, and without other ignorable ones
    outside emoji sequences."""
    selected = np.empty(n, np.uint32)
    m = START
    for i in range(n):
        if not tables.bits[chars[i]] & VARIATION:
            selected[m] = chars[i]
            m += 1
    chars, n = selected, m
    out = np.empty(n, np.uint32)
    m = START
    pictograph = START
    linker = START
    i = START
    while i < n:
        end = find_emoji_end(chars, i, n, pictograph, linker, tables.bits)
        emoji = end > i
        for j in range(i, end if emoji else i + 1):
            bits = np.int64(tables.bits[chars[j]])
            pictograph = follow_pictograph(pictograph, bits)
            linker = follow_linker(linker, bits)
            if emoji or not bits & IGNORABLE:
                out[m] = chars[j]
                m += 1
            i += 1
    return out, m


@njit(cache=True, nogil=True)
def fold_characters(chars: U32, n: Integer, tables: CharacterTables) -> tuple[U32, Integer]:
    """Returns what `tokenizer.fold` does."""
    while True:
        chars, n = _normalize_characters(chars, n, _BY_NFKD_WITH_RUNS, tables)
        if _any_bits(chars, n, tables.bits) & FOLDS:
            chars, n = _expand_characters(chars, n, _BY_CASE, tables)
            chars, n = _normalize_characters(chars, n, _BY_NFKD, tables)
        if _any_bits(chars, n, tables.bits) & OPTIONAL:
            chars, n = _expand_characters(chars, n, _BY_CHOICE, tables)
            continue
        if not _any_bits(chars, n, tables.bits) & IGNORABLE:
            return chars, n
        kept, m = _drop_ignorable(chars, n, tables)
        if m == n:
            return chars, n
        chars, n = kept, m
