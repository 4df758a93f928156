"""The last stage of matching in GI2: whole values, not halves and sixteenths."""

# mypy: allow-untyped-decorators, allow-untyped-defs
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.protocol.programs import compare_value, compared_term, comparison_size
from ps2stream.protocol.rows import PROG_AND, PROG_COMPARE, PROG_NOT, ExpressionForm, RegionShape
from ps2stream.space.space_kernels import in_rect
from ps2stream.workers.layout import (
    ALL,
    ANY,
    DELETED,
    FREE,
    GENERAL,
    HANDLE,
    LOW,
    NONE,
    P_BOX,
    P_HEAD,
    P_POST,
    P_TERM,
    REST,
    SESSION,
    SLOT_BITS,
    SLOT_MASK,
)

_FORM_ALL, _FORM_ANY = int(ExpressionForm.ALL), int(ExpressionForm.ANY)
_AND, _NOT, _COMPARE = PROG_AND, PROG_NOT, PROG_COMPARE
_RECT = int(RegionShape.RECT)


@njit(inline="always")
def _contains_term(term, a, b, want):
    """Returns whether `want` is among the sorted term[a:b]."""
    while a < b:
        m = (a + b) >> 1
        if term[m] < want:
            a = m + 1
        elif term[m] > want:
            b = m
        else:
            return True
    return False


@njit(inline="always")
def _has_keyword(term, a0, a1, j, low):
    """Returns whether the object holds the keyword with the high half of its term j - 1 and this
    low half: almost always that very term, else another with the same high half."""
    found = term[a0 + j - 1]
    return found & LOW == low or _contains_term(term, a0, a1, (found & ~LOW) | low)


@njit(cache=True, nogil=True)
def satisfies_expression(pool, at, key, term, a, b, value, first_value, last_value, stack):
    """Evaluates the stored expression of a pool block on the sorted terms term[a:b] and the values
    value[first_value:last_value] of an object; returns whether it holds and `key` is the smallest
    of its posting terms among them."""
    word = pool[at + P_HEAD]
    form = np.int64(word) & 255
    n = np.int64(word) >> 24 & 255
    size = np.int64(word) >> 32
    post = pool[at + P_POST]
    bits = NONE
    first = -1
    for i in range(n):
        if _contains_term(term, a, b, pool[at + P_TERM + i]):
            bits |= np.uint64(1) << np.uint64(i)
            if first < 0 and post >> np.uint64(i) & np.uint64(1) != 0:
                first = i
        elif form == _FORM_ALL:
            return False
    if first < 0 or pool[at + P_TERM + first] != key:
        return False
    if form <= _FORM_ANY:
        return True
    top, p, end = 0, at + P_TERM + n, at + P_TERM + n + size
    while p < end:
        op = np.int64(pool[p])
        if op == _COMPARE:
            compared = pool[at + P_TERM + compared_term(pool, p)]
            stack[top] = compare_value(pool, p, compared, value, first_value, last_value)
            top += 1
            p += comparison_size(pool, p)
            continue
        p += 1
        if op >= 0:
            stack[top] = bits >> np.uint64(op) & np.uint64(1) != 0
            top += 1
            continue
        if op == _NOT:
            stack[top - 1] = not stack[top - 1]
            continue
        top -= 1
        if op == _AND:
            stack[top - 1] = stack[top - 1] and stack[top]
        else:
            stack[top - 1] = stack[top - 1] or stack[top]
    return top == 1 and stack[0]


@njit(inline="always")
def verify_candidates(n, lsn, objects, index, scratch, out, found):
    """Appends the matches among the first n candidates of `scratch` to `found` at `out`; returns
    the new end."""
    lon, lat, term_off, term = objects.lon, objects.lat, objects.term_off, objects.term
    slots_f, slots_i, pool, pool_f = index.slots_f, index.slots_i, index.pool, index.pool_f
    cands, stack = scratch.cands, scratch.stack
    row, handle, session, block = found.row, found.handle, found.session, found.block
    for c in range(n):
        o = np.int64(cands[c, 0])
        slot = np.int64(cands[c, 1]) & SLOT_MASK
        mode = np.int64(cands[c, 1]) >> SLOT_BITS
        x, y = lon[o], lat[o]
        inside = (
            (slots_f[slot, 0] <= x)
            & (slots_f[slot, 1] <= y)
            & (x <= slots_f[slot, 2])
            & (y <= slots_f[slot, 3])
        )
        rest = slots_i[slot, REST]
        shape = np.int64(0)
        if mode == GENERAL:
            word = np.int64(pool[rest + P_HEAD])
            if not inside and word >> 16 & 255 > 1:
                b = rest + P_BOX
                inside = pool_f[b] <= x <= pool_f[b + 2] and pool_f[b + 1] <= y <= pool_f[b + 3]
            if word >> 8 & 255 > _RECT:
                shape = rest
            elif inside and word >> 16 & 255 > 1:  # two boxes may hold more than the rectangle
                g = rest + P_TERM + (word >> 24 & 255) + (word >> 32)
                inside = in_rect(pool_f[g], pool_f[g + 1], pool_f[g + 2], pool_f[g + 3], x, y)
        if not inside or not (slots_i[slot, HANDLE] <= lsn < slots_i[slot, DELETED]):
            continue
        if mode != FREE:
            a0, a1 = term_off[o], term_off[o + 1]
            ja, jb = np.int64(cands[c, 2]), np.int64(cands[c, 3])
            la = np.uint64(rest) & LOW
            lb = np.uint64(rest) >> np.uint64(32)
            if mode == ALL:
                if not (_has_keyword(term, a0, a1, ja, la) and _has_keyword(term, a0, a1, jb, lb)):
                    continue
            elif mode == ANY:
                if ja != 0 and _has_keyword(term, a0, a1, ja, la):
                    continue
                if jb != 0 and _has_keyword(term, a0, a1, jb, lb):
                    continue
            elif not satisfies_expression(
                pool, rest, term[a0 + ja - 1], term, a0, a1,
                objects.value, objects.value_off[o], objects.value_off[o + 1], stack,
            ):  # fmt: skip
                continue
        row[out] = np.uint32(o)
        handle[out] = slots_i[slot, HANDLE]
        session[out] = slots_i[slot, SESSION]
        block[out] = shape
        out += 1
    return out
