"""Long WIDE lists of the radix GI2, divided by the codes of comparisons.

`mag > 6` for the whole world is posted under the presence of `mag`, in a tree that is one leaf,
since place does not divide it. Most objects that have a `mag` satisfy few of a million such
queries. So a posting under the attribute that its query compares, of a band with many WIDE ones, is
in the list of its code (see `band_kernels`), and an object reads the lists of the codes that may
hold for it, at most BUCKETS a band. It is the posting rule again: the comparison is an access
predicate, and the directory finds its list by a term made of the attribute's and the code.

The code of a query is that of its first comparison of the attribute, which has the same code as
long as the query lives, once its band has bounds. What came before is moved, and gets its codes,
when the band has many; a sweep looks in both lists.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.protocol.programs import OPERATOR_MASK, OPERATOR_SHIFT
from ps2stream.workers.radix.band_kernels import (
    BUCKETS,
    COMPARED,
    MAY,
    NO_SHARE,
    UNEQUAL,
    USED,
    CodePair,
    add_code,
    find_known_code,
    pair_codes,
)
from ps2stream.workers.radix.conjunction_kernels import BYTES_SHIFT
from ps2stream.workers.radix.layout import (
    ALL_AREAS,
    BLOCK,
    BUCKET,
    CAPACITY,
    CONJUNCTION,
    DIRECTORY_SIZE,
    DIRECTORY_USED,
    ENTRIES,
    KIND_MASK,
    LAST_CLASS,
    LOW,
    NO_WORD,
    NODE_ROOM,
    NODE_TOP,
    PRINT_WORDS,
    SESSION,
    SLOT_BITS,
    SLOT_MASK,
    SWEPT_LEAF,
    WANTED,
    WIDE,
    WIDE_USED,
    block_class,
    block_length,
    expression_of,
    find_entry,
    home,
    posted_terms,
    wide_bit,
)
from ps2stream.workers.radix.leaf_kernels import (
    append_posting,
    forget_stop,
    forget_walk,
    free_node,
    locate_posting,
)
from ps2stream.workers.radix.pointers import prefetch

DIVIDED_FROM, WIDE_POSTINGS = 2, 48  # in the first row of `bands`: a number, and one of each band
CODE_SHIFT = 48  # in the second word of a key of `probe_kernels`
_LIST_WORDS = 1024
"""Of nodes, that a list may take beside two for each posting, as it grows from class to class."""
_BITS = 2  # words of a conjunction without comparisons
_SPREAD = np.uint64(0xA24BAED4963EE407)
_ONE_BIT = np.uint64(1)


@njit(inline="always")
def divide_term(term, code):
    """Returns the term of the list of a code under a term; that of 0 is the term itself."""
    return term ^ np.uint64(code) * _SPREAD


@njit(inline="always")
def _is_divided(bands, band):
    return bands[WIDE_POSTINGS + band] > bands[DIVIDED_FROM]


@njit(cache=True, nogil=True)
def count_divided(bands):
    """Returns the number of bands of which lists are divided."""
    divided = 0
    for band in range(1, np.int64(bands[USED]) + 1):
        divided += _is_divided(bands, band)
    return divided


@njit(inline="always")
def _compares(index, slot):
    """Returns where the pool has the expression of a slot, and the words behind its terms, if it is
    a conjunction with comparisons; or zeros."""
    pool, slots_i = index.pool, index.slots_i
    if slots_i[8 * slot + SESSION] & KIND_MASK != BLOCK:
        return np.int64(0), np.int64(0)
    at = expression_of(slots_i, slot)
    head = np.int64(pool[at])
    if head & 255 != CONJUNCTION or head >> 16 & 0xFFFF <= _BITS:
        return np.int64(0), np.int64(0)
    return at, at + 1 + (head >> 8 & 255)


@njit(cache=True, nogil=True)
def find_code(index, slot, term):
    """Returns the code of the first comparison of the attribute with this term in the query of a
    slot; 0 if there is none, if its band has no bounds, or if more than a conjunction holds."""
    pool = index.pool
    at, p = _compares(index, slot)
    if at == 0:
        return np.int64(0)
    counts = np.int64(pool[p + _BITS])
    p += _BITS + 1 + (counts & 0xFFFF)
    for _ in range(counts >> 16):
        about = np.int64(pool[p])
        if pool[at + 1 + (about & 63)] == term and _operator(about) != UNEQUAL:
            return _code_stored(index, p, term)
        p += 1 + _key_words(about)
    return np.int64(0)


@njit(inline="always")
def _operator(about):
    return about >> OPERATOR_SHIFT & OPERATOR_MASK


@njit(inline="always")
def _key_words(about):
    return ((about >> BYTES_SHIFT) + 7) >> 3


@njit(inline="always")
def _code_stored(index, p, term):
    """Returns the code, or 0, of the comparison at pool[p], of the attribute with this term."""
    about = np.int64(index.pool[p])
    key = index.pool[p + 1] if about >> BYTES_SHIFT > 0 else NO_WORD
    return find_known_code(index.bands, term, about & ((1 << BYTES_SHIFT) - 1), key)


@njit(cache=True, nogil=True)
def describe_stored(index, slot, term, mode, prints):
    """Returns mode and codes of the posting of a slot under a term as `describe_posting` does for
    its row, or those given, if it has no codes."""
    pool = index.pool
    at, p = _compares(index, slot)
    if at == 0:
        return mode, prints
    number = 0
    while pool[at + 1 + number] != term:
        number += 1
    own, post = _ONE_BIT << np.uint64(number), posted_terms(pool, at)
    needed, barred, counts = pool[p], pool[p + 1], np.int64(pool[p + _BITS])
    p += _BITS + 1
    holds = (needed & ~own == NO_WORD) & (barred == NO_WORD)
    for _ in range(counts & 0xFFFF):
        holds &= pool[p] & own != NO_WORD
        p += 1
    found, compared = CodePair(np.int64(0), np.int64(0), NO_SHARE, NO_SHARE), NO_WORD
    for _ in range(counts >> 16):
        about = np.int64(pool[p])
        compared |= _ONE_BIT << np.uint64(about & 63)
        code = np.int64(0)
        if _operator(about) != UNEQUAL:
            code = _code_stored(index, p, pool[at + 1 + (about & 63)])
        holds &= (code != 0) & (found.other == 0)  # the codes of two are all that there is room for
        found = add_code(found, code, _operator(about))
        p += 1 + _key_words(about)
    if found.one == 0 or needed & ~own & ~compared != NO_WORD:
        return mode, prints
    return pair_codes(found, holds, post & (own - _ONE_BIT) == NO_WORD)


@njit(inline="always")
def open_tree(index, term, root):
    """Returns where the word of a term with a root cell is in the directory, which gets one."""
    directory, state = index.directory, index.state
    at = find_entry(directory, state[DIRECTORY_SIZE], term, root)
    if directory[at] == NO_WORD:
        directory[at - ENTRIES] = term
        state[DIRECTORY_USED] += 1
        if root == WIDE:
            bit = wide_bit(term)
            index.wide[bit >> 6] |= _ONE_BIT << np.uint64(bit & 63)
            state[WIDE_USED] += 1
    return at


@njit(inline="always")
def _append_wide(index, at, rect, word, prints):
    """Appends a posting to the WIDE list of which the word is at directory[at]."""
    directory = index.directory
    ref = append_posting(
        index.nodes, index.n32, index.n16, index.node_free, index.state,
        np.int64(directory[at] & LOW), rect, word, prints,
    )  # fmt: skip
    directory[at] = np.uint64(ref) | np.uint64(WIDE) << np.uint64(32)
    directory[at] |= np.uint64(ALL_AREAS) << np.uint64(40)


@njit(cache=True, nogil=True)
def _divide_list(index, term, band):
    """Moves what has a code of a band out of the WIDE list of a term; returns False, and changes
    nothing, where there is no room: then state[WANTED] says how much is wanted."""
    nodes, n32, n16, state = index.nodes, index.n32, index.n16, index.state
    directory, at = index.directory, open_tree(index, term, WIDE)
    ref = np.int64(directory[at] & LOW)
    block, words = ref, BUCKETS * _LIST_WORDS
    while block != 0:
        words += 2 * CAPACITY[LAST_CLASS]
        block = np.int64(nodes[block] & LOW)
    if state[NODE_TOP] + words > state[NODE_ROOM]:
        state[WANTED] = max(state[WANTED], words)
        return False
    if state[SWEPT_LEAF] == ref:
        forget_stop(state)
    directory[at] &= ~LOW
    block = ref
    while block != 0:
        cap = CAPACITY[block_class(nodes[block])]
        for k in range(block_length(nodes[block])):
            a, b, c = locate_posting(block, cap, k)
            word, to = np.int64(n32[b]), at
            slot, mode, prints = word & SLOT_MASK, word >> SLOT_BITS, np.int64(n16[c])
            code = find_code(index, slot, term)
            if code // BUCKETS == band:
                mode, prints = describe_stored(index, slot, term, mode, prints)
                to = open_tree(index, divide_term(term, code), WIDE)
            word = mode << SLOT_BITS | slot
            _append_wide(index, to, n32[a], np.uint32(word), np.uint16(prints))
        behind = np.int64(nodes[block] & LOW)
        free_node(nodes, index.node_free, block, block_class(nodes[block]))
        forget_walk(state, block)
        block = behind
    return True


@njit(cache=True, nogil=True)
def choose_list(index, slot, term):
    """Returns the term of the list that the WIDE posting of a slot is to go to, and counts it: with
    the one that makes them many, the postings of its band are divided."""
    code, bands = find_code(index, slot, term), index.bands
    band = code // BUCKETS
    if band == 0:
        return term
    if not _is_divided(bands, band):
        is_due = bands[WIDE_POSTINGS + band] == bands[DIVIDED_FROM]
        if is_due and not _divide_list(index, term, band):
            return term
        bands[WIDE_POSTINGS + band] += _ONE_BIT
    return divide_term(term, code) if _is_divided(bands, band) else term


@njit(inline="always")
def other_list(index, slot, term):
    """Returns the term of the other list in which the WIDE posting of a slot under a term may be,
    or that term if it can be in no other."""
    code = find_code(index, slot, term)
    if code == 0 or not _is_divided(index.bands, code // BUCKETS):
        return term
    return divide_term(term, code)


@njit(cache=True, nogil=True)
def list_divided_keys(o0, o1, any_term, size, n, objects, index, scratch):
    """Appends the keys of the divided lists of the codes that may hold for the objects to the n
    of `list_keys`, of which the second words have the code too; returns the new number. The codes
    of the objects are marked."""
    term_off, term, chosen = objects.term_off, objects.term, objects.chosen
    bands, directory, wide = index.bands, index.directory, index.wide
    keys, masks = scratch.keys, scratch.masks
    for band in range(1, np.int64(bands[USED]) + 1):
        if not _is_divided(bands, band):
            continue
        for o in range(o0, o1):
            b = o - o0
            may = np.int64(masks[4 * PRINT_WORDS * b + MAY + band])
            if may == 0:
                continue
            for t in range(term_off[o], term_off[o + 1]):
                if term[t] != bands[COMPARED + band]:
                    continue
                if not (any_term or chosen[t >> 3] >> np.uint8(t & 7) & np.uint8(1)):
                    continue
                for bucket in range(BUCKETS):
                    code = BUCKETS * band + bucket
                    divided = divide_term(term[t], code)
                    bit = wide_bit(divided)
                    held = wide[bit >> 6] >> np.uint64(bit & 63) & _ONE_BIT != NO_WORD
                    if may >> bucket & 1 and held:
                        where = home(divided, WIDE, size)
                        prefetch(directory, BUCKET * where)
                        keys[2 * n] = np.uint64(o | t << 32)
                        keys[2 * n + 1] = np.uint64(where | 2 * b + 1 << 32 | code << CODE_SHIFT)
                        n += 1
    return n
