"""The last stage of matching in the radix GI2: whole values, not bytes and fingerprints."""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.protocol.programs import compare_value, compared_term, comparison_size
from ps2stream.protocol.rows import PROG_AND, PROG_COMPARE, PROG_NOT, ExpressionForm, RegionShape
from ps2stream.space.polygon_kernels import INSIDE, OUTSIDE, UNDECIDED, hold_point
from ps2stream.space.space_kernels import cell_at, haversine_km, in_rect
from ps2stream.workers.radix.conjunction_kernels import contains_term, satisfies_conjunction
from ps2stream.workers.radix.layout import (
    ALL,
    BLOCK,
    CONJUNCTION,
    FIRST,
    FREE,
    HANDLE,
    KIND_MASK,
    LANES,
    LEVEL_MASK,
    LEVEL_SHIFT,
    LINE,
    LOW,
    NO_WORD,
    PRINT_WORDS,
    REST_SHIFT,
    SECOND,
    SESSION,
    SESSION_SHIFT,
    SLOT_BITS,
    SLOT_MASK,
    X_BOX,
    X_DELETED,
    X_GEOM,
    X_HEAD,
    X_LIST,
    X_LISTED,
    expression_of,
    posted_terms,
)
from ps2stream.workers.radix.pointers import advance, prefetch
from ps2stream.workers.radix.raster_kernels import look_up_point
from ps2stream.workers.radix.vectors import is_in_box, lowest_bit

_FORM_ALL, _FORM_ANY = int(ExpressionForm.ALL), int(ExpressionForm.ANY)
_AND, _NOT, _COMPARE = PROG_AND, PROG_NOT, PROG_COMPARE
_RECT, _CIRCLE = int(RegionShape.RECT), int(RegionShape.CIRCLE)
_ONE_BIT = np.uint64(1)
_AHEAD = 48  # of `checks`
_SHAPE_WORDS = 128  # of a polygon that are asked for: 60 corners and more
BATCH = 64  # objects a block: what is between its stages stays in the second-level cache
CANDIDATES = 512
HITS = 1 << 14
FULL_HITS = HITS - 2 * CANDIDATES  # behind so many there is no room for those of full candidates
HIT_SHAPED, HIT_HELD = 1 << SLOT_BITS, 2 << SLOT_BITS
"""Flags of a hit, slot | flags | object in the block << 32: its shape is left to GEOS, or it stands
for all holders of its slot."""
FULL_CANDIDATES = CANDIDATES - LANES  # behind so many there is no room for those of another group
C_TERM, C_SLOT = CANDIDATES + LANES, 2 * (CANDIDATES + LANES)
"""Where the columns of `cands` begin that are behind the first, of the objects: the terms, and
mode << 30 | slot."""


@njit(cache=True, nogil=True)
def satisfies_expression(pool, at, key, term, a, b, value, first_value, last_value, stack):
    """Evaluates the expression at `at` on the sorted terms term[a:b], `key` among them, and the
    values value[first_value:last_value] of an object; returns whether it holds and `key` is the
    smallest of its posting terms among them."""
    head = np.int64(pool[at])
    form, n, size = head & 255, head >> 8 & 255, head >> 16 & 0xFFFF
    if form == CONJUNCTION:
        return satisfies_conjunction(pool, at, key, term, a, b, value, first_value, last_value)
    post = posted_terms(pool, at)
    bits = NO_WORD
    first = -1
    for i in range(n):
        if contains_term(term, a, b, pool[at + 1 + i]):
            bits |= _ONE_BIT << np.uint64(i)
            if first < 0 and post >> np.uint64(i) & _ONE_BIT != NO_WORD:
                first = i
        elif form == _FORM_ALL:
            return False
    if first < 0 or pool[at + 1 + first] != key:
        return False
    if form <= _FORM_ANY:
        return True
    top, p, end = 0, at + 1 + n, at + 1 + n + size
    while p < end:
        op = np.int64(pool[p])
        if op == _COMPARE:
            compared = pool[at + 1 + compared_term(pool, p)]
            holds = compare_value(pool, p, compared, value, first_value, last_value)
            stack[top] = np.uint64(holds)
            top += 1
            p += comparison_size(pool, p)
            continue
        p += 1
        if op >= 0:
            stack[top] = bits >> np.uint64(op) & _ONE_BIT
            top += 1
            continue
        if op == _NOT:
            stack[top - 1] ^= _ONE_BIT
            continue
        top -= 1
        if op == _AND:
            stack[top - 1] &= stack[top]
        else:
            stack[top - 1] |= stack[top]
    return top == 1 and stack[0] != 0


