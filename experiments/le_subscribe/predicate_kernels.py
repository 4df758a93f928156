"""Predicates: one number, and one entry of the bit vector, for each distinct one.

Equalities are found by a hash; all other operators have their predicates of an attribute in the
order of the values, so that those which an event satisfies lie side by side.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np

from ps2stream.experiments.le_subscribe.compiling import kernel
from ps2stream.experiments.le_subscribe.layout import FREE_PRED, PREDS, SLOTS_USED
from ps2stream.experiments.le_subscribe.pool_kernels import FIRST_CAP, free_block, take_block
from ps2stream.experiments.le_subscribe.rows import EQ, GE, GT, LE, LT, NE

_C1 = np.uint64(0x9E3779B97F4A7C15)
_C2 = np.uint64(0xD6E8FEB86659FD93)
_S = np.uint64(32)
_LOW = (1 << 32) - 1


@kernel
def hash_predicate(value, tag):
    """Returns 64 bits of (value, tag), of which the low ones are used."""
    h = (np.uint64(value) ^ np.uint64(tag) * _C2) * _C1
    h = (h ^ h >> _S) * _C2
    return np.int64(h >> _S)


@kernel
def find_predicate(slots, value, tag):
    """Returns the id of a predicate, or -1 if there is none."""
    mask = slots.shape[0] - 1
    at = hash_predicate(value, tag) & mask
    while slots[at, 1] != 0:
        if slots[at, 0] == value and slots[at, 1] >> 32 == tag:
            return (slots[at, 1] & _LOW) - 1
        at = (at + 1) & mask
    return -1


@kernel
def find_bound(pool, pred_value, base, count, value, above):
    """Returns how many of the ordered predicates have a value below this one, or, with `above`,
    not above it."""
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        have = pred_value[pool[base + middle]]
        if have < value or (above and have == value):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def add_predicate(a, value, tag, nu):
    """Returns the id of the predicate, which has one more holder now, or -1 if the pool is too
    short. nu: the share of events that satisfy it, in case that it is new. There must be room
    for one more predicate."""
    found = find_predicate(a.slots, value, tag)
    if found >= 0:
        a.pred_refs[found] += 1
        return found
    if tag & 7 != EQ and not _make_ordered_room(a, tag):
        return -1
    number = a.state[FREE_PRED]
    if number >= 0:
        a.state[FREE_PRED] = a.pred_value[number]
    else:
        number = a.state[PREDS]
        a.state[PREDS] += 1
    a.pred_value[number] = value
    a.pred_tag[number] = tag
    a.pred_refs[number] = 1
    a.pred_entry[number] = -1
    a.pred_nu[number] = nu
    a.bits[number] = 0
    mask = a.slots.shape[0] - 1
    at = hash_predicate(value, tag) & mask
    while a.slots[at, 1] != 0:
        at = (at + 1) & mask
    a.slots[at, 0] = value
    a.slots[at, 1] = tag << 32 | (number + 1)
    a.state[SLOTS_USED] += 1
    if tag & 7 != EQ:
        _insert_ordered(a, number)
    return number


@kernel
def release_predicate(a, number):
    """Takes one holder from a predicate; the last one takes it along."""
    a.pred_refs[number] -= 1
    if a.pred_refs[number] > 0:
        return
    value, tag = a.pred_value[number], np.int64(a.pred_tag[number])
    if tag & 7 != EQ:
        _remove_ordered(a, number)
    mask = a.slots.shape[0] - 1
    at = hash_predicate(value, tag) & mask
    while a.slots[at, 1] & _LOW != number + 1:
        at = (at + 1) & mask
    # What follows without a gap moves up unless that is before its own place.
    ahead = (at + 1) & mask
    while a.slots[ahead, 1] != 0:
        home = hash_predicate(a.slots[ahead, 0], a.slots[ahead, 1] >> 32) & mask
        if (ahead - home) & mask >= (ahead - at) & mask:
            a.slots[at, 0] = a.slots[ahead, 0]
            a.slots[at, 1] = a.slots[ahead, 1]
            at = ahead
        ahead = (ahead + 1) & mask
    a.slots[at, 1] = 0
    a.state[SLOTS_USED] -= 1
    a.bits[number] = 0
    a.pred_value[number] = a.state[FREE_PRED]
    a.state[FREE_PRED] = number


@kernel
def fill_slots(slots, pred_value, pred_tag, pred_refs, count):
    """Fills an empty hash with the predicates that have holders."""
    mask = slots.shape[0] - 1
    for number in range(count):
        if pred_refs[number] == 0:
            continue
        tag = np.int64(pred_tag[number])
        at = hash_predicate(pred_value[number], tag) & mask
        while slots[at, 1] != 0:
            at = (at + 1) & mask
        slots[at, 0] = pred_value[number]
        slots[at, 1] = tag << 32 | (number + 1)


@kernel
def test_predicates(a, attribute, value, satisfied, count):
    """Sets the bits of the predicates that this pair satisfies, and appends their ids to
    satisfied[count:]. Returns (how many there are then, the equality among them or -1)."""
    tag = np.int64(attribute) << 3
    equal = find_predicate(a.slots, value, tag | EQ)
    if equal >= 0:
        a.bits[equal] = 1
        satisfied[count] = equal
        count += 1
    for operator in range(6):
        size = a.ordered[tag | operator, 2]
        if size == 0:
            continue
        base = a.ordered[tag | operator, 0]
        begin, end, skipped = 0, size, -1
        if operator in (LT, LE):
            begin = find_bound(a.pool, a.pred_value, base, size, value, operator == LT)
        elif operator in (GT, GE):
            end = find_bound(a.pool, a.pred_value, base, size, value, operator == GE)
        elif operator == NE:
            skipped = find_predicate(a.slots, value, tag | NE)
        for k in range(base + begin, base + end):
            number = a.pool[k]
            if number != skipped:
                a.bits[number] = 1
                satisfied[count] = number
                count += 1
    return count, equal


@kernel
def clear_bits(bits, satisfied, count):
    """Clears the bits that were set."""
    for k in range(count):
        bits[satisfied[k]] = 0


@kernel
def _make_ordered_room(a, tag):
    """Returns False if there is no room for one more predicate of this attribute and operator."""
    base, cap, count = a.ordered[tag, 0], a.ordered[tag, 1], a.ordered[tag, 2]
    if count < cap:
        return True
    more = max(2 * cap, FIRST_CAP)
    new = take_block(a.pool, a.free, a.state, np.int64(1), more)
    if new < 0:
        return False
    for k in range(count):
        a.pool[new + k] = a.pool[base + k]
    if cap > 0:
        free_block(a.pool, a.free, np.int64(1), cap, base)
    a.ordered[tag, 0] = new
    a.ordered[tag, 1] = more
    return True


@kernel
def _insert_ordered(a, number):
    """Puts a predicate where its value belongs."""
    tag = a.pred_tag[number]
    base, count = a.ordered[tag, 0], a.ordered[tag, 2]
    at = find_bound(a.pool, a.pred_value, base, count, a.pred_value[number], np.bool_(False))
    for k in range(base + count, base + at, -1):
        a.pool[k] = a.pool[k - 1]
    a.pool[base + at] = number
    a.ordered[tag, 2] = count + 1


@kernel
def _remove_ordered(a, number):
    """Takes a predicate out of the order."""
    tag = a.pred_tag[number]
    base, count = a.ordered[tag, 0], a.ordered[tag, 2]
    at = find_bound(a.pool, a.pred_value, base, count, a.pred_value[number], np.bool_(False))
    for k in range(base + at, base + count - 1):
        a.pool[k] = a.pool[k + 1]
    a.ordered[tag, 2] = count - 1
