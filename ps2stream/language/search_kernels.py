"""Numba kernels that search texts for watched literals (literals.py)."""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numba import njit

from ps2stream.language.area_kernels import Integer
from ps2stream.language.candidate_kernels import (
    choose_filter,
    find_short,
    mark_phrases,
)
from ps2stream.language.hash_kernels import (
    SCRATCH,
    finish_hash,
    sort_unique,
    start_hash,
)
from ps2stream.language.literal_kernels import (
    HEADS,
    LONG_SIZE,
    RECENT,
    find_literal,
    hash_head,
    is_watched,
    list_phrases,
    mark_prefix,
    recent_size,
)
from ps2stream.language.word_kernels import ZERO
from ps2stream.limits import TOKEN_BYTES
from ps2stream.protocol.frame import I64, U8, U16, U64
from ps2stream.protocol.span_kernels import copy_span

_FREE, _ONE, _EIGHT, _HALF = np.uint64(0), np.uint64(1), np.uint64(8), np.uint64(32)
_BYTE, _PAIR, _LOW = np.uint64(0xFF), np.uint64(0xFFFF), np.uint64(0xFFFFFFFF)
_SHORT_SIZES = (1 << LONG_SIZE) - 1  # of two to eight bytes


LONG_ROOM: Final = 4
"""Prefixes of more than eight bytes that a byte of text may have: three bytes may be folded to four
letters, each of which ends a prefix of the word and one of its pieces."""


class WatchedTables(NamedTuple):
    """The fields of a LiteralView (literals.py) that a text is searched by."""

    term: U64
    words: U8
    heads: U8
    area: U64
    seen: U64


class SearchBuffers(NamedTuple):
    """What a search needs to know of n rows, C-contiguous, writable. word_end int64[n]: where the
    words of a row end, behind which its side words are; empty if nothing is searched for.
    first uint64[] and first_row int64[]: the first eight bytes of each word and side word that may
    have watched prefixes, and its row; noted int64[1]: how many of them there are. found_off
    int64[n + 1] and found uint64[]: the prefixes of more than eight bytes that were found in each
    row already, with room for LONG_ROOM a byte of the text. first, first_row, noted and found are
    empty if no prefix is searched for."""

    word_end: I64
    first: U64
    first_row: I64
    noted: I64
    found_off: I64
    found: U64


@njit(cache=True, nogil=True)
def make_room(values: U64, more: Integer, n: Integer) -> U64:
    """Returns an array that begins with values[:n] and has room for so many more behind them."""
    if values.shape[0] >= n + more:
        return values
    larger = np.empty(2 * (n + more), np.uint64)
    copy_span(larger, 0, values, 0, n)
    return larger


@njit(inline="always")
def first_bytes(read, size):
    """Returns the first eight bytes of a word of `size` bytes, the first of which is the lowest, of
    the eight bytes that were read."""
    if size >= 8:
        return read
    return read & (_ONE << np.uint64(8 * size)) - _ONE


@njit(cache=True, nogil=True)
def note_long_prefixes(table, heads, keys, data, begin, end, found, k):
    """Appends the watched prefixes of more than eight bytes of the word data[begin:end], like
    `note_prefixes`."""
    return _note_sizes(table, heads, keys, data, begin, end, found, k, 1 << LONG_SIZE)


@njit(inline="always")
def note_prefixes(table, heads, keys, data, begin, end, found, k):
    """Appends the watched prefixes of the word data[begin:end], which is folded, to `found` at k,
    which has room for one of each size; returns the new end."""
    if end - begin < 2:
        return k
    sizes = np.int64(heads[hash_head(data[begin], data[begin + 1])])
    if sizes == 0:
        return k
    return _note_sizes(table, heads, keys, data, begin, end, found, k, sizes)


