"""Numba kernels that split folded texts into tokens: `tokenizer.split` without Python."""

from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.language.character_tables import (
    ALONE,
    DIGIT,
    KEYCAP,
    MARKING,
    MID_LETTER,
    PICTURE,
    REGIONAL,
    WORD,
    CharacterTables,
)
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
from ps2stream.language.word_kernels import HASH, PLUS, can_join, find_pieces
from ps2stream.limits import TOKEN_BYTES
from ps2stream.protocol.frame import I64, U8, U32
from ps2stream.protocol.span_kernels import copy_span


@njit(inline="always")
def _utf8_size(c: Integer) -> Integer:
    """Returns the bytes of a character in UTF-8."""
    return 1 if c < 0x80 else 2 if c < 0x800 else 3 if c < 0x10000 else 4


@njit(cache=True, nogil=True)
def _write_token(
    chars: U32, begin: Integer, end: Integer, out: U8, at: Integer, joint_of: U8
) -> Integer:
    """Writes the characters as UTF-8 to `out` from `at` on, at most TOKEN_BYTES and then none
    that joins at the end; returns the end."""
    limit = at + TOKEN_BYTES
    before = at
    for i in range(begin, end):
        c = np.int64(chars[i])
        width = _utf8_size(c)
        if at + width > limit:
            return before if i > begin and joint_of[chars[i - 1]] >= MID_LETTER else at
        before = at
        if width == 1:
            out[at] = c
        else:
            out[at] = 0xF00 >> width & 0xFF | c >> 6 * (width - 1)
            for j in range(1, width):
                out[at + j] = 0x80 | c >> 6 * (width - 1 - j) & 0x3F
        at += width
    return at


@njit(inline="always")
def _is_in_word(chars: U32, i: Integer, n: Integer, bits_of: U32) -> bool:
    """Returns whether the character at i belongs to a run of word characters."""
    bits = bits_of[chars[i]]
    return bool(bits & WORD or (bits & DIGIT and not is_keycap_tail(chars, i + 1, n)))


@njit(cache=True, nogil=True)
def _find_word_end(chars: U32, i: Integer, n: Integer, bits_of: U32, joint_of: U8) -> Integer:
    """Returns the end of the run of word characters, and what joins them, that begins at i, or
    i."""
    begin = i
    while True:
        while i < n and _is_in_word(chars, i, n, bits_of):
            i += 1
        if i == begin or i + 1 >= n or joint_of[chars[i]] < MID_LETTER:
            return i
        if not _is_in_word(chars, i + 1, n, bits_of):
            return i
        before = i - 1
        while before > begin and joint_of[chars[before]] == MARKING:
            before -= 1
        joint = np.int64(joint_of[chars[i]])
        behind = np.int64(joint_of[chars[i + 1]])
        if not can_join(np.int64(joint_of[chars[before]]), joint, behind):
            return i
        i += 1


@njit(cache=True, nogil=True)
def _find_mark(chars: U32, i: Integer, n: Integer, bits_of: U32) -> Integer:
    """Returns the number of characters at i that make a side word of the word before them."""
    size = 0
    if i < n and chars[i] == HASH:
        size = 1
    elif i + 1 < n and chars[i] == PLUS and chars[i + 1] == PLUS:
        size = 2
    if i + size < n and bits_of[chars[i + size]] & (WORD | DIGIT | ALONE):
        return 0
    return size


@njit(cache=True, nogil=True)
def split_rows(
    off: I64, text: U8, rows: I64, tables: CharacterTables
) -> tuple[I64, I64, I64, U8, U8]:
    """Returns the words of some rows of a ragged column of UTF-8 texts, with repeats.

    off int64[m + 1], text uint8[], rows int64[n] -> (folded_size int64[n], row_off int64[n + 1],
    token_off int64[k + 1], tokens uint8[], is_side uint8[k]): the bytes of the folded text of
    rows[i], and its tokens row_off[i] to row_off[i + 1], each cut to TOKEN_BYTES; a side word, 1
    in is_side, is behind the word that it belongs to. Damaged UTF-8 separates words.
    """
    folded_size = np.zeros(rows.shape[0], np.int64)
    widest = 0
    for row in rows:
        widest = max(widest, off[row + 1] - off[row])
    scratch = np.empty(widest, np.uint32)
    row_off = np.zeros(rows.shape[0] + 1, np.int64)
    token_off = np.zeros(64, np.int64)
    is_side = np.zeros(64, np.uint8)
    tokens = np.empty(1024, np.uint8)
    cuts = np.empty(TOKEN_BYTES + 2, np.int64)
    bits_of, joint_of = tables.bits, tables.joint
    k = START
    size = START
    for r in range(rows.shape[0]):
        n = decode_utf8(text, off[rows[r]], off[rows[r] + 1], scratch)
        chars, n = fold_characters(scratch, n, tables)
        for i in range(n):
            folded_size[r] += _utf8_size(np.int64(chars[i]))
        # A word of n characters has fewer than n side words, which repeat it twice at most.
        if k + 2 * n >= token_off.shape[0]:
            room = 2 * (k + 2 * n)
            larger, flags = np.empty(room, np.int64), np.zeros(room, np.uint8)
            copy_span(larger, START, token_off, START, k + 1)
            copy_span(flags, START, is_side, START, k)
            token_off, is_side = larger, flags
        if size + 12 * n > tokens.shape[0]:
            wider = np.empty(2 * (size + 12 * n), np.uint8)
            copy_span(wider, START, tokens, START, size)
            tokens = wider
        pictograph = START
        linker = START
        i = START
        while i < n:
            end = i
            if bits_of[chars[i]] & (KEYCAP | REGIONAL | PICTURE):
                end = find_emoji_end(chars, i, n, pictograph, linker, bits_of)
            if end == i and bits_of[chars[i]] & ALONE:
                end = i + 1
            run = end == i
            if run:
                end = _find_word_end(chars, i, n, bits_of, joint_of)
            if end > i:
                begin = size
                size = _write_token(chars, i, end, tokens, size, joint_of)
                k += 1
                token_off[k] = size
            if run and end > i:
                last = size
                pieces = find_pieces(tokens, begin, size, cuts)
                for piece in range(pieces):
                    for j in range(cuts[2 * piece], cuts[2 * piece + 1]):
                        tokens[size] = tokens[j]
                        size += 1
                    is_side[k] = 1
                    k += 1
                    token_off[k] = size
                mark = _find_mark(chars, end, n, bits_of)
                if mark and last - begin + mark <= TOKEN_BYTES:
                    for j in range(begin, last):
                        tokens[size] = tokens[j]
                        size += 1
                    for j in range(mark):
                        tokens[size] = chars[end + j]
                        size += 1
                    is_side[k] = 1
                    k += 1
                    token_off[k] = size
            for j in range(i, max(end, i + 1)):
                bits = np.int64(bits_of[chars[j]])
                pictograph = follow_pictograph(pictograph, bits)
                linker = follow_linker(linker, bits)
            i = max(end, i + 1)
        row_off[r + 1] = k
    return folded_size, row_off, token_off[: k + 1].copy(), tokens[:size].copy(), is_side[:k].copy()
