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
from ps2stream.workers.radix.ahead_kernels import GROUP, ask_for_blocks, ask_for_slots
from ps2stream.workers.radix.cell_kernels import count_tags
from ps2stream.workers.radix.division_kernels import other_list
from ps2stream.workers.radix.holder_kernels import (
    count_holders,
    delete_holder,
    holders_of,
    is_holder_deleted,
    remove_all_holders,
    remove_holder,
    slot_of_ref,
)
from ps2stream.workers.radix.layout import (
    DIRECTORY_SIZE,
    ENTRIES,
    HANDLE,
    LIVE,
    LOW,
    NO_WORD,
    POSTINGS,
    PURGEABLE,
    SLOT_TOP,
    SWEPT_TERMS,
    WIDE,
    X_DELETED,
    expression_of,
    find_entry,
)
from ps2stream.workers.radix.leaf_kernels import EVERYTHING, forget_stop, forget_walks
from ps2stream.workers.radix.place_kernels import (
    HOLDER,
    find_place,
    find_ref,
    prefetch_place,
    prefetch_stored,
    remove_place,
)
from ps2stream.workers.radix.pointers import (
    advance,
    point_index,
    point_update_addresses,
    point_update_scratch,
    point_updated,
    pointer_at,
    pointer_to,
    prefetch,
)
from ps2stream.workers.radix.posting_kernels import extend_list
from ps2stream.workers.radix.removal_kernels import remove_from_tree
from ps2stream.workers.radix.tag_kernels import (
    add_extras,
    count_slot_tags,
    deleted_at,
    expand_slot,
    free_slot,
    list_posting_terms,
    measure_query,
    recount_slot,
)
from ps2stream.workers.radix.tree_kernels import bound_region, list_roots, place_root

_ONE_BIT = np.uint64(1)
_AHEAD = 6
LEAST_WALK = 1024
"""Blocks that are searched of a long leaf, however little is left of a budget, so that a sweep does
not fall behind the deletes of such a leaf; a quarter of a ms on a slow core."""
UNKNOWN = np.iinfo(np.int64).min


@njit(cache=True, nogil=True)
def delete_handles(handles, lsns, grid, addresses, out):
    """Sets the delete LSNs; out[i] is the slot, -1 - the handle of one that holds a shared slot, or
    UNKNOWN if there is none or it was deleted before. The handles stay in `places` until their
    slots are dead or free. The pool has room for two blocks a handle. grid: the address of its
    lines; addresses: of the arrays of RadixArrays and UpdateScratch, whose sizes are noted."""
    index, scratch = point_update_addresses(addresses)
    lines = pointer_at(grid, np.float64)
    pool, slots_i, state = index.pool, index.slots_i, index.state
    for i in range(handles.shape[0]):
        if i + 3 * _AHEAD < handles.shape[0]:
            prefetch_place(index, handles[i + 3 * _AHEAD])
        if i + 2 * _AHEAD < handles.shape[0]:
            prefetch_stored(index, handles[i + 2 * _AHEAD])
        if i + _AHEAD < handles.shape[0]:
            ahead = find_ref(index, handles[i + _AHEAD])
            if ahead != 0 and ahead & HOLDER == 0:
                ask_for_blocks(index, slot_of_ref(index, ahead))
        ref = find_ref(index, handles[i])
        out[i] = UNKNOWN
        if ref == 0:
            continue
        slot = slot_of_ref(index, ref)
        if ref & HOLDER:
            if is_holder_deleted(index.holders, ref >> 1):
                continue
            delete_holder(index, ref >> 1, lsns[i])
            out[i] = -1 - handles[i]
        elif deleted_at(slots_i, pool, slot) == NEVER:
            extras = add_extras(slots_i, pool, index.pool_free, state, slot)
            pool[extras + X_DELETED] = np.uint64(lsns[i])
            out[i] = slot
        else:
            continue
        recount_slot(index, scratch, lines, slot, np.int64(-1))
        state[LIVE] -= 1


@njit(inline="always")
def _remove_handle(index, slot):
    """Removes the handle of a slot from `places`."""
    remove_place(index, find_place(index, index.slots_i[8 * slot + HANDLE]))


@njit(cache=True, nogil=True)
def mark_dead(entries, grid, addresses):
    """Marks slots that can match no object any more, whose postings may go, and removes holders of
    slots that others still hold. `entries`: as `delete_handles` gave them; returns how many slots
    are dead, which come first in it then."""
    index, _ = point_update_addresses(addresses)
    lines = pointer_at(grid, np.float64)
    state, dead, n = index.state, index.dead, 0
    for i in range(entries.shape[0]):
        if i + 2 * _AHEAD < entries.shape[0] and entries[i + 2 * _AHEAD] >= 0:
            prefetch(index.slots_i, 8 * entries[i + 2 * _AHEAD])
        if i + _AHEAD < entries.shape[0] and entries[i + _AHEAD] >= 0:
            prefetch_place(index, index.slots_i[8 * entries[i + _AHEAD] + HANDLE])
        slot = entries[i]
        if slot < 0:
            ref = find_ref(index, -1 - slot)
            if ref == 0:
                continue
            slot = slot_of_ref(index, ref)
            if ref & HOLDER:
                state[POSTINGS] -= count_slot_tags(index, slot, lines)
                remove_holder(index, ref >> 1)
                continue
        _remove_handle(index, slot)
        dead[slot >> 6] |= _ONE_BIT << np.uint64(slot & 63)
        entries[n] = slot
        n += 1
    state[PURGEABLE] += n
    forget_walks(state)
    return n