@njit(inline="always")
def _is_smallest(pool, at, key, term, a, b):
    """Returns whether the sorted terms term[a:b] of an object have none of the posting terms, of
    the expression at `at`, that are before `key`."""
    post = posted_terms(pool, at)
    while True:
        want = pool[at + 1 + lowest_bit(post)]
        if want == key:
            return True
        if contains_term(term, a, b, want):
            return False
        post &= post - _ONE_BIT


@njit(cache=True, nogil=True)
def is_listed(pool, expression, extras, key, x, y, lines):
    """Returns whether a query whose tags are listed has the one of this term and point."""
    at = np.int64(pool[extras + X_LIST])
    n = np.int64(pool[extras + X_LISTED]) & 0xFFFFFFFF
    number = 0
    while pool[expression + 1 + number] != key:
        number += 1
    first, last = np.int64(pool[at] >> np.uint64(36)), np.int64(pool[at + n - 1] >> np.uint64(36))
    for level in range(first, last + 1):  # nearly always one
        cell = np.uint64(cell_at(x, y, lines, level))
        want = cell << np.uint64(8) | np.uint64(number)
        if contains_term(pool, at, at + n, want):
            return True
    return False


@njit(cache=True, nogil=True)
def look_at_shape(slots_f, pool, pool_f, slot, extras, x, y):
    """Returns OUTSIDE, INSIDE or, of a polygon, UNDECIDED for a point in the boxes of a slot with a
    circle or a polygon. Not inlined: few queries have one."""
    head, g = np.int64(pool[extras + X_HEAD]), extras + X_GEOM
    if head & 255 == _CIRCLE:
        is_near = haversine_km(pool_f[g], pool_f[g + 1], x, y) <= pool_f[g + 2]
        return INSIDE if is_near else OUTSIDE
    if head >> 8 & 255 > 1:
        return UNDECIDED
    return look_up_point(pool, extras, advance(slots_f, 8 * slot), x, y)


@njit(inline="always")
def _is_in_region(slots_f, pool, pool_f, slot, extras, x, y):
    """Returns whether a point lies in the region of a slot, and whether that is still to be checked
    of its polygon."""
    inside = (
        (slots_f[8 * slot] <= x)
        & (slots_f[8 * slot + 1] <= y)
        & (x <= slots_f[8 * slot + 2])
        & (y <= slots_f[8 * slot + 3])
    )
    if extras == 0:
        return inside, False
    head = np.int64(pool[extras + X_HEAD])
    boxes = head >> 8 & 255
    if not inside and boxes > 1:
        b = extras + X_BOX
        inside = pool_f[b] <= x <= pool_f[b + 2] and pool_f[b + 1] <= y <= pool_f[b + 3]
    if head & 255 > _RECT:
        found = OUTSIDE
        if inside:
            found = look_at_shape(slots_f, pool, pool_f, slot, extras, x, y)
        return found != OUTSIDE, found == UNDECIDED
    if inside and boxes > 1:  # two boxes may hold more than the rectangle
        g = extras + X_GEOM
        inside = in_rect(pool_f[g], pool_f[g + 1], pool_f[g + 2], pool_f[g + 3], x, y)
    return inside, False


@njit(cache=True, nogil=True)
def _count_levels(count, rows, row_step, words, word_step, slots_i, met):
    """Counts candidates for the levels of their queries, and those of other levels than 0 not for
    their objects any more."""
    for c in range(count):
        slot = np.int64(words[word_step * c]) & SLOT_MASK
        level = slots_i[8 * slot + SESSION] >> LEVEL_SHIFT & LEVEL_MASK
        met.base[np.int64(rows[row_step * c])] -= level != 0
        met.levels[level] += 1


@njit(inline="always")
def _has_rest(prints, b, first):
    """Returns whether object b of a block may have the terms of the fingerprints in FIRST."""
    one = first >> REST_SHIFT & 255
    other = first >> REST_SHIFT + 8 & 255
    p = PRINT_WORDS * b
    has = prints[p + (one >> 6)] >> np.uint64(one & 63) | np.uint64(one == 0)
    has &= prints[p + (other >> 6)] >> np.uint64(other & 63) | np.uint64(other == 0)
    return np.int64(has & _ONE_BIT)


@njit(inline="always")
def _note_hit(hits, tally, n, b, slot, is_hit):
    """Writes a hit, which counts if it is one: that cannot be foreseen. Returns the new end."""
    hits[n] = np.uint64(slot | b << 32)
    tally[b] += is_hit
    return n + is_hit