@njit(cache=True, nogil=True)
def _note_sizes(table, heads, keys, data, begin, end, found, k, sizes):
    """Appends the watched prefixes of a word that have one of these sizes, as LiteralView has
    them."""
    a, b = start_hash(keys)
    word = _FREE
    for i in range(min(end - begin, heads[HEADS])):
        word |= np.uint64(data[begin + i]) << np.uint64(8 * (i & 3))
        if i & 3 == 3:
            a += keys[2 * (i >> 2)] * word
            b += keys[2 * (i >> 2) + 1] * word
            word = _FREE
        if i > 0 and sizes >> min(i - 1, LONG_SIZE) & 1:
            found[k] = mark_prefix(finish_hash(keys, a, b, word, i + 1))
            k += find_literal(table, found[k]) >= 0
            if sizes >> min(i, LONG_SIZE) == 0:
                break
    return k


@njit(inline="always")
def _keep_watched(table, areas, area, found, k, end):
    """Keeps of the terms found[k:end] those that are watched in an area; returns the new end."""
    for i in range(k, end):
        found[k] = found[i]
        k += is_watched(table, areas, found[i], area)
    return k


@njit(cache=True, nogil=True)
def add_phrases(
    watched: tuple[U64, U8, U8, U64, U64],
    area: Integer,
    words: U64,
    begin: Integer,
    end: Integer,
    recent: U64,
    found: U64,
    n: Integer,
) -> Integer:
    """Appends the phrases among words[begin:end] that are watched in an area to `found` at n, like
    `list_phrases`, and leaves the phrases of `recent` as they were, all 0."""
    top = list_phrases(watched, area, words, begin, end, recent, found, n)
    for i in range(n, found.shape[0] if top < 0 else top):
        recent[np.int64(found[i] & np.uint64(RECENT - 1))] = _FREE
    return top


@njit(cache=True, nogil=True)
def search_rows(
    off: I64,
    term: U64,
    slow: U8,
    keys: U64,
    rows: tuple[I64, U64, I64, I64, I64, U64],
    watched: tuple[U64, U8, U8, U64, U64],
    area: U16,
    whole: bool,
) -> tuple[I64, U64]:
    """Returns what `analyse_rows` has written with the literals that are watched in the area of
    each row, or if not `whole` these alone, sorted and unique; rows that are marked in `slow` are
    empty."""
    sought, search = SearchBuffers(*rows), WatchedTables(*watched)
    word_end, seen = sought.word_end, choose_filter(search.seen, area)
    short_off, short = find_short(off, term, keys, rows, watched, seen, area)
    marks = mark_phrases(off, word_end, term, search.words, seen, area)
    recent = np.zeros(recent_size(search.words), np.uint64)
    scratch = np.empty(SCRATCH, np.uint64)
    left = off[off.shape[0] - 1] + short.shape[0]  # that are not yet put
    out_off, out = np.zeros(off.shape[0], np.int64), np.empty(left, np.uint64)
    n = ZERO
    for row in range(off.shape[0] - 1):
        begin = n
        for i in range(off[row] if whole else off[row + 1], off[row + 1]):
            out[n] = term[i]
            n += 1
        for i in range(short_off[row], short_off[row + 1]):
            out[n] = short[i]
            n += 1
        left -= n - begin
        if marks[row]:  # few: it is a call with many arrays, which are counted
            here, last = np.int64(area[row]), word_end[row]
            top = add_phrases(watched, here, term, off[row], last, recent, out, n)
            while top < 0 or out.shape[0] < top + left:
                out = make_room(out, 2 * (out.shape[0] - n) + left + last - off[row], n)
                top = add_phrases(watched, here, term, off[row], last, recent, out, n)
            n = top
        n = sort_unique(out, begin, n, scratch)
        out_off[row + 1] = n
    return out_off, out[:n]