@njit(inline="always")
def _clear_dead(index, slot):
    index.dead[slot >> 6] &= ~(_ONE_BIT << np.uint64(slot & 63))
    index.state[PURGEABLE] -= 1


@njit(cache=True, nogil=True)
def remove_term(index, scratch, slot, term, most):
    """Removes the postings of a slot under a term, if there are any; returns the number of blocks
    that were searched, that of its trees, and whether it stopped after `most` in a leaf."""
    directory = index.directory
    roots = list_roots(index.slots_f, index.slots_i, index.pool, index.pool_f, slot, scratch.roots)
    searched, stopped = np.int64(0), False
    other = term
    if scratch.roots[0] == WIDE:
        other = other_list(index, slot, term)
        if other != term:  # it is in that list, or came before there was one
            scratch.roots[1], roots = WIDE, 2
    for k in range(roots):
        root = scratch.roots[k]
        key = other if k == 1 and root == WIDE else term
        at = find_entry(directory, index.state[DIRECTORY_SIZE], key, root)
        word = directory[at]
        if word & LOW == NO_WORD:
            continue
        place = place_root(root)
        bounds = bound_region(index.slots_f, index.slots_i, index.pool, index.pool_f, slot, *place)
        ref, blocks, stopped = remove_from_tree(
            index.nodes, index.n32, index.n16, index.node_free, index.state, index.dead,
            scratch.trail, np.int64(word & LOW), place, bounds, slot, most,
        )  # fmt: skip
        searched += blocks
        if ref == 0:  # the entry stays, without areas, for the next query under the term
            word = np.uint64(root) << np.uint64(32)
        directory[at] = (word & ~LOW) | np.uint64(ref)
        if stopped:
            break
    return searched, roots, stopped


@njit(cache=True, nogil=True)
def sweep_slots(slots, budget, grid, addresses):
    """Removes the postings of dead slots until `budget` blocks were searched, and frees the slots,
    then those which need no search, and one that does; at most `budget` slots, or slots in twice as
    many trees. In a long leaf it stops, for the next call to go on with the same slot. Returns how
    many slots are done, and how many blocks were searched, or could have been instead. grid,
    addresses: as for `delete_handles`."""
    index, scratch = point_update_addresses(addresses)
    lines = pointer_at(grid, np.float64)
    state, slots_i, pool = index.state, index.slots_i, index.pool
    searched = done = asked = trees = np.int64(0)
    spent = False  # for a slot that had to be searched for, although the budget was
    while done < min(slots.shape[0], budget) and trees < 2 * budget and not spent:
        if done == asked:
            asked = min(done + GROUP, slots.shape[0])
            ask_for_slots(slots, done, asked, index, scratch)
        slot = slots[done]
        terms = list_posting_terms(slots_i, pool, slot, scratch.term)
        blocks = np.int64(0)
        for i in range(state[SWEPT_TERMS], terms):
            most = max(budget - searched - blocks, LEAST_WALK)
            more, roots, stopped = remove_term(index, scratch, slot, scratch.term[i], most)
            blocks += more
            trees += roots
            if stopped:
                state[SWEPT_TERMS] = i
                return done, searched + blocks
        state[SWEPT_TERMS] = 0
        forget_stop(state)
        done += 1
        spent = searched >= budget and blocks > 0
        searched += terms + blocks
        state[POSTINGS] -= count_slot_tags(index, slot, lines)
        _clear_dead(index, slot)
        free_slot(slots_i, pool, index.pool_free, state, slot)
    return done, max(searched, trees >> 1)