@njit(cache=True, nogil=True)
def verify_candidates(n, m, o0, lsn, lines, objects, index, scratch, found, met):
    """Appends the matches among the first n in the columns of `cands`, whose expressions hold, and
    the first m of `checks` to the `found` ones in `hits`; returns the new end. o0: first object of
    the block. Candidates are counted as of level 0; those that are not are corrected."""
    slots_f, slots_i, pool = index.slots_f, index.slots_i, index.pool
    cands, checks, later = scratch.cands, scratch.checks, scratch.later
    hits, tally, points = scratch.hits, scratch.tally, scratch.points
    more, levels = np.int64(0), np.int64(0)
    for c in range(n):
        b, slot = np.int64(cands[c]) - o0, np.int64(cands[c + C_SLOT]) & SLOT_MASK
        word = slots_i[8 * slot + SESSION]
        levels |= word
        if (word & KIND_MASK == BLOCK) & (slots_i[8 * slot + SECOND] != 0):
            prefetch(pool, slots_i[8 * slot + SECOND])
            prefetch(pool, slots_i[8 * slot + SECOND] + X_GEOM - 1)
            later[more] = c
            more += 1
            continue
        is_hit = is_in_box(slots_f, 8 * slot, points, 2 * b) & (slots_i[8 * slot + HANDLE] <= lsn)
        found = _note_hit(hits, tally, found, b, slot, np.int64(is_hit))
    one, three, whole, part = np.int64(1), np.int64(3), np.int64(1), np.int64(0)
    found = _verify_blocks(
        more, cands, advance(cands, C_TERM), advance(cands, C_SLOT), one, whole, o0, lsn, lines,
        objects, index, scratch, found,
    )  # fmt: skip
    more = np.int64(0)
    for c in range(min(m, _AHEAD)):
        prefetch(slots_i, 8 * (np.int64(checks[3 * c + 2]) & SLOT_MASK))
    for c in range(m):
        ahead = checks[3 * min(c + _AHEAD, m - 1) + 2]
        prefetch(slots_i, 8 * (np.int64(ahead) & SLOT_MASK))
        o, slot = np.int64(checks[3 * c]), np.int64(checks[3 * c + 2]) & SLOT_MASK
        mode = np.int64(checks[3 * c + 2]) >> SLOT_BITS
        word = slots_i[8 * slot + SESSION]
        levels |= word
        if word & KIND_MASK == BLOCK:
            # Of what cannot match nothing is fetched. That it cannot is not foreseen: no branch.
            may = _has_rest(scratch.prints, o - o0, slots_i[8 * slot + FIRST])
            at, extras = may * expression_of(slots_i, slot), may * slots_i[8 * slot + SECOND]
            prefetch(pool, at)
            prefetch(pool, at + LINE)
            prefetch(pool, extras)
            prefetch(pool, extras + X_GEOM - 1)
            later[more] = c
            more += may
            continue
        # BOTH has the term beside its key in SECOND, EITHER the smaller one in FIRST.
        want = np.uint64(slots_i[8 * slot + (SECOND if mode == ALL else FIRST)])
        has = contains_term(objects.term, objects.term_off[o], objects.term_off[o + 1], want)
        is_hit = is_in_box(slots_f, 8 * slot, points, 2 * (o - o0))
        is_hit &= (slots_i[8 * slot + HANDLE] <= lsn) & (has == (mode == ALL))
        found = _note_hit(hits, tally, found, o - o0, slot, np.int64(is_hit))
    found = _verify_blocks(
        more, checks, advance(checks, 1), advance(checks, 2), three, part, o0, lsn, lines,
        objects, index, scratch, found,
    )  # fmt: skip
    if levels >> LEVEL_SHIFT & LEVEL_MASK != 0:
        _count_levels(n, cands, one, advance(cands, C_SLOT), one, slots_i, met)
        _count_levels(m, checks, three, advance(checks, 2), three, slots_i, met)
    return found