@njit(cache=True, nogil=True)
def find_watched(
    row_off: I64,
    term: U64,
    is_side: U8,
    words: tuple[I64, U8],
    keys: U64,
    watched: tuple[U64, U8, U8, U64, U64],
    area: U16,
) -> tuple[I64, U64]:
    """Returns the literals that are watched in the areas of analysed rows as a ragged column.

    Row r has the words row_off[r] to row_off[r + 1]; term uint64[k]: their terms, 0 for stop words;
    is_side uint8[k]: 1 for side words, which are no part of phrases; words: their UTF-8 as folded,
    a ragged column.
    """
    token_off, tokens = words
    search = WatchedTables(*watched)
    has_prefixes = search.heads[HEADS] > 0
    found, k = np.empty(0, np.uint64), ZERO
    found_off = np.zeros(row_off.shape[0], np.int64)
    sequence = np.empty(term.shape[0], np.uint64)
    recent = np.zeros(recent_size(search.words), np.uint64)
    for row in range(row_off.shape[0] - 1):
        n, here = ZERO, np.int64(area[row])
        for i in range(row_off[row], row_off[row + 1]):
            begin, size = token_off[i], min(token_off[i + 1] - token_off[i], TOKEN_BYTES)
            if has_prefixes:
                found = make_room(found, size, k)
                end = note_prefixes(
                    search.term, search.heads, keys, tokens, begin, begin + size, found, k
                )
                k = _keep_watched(search.term, search.area, here, found, k, end)
            if term[i] != _FREE and not is_side[i]:
                sequence[n] = term[i]
                n += 1
        top = add_phrases(watched, here, sequence, ZERO, n, recent, found, k)
        while top < 0:
            found = make_room(found, 2 * (found.shape[0] - k) + n, k)
            top = add_phrases(watched, here, sequence, ZERO, n, recent, found, k)
        k = top
        found_off[row + 1] = k
    return found_off, found[:k].copy()


@njit(cache=True, nogil=True)
def add_found(off: I64, term: U64, found_off: I64, found: U64) -> tuple[I64, U64]:
    """Adds to each row of a ragged column the terms that were found in it; rows stay sorted and
    unique."""
    out_off = np.empty_like(off)
    out = np.empty(term.shape[0] + found.shape[0], np.uint64)
    scratch = np.empty(SCRATCH, np.uint64)
    n = ZERO
    for row in range(off.shape[0] - 1):
        out_off[row] = begin = n
        for i in range(off[row], off[row + 1]):
            out[n] = term[i]
            n += 1
        for i in range(found_off[row], found_off[row + 1]):
            out[n] = found[i]
            n += 1
        if found_off[row] < found_off[row + 1]:
            n = sort_unique(out, begin, n, scratch)
    out_off[off.shape[0] - 1] = n
    return out_off, out[:n].copy()


@njit(cache=True, nogil=True)
def add_to_rows(off: I64, term: U64, rows: I64, new_off: I64, new: U64) -> tuple[I64, U64]:
    """Adds to the rows with these numbers, which rise, of a ragged column the terms of those of
    another one; rows stay sorted and unique."""
    out_off = np.empty(off.shape[0], np.int64)
    out = np.empty(off[off.shape[0] - 1] - off[0] + new_off[rows.shape[0]], np.uint64)
    scratch = np.empty(SCRATCH, np.uint64)
    n = row = ZERO
    for i in range(rows.shape[0] + 1):
        last = rows[i] if i < rows.shape[0] else off.shape[0] - 1
        for kept_row in range(row, last):  # whole stretches between the others
            out_off[kept_row] = off[kept_row] - off[row] + n
        copy_span(out, n, term, off[row], off[last] - off[row])
        n += off[last] - off[row]
        out_off[last] = n
        if i == rows.shape[0]:
            break
        begin, old = n, off[last + 1] - off[last]
        copy_span(out, n, term, off[last], old)
        n += old
        if new_off[i] < new_off[i + 1]:
            copy_span(out, n, new, new_off[i], new_off[i + 1] - new_off[i])
            n = sort_unique(out, begin, n + new_off[i + 1] - new_off[i], scratch)
        row = last + 1
    return out_off, out[:n]
