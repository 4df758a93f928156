"""Matching in GI2, in stages over blocks of objects (speed.md 3).

probe   all (object, level, term) keys of a block: table lines are prefetched in one
        pass and read in the next; a hit prefetches its run.
scan    the runs: quantised rectangle, then keyword fingerprints; dead postings are
        removed when met. A survivor is a candidate and prefetches its slot's line.
verify  the candidates: exact rectangle, LSNs, whole keyword hashes or the stored
        expression, canonical emitter (algorithms.md 6.6).

The cache misses of a stage do not depend on each other, so they overlap.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.space.prefetch import prefetch
from ps2stream.space.space_kernels import cell_at
from ps2stream.workers.arrays import (
    IndexArrays,
    MatchBuffers,
    MatchedObjects,
    MatchScratch,
    ProbedLevels,
)
from ps2stream.workers.index import MetPostings
from ps2stream.workers.layout import (
    ANY,
    CELL_BITS,
    CELL_MASK,
    FREE,
    GENERAL,
    LEN_MASK,
    LOW,
    NONE,
    POSTING,
    SLOT_BITS,
    SLOT_MASK,
    cell_side,
    cell_step,
    find_in,
    find_tag,
    home,
    is_dead,
    line_count,
    next_position,
)
from ps2stream.workers.purge_kernels import drop_posting
from ps2stream.workers.verify_kernels import verify_candidates

BLOCK = 64  # objects a block: its hits and candidates stay in the second-level cache
HEADS = 1024  # chains of an object's keyword look-up
MATCHED, MORE_CANDIDATES, MORE_MATCHES = 0, 1, 2

# resume vector (int64): next object, next hit, hits of the block, matches so far
R_OBJECT, R_HIT, R_HITS, R_OUT = 0, 1, 2, 3

_FOUND = np.uint32(0xFFFFFFFF)  # stands for a cell whose run is found: its level would be 15


@njit(inline="always")
def _probe_block(o0, o1, grid, objects, index, hits):
    """Fills hits (object | level << 28, term, run, x | y << 16, cell); returns their number."""
    levels, lines = grid.levels, grid.lines
    lon, lat, term_off, term = objects.lon, objects.lat, objects.term_off, objects.term
    chosen = objects.chosen
    table, runs = index.table, index.runs
    size = table.shape[0]
    any_term = chosen.shape[0] == 0
    keys = 0
    for o in range(o0, o1):
        for k in range(levels.shape[0]):
            level = levels[k]
            columns = line_count(np.int64(lines[0]), level)
            line = np.int64(cell_at(lon[o], lat[o], lines, level)) & CELL_MASK
            cell = np.uint32(level << CELL_BITS | line)
            west, sx = cell_side(lines, 0, line % columns, level)
            south, sy = cell_side(lines, 1, line // columns, level)
            x, y = cell_step(lon[o], west, sx), cell_step(lat[o], south, sy)
            for t in range(term_off[o], term_off[o + 1]):
                if not (any_term or chosen[t >> 3] >> np.uint8(t & 7) & np.uint8(1)):
                    continue
                at = home(term[t], cell, size)
                prefetch(table, at)
                hits[keys, 0] = np.uint32(o | level << CELL_BITS)
                hits[keys, 1] = np.uint32(t)
                hits[keys, 2] = np.uint32(at)
                hits[keys, 3] = x | y << np.uint32(16)
                hits[keys, 4] = cell
                keys += 1
    for k in range(keys):
        at = np.int64(hits[k, 2])
        word, room = find_in(table, at, term[hits[k, 1]], np.uint64(hits[k, 4]))
        if word == NONE and not room:  # one in six at the usual fill: look on, but later
            at = next_position(at, size)
            prefetch(table, at)
            hits[k, 2] = np.uint32(at)
            continue
        run = np.int64(word & LOW)
        prefetch(runs, run)
        hits[k, 2] = np.uint32(run)
        hits[k, 4] = _FOUND
    found = 0
    for k in range(keys):
        run = np.int64(hits[k, 2])
        if hits[k, 4] != _FOUND:
            cell = np.uint64(hits[k, 4])
            run = np.int64(find_tag(table, run, term[hits[k, 1]], cell)[1] & LOW)
            prefetch(runs, run)
        if run != 0:
            prefetch(runs, run + 16)
            hits[found, 0] = hits[k, 0]
            hits[found, 1] = hits[k, 1]
            hits[found, 2] = np.uint32(run)
            hits[found, 3] = hits[k, 3]
            found += 1
    return found


@njit(inline="always")
def _find_keyword(half, start, term, head, follow):
    """Returns 1 + the position in the object of a keyword with this high half, or 0."""
    j = np.int64(head[half & np.uint32(HEADS - 1)])
    while j != 0 and np.uint32(term[start + j - 1] >> np.uint64(32)) != half:
        j = np.int64(follow[j])
    return j


@njit(inline="always")
def _scan_runs(h0, h1, objects, index, scratch, met):
    """Fills cands (object, mode << 30 | slot, two keyword positions + 1); returns the next hit and
    the number of candidates. Adds the postings that were met to those of the object, or of the
    level."""
    term_off, term = objects.term_off, objects.term
    runs, dead, left, state = index.runs, index.dead, index.left, index.state
    slots_i, general, level_postings = index.slots_i, index.general, index.level_postings
    pool, pool_free = index.pool, index.pool_free
    hits, head, follow, cands = scratch.hits, scratch.head, scratch.follow, scratch.cands
    met_by, met_on = met.base, met.levels
    n = 0
    last = np.int64(-1)
    a0 = a1 = np.int64(0)
    h = h0
    while h < h1:
        o = np.int64(hits[h, 0]) & CELL_MASK
        level = np.int64(hits[h, 0]) >> CELL_BITS
        run = np.int64(hits[h, 2])
        length = np.int64(runs[run]) & LEN_MASK
        if n + length > cands.shape[0]:
            break
        if level == 0:
            met_by[o] += length
        else:
            met_on[level] += length
        if o != last:
            for t in range(a0, a1):
                head[np.uint32(term[t] >> np.uint64(32)) & np.uint32(HEADS - 1)] = 0
            a0, a1 = term_off[o], term_off[o + 1]
            for t in range(a0, a1):
                c = np.uint32(term[t] >> np.uint64(32)) & np.uint32(HEADS - 1)
                follow[t - a0 + 1] = head[c]
                head[c] = np.int32(t - a0 + 1)
            last = o
        x = hits[h, 3] & np.uint32(0xFFFF)
        y = hits[h, 3] >> np.uint32(16)
        own = np.uint32(hits[h, 1] - a0 + 1)
        half = np.uint32(term[hits[h, 1]] >> np.uint64(32))
        i = np.int64(0)
        while i < length:
            p = run + 1 + i * POSTING
            i += 1
            wx, wy = runs[p], runs[p + 1]
            if (
                (x < wx & np.uint32(0xFFFF))
                | (x > wx >> np.uint32(16))
                | (y < wy & np.uint32(0xFFFF))
                | (y > wy >> np.uint32(16))
            ):
                continue
            word = runs[p + 2]
            slot = np.int64(word) & SLOT_MASK
            if is_dead(dead, slot):
                i -= 1
                length -= 1
                drop_posting(
                    runs, run, i, level, dead, left, slots_i, general, pool, pool_free,
                    level_postings, state,
                )  # fmt: skip
                continue
            mode = np.int64(word) >> SLOT_BITS
            ja = jb = np.int64(own)
            if mode != FREE:
                wa, wb = runs[p + 3], runs[p + 4]
                if wa != half:
                    ja = _find_keyword(wa, a0, term, head, follow)
                jb = ja
                if mode == ANY:
                    jb = 0 if wb == wa else _find_keyword(wb, a0, term, head, follow)
                    if ja | jb == 0:
                        word |= np.uint32(FREE << SLOT_BITS)
                else:
                    if ja == 0:
                        continue
                    if wb != wa:
                        jb = _find_keyword(wb, a0, term, head, follow)
                        if jb == 0:
                            continue
                    if mode == GENERAL:
                        ja = np.int64(own)
            prefetch(slots_i, slot)
            cands[n, 0] = np.uint32(o)
            cands[n, 1] = word
            cands[n, 2] = np.uint32(ja)
            cands[n, 3] = np.uint32(jb)
            n += 1
        h += 1
    for t in range(a0, a1):
        head[np.uint32(term[t] >> np.uint64(32)) & np.uint32(HEADS - 1)] = 0
    return h, n


@njit(cache=True, nogil=True)
def match_block(lsn, resume, grid, objects, index, scratch, found, met):
    """Matches the objects from `resume` on; returns MATCHED, or which buffer must grow first.

    The other arguments are plain tuples of the fields of ProbedLevels, MatchedObjects,
    IndexArrays, MatchScratch, MatchBuffers and MetPostings.
    """
    return _match_objects(
        lsn, resume, ProbedLevels(*grid), MatchedObjects(*objects), IndexArrays(*index),
        MatchScratch(*scratch), MatchBuffers(*found), MetPostings(*met),
    )  # fmt: skip


@njit(inline="always")
def _match_objects(lsn, resume, grid, objects, index, scratch, found, met):
    lon, hits, cands, row = objects.lon, scratch.hits, scratch.cands, found.row
    while resume[R_OBJECT] < lon.shape[0] or resume[R_HIT] < resume[R_HITS]:
        if resume[R_HIT] == resume[R_HITS]:
            o0 = resume[R_OBJECT]
            o1 = min(o0 + BLOCK, lon.shape[0])
            resume[R_HITS] = _probe_block(o0, o1, grid, objects, index, hits)
            resume[R_HIT] = 0
            resume[R_OBJECT] = o1
        while resume[R_HIT] < resume[R_HITS]:
            if row.shape[0] - resume[R_OUT] < cands.shape[0]:
                return MORE_MATCHES
            before = resume[R_HIT]
            resume[R_HIT], n = _scan_runs(before, resume[R_HITS], objects, index, scratch, met)
            resume[R_OUT] = verify_candidates(n, lsn, objects, index, scratch, resume[R_OUT], found)
            if resume[R_HIT] == before:
                return MORE_CANDIDATES
    return MATCHED
