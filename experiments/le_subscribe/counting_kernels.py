"""Counting: for each predicate the subscriptions that have it; a subscription whose predicates are
all counted matches."""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np

from ps2stream.experiments.le_subscribe.compiling import kernel
from ps2stream.experiments.le_subscribe.layout import (
    DONE,
    FREE_SUB,
    LIVE,
    PREDS,
    REPEATED,
    SHORT_OF_MATCHES,
    SHORT_OF_POOL,
    SHORT_OF_PREDS,
    SHORT_OF_SUBS,
    SUBS,
)
from ps2stream.experiments.le_subscribe.match_kernels import CHECKS, SATISFIED, has_repeated
from ps2stream.experiments.le_subscribe.pool_kernels import FIRST_CAP, free_block, take_block
from ps2stream.experiments.le_subscribe.predicate_kernels import (
    add_predicate,
    clear_bits,
    release_predicate,
    test_predicates,
)
from ps2stream.experiments.le_subscribe.rows import PREDICATES

LIST_BASE, LIST_CAP, LIST_COUNT = range(3)  # of `lists`
NO_SIZE = 255  # of a number that is not live


@kernel
def insert_counted(a, c, ids, rows, first, subs):
    """Inserts the subscriptions from `first` on, and writes their numbers. Returns (what there is
    no room for, the first that is not inserted). c: CountedArrays."""
    s = a.state
    for row in range(first, rows.off.shape[0] - 1):
        sub = s[FREE_SUB]
        if sub < 0 and s[SUBS] == c.size.shape[0]:
            return SHORT_OF_SUBS, row
        if s[PREDS] + PREDICATES > a.pred_value.shape[0]:
            return SHORT_OF_PREDS, row
        number = sub if sub >= 0 else s[SUBS]
        count, enough = _add_predicates(a, ids, rows, row)
        held, listed = np.int64(-1), 0
        if enough and count > 0:
            held = take_block(a.pool, a.free, s, count, np.int64(1))
            enough = held >= 0
        if enough:
            while listed < max(count, 1):
                # Those that are always true are in the list of no predicate, the last one.
                which = ids[listed] if count > 0 else c.lists.shape[0] - 1
                if not _append_listed(a, c, which, number):
                    enough = False
                    break
                listed += 1
        if not enough:
            for k in range(listed):
                _remove_listed(a, c, np.int64(ids[k]), number)
            if held >= 0:
                free_block(a.pool, a.free, count, np.int64(1), held)
            for k in range(count):
                release_predicate(a, np.int64(ids[k]))
            return SHORT_OF_POOL, row
        if sub >= 0:
            s[FREE_SUB] = c.held[sub]
        else:
            s[SUBS] += 1
        for k in range(count):
            a.pool[held + k] = ids[k]
        c.held[number] = held
        c.size[number] = count
        s[LIVE] += 1
        subs[row] = number
    return DONE, rows.off.shape[0] - 1


@kernel
def delete_counted(a, c, subs):
    """Deletes live subscriptions: the last of each list takes the place of what goes."""
    for number in subs:
        count, held = np.int64(c.size[number]), c.held[number]
        if count == 0:
            _remove_listed(a, c, c.lists.shape[0] - 1, number)
        for k in range(count):
            predicate = np.int64(a.pool[held + k])
            _remove_listed(a, c, predicate, number)
            release_predicate(a, predicate)
        if count > 0:
            free_block(a.pool, a.free, count, np.int64(1), held)
        c.size[number] = NO_SIZE
        c.held[number] = a.state[FREE_SUB]
        a.state[FREE_SUB] = number
        a.state[LIVE] -= 1


@kernel
def match_counted(a, c, events, first, scanned, satisfied, hits, out_row, out, counts):
    """Matches the events from `first` on; see `match_events`. hits uint8[subs]: all 0."""
    m = np.int64(0)
    always = c.lists.shape[0] - 1
    for row in range(first, events.off.shape[0] - 1):
        count = np.int64(0)
        if has_repeated(events.attribute, events.off[row], events.off[row + 1]):
            return REPEATED, m, row
        for k in range(events.off[row], events.off[row + 1]):
            count, _ = test_predicates(
                a, np.int64(events.attribute[k]), events.value[k], satisfied, count
            )
        clear_bits(a.bits, satisfied, count)
        start, size, checks = m, c.lists[always, LIST_COUNT], 0
        if scanned:
            for k in range(a.state[SUBS]):
                hits[k] = 0
            if m + size > out.shape[0]:
                return SHORT_OF_MATCHES, start, row
            for k in range(c.lists[always, LIST_BASE], c.lists[always, LIST_BASE] + size):
                out[m] = a.pool[k]
                m += 1
            for j in range(count):
                begin, size = c.lists[satisfied[j], LIST_BASE], c.lists[satisfied[j], LIST_COUNT]
                checks += size
                for k in range(begin, begin + size):
                    sub = a.pool[k]
                    hit = hits[sub] + 1
                    hits[sub] = hit
                    if hit == c.size[sub]:
                        if m == out.shape[0]:
                            return SHORT_OF_MATCHES, start, row
                        out[m] = sub
                        m += 1
        for k in range(start, m):
            out_row[k] = row
        counts[SATISFIED] += count
        counts[CHECKS] += checks
    return DONE, m, events.off.shape[0] - 1


@kernel
def _add_predicates(a, ids, rows, row):
    """Writes the ids of a subscription's distinct predicates. Returns (how many, whether the pool
    sufficed)."""
    count = 0
    for k in range(rows.off[row], rows.off[row + 1]):
        tag = np.int64(rows.attribute[k]) << 3 | np.int64(rows.operator[k])
        number = add_predicate(a, rows.value[k], tag, 1.0)
        if number < 0:
            return count, False
        new = True
        for other in range(count):
            new &= ids[other] != number
        if new:
            ids[count] = number
            count += 1
        else:
            release_predicate(a, number)
    return count, True


@kernel
def _append_listed(a, c, which, sub):
    """Appends a subscription to a list. Returns False if the pool is too short."""
    base, cap, count = c.lists[which, LIST_BASE], c.lists[which, LIST_CAP], c.lists[which, 2]
    if count == cap:
        more = max(2 * cap, FIRST_CAP)
        new = take_block(a.pool, a.free, a.state, np.int64(1), more)
        if new < 0:
            return False
        for k in range(count):
            a.pool[new + k] = a.pool[base + k]
        if cap > 0:
            free_block(a.pool, a.free, np.int64(1), cap, base)
        base = new
        c.lists[which, LIST_BASE] = base
        c.lists[which, LIST_CAP] = more
    a.pool[base + count] = sub
    c.lists[which, LIST_COUNT] = count + 1
    return True


@kernel
def _remove_listed(a, c, which, sub):
    """Removes a subscription from a list; an empty list gives its block back."""
    base, last = c.lists[which, LIST_BASE], c.lists[which, LIST_COUNT] - 1
    for k in range(base, base + last + 1):
        if a.pool[k] == sub:
            a.pool[k] = a.pool[base + last]
            break
    c.lists[which, LIST_COUNT] = last
    if last == 0:
        free_block(a.pool, a.free, np.int64(1), c.lists[which, LIST_CAP], base)
        c.lists[which, LIST_CAP] = 0
