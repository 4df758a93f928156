"""Memory layout of the radix GI2, and the small functions that its kernels share.

GI2 with the grid inside the keyword: a directory finds a term, and a tree over space under it
finds the few queries near an object. Everything is a flat array that can be grown by copying:

directory uint64[n, 8]: buckets of four entries by (term, root cell), each one cache line: the whole
        terms, so a hit is exact, then a word for each: ref | root << 32 | areas << 40, 0 = empty.
        What a full bucket has no place for is in the next. The root cell is one of 64 (45
        degrees), 1 + its number, or WIDE for regions that touch more than KEPT of them.
        areas: a bit for each area of a torus that a region under it touches. A WIDE tree is a
        leaf, however long; a long one is divided by the codes of comparisons: what has one is in
        a tree of its own, under a term made of both (see `division_kernels`).
nodes   uint64[]: inner nodes and leaves; a ref is an offset in it, 0 = none, INNER is added for
        an inner node. An inner node is a head (ref of the regions too large for a child | filled
        children << 32) and a word for each child: ref | areas << 32, areas being 8 x 4 bits.
        A leaf is a chain of blocks: head (next block | length << 32 | class << 40 | whether it
        is even << 47 | blocks behind << 48), then as structure of arrays for up to 64 postings:
        rectangles uint32, mode << 30 | slot uint32, two bytes uint16: fingerprints of keywords, or
        codes of comparisons. In an even block all postings are of mode ALL, and of regions that
        hold the whole cell.
        A rectangle is four bytes, lowest corner and 255 - highest, relative to the cell of the
        leaf: a vector of 16 is compared with an object by one maximum.
slots   one 64-byte line a query (float64 and int64 views of the same memory): first box, handle
        (of a free slot, -2 - the next one), session << 6 | level << 2 | kind, and two terms, or
        offsets in the pool: of the expression, above which are fingerprints of two terms that it
        needs beside those of the posting, or 0; and of what else there is to check, or 0.
pool    uint64[]: blocks. Expression: form | terms << 8 | program << 16 | class << 32 | posted
        terms << 40, the terms, the program, and the posted terms if these are more than 24. Of a
        conjunction with NOTs the program is a bit for each term that must be there, and a bit for
        each that must not.
        Extras: delete LSN, or -chunk of holders; shape | boxes << 8 | class << 16 | geometry <<
        32; offset and size of the list of tags, or 0; second box, or what is known of a polygon
        (see `raster_kernels`); geometry. List: cell << 8 | number of the term, ascending.
dead    uint64[slots / 64]: a bit for each slot to be swept.
places  uint32[n]: handle -> slot or holder; see `place_kernels`.
holders int64[]: of queries that are alike, which are stored once; see `holder_kernels`.
bands   uint64[17, 65]: of the comparisons of queries, see `band_kernels`; the last two rows are of
        their equalities, see `set_kernels`.
cells   uint32[2^k] and counts int64[2^k, 2]: live postings and their bytes by tag cell.

A query whose tags are all that its boxes touch on its level, times all its posting terms, has no
list: its exact region says enough. Another one has its tags listed, as its worker may hold it in
one cell and not in the next. So trees need not know of units, and a match changes nothing.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.workers.radix.vectors import find_in_bucket, lowest_bit

FORMAT = 1 << 16 | 8
"""The version of what a snapshot holds: raise it with any change of the layout or a hash. It is
no number of the flat layout."""

FREE, ALL, ANY, GENERAL = 0, 1, 2, 3  # modes: what is left to check of the expression
CONJUNCTION = 3  # a form beside those of ExpressionForm: PROGRAM, kept as bits
SLOT_BITS = 30
SLOT_MASK = (1 << SLOT_BITS) - 1

# slot columns
HANDLE, SESSION, FIRST, SECOND = 4, 5, 6, 7
ONE, BOTH, EITHER, BLOCK = 0, 1, 2, 3  # kinds: where the terms are
KIND_MASK, LEVEL_SHIFT, LEVEL_MASK, SESSION_SHIFT = 3, 2, 15, 6
REST_SHIFT = 48  # of the fingerprints in FIRST, one byte each
OFFSET_MASK = (1 << REST_SHIFT) - 1

# extras
X_DELETED, X_HEAD, X_LIST, X_LISTED, X_BOX, X_GEOM = 0, 1, 2, 3, 4, 8
POOL_UNIT = 4  # words of the smallest block
SHORT_POST = 24  # terms whose `post` is in the head of an expression

# state vector (int64)
DIRECTORY_USED, NODE_TOP, SLOT_TOP, SLOT_FREE, POOL_TOP = 0, 1, 2, 3, 4
LIVE, PURGEABLE, POSTINGS, CELLS_USED, ROW, WIDE_USED, WANTED = 5, 6, 7, 8, 9, 10, 11
NODE_ROOM, DIRECTORY_SIZE, CELLS_SIZE, POOL_SIZE, PLACES_SIZE, TAGS_SIZE = 12, 13, 14, 15, 16, 17
NODE_GAPS = 18  # words that lie idle, so that blocks begin where they are to
PLACE_BITS, HOLDER_TOP, HOLDER_SIZE, SHARED = 19, 20, 21, 22  # bits of a ref in `places`
HOLDER_FREE = 23  # and by class of chunk
# Of a sweep that stopped in a long leaf: terms of its slot that are done, the leaf, and the block
# from which on it is still to be searched, or 0.
SWEPT_TERMS, SWEPT_LEAF, SWEPT_BLOCK = 30, 31, 32
WALKED, WALK_SETS, WALK_WAYS = 33, 64, 4  # notes of leaves; see `leaf_kernels.is_walked`
STATE = WALKED + WALK_SETS * WALK_WAYS

STEP_BITS = 24
_STEPS_PER_DEGREE = (1 << STEP_BITS) / 360.0
CELL_BITS = np.array([0, 3, 6, 8, 10, 12, 14])
"""Bits of the cells by depth: depth 0 are the trees of WIDE, which are leaves."""
DEEPEST = len(CELL_BITS) - 1
LEAVES_A_KEY = DEEPEST + 1  # that a match finds: one on each level of a tree
BUCKET, ENTRIES = 8, 4  # words of a bucket of the directory, and its entries
HELD, FULL = np.uint64(15), np.uint64(1 << 8)  # what `find_in_bucket` says
ROOT_BITS = 3
WIDE = 65
KEPT = 4  # children that a region may touch without being held by the node itself
INNER = 1 << 31
REF_MASK = INNER - 1
LOW = np.uint64(0xFFFFFFFF)
NO_WORD = np.uint64(0)

CAPACITY = np.array([1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64])
LAST_CLASS = len(CAPACITY) - 1
EVEN = np.uint64(1 << 47)  # in the head of a block
LANES = 16
LINE = 8  # words
ALIGNED_CLASS = CAPACITY.tolist().index(LANES)
"""From this class on, what is behind the head of a block is whole cache lines."""
BLOCK_WORDS = np.array(
    [1 + (10 * c + 7) // 8 for c in CAPACITY.tolist() if c < LANES]
    + [-(-(1 + 10 * c // 8) // LINE) * LINE for c in CAPACITY.tolist() if c >= LANES]
    + [65, 17]
)
"""Words of the blocks of leaves by class, then of inner nodes of 64 and of 16 children."""
PRINT_WORDS = 16  # of an object: its fingerprints, and the codes that may and that surely hold
BANDS, SAMPLE = 15, 64
SETS = 16  # of equalities that have codes, those of the band behind the last one
BAND_ROW = SAMPLE + 1
SLACK = 16  # words behind the last node, as vectors are read whole

AREA_BITS = 8  # of the areas in the directory
AREA_SHIFT = STEP_BITS - AREA_BITS
AREA_ROWS = 3
ALL_AREAS = (1 << 8 * AREA_ROWS) - 1

_C1 = np.uint64(0x9E3779B97F4A7C15)
_C2 = np.uint64(0xD6E8FEB86659FD93)


@njit(inline="always")
def home(term, root, size):
    """Returns the bucket to which a term with a root cell belongs, of `size`, below 2^32."""
    mixed = ((term ^ (np.uint64(root) * _C1)) * _C2) >> np.uint64(32)
    return np.int64((mixed * np.uint64(size)) >> np.uint64(32))


@njit(cache=True, nogil=True)
def follow_buckets(directory, size, where, term, root):
    """Returns what `find_in_bucket` says of the first bucket behind a full one that holds a term
    with a root cell, or is not full; and that bucket."""
    held = FULL
    while held == FULL:
        where = where + 1 if where + 1 < size else 0
        held = find_in_bucket(directory, BUCKET * where, term, root)
    return held, where


@njit(cache=True, nogil=True)
def look_further(directory, size, where, term, root):
    """Returns the word of a term with a root cell, or 0, from this bucket on: behind a full one
    that does not have it, it may be in the next."""
    held = find_in_bucket(directory, BUCKET * where, term, root)
    if held == FULL:
        held, where = follow_buckets(directory, size, where, term, root)
    if held & HELD == NO_WORD:
        return NO_WORD
    return directory[BUCKET * where + ENTRIES + lowest_bit(held)]


@njit(inline="always")
def find_entry(directory, size, term, root):
    """Returns where the word of a term with a root cell is in the directory, ENTRIES behind its
    term, or the empty place where it would go."""
    where = home(term, root, size)
    held = find_in_bucket(directory, BUCKET * where, term, np.uint64(root))
    if held == FULL:
        held, where = follow_buckets(directory, size, where, term, np.uint64(root))
    at = BUCKET * where + ENTRIES
    if held & HELD != NO_WORD:
        return at + lowest_bit(held)
    while directory[at] != NO_WORD:
        at += 1
    return at


@njit(inline="always")
def fingerprint(term):
    """Returns the fingerprint of a term, 1 to 255."""
    print_ = np.int64((term * _C1) >> np.uint64(56))
    return print_ + (print_ == 0)


@njit(inline="always")
def wide_bit(term):
    """Returns the bit of a term in the filter of terms with WIDE trees."""
    return np.int64((term * _C2) >> np.uint64(48))


@njit(inline="always")
def step_x(lon):
    """Returns a longitude as whole steps from the west. It is monotone, also in floating point,
    and exactness needs no more: a <= b gives step_x(a) <= step_x(b)."""
    return min(max(np.int64((lon + 180.0) * _STEPS_PER_DEGREE), 0), (1 << STEP_BITS) - 1)


@njit(inline="always")
def step_y(lat):
    """Returns a latitude as whole steps from the south, monotone like `step_x`."""
    return min(max(np.int64((lat + 90.0) * _STEPS_PER_DEGREE), 0), (1 << STEP_BITS - 1) - 1)


@njit(inline="always")
def root_at(x, y):
    """Returns the root cell of a step."""
    shift = STEP_BITS - ROOT_BITS
    return 1 + (y >> shift) * (1 << ROOT_BITS) + (x >> shift)


@njit(inline="always")
def pack_point(x, y, shift):
    """Returns a point relative to a cell as four bytes, as rectangles are compared with it."""
    a, b = (x >> shift) & 255, (y >> shift) & 255
    return np.uint32(a | b << 8 | (255 - a) << 16 | (255 - b) << 24)


@njit(inline="always")
def pack_rect(x0, y0, x1, y1):
    """Returns a rectangle of bytes as a posting holds it."""
    return np.uint32(x0 | y0 << 8 | (255 - x1) << 16 | (255 - y1) << 24)


@njit(inline="always")
def area_at(x, y):
    """Returns the number of a step's area in the directory."""
    return ((x >> AREA_SHIFT) & 7) + 8 * ((y >> AREA_SHIFT) % AREA_ROWS)


