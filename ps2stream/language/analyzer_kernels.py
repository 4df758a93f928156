"""Numba kernels of text analysis: UTF-8 bytes to sorted term hashes.

`analyse_rows` decodes what a table of simple characters knows (see analyzer.py); a row
with anything else is left to the slow path, which must give the same terms.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from ps2stream.language.character_tables import LETTER, MID_LETTER, NUMBER, QUOTE
from ps2stream.language.hash_kernels import (
    SCRATCH,
    TOP,
    finish_hash,
    sort_unique,
    start_hash,
    token_hash,
)
from ps2stream.language.literal_kernels import LONG_SIZE, hash_head
from ps2stream.language.search_kernels import first_bytes, note_long_prefixes
from ps2stream.language.word_kernels import HASH, ZERO, can_join, find_pieces
from ps2stream.limits import TOKEN_BYTES
from ps2stream.protocol.frame import I64, U8, U32, U64

# What a character of the table is: one of the joints of character_tables.py, or of these, of
# which COMPLEX is the default. A sign is a word character of no joint, a mark `+` or `#`.
COMPLEX, SEPARATOR = 0, 1
SIGN, UNDERSCORE, PICTURE, MODIFIER, VARIATION, MARK = range(QUOTE + 1, QUOTE + 7)
_IDENTITY = np.arange(256, dtype=np.uint8)
_ZERO, _EIGHT, _BYTE = np.uint64(0), np.uint64(8), np.uint64(0xFF)


class SimpleCharacters(NamedTuple):
    """The table of simple characters, C-contiguous, read-only. lut uint8[256] folds ASCII letters
    and digits, 0 = others; kind uint8[codes]: one of the constants above; fold_off
    uint32[codes + 1] and folded uint8[]: the UTF-8 of each folded character, ragged."""

    lut: U8
    kind: U8
    fold_off: U32
    folded: U8


class TermBuffers(NamedTuple):
    """Room for the terms of n rows, C-contiguous, writable. off int64[n + 1]; term uint64[text
    bytes + n]; slow uint8[n]: 0, and 1 for a row left empty."""

    off: I64
    term: U64
    slow: U8


@njit(inline="always")
def _decode(text: U8, i: int, end: int) -> tuple[np.int64, int]:
    """Returns the code point at i, which is not ASCII, and its bytes: 0 for malformed UTF-8."""
    c = np.int64(text[i])
    code = ZERO
    width = 0
    if 0xC2 <= c < 0xE0:
        width = 2
        code = c & 0x1F
    elif 0xE0 <= c < 0xF0:
        width = 3
        code = c & 0x0F
    elif 0xF0 <= c < 0xF5:
        width = 4
        code = c & 0x07
    if width == 0 or i + width > end:
        return code, 0
    sound = True
    for j in range(1, width):
        sound = sound and text[i + j] & 0xC0 == 0x80
        code = code << 6 | np.int64(text[i + j]) & 0x3F
    overlong = (width == 3 and code < 0x800) or (width == 4 and code < 0x10000)
    return code, width if sound and not overlong else 0


@njit(cache=True, nogil=True)
def _find_kind(text: U8, i: int, end: int, kind: U8) -> np.int64:
    """Returns the kind of the character at i; the end separates."""
    if i >= end:
        return np.int64(SEPARATOR)
    if text[i] < 128:
        return np.int64(kind[text[i]])
    code, width = _decode(text, i, end)
    return np.int64(kind[code]) if width and code < kind.shape[0] else np.int64(COMPLEX)


@njit(inline="always")
def _is_word(kind: np.int64) -> bool:
    return bool(LETTER <= kind <= NUMBER or kind in (SIGN, UNDERSCORE))


@njit(inline="always")
def _hash_word(keys: U64, words: U32, size: int) -> np.uint64:
    """Returns `token_hash` of a buffer, read in words of 32 bits."""
    a, b = start_hash(keys)
    whole = size >> 2
    for i in range(whole):
        a += keys[2 * i] * np.uint64(words[i])
        b += keys[2 * i + 1] * np.uint64(words[i])
    rest = (np.uint64(1) << np.uint64(8 * (size & 3))) - np.uint64(1)
    return finish_hash(keys, a, b, np.uint64(words[whole]) & rest, size)


@njit(cache=True, nogil=True)
def _add_side_words(
    keys: U64, token: U8, size: int, mark: int, sign: np.uint8, out: U64, at: int, spans: I64
) -> tuple[int, int]:
    """Writes the hashes of the side words of token[:size], which has `mark` times `sign` behind
    it, downwards to `out` from before `at`: its pieces, whose spans it writes to `spans`, and the
    marked word. Returns where they begin, and the number of pieces."""
    pieces = find_pieces(token, ZERO, size, spans)
    for piece in range(pieces):
        at -= 1
        out[at] = token_hash(keys, token, spans[2 * piece], spans[2 * piece + 1], _IDENTITY)
    if mark and size + mark <= TOKEN_BYTES:
        for j in range(size, size + mark):
            token[j] = sign
        at -= 1
        out[at] = token_hash(keys, token, ZERO, size + mark, _IDENTITY)
    return at, pieces


@njit(inline="always")
def _note_word(
    heads: U8, read: np.uint64, size: int, row: int, notes: tuple[U64, I64], m: int
) -> int:
    """Notes the first bytes of a word at m if it may have watched prefixes; returns the new end."""
    first, first_row = notes
    word = first_bytes(read, size)
    first[m], first_row[m] = word, row
    sizes = np.int64(heads[hash_head(word & _BYTE, word >> _EIGHT & _BYTE)])
    return m + bool(sizes & (1 << min(size - 1, LONG_SIZE + 1)) - 1)


@njit(cache=True, nogil=True)
def _note_pieces(
    search: tuple[U64, U8, U64],
    token: U8,
    spans: I64,
    pieces: int,
    row: int,
    notes: tuple[U64, I64],
    found: U64,
    ends: tuple[int, int],
) -> tuple[int, int]:
    """Notes the side words that `_add_side_words` has written, like `_note_word`, and appends their
    long prefixes to `found`; returns the new ends of both. A marked word begins as the word does.

    search: table, heads, keys."""
    table, heads, keys = search
    m, hits = ends
    for piece in range(pieces):
        p, q = spans[2 * piece], spans[2 * piece + 1]
        read = _ZERO
        for i in range(min(q - p, 8)):
            read |= np.uint64(token[p + i]) << np.uint64(8 * i)
        m = _note_word(heads, read, q - p, row, notes, m)
        if q - p > 8 and heads[hash_head(token[p], token[p + 1])] >> LONG_SIZE:
            hits = note_long_prefixes(table, heads, keys, token, p, q, found, hits)
    return m, hits


@njit(cache=True, nogil=True)
def analyse_rows(
    off: I64,
    text: U8,
    characters: tuple[U8, U8, U32, U8],
    keys: U64,
    watched: tuple[U64, U8, U8, U64, U64],
    terms: tuple[I64, U64, U8],
    rows: tuple[I64, U64, I64, I64, I64, U64],
    some: I64,
) -> int:
    """Writes the sorted unique hashes (TOP among them) of every row that is all simple
    characters, or of `some` of the rows if there are any; returns the number of the other rows.
    Where texts are searched for literals, the
    hashes are unsorted, and what `search_rows` needs is written too.

    off int64[n + 1], text uint8[]; keys uint64[KEYS]. characters, watched, terms, rows: plain
    tuples of the fields of SimpleCharacters, WatchedTables, TermBuffers and SearchBuffers, which a
    kernel takes faster from Python than the classes themselves.
    """
    simple, buffers = SimpleCharacters(*characters), TermBuffers(*terms)
    word_end, first, first_row, noted, found_off, found = rows
    searches, has_prefixes = word_end.shape[0] > 0, noted.shape[0] > 0
    table, _, heads, _, _ = watched
    search, notes = (table, heads, keys), (first, first_row)
    hits = m = ZERO
    lut, kind, fold_off, folded = simple.lut, simple.kind, simple.fold_off, simple.folded
    out_off, out, slow = buffers.off, buffers.term, buffers.slow
    token = np.empty(TOKEN_BYTES + 8, np.uint8)  # the open word, folded
    words, longs = token.view(np.uint32), token.view(np.uint64)
    spans, scratch = np.empty(TOKEN_BYTES, np.int64), np.empty(SCRATCH, np.uint64)
    left = 0
    n = ZERO
    for row in range(slow.shape[0]):
        out_off[row] = n
        before_row = m
        source = some[row] if some.shape[0] else np.int64(row)
        i = off[source]
        end = off[source + 1]
        # A text has fewer words and side words than bytes; the side words wait at its end.
        side_end = n + (end - i)
        side = side_end
        bad = False
        picture = False  # the open word is an emoji
        parts = False  # the open word may have pieces
        size = ZERO  # of the open word, 0 = none
        last = np.int64(SEPARATOR)  # the kind of the last character that is not ASCII
        while i < end:
            c = text[i]
            if c < 128:
                f = lut[c]
                if f and not picture:
                    if size < TOKEN_BYTES:
                        token[size] = f
                        size += 1
                    i += 1
                    continue
                if size == 0 and c <= 32:
                    i += 1
                    continue
                code = np.int64(c)
                width = 1
            else:
                # Malformed UTF-8 is for the slow path.
                code, width = _decode(text, i, end)
                if width == 0 or code >= kind.shape[0]:
                    bad = True
                    break
            k = np.int64(kind[code])
            at = i
            i += width
            if k == COMPLEX or (not picture and (k == MODIFIER or (k == VARIATION and size))):
                bad = True
                break
            if k == VARIATION:
                continue
            if size and k != MODIFIER and (picture or not _is_word(k)):
                mark = ZERO
                if not picture and (MID_LETTER <= k <= QUOTE or k == MARK):
                    signs = np.int64(1 if code == HASH else 2)  # that make a mark
                    if k == MARK and signs == 2 and i < end and text[i] == c:
                        i += 1
                    behind = _find_kind(text, i, end, kind)
                    if behind in (COMPLEX, MODIFIER, VARIATION):
                        bad = True
                        break
                    if k == MARK:
                        mark = signs * (i - at == signs and not _is_word(behind))
                    else:
                        before = np.int64(kind[text[at - 1]]) if text[at - 1] < 128 else last
                        if can_join(before, k, behind):
                            p, q = np.int64(fold_off[code]), np.int64(fold_off[code + 1])
                            if size + q - p >= TOKEN_BYTES:  # it might be cut here
                                bad = True
                                break
                            for j in range(p, q):
                                token[size] = folded[j]
                                size += 1
                            parts = True
                            continue
                out[n] = _hash_word(keys, words, size)
                n += 1
                if has_prefixes:
                    m = _note_word(heads, longs[0], size, row, notes, m)
                    if size > 8 and heads[hash_head(token[0], token[1])] >> LONG_SIZE:
                        hits = note_long_prefixes(
                            table, heads, keys, token, ZERO, size, found, hits
                        )
                if parts or mark:
                    side, pieces = _add_side_words(keys, token, size, mark, c, out, side, spans)
                    if has_prefixes:
                        m, hits = _note_pieces(
                            search, token, spans, pieces, row, notes, found, (m, hits)
                        )
                size = ZERO
                picture = False
                parts = False
            if k in (PICTURE, MODIFIER) or _is_word(k):
                picture |= k == PICTURE
                parts |= k == UNDERSCORE
                last = k
                p, q = np.int64(fold_off[code]), np.int64(fold_off[code + 1])
                if size + q - p > TOKEN_BYTES:
                    bad = True
                    break
                for j in range(p, q):
                    token[size] = folded[j]
                    size += 1
        if bad:
            n = out_off[row]
            slow[row] = 1
            left += 1
            m = before_row
            if searches:
                word_end[row] = n
                hits = found_off[row]
                found_off[row + 1] = hits
            continue
        if size:
            out[n] = _hash_word(keys, words, size)
            n += 1
            if has_prefixes:
                m = _note_word(heads, longs[0], size, row, notes, m)
                if size > 8 and heads[hash_head(token[0], token[1])] >> LONG_SIZE:
                    hits = note_long_prefixes(table, heads, keys, token, ZERO, size, found, hits)
            if parts:
                side, pieces = _add_side_words(
                    keys, token, size, ZERO, np.uint8(0), out, side, spans
                )
                if has_prefixes:
                    m, hits = _note_pieces(
                        search, token, spans, pieces, row, notes, found, (m, hits)
                    )
        if searches:
            word_end[row] = n
            found_off[row + 1] = hits
        # out[out_off[row]:n] are the words in order, out[side:side_end] the side words.
        for j in range(side, side_end):
            out[n] = out[j]
            n += 1
        out[n] = TOP
        n = n + 1 if searches else sort_unique(out, out_off[row], n + 1, scratch)
    out_off[slow.shape[0]] = n
    if has_prefixes:
        noted[0] = m
    return left


@njit(cache=True, nogil=True)
def merge_rows(
    fast_off: I64, fast: U64, slow: U8, slow_off: I64, slow_terms: U64, more_off: I64, more: U64
) -> tuple[I64, U64]:
    """Merges the rows of both paths into one ragged column; slow rows get TOP and what is in those
    of `more`, which may be empty, and are sorted."""
    rows = slow.shape[0]
    size = fast_off[rows] + slow_terms.shape[0] + more.shape[0] + slow_off.shape[0] - 1
    off, out = np.empty(rows + 1, np.int64), np.empty(size, np.uint64)
    scratch = np.empty(SCRATCH, np.uint64)
    n = ZERO
    s = 0
    for row in range(rows):
        off[row] = n
        if slow[row]:
            for j in range(slow_off[s], slow_off[s + 1]):
                out[n] = slow_terms[j]
                n += 1
            if more.shape[0]:
                for j in range(more_off[s], more_off[s + 1]):
                    out[n] = more[j]
                    n += 1
            s += 1
            out[n] = TOP
            n = sort_unique(out, off[row], n + 1, scratch)
        else:
            for j in range(fast_off[row], fast_off[row + 1]):
                out[n] = fast[j]
                n += 1
    off[rows] = n
    return off, out[:n].copy()


@njit(inline="always")
def probe_count(keys: U64, counts: I64, term: np.uint64) -> np.int64:
    """Returns the count of a term in an open-addressing table of 2^k slots, 0 = free; else 0."""
    mask = keys.shape[0] - 1
    at = np.int64(term & np.uint64(mask))
    while keys[at] != _ZERO:
        if keys[at] == term:
            return np.int64(counts[at])
        at = (at + 1) & mask
    return np.int64(0)


@njit(cache=True, nogil=True)
def fill_table(keys: U64, counts: I64, term: U64, count: I64) -> None:
    """Puts distinct terms into an empty table that keeps a free slot."""
    mask = keys.shape[0] - 1
    for i in range(term.shape[0]):
        at = np.int64(term[i] & np.uint64(mask))
        while keys[at] != _ZERO:
            at = (at + 1) & mask
        keys[at] = term[i]
        counts[at] = count[i]


@njit(cache=True, nogil=True)
def probe_all(keys: U64, counts: I64, term: U64) -> I64:
    """Returns `probe_count` of every term."""
    out = np.empty(term.shape[0], np.int64)
    for i in range(term.shape[0]):
        out[i] = probe_count(keys, counts, term[i])
    return out
