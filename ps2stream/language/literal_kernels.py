"""Numba kernels of watched literals: their terms, tables of them, and the search in texts."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from ps2stream.language.area_kernels import ANYWHERE, AREA_WORDS, Integer, mark_boxes
from ps2stream.language.hash_kernels import unmix_sums
from ps2stream.protocol.frame import F64, I16, I64, U8, U16, U64
from ps2stream.protocol.rows import PROG_NOTES

_PHRASE: Final = np.uint64(0xA0761D6478BD642F)
_PREFIX: Final = np.uint64(0xE7037ED1A0B428DB)
_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_SPREAD: Final = np.uint64(0xD6E8FEB86659FD93)
_UNSPREAD: Final = np.uint64(pow(int(_SPREAD), -1, 1 << 64))  # times _SPREAD it is 1
_HALF: Final = np.uint64(32)
_FREE: Final = np.uint64(0)
_ONE: Final = np.uint64(1)
_SIX: Final = np.uint64(6)
_TWELVE: Final = np.uint64(12)
_LAST_BIT: Final = np.uint64(63)

OF_PHRASE, OF_PREFIX, OF_PAIR = 1, 2, 6
"""Kinds of literals, see LiteralKind."""
BY_AREA, EVERYWHERE = np.uint64(1), np.uint64(2)
"""Bits of the last word of LiteralView.seen: a term is marked in areas, one in all at once."""
RECENT: Final = 256  # phrases, a power of 2
REPEATED: Final = 4  # words by which a text is known to go on as it did before
PLACES: Final = 4096  # of such words, a power of 2
NAME_MARKS: Final = 256  # marks of names of attributes that are in pairs
PAIR_MARKS: Final = NAME_MARKS + NAME_MARKS * NAME_MARKS // 8
HEADS: Final = 256  # hashes of the two bytes that a prefix begins with
LONG_SIZE: Final = 7  # the bit of all prefixes of nine bytes or more; bit 0 is of two bytes


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
def phrase_key(sum_: np.uint64, words: int) -> np.uint64:
    """Returns what `finish_phrase` spreads."""
    return sum_ + np.uint64(words)


@njit(inline="always")
def finish_phrase(sum_: np.uint64, words: int) -> np.uint64:
    """Returns the term of a phrase of so many words."""
    sum_ = phrase_key(sum_, words) * _SPREAD
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
def list_watched(
    term_off: I64, term: U64, prog_off: I64, prog: I16, box_off: I64, box: F64
) -> tuple[U64, U8, U16, U64, F64]:
    """Returns the watched literals of queries, by the notes behind their programs (rows.py), the
    areas of their boxes, and these boxes; that of a query without any is the world."""
    room = prog.shape[0] // 2 + 1
    found, kind, size, area = (
        np.empty(room, np.uint64),
        np.empty(room, np.uint8),
        np.empty(room, np.uint16),
        np.empty((room, AREA_WORDS), np.uint64),
    )
    mask = np.empty(AREA_WORDS, np.uint64)
    boxes = np.empty((box.shape[0] // 4 + term_off.shape[0], 4), np.float64)
    n = m = 0
    for row in range(term_off.shape[0] - 1):
        last = prog_off[row + 1] - 1
        if last < prog_off[row] or prog[last] > PROG_NOTES:
            continue
        notes = PROG_NOTES - np.int64(prog[last])
        is_marked = False
        for at in range(last - 2 * notes, last, 2):
            if prog[at] >> 8 == 0:  # of validity, see protocol/validity.py
                break
            found[n] = term[term_off[row] + (prog[at] & 0xFF)]
            kind[n] = prog[at] >> 8
            size[n] = prog[at + 1] & 0xFFFF
            if not is_marked:
                begin, end = box_off[row], box_off[row + 1]
                mark_boxes(box, begin, end, mask)
                for k in range(begin, end, 4):
                    for corner in range(4):
                        boxes[m, corner] = box[k + corner]
                    m += 1
                if begin == end:
                    boxes[m, 0], boxes[m, 1], boxes[m, 2], boxes[m, 3] = -180.0, -90.0, 180.0, 90.0
                    m += 1
                is_marked = True
            area[n] = mask
            n += 1
    columns = found[:n].copy(), kind[:n].copy(), size[:n].copy(), area[:n].copy()
    return (*columns, boxes[:m].copy())


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


@njit(inline="always")
def mix_area(area: Integer) -> np.uint64:
    """Returns what `may_be_seen` knows an area by."""
    return np.uint64(area + 1) * _STEP >> _HALF


@njit(inline="always")
def filter_mask(seen: U64) -> np.uint64:
    """Returns the words of `seen` less one, without the last, which has the bits BY_AREA and
    EVERYWHERE."""
    return np.uint64(seen.shape[0] - 2)


@njit(inline="always")
def pick_bits(pattern: np.uint64) -> np.uint64:
    """Returns three bits of a word, by the lowest bits of a pattern: where there are twice as many
    words as there are terms, hardly any term that is not watched has all three."""
    bits = _ONE << (pattern & _LAST_BIT) | _ONE << (pattern >> _SIX & _LAST_BIT)
    return bits | _ONE << (pattern >> _TWELVE & _LAST_BIT)


@njit(inline="always")
def may_be_seen(
    seen: U64, mask: np.uint64, mixed: np.uint64, place: np.uint64, pattern: np.uint64
) -> bool:
    """Returns whether a phrase or prefix may be watched in an area; if not, it surely is not. Only
    one word is read. mask: `filter_mask`; mixed: `mix_area` of the area, and of ANYWHERE for what
    is watched in many.

    place and pattern: 32 bits each that its term is made of by steps that can be undone, so that
    these need be taken only for what may be watched: of a prefix the upper halves of the two sums
    of its hash, of a phrase those of what `finish_phrase` spreads, see `phrase_key`."""
    bits = pick_bits(pattern)
    return bool(seen[(place ^ mixed) & mask] & bits == bits)


@njit(inline="always")
def is_watched(table: U64, areas: U64, term: np.uint64, area: Integer) -> bool:
    """Returns whether a term is watched in an area, by the fields of a LiteralView."""
    at = find_literal(table, term)
    if at < 0 or area == ANYWHERE:
        return bool(at >= 0)
    return bool(areas[at, area >> 6] >> np.uint64(area & 63) & _ONE)


@njit(cache=True, nogil=True)
def _mark_seen(seen: U64, term: np.uint64, kind: int, area: Integer) -> None:
    """Marks a phrase or prefix as watched in an area."""
    key = (term ^ term >> _HALF) * _UNSPREAD
    other = key
    if kind == OF_PREFIX:
        key, other = unmix_sums(key ^ _PREFIX)
    mask, mixed = filter_mask(seen), mix_area(area)
    seen[np.int64((key >> _HALF ^ mixed) & mask)] |= pick_bits(key)
    seen[np.int64((other >> _HALF ^ mixed) & mask)] |= pick_bits(other)
    seen[seen.shape[0] - 1] |= EVERYWHERE if area == ANYWHERE else BY_AREA


@njit(cache=True, nogil=True)
def _widen_term(areas: U64, seen: U64, at: int, term: np.uint64, kind: int, more: U64) -> None:
    """Adds areas, uint64[4], to those of the term at a place. If these are all, it is marked once,
    as the marks of each would leave no bits for others."""
    everywhere, is_wider = ~_FREE, False
    for word in range(AREA_WORDS):
        everywhere &= more[word]
        fresh = more[word] & ~areas[at, word]
        is_wider |= fresh != _FREE
        areas[at, word] |= fresh
    if kind > OF_PREFIX or not is_wider:  # no text has it, or all is marked
        return
    if everywhere == ~_FREE:
        _mark_seen(seen, term, kind, np.int64(ANYWHERE))
        return
    for area in range(64 * AREA_WORDS):
        if more[area >> 6] >> np.uint64(area & 63) & _ONE != _FREE:
            _mark_seen(seen, term, kind, area)


@njit(cache=True, nogil=True)
def hold_literals(table: U64, areas: U64, seen: U64, term: U64, kind: U8, area: U64) -> None:
    """Adds terms that are watched in areas to a table, which keeps a free place."""
    for i in range(term.shape[0]):
        at = find_literal(table, term[i])
        if at < 0:
            at = -1 - at
            table[at] = term[i]
        _widen_term(areas, seen, at, term[i], kind[i], area[i])


@njit(cache=True, nogil=True)
def mark_literals(kind: U8, size: U16, marks: tuple[U8, U8, U8, U8]) -> None:
    """Marks the kinds and sizes of literals in `marks`: words, heads, kinds and pairs of a
    LiteralView."""
    words, heads, kinds, pairs = marks
    for i in range(kind.shape[0]):
        own = np.int64(size[i])
        kinds[kind[i]] = 1
        if kind[i] == OF_PHRASE:
            words[own] = 1
            words[0] = max(np.int64(words[0]), own)
        elif kind[i] == OF_PREFIX:
            width = own & 0xFF
            heads[own >> 8] |= 1 << (width - 2 if width < LONG_SIZE + 2 else LONG_SIZE)
            heads[HEADS] = max(np.int64(heads[HEADS]), width)
        elif kind[i] == OF_PAIR:
            pairs[own >> 8] = pairs[own & 0xFF] = 1
            pairs[NAME_MARKS + (own >> 3)] |= 1 << (own & 7)


@njit(cache=True, nogil=True)
def hold_terms(table: U64, terms: U64) -> None:
    """Adds terms to a table, which keeps a free place."""
    for term in terms:
        at = find_literal(table, term)
        if at < 0:
            table[-1 - at] = term


@njit(inline="always")
def recent_size(of_size: U8) -> Integer:
    """Returns the size of what `list_phrases` notes of a text, by the sizes of phrases."""
    return RECENT + (PLACES if of_size[0] >= REPEATED else 0)


@njit(inline="always")
def _place_words(words: U64, i: Integer) -> np.int64:
    """Returns where in the notes the place is of the REPEATED words from i on."""
    sum_ = start_phrase()
    for k in range(REPEATED):
        sum_ = (sum_ ^ words[i + k]) * _STEP
    return np.int64(RECENT) + np.int64(sum_ >> _HALF & np.uint64(PLACES - 1))


@njit(inline="always")
def _count_repeated(
    words: U64, begin: Integer, end: Integer, i: Integer, most: Integer, recent: U64,
    before: Integer, known: Integer,
) -> tuple[np.int64, np.int64]:  # fmt: skip
    """Returns a place before i, from `begin` on, where the text goes on as at i, and for how many
    words it does, at most so many; 0 if none is known. before, known: the same of i - 1, or what is
    left of it: so a text is compared once. Notes where the words at i are."""
    same, m = np.int64(before + 1), np.int64(max(known - 1, 0))
    if i + REPEATED <= end:
        at = _place_words(words, i)
        if m == 0:
            same = np.int64(recent[at])  # perhaps of another text, or of other words
            if not begin <= same < i:
                same = i
        recent[at] = np.uint64(i)
    if m == 0 and not begin <= same < i:
        return same, m
    while m < most and words[same + m] == words[i + m]:
        m += 1
    return same, m


@njit(cache=True, nogil=True)
def list_phrases(
    watched: tuple[U64, U8, U8, U64, U64],
    area: Integer,
    words: U64,
    begin: Integer,
    end: Integer,
    recent: U64,
    found: U64,
    n: Integer,
) -> Integer:
    """Appends the phrases among the adjacent words[begin:end] that are watched in an area to
    `found` at n, perhaps some more than once; returns the new end, or -1 if `found` has not enough
    room. watched: the fields of WatchedTables (search_kernels.py); recent uint64[recent_size], the
    first RECENT zeros: those that were found last, and where words were. So a text that repeats
    itself has each about once: what begins where it goes on as it did before was found there."""
    table, of_size, _, areas, seen = watched
    longest, mask = np.int64(of_size[0]), filter_mask(seen)
    mixed, widely, is_anywhere = mix_area(area), mix_area(ANYWHERE), area == ANYWHERE
    may_repeat, before, known = longest >= REPEATED, np.int64(begin), np.int64(0)
    for i in range(begin, end):
        most = min(longest, end - i)
        if may_repeat:
            before, known = _count_repeated(words, begin, end, i, most, recent, before, known)
            if known == most:
                continue
        sum_ = start_phrase()
        for size in range(1, most + 1):
            sum_ = extend_phrase(sum_, words[i + size - 1])
            if not of_size[size] or size <= known:
                continue
            key = phrase_key(sum_, size)
            may = is_anywhere or may_be_seen(seen, mask, mixed, key >> _HALF, key)
            if not (may or may_be_seen(seen, mask, widely, key >> _HALF, key)):
                continue
            term = finish_phrase(sum_, size)
            at = np.int64(term & np.uint64(RECENT - 1))
            if recent[at] == term or not is_watched(table, areas, term, area):
                continue
            if n == found.shape[0]:
                return -1
            recent[at] = term
            found[n] = term
            n += 1
    return n


@njit(cache=True, nogil=True)
def count_up(
    tables: tuple[U64, U64, U64],
    columns: tuple[I64, U8, U16],
    literals: tuple[U64, U8, U16, U64],
    more: I64,
    marks: tuple[U8, U8, U8, U8],
) -> tuple[int, int]:
    """Adds `more` to the counts of literals (term, kind, size, area) in a table with room for them,
    whose `columns` are count, kind and size by place. tables: term, area and seen of a LiteralView;
    marks: see `mark_literals`. Returns how many it did not hold, and of how many the count was
    0."""
    table, areas, seen = tables
    count, kinds, sizes = columns
    term, kind, size, area = literals
    mark_literals(kind, size, marks)
    fresh = begun = 0
    for i in range(term.shape[0]):
        at = find_literal(table, term[i])
        if at < 0:
            at = -1 - at
            kinds[at], sizes[at] = kind[i], size[i]
            areas[at] = _FREE
            table[at] = term[i]
            fresh += 1
        _widen_term(areas, seen, at, term[i], kind[i], area[i])
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