@njit(cache=True, nogil=True)
def _verify_blocks(
    count, rows, terms, words, step, whole, o0, lsn, lines, objects, index, scratch, found
):
    """Writes those of the first `count` candidates in `later`, of queries with blocks, that match
    to `hits` from `found` on; returns the new end. Candidate c is at `step` * c of the columns:
    object, term and mode << 30 | slot. Mode FREE leaves a smaller posting term to be checked; if
    `whole`, there is no mode and nothing of the expression is left.

    What a raster leaves open of a polygon is decided once the lines of all of them were asked for;
    `later` holds these hits where its candidates were.
    """
    slots_i, pool, pool_f, term = index.slots_i, index.pool, index.pool_f, objects.term
    hits, tally, later, undecided = scratch.hits, scratch.tally, scratch.later, 0
    for k in range(count):
        c = step * later[k]
        o, t, slot = np.int64(rows[c]), np.int64(terms[c]), np.int64(words[c]) & SLOT_MASK
        mode = np.int64(words[c]) >> SLOT_BITS
        x, y = objects.lon[o], objects.lat[o]
        expression, extras = expression_of(slots_i, slot), slots_i[8 * slot + SECOND]
        inside, has_shape = _is_in_region(index.slots_f, pool, pool_f, slot, extras, x, y)
        matched, flags = inside and slots_i[8 * slot + HANDLE] <= lsn, 0
        if matched and extras != 0:
            deleted = np.int64(pool[extras + X_DELETED])
            matched = deleted > lsn or deleted < 0
            if deleted < 0:  # -chunk stands for all holders; see `holder_kernels`
                flags = HIT_HELD
            if matched and pool[extras + X_LIST] != NO_WORD:
                matched = is_listed(pool, expression, extras, term[t], x, y, lines)
        if matched and whole == 0:
            first, last = objects.term_off[o], objects.term_off[o + 1]
            if mode == FREE:
                matched = _is_smallest(pool, expression, term[t], term, first, last)
            else:
                matched = satisfies_expression(
                    pool, expression, term[t], term, first, last,
                    objects.value, objects.value_off[o], objects.value_off[o + 1], scratch.stack,
                )  # fmt: skip
        if matched and has_shape:
            size = np.int64(pool[extras + X_HEAD]) >> 32
            for line in range(0, min(size, _SHAPE_WORDS) + LINE - 1, LINE):
                prefetch(pool, extras + X_GEOM + line)
            later[undecided] = slot | flags | o - o0 << 32
            undecided += 1
            continue
        scratch.flags[0] |= flags * np.int64(matched)
        found = _note_hit(hits, tally, found, o - o0, slot | flags, np.int64(matched))
    for k in range(undecided):
        b, word = later[k] >> 32, later[k] & 0xFFFFFFFF
        g = slots_i[8 * (word & SLOT_MASK) + SECOND] + X_GEOM
        holds = hold_point(pool_f, g, objects.lon[o0 + b], objects.lat[o0 + b])
        word |= np.int64(holds == UNDECIDED) * HIT_SHAPED
        scratch.flags[0] |= word & (HIT_SHAPED | HIT_HELD)
        found = _note_hit(hits, tally, found, b, word, np.int64(holds != OUTSIDE))
    return found


@njit(cache=True, nogil=True)
def emit_hits(count, o0, index, scratch, out, shaped, found):
    """Writes the first `count` of `hits` to `found` from `out` on, where there is room for them,
    in the order of their objects, and those whose shape is still to be checked to the others there
    at `shaped`; returns the new end of these. o0: first object of the block, whose tally begins
    anew."""
    slots_i, hits, tally = index.slots_i, scratch.hits, scratch.tally
    for b in range(BATCH):
        tally[b], out = out, out + tally[b]
    if scratch.flags[0] == 0:
        for k in range(count):
            b, slot = np.int64(hits[k] >> np.uint64(32)), np.int64(hits[k] & LOW)
            at = tally[b]
            tally[b] = at + 1
            found.row[at] = np.uint32(o0 + b)
            found.handle[at] = slots_i[8 * slot + HANDLE]
            found.session[at] = slots_i[8 * slot + SESSION] >> SESSION_SHIFT
    else:
        for k in range(count):
            b, word = np.int64(hits[k] >> np.uint64(32)), np.int64(hits[k] & LOW)
            slot, at = word & SLOT_MASK, tally[b]
            extras = slots_i[8 * slot + SECOND]
            tally[b] = at + 1
            found.row[at] = np.uint32(o0 + b)
            found.handle[at] = slots_i[8 * slot + HANDLE]
            found.session[at] = slots_i[8 * slot + SESSION] >> SESSION_SHIFT
            if word & HIT_HELD:
                found.session[at] = np.int64(index.pool[extras + X_DELETED])
            if word & HIT_SHAPED:
                found.shaped[shaped], found.extras[shaped] = at, extras
                shaped += 1
        scratch.flags[0] = 0
    for b in range(BATCH):
        tally[b] = 0
    return shaped
