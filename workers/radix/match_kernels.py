"""Matching in the radix GI2, in stages over blocks of objects (speed.md 3).

probe   the directory for all (object, term) of a block: lines are prefetched in one pass and
        read in the next; a hit prefetches its tree.
descend the trees, level by level, to the leaves at the place of the object.
scan    the leaves: sixteen rectangles at once. A group in which one holds the object prefetches
        its slots and fingerprints.
filter  the groups by fingerprints. A survivor is a candidate and prefetches its slot's line.
verify  the candidates: exact region, LSNs, whole terms or the expression, canonical emitter
        (algorithms.md 6.6). A hit is counted for its object.
emit    the hits of a block, in the order of their objects.

The cache misses of a stage do not depend on each other, so they overlap. Each stage is a function
that is compiled on its own: in one large one the registers would not suffice. Nothing is changed.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.workers.radix.band_kernels import BUCKETS, mark_bands
from ps2stream.workers.radix.division_kernels import count_divided, list_divided_keys
from ps2stream.workers.radix.filter_kernels import filter_groups, scan_leaves
from ps2stream.workers.radix.layout import NO_WORD, SHARED
from ps2stream.workers.radix.pointers import (
    ADDRESSES,
    advance,
    point_addresses,
    point_met,
    point_objects,
    pointer_at,
    pointer_to,
)
from ps2stream.workers.radix.probe_kernels import (
    descend_trees,
    list_keys,
    place_objects,
    probe_keys,
)
from ps2stream.workers.radix.set_kernels import count_sets, mark_sets
from ps2stream.workers.radix.verify_kernels import (
    BATCH,
    FULL_CANDIDATES,
    FULL_HITS,
    emit_hits,
    verify_candidates,
)

KEYS = 2048  # at first, of a block: a term has one, or two where it has a WIDE tree; a code one
MORE_MATCHES, MORE_KEYS, NOT_PLAIN, NOT_CONTIGUOUS = -1, -2, -3, -4

# resume vector (int64): next object, next leaf, leaves, those that go on so far, next group,
# groups, candidates of which all is known, others, hits, matches so far, those whose shape is not
# known, first object of the block, whether the matches of one came in parts
R_OBJECT, R_LEAF, R_LEAVES, R_ON, R_GROUP, R_GROUPS = 0, 1, 2, 3, 4, 5
R_CANDS, R_CHECKS, R_HITS, R_OUT, R_SHAPED, R_BEGIN, R_PARTS = 6, 7, 8, 9, 10, 11, 12
RESUME = 13


@njit(inline="always")
def _has_gaps(column):
    """Returns whether there is something between the elements of a column: whoever calls the code
    of a kernel has not checked that (see `find_entry`)."""
    return (column.shape[0] > 1) & (column.strides[0] != column.itemsize)


@njit(cache=True, nogil=True)
def match_block(lsn, resume, objects, addresses, met):
    """Matches the objects from `resume` on; returns the number of matches, or NOT_PLAIN if `resume`
    says what is still to be done with them, or MORE_MATCHES when there must be more room for
    matches first, or MORE_KEYS when there must be more for the keys of one object, or
    NOT_CONTIGUOUS if a column of the objects is not.

    objects, met: plain tuples of the fields of MatchedObjects and MetPostings; addresses: of the
    arrays of RadixArrays, RadixScratch and RadixMatches, and behind them the buckets of the
    directory, the room for keys, that for matches, and the address of the lines of the grid,
    int64[]. An argument takes Python some 80 ns.
    """
    gaps = _has_gaps(objects[0]) | _has_gaps(objects[1]) | _has_gaps(objects[2])
    gaps |= _has_gaps(objects[3]) | _has_gaps(objects[4])
    if gaps | _has_gaps(objects[5]) | _has_gaps(objects[6]):
        return np.int64(NOT_CONTIGUOUS)
    any_term = objects[4].shape[0] == 0
    index, scratch, found = point_addresses(addresses)
    more = advance(pointer_to(addresses), ADDRESSES)
    sizes, lines = (more[0], more[1], more[2]), pointer_at(more[3], np.float64)
    return _match_objects(
        lsn, objects[0].shape[0], sizes, any_term, pointer_to(resume), lines,
        point_objects(objects), index, scratch, found, point_met(met),
    )  # fmt: skip


@njit(inline="always")
def _match_objects(lsn, end, sizes, any_term, resume, lines, objects, index, scratch, found, met):
    size, keys, room = sizes
    term_off = objects.term_off
    leaf, last, on = resume[R_LEAF], resume[R_LEAVES], resume[R_ON]
    group, filled = resume[R_GROUP], resume[R_GROUPS]
    cands, checks, hits, out = (
        resume[R_CANDS], resume[R_CHECKS], resume[R_HITS], resume[R_OUT],
    )  # fmt: skip
    while True:
        done = group == filled and leaf == last
        if done or cands > FULL_CANDIDATES or checks > FULL_CANDIDATES or hits > FULL_HITS:
            o0 = resume[R_BEGIN]
            if cands + checks > 0:
                hits = verify_candidates(
                    cands, checks, o0, lsn, lines, objects, index, scratch, hits, met
                )
                cands = checks = 0
            if done or hits > FULL_HITS:
                if room - out < hits:
                    resume[R_LEAF], resume[R_LEAVES], resume[R_ON] = leaf, last, on
                    resume[R_GROUP], resume[R_GROUPS] = group, filled
                    resume[R_CANDS], resume[R_CHECKS] = cands, checks
                    resume[R_HITS], resume[R_OUT] = hits, out
                    return np.int64(MORE_MATCHES)
                resume[R_SHAPED] = emit_hits(hits, o0, index, scratch, out, resume[R_SHAPED], found)
                out += hits
                hits = 0
                resume[R_PARTS] |= not done
        if group < filled:
            group, cands, checks = filter_groups(
                group, filled, resume[R_BEGIN], index, scratch, met, cands, checks
            )
            continue
        if leaf == last:
            o0 = resume[R_OBJECT]
            if o0 >= end:
                met.levels[0] = 0  # counted by object
                resume[R_OUT] = out
                is_plain = index.state[SHARED] + resume[R_SHAPED] + resume[R_PARTS] == 0
                return out if is_plain else np.int64(NOT_PLAIN)
            o1, more = min(o0 + BATCH, end), BUCKETS * count_divided(index.bands)
            while o1 > o0 and 2 * (term_off[o1] - term_off[o0]) + more * (o1 - o0) > keys:
                o1 -= 1
            if o1 == o0:
                resume[R_CANDS], resume[R_CHECKS], resume[R_HITS], resume[R_OUT] = 0, 0, 0, out
                resume[R_GROUP] = resume[R_GROUPS] = resume[R_LEAF] = resume[R_LEAVES] = 0
                return np.int64(MORE_KEYS)
            place_objects(o0, o1, objects, scratch)
            if index.bands[0] != NO_WORD:
                mark_bands(o0, o1, objects, index, scratch)
            n = list_keys(o0, o1, any_term, size, objects, index, scratch)
            if more != 0:
                n = list_divided_keys(o0, o1, any_term, size, n, objects, index, scratch)
            if count_sets(index.bands) != 0:
                mark_sets(o0, o1, objects, index, scratch)
            found_leaves, deep = probe_keys(n, size, objects, index, scratch)
            last = descend_trees(found_leaves, deep, o0, index, scratch)
            leaf = on = 0
            resume[R_BEGIN], resume[R_OBJECT] = o0, o1
        group = 0
        leaf, last, on, filled = scan_leaves(leaf, last, on, resume[R_BEGIN], index, scratch)


@njit(cache=True, nogil=True)
def order_by_row(row, handle, session, rows, out_row, out_handle, out_session):
    """Writes the matches to the columns `out` in the order of their rows, all below `rows`."""
    start = np.zeros(rows + 1, np.int64)
    for i in range(row.shape[0]):
        start[row[i] + 1] += 1
    for r in range(rows):
        start[r + 1] += start[r]
    for i in range(row.shape[0]):
        at = start[row[i]]
        start[row[i]] = at + 1
        out_row[at], out_handle[at], out_session[at] = row[i], handle[i], session[i]
