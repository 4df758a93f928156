"""Numba kernels that split folded texts into tokens: `tokenizer.split` without Python."""

from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.language.character_tables import ALONE, DIGIT, WORD, CharacterTables
from ps2stream.language.folding_kernels import (
    START,
    Integer,
    decode_utf8,
    find_emoji_end,
    fold_characters,
    follow_linker,
    follow_pictograph,
    is_keycap_tail,
)
from ps2stream.limits import TOKEN_BYTES
from ps2stream.protocol.frame import I64, U8, U32


@njit(inline="always")
def _utf8_size(c: Integer) -> Integer:
    """Returns the bytes of a character in UTF-8."""
    return 1 if c < 0x80 else 2 if c < 0x800 else 3 if c < 0x10000 else 4


@njit(cache=True, nogil=True)
def _write_token(chars: U32, begin: Integer, end: Integer, out: U8, at: Integer) -> Integer:
    """Writes the characters as UTF-8 to `out` from `at` on, at most TOKEN_BYTES; returns the
    end."""
    limit = at + TOKEN_BYTES
    for i in range(begin, end):
        c = np.int64(chars[i])
        width = _utf8_size(c)
        if at + width > limit:
            break
        if width == 1:
            out[at] = c
        else:
            out[at] = 0xF00 >> width & 0xFF | c >> 6 * (width - 1)
            for j in range(1, width):
                out[at + j] = 0x80 | c >> 6 * (width - 1 - j) & 0x3F
        at += width
    return at


@njit(cache=True, nogil=True)
def _find_word_end(chars: U32, i: Integer, n: Integer, tables: CharacterTables) -> Integer:
    """Returns the end of the run of word characters that begins at i, or i."""
    while i < n:
        bits = tables.bits[chars[i]]
        if not (bits & WORD or (bits & DIGIT and not is_keycap_tail(chars, i + 1, n))):
            break
        i += 1
    return i


@njit(cache=True, nogil=True)
def split_rows(off: I64, text: U8, rows: I64, tables: CharacterTables) -> tuple[I64, I64, I64, U8]:
    """Returns the tokens of some rows of a ragged column of UTF-8 texts, with repeats.

    off int64[m + 1], text uint8[], rows int64[n] -> (folded_size int64[n], row_off int64[n + 1],
    token_off int64[k + 1], tokens uint8[]): the bytes of the folded text of rows[i], and its
    tokens row_off[i] to row_off[i + 1], each cut to TOKEN_BYTES. Damaged UTF-8 separates tokens.
    """
    folded_size = np.zeros(rows.shape[0], np.int64)
    widest = 0
    for row in rows:
        widest = max(widest, off[row + 1] - off[row])
    scratch = np.empty(widest, np.uint32)
    row_off = np.zeros(rows.shape[0] + 1, np.int64)
    token_off = np.zeros(64, np.int64)
    tokens = np.empty(1024, np.uint8)
    k = START
    size = START
    for r in range(rows.shape[0]):
        n = decode_utf8(text, off[rows[r]], off[rows[r] + 1], scratch)
        chars, n = fold_characters(scratch, n, tables)
        for i in range(n):
            folded_size[r] += _utf8_size(np.int64(chars[i]))
        if k + n >= token_off.shape[0]:
            larger = np.empty(2 * (k + n), np.int64)
            larger[: k + 1] = token_off[: k + 1]
            token_off = larger
        if size + 4 * n > tokens.shape[0]:
            wider = np.empty(2 * (size + 4 * n), np.uint8)
            wider[:size] = tokens[:size]
            tokens = wider
        pictograph = START
        linker = START
        i = START
        while i < n:
            end = find_emoji_end(chars, i, n, pictograph, linker, tables)
            if end == i and tables.bits[chars[i]] & ALONE:
                end = i + 1
            if end == i:
                end = _find_word_end(chars, i, n, tables)
            if end > i:
                size = _write_token(chars, i, end, tokens, size)
                k += 1
                token_off[k] = size
            for j in range(i, max(end, i + 1)):
                bits = np.int64(tables.bits[chars[j]])
                pictograph = follow_pictograph(pictograph, bits)
                linker = follow_linker(linker, bits)
            i = max(end, i + 1)
        row_off[r + 1] = k
    return folded_size, row_off, token_off[: k + 1].copy(), tokens[:size].copy()
