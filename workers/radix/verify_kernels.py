"""The last stage of matching in the radix GI2: whole values, not bytes and fingerprints."""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.protocol.rows import PROG_AND, ExpressionForm, RegionShape
from ps2stream.space.space_kernels import cell_at, in_rect
from ps2stream.workers.radix.layout import (
    ALL,
    BLOCK,
    FIRST,
    FREE,
    HANDLE,
    KIND_MASK,
    LANES,
    LEVEL_MASK,
    LEVEL_SHIFT,
    NO_WORD,
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
    posted_terms,
)
from ps2stream.workers.radix.pointers import advance, prefetch
from ps2stream.workers.radix.vectors import holds_term

_FORM_ALL, _FORM_ANY, _AND = int(ExpressionForm.ALL), int(ExpressionForm.ANY), PROG_AND
_RECT = int(RegionShape.RECT)
_ONE_BIT = np.uint64(1)


@njit(inline="always")
def contains_term(term, a, b, want):
    """Returns whether `want` is among the sorted term[a:b]."""
    if b - a <= LANES:
        return holds_term(advance(term, a), b - a, want)
    while a < b:
        m = (a + b) >> 1
        if term[m] < want:
            a = m + 1
        elif term[m] > want:
            b = m
        else:
            return True
    return False


@njit(cache=True, nogil=True)
def satisfies_expression(pool, at, key, term, a, b, stack):
    """Evaluates the expression at `at` on the sorted terms term[a:b]; returns whether it holds and
    `key` is the smallest of its posting terms among them."""
    head = np.int64(pool[at])
    form, n, size = head & 255, head >> 8 & 255, head >> 16 & 0xFFFF
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
    top = 0
    for i in range(size):
        op = np.int64(pool[at + 1 + n + i])
        if op >= 0:
            stack[top] = bits >> np.uint64(op) & _ONE_BIT
            top += 1
            continue
        top -= 1
        if op == _AND:
            stack[top - 1] &= stack[top]
        else:
            stack[top - 1] |= stack[top]
    return top == 1 and stack[0] != 0


@njit(cache=True, nogil=True)
def is_listed(pool, expression, extras, key, x, y, lon_bits, lat_bits):
    """Returns whether a query whose tags are listed has the one of this term and point."""
    at = np.int64(pool[extras + X_LIST])
    n = np.int64(pool[extras + X_LISTED]) & 0xFFFFFFFF
    number = 0
    while pool[expression + 1 + number] != key:
        number += 1
    first, last = np.int64(pool[at] >> np.uint64(36)), np.int64(pool[at + n - 1] >> np.uint64(36))
    for level in range(first, last + 1):  # nearly always one
        cell = np.uint64(cell_at(x, y, lon_bits, lat_bits, level))
        want = cell << np.uint64(8) | np.uint64(number)
        if contains_term(pool, at, at + n, want):
            return True
    return False


@njit(inline="always")
def _is_in_boxes(slots_f, pool, pool_f, slot, extras, x, y):
    """Returns whether a point lies in the boxes of a slot, and whether its exact shape is still
    to be checked."""
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
        return inside, True
    if inside and boxes > 1:  # two boxes may hold more than the rectangle
        g = extras + X_GEOM
        inside = in_rect(pool_f[g], pool_f[g + 1], pool_f[g + 2], pool_f[g + 3], x, y)
    return inside, False


@njit(inline="always")
def verify_candidates(n, lsn, bits, objects, index, scratch, out, found, met):
    """Appends the matches among the first n candidates of `scratch` to `found` at `out`; returns
    the new end. Counts each candidate for its object, or for the level of its query."""
    lon, lat, term_off, term = objects.lon, objects.lat, objects.term_off, objects.term
    slots_f, slots_i, pool, pool_f = index.slots_f, index.slots_i, index.pool, index.pool_f
    cands, later, stack = scratch.cands, scratch.later, scratch.stack
    row, handle, session, extras_at = found.row, found.handle, found.session, found.extras
    met_by, met_on = met.base, met.levels
    more = 0
    for c in range(n):
        o, t = np.int64(cands[3 * c]), np.int64(cands[3 * c + 1])
        slot = np.int64(cands[3 * c + 2]) & SLOT_MASK
        mode = np.int64(cands[3 * c + 2]) >> SLOT_BITS
        x, y = lon[o], lat[o]
        word = slots_i[8 * slot + SESSION]
        level = word >> LEVEL_SHIFT & LEVEL_MASK
        if level == 0:
            met_by[o] += 1
        else:
            met_on[level] += 1
        if word & KIND_MASK == BLOCK and (mode != FREE or slots_i[8 * slot + SECOND] != 0):
            prefetch(pool, slots_i[8 * slot + FIRST])
            prefetch(pool, slots_i[8 * slot + SECOND])
            later[more] = c
            more += 1
            continue
        if not (
            (slots_f[8 * slot] <= x)
            & (slots_f[8 * slot + 1] <= y)
            & (x <= slots_f[8 * slot + 2])
            & (y <= slots_f[8 * slot + 3])
            & (slots_i[8 * slot + HANDLE] <= lsn)
        ):
            continue
        if mode != FREE:
            # BOTH has the term beside its key in SECOND, EITHER the smaller one in FIRST.
            want = np.uint64(slots_i[8 * slot + (SECOND if mode == ALL else FIRST)])
            if contains_term(term, term_off[o], term_off[o + 1], want) != (mode == ALL):
                continue
        row[out] = np.uint32(o)
        handle[out] = slots_i[8 * slot + HANDLE]
        session[out] = word >> SESSION_SHIFT
        extras_at[out] = 0
        out += 1
    for k in range(more):
        c = later[k]
        o, t = np.int64(cands[3 * c]), np.int64(cands[3 * c + 1])
        slot = np.int64(cands[3 * c + 2]) & SLOT_MASK
        mode = np.int64(cands[3 * c + 2]) >> SLOT_BITS
        x, y = lon[o], lat[o]
        expression, extras = slots_i[8 * slot + FIRST], slots_i[8 * slot + SECOND]
        inside, shaped = _is_in_boxes(slots_f, pool, pool_f, slot, extras, x, y)
        if not inside or slots_i[8 * slot + HANDLE] > lsn:
            continue
        if extras != 0:
            if np.int64(pool[extras + X_DELETED]) <= lsn:
                continue
            listed = pool[extras + X_LIST] != NO_WORD
            if listed and not is_listed(pool, expression, extras, term[t], x, y, bits[0], bits[1]):
                continue
        if mode != FREE and not satisfies_expression(
            pool, expression, term[t], term, term_off[o], term_off[o + 1], stack
        ):
            continue
        row[out] = np.uint32(o)
        handle[out] = slots_i[8 * slot + HANDLE]
        session[out] = slots_i[8 * slot + SESSION] >> SESSION_SHIFT
        extras_at[out] = extras if shaped else 0
        out += 1
    return out
