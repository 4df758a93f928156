"""Numba kernels of text analysis: UTF-8 bytes to sorted term hashes.

The hash is multilinear (Lemire & Kaser, "Strongly universal string hashing is fast"):
two sums over 32-bit words of the token with independent 64-bit keys drawn from the
salt, the upper halves of which make 64 bits. For any two tokens that were chosen
without knowing the keys the chance of a collision is 2^-64, whatever the tokens.

`analyse_rows` decodes what a table of simple characters knows (see analyzer.py); a row
with anything else is left to the slow path, which must give the same terms.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numba import njit

from ps2stream.language.literal_kernels import Integer, find_literal, list_phrases, mark_prefix
from ps2stream.limits import TOKEN_BYTES
from ps2stream.protocol.frame import I64, U8, U32, U64

TOP: Final = np.uint64(0x746F705F7465726D)
_MAX = np.uint64(0xFFFFFFFFFFFFFFFF)
_ZERO = np.uint64(0)
_TWO = np.uint64(2)
_HIGH = np.uint64(0xFFFFFFFF00000000)
_HALF = np.uint64(32)
_ODD = np.uint64(0xD6E8FEB86659FD93)

WORDS = TOKEN_BYTES // 4
KEYS = 2 * (WORDS + 2)  # two a word, two for the length, two to start from

# What a character of the table is; the default is COMPLEX.
COMPLEX, SEPARATOR, LETTER, PICTURE, MODIFIER = range(5)


class SimpleCharacters(NamedTuple):
    """The table of simple characters, C-contiguous, read-only. lut uint8[256] folds ASCII, 0 =
    separator; kind uint8[codes]: one of the constants above; fold_off uint32[codes + 1] and
    folded uint8[]: the UTF-8 of each folded character, ragged."""

    lut: U8
    kind: U8
    fold_off: U32
    folded: U8


class WatchedTables(NamedTuple):
    """The fields of a LiteralView (literals.py) that a text is searched by."""

    term: U64
    words: U8
    bytes: U8


class TermBuffers(NamedTuple):
    """Room for the terms of n rows, C-contiguous, writable. off int64[n + 1]; term uint64[text
    bytes + n]; slow uint8[n]: 0, and 1 for a row left empty."""

    off: I64
    term: U64
    slow: U8


@njit(inline="always")
def start_hash(keys: U64) -> tuple[np.uint64, np.uint64]:
    """Returns the two sums to begin a hash with."""
    return keys[KEYS - 2], keys[KEYS - 1]


@njit(inline="always")
def finish_hash(keys: U64, a: np.uint64, b: np.uint64, word: np.uint64, size: int) -> np.uint64:
    """Returns the hash of a token of `size` bytes; `word` holds its last size % 4 bytes."""
    at = size >> 2
    if size & 3:
        a += keys[2 * at] * word
        b += keys[2 * at + 1] * word
    a += keys[KEYS - 4] * np.uint64(size)
    b += keys[KEYS - 3] * np.uint64(size)
    h = (a & _HIGH) | (b >> _HALF)
    h = (h ^ h >> _HALF) * _ODD  # one to one: it spreads the bits and adds no collision
    h ^= h >> _HALF
    if h in (TOP, _ZERO, _MAX):
        h ^= _TWO
    return h


@njit(inline="always")
def token_hash(keys: U64, data: U8, begin: int, end: int, lut: U8) -> np.uint64:
    """Returns the hash of data[begin:end], each byte through `lut`."""
    a, b = start_hash(keys)
    word = _ZERO
    size = min(end - begin, TOKEN_BYTES)
    for i in range(size):
        word |= np.uint64(lut[data[begin + i]]) << np.uint64(8 * (i & 3))
        if i & 3 == 3:
            a += keys[2 * (i >> 2)] * word
            b += keys[2 * (i >> 2) + 1] * word
            word = _ZERO
    return finish_hash(keys, a, b, word, size)


@njit(cache=True, nogil=True)
def hash_rows(off: I64, data: U8, lut: U8, keys: U64) -> U64:
    """Returns the hash of each row of a column of tokens; `lut` is the identity."""
    out = np.empty(off.shape[0] - 1, np.uint64)
    for i in range(out.shape[0]):
        out[i] = token_hash(keys, data, off[i], off[i + 1], lut)
    return out


@njit(cache=True, nogil=True)
def sort_unique(values: U64, begin: int, end: int) -> int:
    """Sorts values[begin:end] in place, unique ones first, and returns the new end."""
    if end - begin > 48:
        values[begin:end] = np.sort(values[begin:end])
    else:
        for i in range(begin + 1, end):
            v = values[i]
            j = i - 1
            while j >= begin and values[j] > v:
                values[j + 1] = values[j]
                j -= 1
            values[j + 1] = v
    n = begin
    for i in range(begin, end):
        if i == begin or values[i] != values[n - 1]:
            values[n] = values[i]
            n += 1
    return n


@njit(cache=True, nogil=True)
def make_room(values: U64, more: Integer, n: Integer) -> U64:
    """Returns an array that begins with values[:n] and has room for so many more behind them."""
    if values.shape[0] >= n + more:
        return values
    larger = np.empty(2 * (n + more), np.uint64)
    larger[:n] = values[:n]
    return larger


@njit(inline="always")
def note_prefix(table: U64, hashed: np.uint64, found: U64, k: Integer) -> Integer:
    """Writes the term of a prefix with this hash to found[k] if it is watched; returns the end."""
    found[k] = mark_prefix(hashed)
    return k + (find_literal(table, found[k]) >= 0)


@njit(cache=True, nogil=True)
def analyse_rows(
    off: I64,
    text: U8,
    characters: tuple[U8, U8, U32, U8],
    keys: U64,
    watched: tuple[U64, U8, U8],
    terms: tuple[I64, U64, U8],
) -> tuple[int, I64, U64]:
    """Writes the sorted unique hashes (TOP among them) of every row that is all simple
    characters. Returns the number of the other rows, and the watched literals that were found,
    (rising rows int64[k], terms uint64[k]).

    off int64[n + 1], text uint8[]; keys uint64[KEYS]. characters, watched, terms: plain tuples of
    the fields of SimpleCharacters, WatchedTables and TermBuffers, which a kernel takes faster from
    Python than the classes themselves.
    """
    simple, buffers = SimpleCharacters(*characters), TermBuffers(*terms)
    search = WatchedTables(*watched)
    searches = search.term.shape[0] > 0
    has_prefixes = searches and search.bytes.any()
    found, found_off, hits = np.empty(0, np.uint64), np.zeros(1, np.int64), np.int64(0)
    if searches:
        found_off = np.zeros(off.shape[0], np.int64)
    lut, kind, fold_off, folded = simple.lut, simple.kind, simple.fold_off, simple.folded
    out_off, out, slow = buffers.off, buffers.term, buffers.slow
    left = 0
    n = 0
    for row in range(off.shape[0] - 1):
        out_off[row] = n
        i = off[row]
        end = off[row + 1]
        bad = False
        picture = False  # the open token is an emoji
        size = 0  # of the open token, 0 = none
        word = _ZERO
        a, b = start_hash(keys)
        while i < end:
            c = text[i]
            if c < 128:
                i += 1
                f = lut[c]
                if size and (f == 0 or picture):
                    out[n] = finish_hash(keys, a, b, word, size)
                    n += 1
                    size = 0
                    picture = False
                    word = _ZERO
                    a, b = start_hash(keys)
                if f and size < TOKEN_BYTES:
                    word |= np.uint64(f) << np.uint64(8 * (size & 3))
                    size += 1
                    if size & 3 == 0:
                        at = (size >> 1) - 2
                        a += keys[at] * word
                        b += keys[at + 1] * word
                        word = _ZERO
                    if has_prefixes and search.bytes[size]:
                        found = make_room(found, 1, hits)
                        hashed = finish_hash(keys, a, b, word, size)
                        hits = note_prefix(search.term, hashed, found, hits)
                continue
            # The next code point; malformed UTF-8 is for the slow path.
            code = np.int64(0)
            width = 0
            if 0xC2 <= c < 0xE0:
                width = 2
                code = np.int64(c) & 0x1F
            elif 0xE0 <= c < 0xF0:
                width = 3
                code = np.int64(c) & 0x0F
            elif 0xF0 <= c < 0xF5:
                width = 4
                code = np.int64(c) & 0x07
            if width == 0 or i + width > end:
                bad = True
                break
            for j in range(1, width):
                bad = bad or text[i + j] & 0xC0 != 0x80
                code = code << 6 | np.int64(text[i + j]) & 0x3F
            i += width
            overlong = (width == 3 and code < 0x800) or (width == 4 and code < 0x10000)
            if bad or overlong or code >= kind.shape[0] or kind[code] == COMPLEX:
                bad = True
                break
            k = kind[code]
            if k == MODIFIER:
                if not picture:
                    bad = True
                    break
            elif size and (k != LETTER or picture):
                out[n] = finish_hash(keys, a, b, word, size)
                n += 1
                size = 0
                word = _ZERO
                a, b = start_hash(keys)
                picture = False
            if k == SEPARATOR:
                continue
            picture |= k == PICTURE
            p = fold_off[code]
            q = fold_off[code + 1]
            if size + np.int64(q - p) > TOKEN_BYTES:
                bad = True
                break
            for j in range(p, q):
                word |= np.uint64(folded[j]) << np.uint64(8 * (size & 3))
                size += 1
                if size & 3 == 0:
                    at = (size >> 1) - 2
                    a += keys[at] * word
                    b += keys[at + 1] * word
                    word = _ZERO
                if has_prefixes and search.bytes[size] and not picture:
                    found = make_room(found, 1, hits)
                    hashed = finish_hash(keys, a, b, word, size)
                    hits = note_prefix(search.term, hashed, found, hits)
        if bad:
            n = out_off[row]
            slow[row] = 1
            left += 1
            if searches:
                hits = found_off[row]
                found_off[row + 1] = hits
            continue
        if size:
            out[n] = finish_hash(keys, a, b, word, size)
            n += 1
        if searches:
            words = search.words
            found = make_room(found, (n - out_off[row]) * words.shape[0], hits)
            hits = list_phrases(search.term, words, out, out_off[row], n, found, hits)
            found_off[row + 1] = hits
        out[n] = TOP
        n = sort_unique(out, out_off[row], n + 1)
    out_off[off.shape[0] - 1] = n
    return left, found_off, found[:hits].copy()


@njit(cache=True, nogil=True)
def find_watched(
    row_off: I64, term: U64, token_off: I64, tokens: U8, keys: U64, watched: tuple[U64, U8, U8]
) -> tuple[I64, U64]:
    """Returns the watched literals of analysed rows as a ragged column.

    Row r has the words row_off[r] to row_off[r + 1]; term uint64[k]: their terms, 0 for stop words;
    token_off int64[k + 1], tokens uint8[]: their UTF-8 as folded.
    """
    search = WatchedTables(*watched)
    has_prefixes = search.bytes.any()
    found, k = np.empty(0, np.uint64), np.int64(0)
    found_off = np.zeros(row_off.shape[0], np.int64)
    words = np.empty(term.shape[0], np.uint64)
    same = np.arange(256).astype(np.uint8)
    for row in range(row_off.shape[0] - 1):
        n = 0
        for i in range(row_off[row], row_off[row + 1]):
            begin, size = token_off[i], min(token_off[i + 1] - token_off[i], TOKEN_BYTES)
            if has_prefixes:
                found = make_room(found, size, k)
                for width in range(1, size + 1):
                    if search.bytes[width]:
                        hashed = token_hash(keys, tokens, begin, begin + width, same)
                        k = note_prefix(search.term, hashed, found, k)
            if term[i] != _ZERO:
                words[n] = term[i]
                n += 1
        found = make_room(found, n * search.words.shape[0], k)
        k = list_phrases(search.term, search.words, words, 0, n, found, k)
        found_off[row + 1] = k
    return found_off, found[:k].copy()


@njit(cache=True, nogil=True)
def add_found(off: I64, term: U64, found_off: I64, found: U64) -> tuple[I64, U64]:
    """Adds to each row of a ragged column the terms that were found in it; rows stay sorted and
    unique."""
    out_off = np.empty_like(off)
    out = np.empty(term.shape[0] + found.shape[0], np.uint64)
    n = 0
    for row in range(off.shape[0] - 1):
        out_off[row] = begin = n
        for i in range(off[row], off[row + 1]):
            out[n] = term[i]
            n += 1
        for i in range(found_off[row], found_off[row + 1]):
            out[n] = found[i]
            n += 1
        if found_off[row] < found_off[row + 1]:
            n = sort_unique(out, begin, n)
    out_off[off.shape[0] - 1] = n
    return out_off, out[:n].copy()


@njit(cache=True, nogil=True)
def merge_rows(
    fast_off: I64, fast: U64, slow: U8, slow_off: I64, slow_terms: U64
) -> tuple[I64, U64]:
    """Merges the rows of both paths into one ragged column; slow rows get TOP and are sorted."""
    rows = slow.shape[0]
    off = np.empty(rows + 1, np.int64)
    out = np.empty(fast_off[rows] + slow_terms.shape[0] + slow_off.shape[0] - 1, np.uint64)
    n = 0
    s = 0
    for row in range(rows):
        off[row] = n
        if slow[row]:
            for j in range(slow_off[s], slow_off[s + 1]):
                out[n] = slow_terms[j]
                n += 1
            s += 1
            out[n] = TOP
            n = sort_unique(out, off[row], n + 1)
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