@njit(cache=True, nogil=True)
def keep_tags(first, last, kept, grid, fields, scratch_fields):
    """Removes the tags of the slots first..last - 1 where `kept`, in the order of `list_tags`, is
    false. A query without any left goes too, unless its delete waits for the watermark: the slots
    of such queries are the caller's to free. Returns how many deletes need not wait any more. The
    pool has room for two blocks a slot and twice the tags."""
    index, lines = point_updated(fields), pointer_at(grid, np.float64)
    scratch = point_update_scratch(scratch_fields, index.state)
    state, slots_i, pool, dead = index.state, index.slots_i, index.pool, index.dead
    cell, term, waiting, at = scratch.tag_cell, scratch.tag_term, 0, 0
    none, everything = np.int64(0), np.int64(EVERYTHING)
    for slot in range(first, last):
        if slots_i[8 * slot + HANDLE] < 0:
            continue
        n = count_slot_tags(index, slot, lines)
        before, at = at, at + n
        stay = none
        for k in range(n):
            stay += kept[before + k]
        if stay == n:
            continue
        deleted, live, held = deleted_at(slots_i, pool, slot), np.int64(1), np.int64(1)
        chunk = holders_of(slots_i, pool, slot)
        if chunk != 0:
            held, live = count_holders(index.holders, pool, chunk, np.int64(NEVER) - 1)
        expand_slot(index, scratch, lines, slot, cell, term)
        size = measure_query(slots_i, pool, slot)
        add_extras(slots_i, pool, index.pool_free, state, slot)
        stays = NO_WORD  # terms that have a tag left
        had = NO_WORD
        j = 0
        for k in range(n):
            i = _number_of(pool, expression_of(slots_i, slot), term[k])
            had |= _ONE_BIT << np.uint64(i)
            if kept[before + k]:
                stays |= _ONE_BIT << np.uint64(i)
                cell[j] = cell[k]
                scratch.term[j] = np.uint64(i)
                j += 1
            elif deleted == NEVER:
                count_tags(
                    index.cells, index.counts, state, advance(cell, k), np.int64(1), -live, size
                )
        for i in range(64):
            if (had & ~stays) >> np.uint64(i) & _ONE_BIT != NO_WORD:
                remove_term(
                    index, scratch, slot, pool[expression_of(slots_i, slot) + 1 + i], everything
                )
        state[POSTINGS] -= (n - stay) * held
        extend_list(index, slot, none, cell, scratch.term, none, stay)
        if stay != 0:
            continue
        if chunk != 0:
            waiting += remove_all_holders(index, slot)
        elif dead[slot >> 6] >> np.uint64(slot & 63) & _ONE_BIT != NO_WORD:
            _clear_dead(index, slot)
        elif deleted == NEVER:
            _remove_handle(index, slot)
            state[LIVE] -= 1
        else:
            waiting += 1
            continue
        free_slot(slots_i, pool, index.pool_free, state, slot)
    return waiting


@njit(inline="always")
def _number_of(pool, at, term):
    """Returns the number of a term in the expression at `at`, which has it."""
    i = 0
    while pool[at + 1 + i] != term:
        i += 1
    return i


@njit(cache=True, nogil=True)
def free_waiting(entries, fields):
    """Frees the slots of deleted queries that have no tag left, as `find_empty` notes them."""
    index = point_updated(fields)
    state, slots_i = index.state, index.slots_i
    for i in range(entries.shape[0]):
        slot = _find_waiting(index, entries[i])
        if slot >= 0:
            _remove_handle(index, slot)
            free_slot(slots_i, index.pool, index.pool_free, state, slot)


@njit(inline="always")
def _find_waiting(index, entry):
    """Returns the slot of a delete that waits, or -1 if the handle is gone."""
    if entry >= 0:
        return entry
    ref = find_ref(index, -1 - entry)
    return slot_of_ref(index, ref) if ref != 0 else np.int64(-1)


@njit(cache=True, nogil=True)
def count_live(lsn, grid, fields):
    """Returns the number of tags of queries that were live at this LSN."""
    index, lines, out = point_index(fields), pointer_at(grid, np.float64), 0
    slots_i, pool = index.slots_i, index.pool
    for slot in range(index.state[SLOT_TOP]):
        handle = slots_i[8 * slot + HANDLE]
        if handle >= 0 and handle <= lsn < deleted_at(slots_i, pool, slot):
            chunk, live = holders_of(slots_i, pool, slot), np.int64(1)
            if chunk != 0:
                live = count_holders(index.holders, pool, chunk, lsn)[1]
            out += live * count_slot_tags(index, slot, lines)
    return out


@njit(cache=True, nogil=True)
def find_empty(entries, grid, fields, out):
    """Notes in `out` which of these deletes that wait are of queries without a tag."""
    index, lines = point_updated(fields), pointer_at(grid, np.float64)
    for i in range(entries.shape[0]):
        slot = _find_waiting(index, entries[i])
        out[i] = slot < 0 or count_slot_tags(index, slot, lines) == 0


@njit(cache=True, nogil=True)
def rehash_directory(old, directory):
    """Puts the entries of `old` that have a tree into the empty `directory`; returns their
    number."""
    n, to, size = 0, pointer_to(directory), directory.shape[0]
    for bucket in range(old.shape[0]):
        for i in range(ENTRIES):
            term, word = old[bucket, i], old[bucket, ENTRIES + i]
            if word & LOW != NO_WORD:
                at = find_entry(to, size, term, np.int64(word >> np.uint64(32)) & 255)
                to[at - ENTRIES], to[at] = term, word
                n += 1
    return n