@njit(inline="always")
def is_dead(dead, slot):
    """Returns whether this slot waits to be swept."""
    return (dead[slot >> 6] >> np.uint64(slot & 63)) & np.uint64(1) != 0


@njit(inline="always")
def is_even_block(head):
    """Returns whether a block is even and has room for as many postings as any."""
    long = np.uint64(127 << 40) | EVEN
    return head & long == np.uint64(LAST_CLASS << 40) | EVEN


@njit(inline="always")
def block_length(head):
    """Returns the number of postings in a block of a leaf."""
    return np.int64(head >> np.uint64(32)) & 255


@njit(inline="always")
def block_class(head):
    """Returns the class of a block of a leaf."""
    return np.int64(head >> np.uint64(40)) & 127


@njit(inline="always")
def take_words(pool, pool_free, state, words):
    """Takes a block of at least `words` words from the pool, which has room for it; returns its
    offset and class. One of a cache line or more begins with a line."""
    cls = 0
    while (POOL_UNIT << cls) < words:
        cls += 1
    at = pool_free[cls]
    if at != 0:
        pool_free[cls] = np.int64(pool[at])
        return at, cls
    at = state[POOL_TOP]
    if cls > 0 and at % LINE != 0:
        pool[at] = np.uint64(pool_free[0])
        pool_free[0] = at
        at += POOL_UNIT
    state[POOL_TOP] = at + (POOL_UNIT << cls)
    return at, cls


@njit(inline="always")
def free_words(pool, pool_free, at, cls):
    """Gives back a block of the pool."""
    pool[at] = np.uint64(pool_free[cls])
    pool_free[cls] = at


@njit(inline="always")
def expression_of(slots_i, slot):
    """Returns the offset of the expression of a slot with blocks."""
    return slots_i[8 * slot + FIRST] & OFFSET_MASK


@njit(inline="always")
def posted_terms(pool, at):
    """Returns `post` of the expression at `at`: a bit for each of its posting terms."""
    head = np.int64(pool[at])
    n = head >> 8 & 255
    if n <= SHORT_POST:
        return np.uint64(pool[at] >> np.uint64(40))
    return pool[at + 1 + n + (head >> 16 & 0xFFFF)]
