"""Numba kernels that find the prefixes and phrases of two words that are watched in a batch, and
what texts may have longer phrases.

Nearly all have none. So these loops go through a batch size by size, without a branch that depends
on a word, and only what they list is looked up.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from ps2stream.language.area_kernels import ANYWHERE
from ps2stream.language.hash_kernels import KEYS, mix_sums, start_hash
from ps2stream.language.literal_kernels import (
    BY_AREA,
    EVERYWHERE,
    HEADS,
    LONG_SIZE,
    extend_phrase,
    filter_mask,
    finish_phrase,
    is_watched,
    mark_prefix,
    may_be_seen,
    mix_area,
    phrase_key,
    pick_bits,
    start_phrase,
)
from ps2stream.language.word_kernels import ZERO
from ps2stream.protocol.frame import I64, U8, U16, U64
from ps2stream.protocol.span_kernels import copy_span

_FREE, _ONE, _HALF = np.uint64(0), np.uint64(1), np.uint64(32)
_LOW, _ALL = np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFFFFFFFFFFFF)


_CHUNK = 512  # words that are looked at together: what is noted of them stays near


class _PrefixKeys(NamedTuple):
    """The keys of the hash of prefixes of two to eight bytes: the sums to begin with, and those of
    its two words and of its size."""

    a: np.uint64
    b: np.uint64
    a_low: np.uint64
    b_low: np.uint64
    a_high: np.uint64
    b_high: np.uint64
    a_size: np.uint64
    b_size: np.uint64


@njit(inline="always")
def _pick_keys(keys):
    return _PrefixKeys(*start_hash(keys), keys[0], keys[1], keys[2], keys[3],
                       keys[KEYS - 4], keys[KEYS - 3])  # fmt: skip


@njit(inline="always")
def _sum_prefix(few, bytes_, size):
    """Returns the two sums that the hash of the first `size` bytes of a word is made of."""
    part = bytes_ & _ALL >> np.uint64(64 - 8 * size)
    low, high, n = part & _LOW, part >> _HALF, np.uint64(size)
    a = few.a + few.a_low * low + few.a_high * high + few.a_size * n
    return a, few.b + few.b_low * low + few.b_high * high + few.b_size * n


@njit(cache=True, nogil=True)
def choose_filter(seen: U64, area: U16) -> U64:
    """Returns the bits that say what is not watched in these areas; where there is an object in
    ANYWHERE, of which the bits of areas know nothing, one word that says so of nothing."""
    if seen[seen.shape[0] - 1] & BY_AREA:
        for i in range(area.shape[0]):
            if area[i] == ANYWHERE:
                everything = np.empty(2, np.uint64)
                everything[0], everything[1] = _ALL, EVERYWHERE
                return everything
    return seen


@njit(cache=True, nogil=True)
def _place_prefixes(few, bytes_, mixed, n, size, mask, place, bits):
    """Writes where the bits of the first `size` bytes of n words are, and these bits. Without a
    look at what is there, so that the compiler can take several words at once."""
    if size <= 4:  # half of the sums
        for i in range(n):
            low, high = bytes_[i] & _LOW >> np.uint64(32 - 8 * size), np.uint64(size)
            a = few.a + few.a_low * low + few.a_size * high
            b = few.b + few.b_low * low + few.b_size * high
            place[i] = (a >> _HALF ^ mixed[i]) & mask
            bits[i] = pick_bits(b >> _HALF)
        return
    for i in range(n):
        a, b = _sum_prefix(few, bytes_[i], size)
        place[i] = (a >> _HALF ^ mixed[i]) & mask
        bits[i] = pick_bits(b >> _HALF)


@njit(cache=True, nogil=True)
def _keep_long(bytes_, row_of, mixed, n, size):
    """Keeps of n words those of `size` bytes or more; returns how many these are."""
    last, k = np.uint64(8 * (size - 1)), ZERO
    for i in range(n):
        word, row, mix = bytes_[i], row_of[i], mixed[i]
        bytes_[k], row_of[k], mixed[k] = word, row, mix
        k += word >> last != _FREE
    return k


@njit(cache=True, nogil=True)
def _list_seen(seen, place, bits, n, hits, k):
    """Lists those of n places that have all their bits behind k others; returns how many these
    are together. hits: room for n more than are listed."""
    for i in range(n):
        hits[k] = i
        k += bits[i] & ~seen[place[i]] == _FREE
    return k


@njit(cache=True, nogil=True)
def _make_room(found, found_row, k, more):
    """Returns the first k literals that were found, and their rows, with room for so many more."""
    if found.shape[0] >= k + more:
        return found, found_row
    larger, larger_row = np.empty(2 * (k + more), np.uint64), np.empty(2 * (k + more), np.int64)
    copy_span(larger, 0, found, 0, k)
    copy_span(larger_row, 0, found_row, 0, k)
    return larger, larger_row


@njit(cache=True, nogil=True)
def find_short(
    off: I64,
    term: U64,
    keys: U64,
    rows: tuple[I64, U64, I64, I64, I64, U64],
    watched: tuple[U64, U8, U8, U64, U64],
    seen: U64,
    area: U16,
) -> tuple[I64, U64]:
    """Returns the prefixes, and phrases of two words, that are watched in the area of each row, a
    ragged column of terms, perhaps some more than once.

    off, term: the words of the rows; rows, watched: the fields of SearchBuffers and WatchedTables
    (search_kernels.py); seen: `choose_filter` of its bits."""
    mixed = np.empty(area.shape[0], np.uint64)
    for row in range(area.shape[0]):
        mixed[row] = mix_area(np.int64(area[row]))
    found, found_row, k = np.empty(_CHUNK, np.uint64), np.empty(_CHUNK, np.int64), ZERO
    if rows[3].shape[0]:
        found, found_row, k = _find_prefixes(keys, rows, watched, seen, area, mixed)
    if watched[1][2]:
        found, found_row, k = _find_pairs(
            off, rows[0], term, watched, seen, area, mixed, found, found_row, k
        )
    out_off, out = np.zeros(area.shape[0] + 1, np.int64), np.empty(k, np.uint64)
    for i in range(k):
        out_off[found_row[i]] += 1
    total = ZERO
    for row in range(out_off.shape[0]):
        total += out_off[row]
        out_off[row] = total
    for i in range(k):  # from the end of each row
        out_off[found_row[i]] -= 1
        out[out_off[found_row[i]]] = found[i]
    return out_off, out


@njit(cache=True, nogil=True)
def _find_prefixes(keys, rows, watched, seen, area, mixes):
    """Returns the watched prefixes, the rows that they are in, and how many they are. mixes:
    `mix_area` of each row."""
    _, first, first_row, noted, long_off, long = rows
    table, _, heads, areas, _ = watched
    few, mask, words = _pick_keys(keys), filter_mask(seen), noted[0]
    hits, mixed = np.empty(2 * _CHUNK, np.int64), np.empty(_CHUNK, np.uint64)
    bytes_, row_of = np.empty(_CHUNK, np.uint64), np.empty(_CHUNK, np.int64)
    place, bits = np.empty(_CHUNK, np.uint64), np.empty(_CHUNK, np.uint64)
    widely, flags = np.full(_CHUNK, mix_area(ANYWHERE)), seen[seen.shape[0] - 1]
    sizes = _FREE
    for head in range(HEADS):
        sizes |= np.uint64(heads[head])
    longs = long_off[long_off.shape[0] - 1]
    room = longs + _CHUNK
    found, found_row, k = np.empty(room, np.uint64), np.empty(room, np.int64), ZERO
    for row in range(long_off.shape[0] - 1 if longs else ZERO):
        for i in range(long_off[row], long_off[row + 1]):
            found[k], found_row[k] = long[i], row
            k += is_watched(table, areas, long[i], np.int64(area[row]))
    for begin in range(ZERO, words, _CHUNK):
        n, smallest = min(words - begin, _CHUNK), True
        for i in range(n):
            bytes_[i], row_of[i] = first[begin + i], first_row[begin + i]
            mixed[i] = mixes[row_of[i]]
        for size in range(2, LONG_SIZE + 2):
            if sizes >> np.uint64(size - 2) & _ONE == _FREE:
                continue
            if not smallest:  # no word that was noted is shorter than that
                n = _keep_long(bytes_, row_of, mixed, n, size)
            smallest, many = False, ZERO
            if flags & BY_AREA:
                _place_prefixes(few, bytes_, mixed, n, size, mask, place, bits)
                many = _list_seen(seen, place, bits, n, hits, many)
            if flags & EVERYWHERE:
                _place_prefixes(few, bytes_, widely, n, size, mask, place, bits)
                many = _list_seen(seen, place, bits, n, hits, many)
            found, found_row = _make_room(found, found_row, k, many)
            for hit in range(many):
                i = hits[hit]
                a, b = _sum_prefix(few, bytes_[i], size)
                found[k], found_row[k] = mark_prefix(mix_sums(a, b)), row_of[i]
                k += is_watched(table, areas, found[k], np.int64(area[row_of[i]]))
    return found, found_row, k


@njit(cache=True, nogil=True)
def _place_pairs(term, mixed, n, mask, place, bits):
    """Writes where the bits of each of n words and the next one are, and these bits."""
    for i in range(n):
        key = phrase_key(extend_phrase(extend_phrase(start_phrase(), term[i]), term[i + 1]), 2)
        place[i] = (key >> _HALF ^ mixed[i]) & mask
        bits[i] = pick_bits(key)


@njit(cache=True, nogil=True)
def _find_pairs(off, word_end, term, watched, seen, area, mixes, found, found_row, k):
    """Appends the watched phrases of two words to what was found, like `_find_prefixes`. First all
    words are taken as one text: what lies across the end of a row is left out when it was seen."""
    table, _, _, areas, _ = watched
    mask, rows = filter_mask(seen), off.shape[0] - 1
    hits, flags = np.empty(2 * _CHUNK, np.int64), seen[seen.shape[0] - 1]
    mixed, widely = np.empty(_CHUNK, np.uint64), np.full(_CHUNK, mix_area(ANYWHERE))
    place, bits = np.empty(_CHUNK, np.uint64), np.empty(_CHUNK, np.uint64)
    row_of = np.empty(_CHUNK, np.int64)
    row, at = ZERO, off[0]
    while row < rows:
        begin, n = at, ZERO
        while row < rows and n < _CHUNK:
            last, mix = min(off[row + 1], at + _CHUNK - n), mixes[row]
            for _ in range(at, last):
                mixed[n], row_of[n] = mix, row
                n += 1
            at = last
            row += at == off[row + 1]
        n -= at == off[rows]  # the last word has no next one
        words, many = term[begin : begin + n + 1], ZERO
        if flags & BY_AREA:
            _place_pairs(words, mixed, n, mask, place, bits)
            many = _list_seen(seen, place, bits, n, hits, many)
        if flags & EVERYWHERE:
            _place_pairs(words, widely, n, mask, place, bits)
            many = _list_seen(seen, place, bits, n, hits, many)
        found, found_row = _make_room(found, found_row, k, many)
        for hit in range(many):
            i, own = begin + hits[hit], row_of[hits[hit]]
            sum_ = extend_phrase(extend_phrase(start_phrase(), term[i]), term[i + 1])
            found[k], found_row[k] = finish_phrase(sum_, 2), own
            is_whole = i + 1 < word_end[own]
            k += is_whole and is_watched(table, areas, found[k], np.int64(area[own]))
    return found, found_row, k


@njit(cache=True, nogil=True)
def mark_phrases(off: I64, word_end: I64, term: U64, of_size: U8, seen: U64, area: U16) -> U8:
    """Returns which rows may have a watched phrase of three words or more, uint8[n], among the
    terms of their words, of off[row] to word_end[row]. of_size: the words of a LiteralView; seen:
    `choose_filter` of its bits."""
    longest, mask = np.int64(of_size[0]), filter_mask(seen)
    marks = np.zeros(off.shape[0] - 1, np.uint8)
    for row in range(off.shape[0] - 1 if longest > 2 else ZERO):
        mixed, widely = mix_area(np.int64(area[row])), mix_area(ANYWHERE)
        for i in range(off[row], word_end[row]):
            sum_ = start_phrase()
            for words in range(1, min(longest, word_end[row] - i) + 1):
                sum_ = extend_phrase(sum_, term[i + words - 1])
                if words > 2 and of_size[words]:
                    key = phrase_key(sum_, words)
                    marks[row] |= may_be_seen(seen, mask, mixed, key >> _HALF, key)
                    marks[row] |= may_be_seen(seen, mask, widely, key >> _HALF, key)
    return marks
