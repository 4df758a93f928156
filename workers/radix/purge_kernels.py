"""Lazy deletion in the radix GI2: delete, mark, sweep; and units that are dropped.

A deleted query keeps its postings until a sweep. That knows from the query in which trees they
are, so its work is that of what was deleted, however large the index is.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.protocol.rows import NEVER
from ps2stream.workers.radix.layout import (
    DIRECTORY_SIZE,
    FIRST,
    HANDLE,
    LIVE,
    LOW,
    NO_WORD,
    PLACES_SIZE,
    POSTINGS,
    PURGEABLE,
    SECOND,
    SESSION,
    SLOT_FREE,
    SLOT_TOP,
    X_DELETED,
    find_entry,
    find_place,
    remove_handle,
)
from ps2stream.workers.radix.pointers import (
    advance,
    point_index,
    point_update_scratch,
    point_updated,
    pointer_to,
    prefetch,
)
from ps2stream.workers.radix.posting_kernels import extend_list
from ps2stream.workers.radix.tag_kernels import (
    add_extras,
    count_tags,
    deleted_at,
    expand_slot,
    free_blocks,
    list_posting_terms,
    measure_query,
    recount_slot,
)
from ps2stream.workers.radix.tree_kernels import (
    bound_region,
    list_roots,
    place_root,
    remove_from_tree,
)

_ONE_BIT = np.uint64(1)
_AHEAD = 8


@njit(cache=True, nogil=True)
def delete_handles(handles, lsns, lon_bits, lat_bits, fields, scratch_fields, out):
    """Sets the delete LSNs; out[i] is the slot, or -1 if it is unknown or was deleted before. The
    handles stay in `places` until their slots are dead or free. The pool has room for two blocks
    a handle."""
    index = point_updated(fields)
    scratch = point_update_scratch(scratch_fields, index.state)
    pool, slots_i, state = index.pool, index.slots_i, index.state
    for i in range(handles.shape[0]):
        slot = (
            np.int64(
                index.places[find_place(index.places, state[PLACES_SIZE], slots_i, handles[i])]
            )
            - 1
        )
        if slot >= 0 and deleted_at(slots_i, pool, slot) == NEVER:
            recount_slot(index, scratch, lon_bits, lat_bits, slot, -1)
            extras = add_extras(slots_i, pool, index.pool_free, state, slot)
            pool[extras + X_DELETED] = np.uint64(lsns[i])
            state[LIVE] -= 1
        else:
            slot = np.int64(-1)
        out[i] = slot


@njit(cache=True, nogil=True)
def mark_dead(slots, fields):
    """Marks slots that can match no object any more: their postings may go."""
    index = point_updated(fields)
    state, dead = index.state, index.dead
    for i in range(slots.shape[0]):
        remove_handle(slots[i], index.places, state[PLACES_SIZE], index.slots_i)
        dead[slots[i] >> 6] |= _ONE_BIT << np.uint64(slots[i] & 63)
    state[PURGEABLE] += slots.shape[0]


@njit(inline="always")
def _clear_dead(index, slot):
    index.dead[slot >> 6] &= ~(_ONE_BIT << np.uint64(slot & 63))
    index.state[PURGEABLE] -= 1


@njit(cache=True, nogil=True)
def free_slot(slots_i, pool, pool_free, left, state, slot):
    """Frees a slot, and its blocks in the pool, that no tree refers to any more."""
    free_blocks(slots_i, pool, pool_free, slot)
    slots_i[8 * slot + HANDLE] = state[SLOT_FREE]
    slots_i[8 * slot + SESSION] = slots_i[8 * slot + FIRST] = slots_i[8 * slot + SECOND] = 0
    left[slot] = 0
    state[SLOT_FREE] = slot


@njit(inline="always")
def remove_term(index, scratch, slot, term):
    """Removes the postings of a slot under a term, if there are any; returns the number of blocks
    that were searched."""
    directory = index.directory
    roots = list_roots(index.slots_f, index.slots_i, index.pool, index.pool_f, slot, scratch.roots)
    searched = 0
    for k in range(roots):
        root = scratch.roots[k]
        at = find_entry(directory, index.state[DIRECTORY_SIZE], term, root)
        word = directory[2 * at + 1]
        if word & LOW == NO_WORD:
            continue
        place = place_root(root)
        bounds = bound_region(index.slots_f, index.slots_i, index.pool, index.pool_f, slot, *place)
        ref, blocks = remove_from_tree(
            index.nodes, index.n32, index.n16, index.node_free, index.state, index.dead,
            scratch.trail, np.int64(word & LOW), place, bounds, slot,
        )  # fmt: skip
        searched += blocks
        if ref == 0:  # the entry stays, without areas, for the next query under the term
            word = np.uint64(root) << np.uint64(32)
        directory[2 * at + 1] = (word & ~LOW) | np.uint64(ref)
    return searched


@njit(cache=True, nogil=True)
def sweep_slots(slots, budget, fields, scratch_fields):
    """Removes the postings of dead slots until `budget` blocks were searched, and frees the slots;
    returns how many slots are done, and how many blocks were searched. fields, scratch_fields:
    plain tuples of those of RadixArrays and UpdateScratch."""
    index = point_updated(fields)
    scratch = point_update_scratch(scratch_fields, index.state)
    state, slots_i, pool = index.state, index.slots_i, index.pool
    searched = done = 0
    while done < slots.shape[0] and searched < budget:
        if done + _AHEAD < slots.shape[0]:
            prefetch(slots_i, 8 * slots[done + _AHEAD])
        slot = slots[done]
        done += 1
        terms = list_posting_terms(slots_i, pool, slot, scratch.term)
        for i in range(terms):
            searched += 1 + remove_term(index, scratch, slot, scratch.term[i])
        state[POSTINGS] -= np.int64(index.left[slot])
        _clear_dead(index, slot)
        free_slot(slots_i, pool, index.pool_free, index.left, state, slot)
    return done, searched


@njit(cache=True, nogil=True)
def keep_tags(first, last, kept, lon_bits, lat_bits, fields, scratch_fields):
    """Removes the tags of the slots first..last - 1 where `kept`, in the order of `list_tags`, is
    false. A query without any left goes too, unless its delete waits for the watermark: the slots
    of such queries are the caller's to free, and their number is returned. The pool has room for
    two blocks a slot and twice the tags."""
    index = point_updated(fields)
    scratch = point_update_scratch(scratch_fields, index.state)
    state, slots_i, pool, dead = index.state, index.slots_i, index.pool, index.dead
    cell, term, waiting, at = scratch.tag_cell, scratch.tag_term, 0, 0
    for slot in range(first, last):
        n = np.int64(index.left[slot])
        if n == 0:
            continue
        before, at = at, at + n
        stay = 0
        for k in range(n):
            stay += kept[before + k]
        if stay == n:
            continue
        deleted = deleted_at(slots_i, pool, slot)
        expand_slot(index, scratch, lon_bits, lat_bits, slot, cell, term)
        size = measure_query(slots_i, pool, slot)
        add_extras(slots_i, pool, index.pool_free, state, slot)
        stays = NO_WORD  # terms that have a tag left
        had = NO_WORD
        j = 0
        for k in range(n):
            i = _number_of(pool, slots_i[8 * slot + FIRST], term[k])
            had |= _ONE_BIT << np.uint64(i)
            if kept[before + k]:
                stays |= _ONE_BIT << np.uint64(i)
                cell[j] = cell[k]
                scratch.term[j] = np.uint64(i)
                j += 1
            elif deleted == NEVER:
                count_tags(index.cells, index.counts, state, advance(cell, k), 1, -1, size)
        for i in range(64):
            if (had & ~stays) >> np.uint64(i) & _ONE_BIT != NO_WORD:
                remove_term(index, scratch, slot, pool[slots_i[8 * slot + FIRST] + 1 + i])
        state[POSTINGS] -= n - stay
        index.left[slot] = np.uint32(stay)
        if stay != 0:
            extend_list(index, slot, 0, cell, scratch.term, 0, stay)
            continue
        if dead[slot >> 6] >> np.uint64(slot & 63) & _ONE_BIT != NO_WORD:
            _clear_dead(index, slot)
        elif deleted == NEVER:
            remove_handle(slot, index.places, state[PLACES_SIZE], slots_i)
            state[LIVE] -= 1
        else:
            waiting += 1
            continue
        free_slot(slots_i, pool, index.pool_free, index.left, state, slot)
    return waiting


@njit(inline="always")
def _number_of(pool, at, term):
    """Returns the number of a term in the expression at `at`, which has it."""
    i = 0
    while pool[at + 1 + i] != term:
        i += 1
    return i


@njit(cache=True, nogil=True)
def free_waiting(slots, fields):
    """Frees the slots of deleted queries that have no tag left."""
    index = point_updated(fields)
    state, slots_i = index.state, index.slots_i
    for i in range(slots.shape[0]):
        remove_handle(slots[i], index.places, state[PLACES_SIZE], slots_i)
        free_slot(slots_i, index.pool, index.pool_free, index.left, state, slots[i])


@njit(cache=True, nogil=True)
def count_live(lsn, fields):
    """Returns the number of tags of queries that were live at this LSN."""
    index, out = point_index(fields), 0
    left, slots_i, pool = index.left, index.slots_i, index.pool
    for slot in range(index.state[SLOT_TOP]):
        if left[slot] != 0 and slots_i[8 * slot + HANDLE] <= lsn < deleted_at(slots_i, pool, slot):
            out += np.int64(left[slot])
    return out


@njit(cache=True, nogil=True)
def rehash_directory(old, directory):
    """Puts the entries of `old` that have a tree into the empty `directory`; returns their
    number."""
    n, to, size = 0, pointer_to(directory), directory.shape[0]
    for i in range(old.shape[0]):
        word = old[i, 1]
        if word & LOW != NO_WORD:
            root = np.int64(word >> np.uint64(32)) & 255
            at = find_entry(to, size, old[i, 0], root)
            to[2 * at], to[2 * at + 1] = old[i, 0], word
            n += 1
    return n
