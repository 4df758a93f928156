"""Queries that are alike are stored once: the holders of a slot, and what is kept of each.

A slot with two holders or more is shared. Its extras say where its holders are instead of when it
was deleted: -chunk in X_DELETED. A chunk is a power of two of entries of 16 bytes, at a multiple of
its size, so that an entry leads to the chunk's head, and that to the slot:

head    slot | class << 32; next chunk | holders here << 40
entry   handle; session << 6 | deleted << 3 | class of the chunk. Of a deleted holder the session
        is replaced with the offset of a block in the pool: session, delete LSN.

Chunks grow from 4 entries to 64, each beside the others, so that no holder moves. One that goes is
replaced with the last one. The one that is left at last takes the slot over.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.protocol.rows import NEVER
from ps2stream.workers.radix.layout import (
    BLOCK,
    FIRST,
    HANDLE,
    HOLDER_FREE,
    HOLDER_TOP,
    KIND_MASK,
    LIVE,
    OFFSET_MASK,
    SECOND,
    SESSION,
    SESSION_SHIFT,
    SHARED,
    X_DELETED,
    X_HEAD,
    X_LIST,
    X_LISTED,
    expression_of,
    free_words,
    take_words,
)
from ps2stream.workers.radix.place_kernels import (
    HOLDER,
    add_place,
    find_place,
    remove_place,
    replace_ref,
    slot_ref,
)
from ps2stream.workers.radix.pointers import pointer_to
from ps2stream.workers.radix.tag_kernels import add_extras

SMALLEST, LARGEST = 2, 6  # classes of chunks
CHUNK_ENTRIES = 1 << LARGEST
_CLASS_MASK, _DELETED = 7, 8
_SLOT_MASK = (1 << 32) - 1
_NEXT_MASK, _COUNT_SHIFT = (1 << 40) - 1, 40
_ONE_MORE = 1 << _COUNT_SHIFT


@njit(inline="always")
def holders_of(slots_i, pool, slot):
    """Returns the chunk of a shared slot, or 0."""
    if slots_i[8 * slot + SESSION] & KIND_MASK != BLOCK or slots_i[8 * slot + SECOND] == 0:
        return np.int64(0)
    return max(-np.int64(pool[slots_i[8 * slot + SECOND] + X_DELETED]), 0)


@njit(inline="always")
def slot_of_holder(holders, entry):
    """Returns the slot of the holder at an entry."""
    cls = holders[2 * entry + 1] & _CLASS_MASK
    return holders[2 * (entry >> cls << cls)] & _SLOT_MASK


@njit(inline="always")
def slot_of_ref(index, ref):
    """Returns the slot of a handle by its ref in `places`."""
    if ref & HOLDER:
        return slot_of_holder(index.holders, ref >> 1)
    return (ref >> 1) - 1


@njit(inline="always")
def is_holder_deleted(holders, entry):
    """Returns whether the holder at an entry was deleted."""
    return holders[2 * entry + 1] & _DELETED != 0


@njit(inline="always")
def describe_holder(holders, pool, entry):
    """Returns the session of a holder, and its delete LSN or NEVER."""
    word = holders[2 * entry + 1]
    if word & _DELETED == 0:
        return word >> SESSION_SHIFT, np.int64(NEVER)
    block = word >> SESSION_SHIFT
    return np.int64(pool[block]), np.int64(pool[block + 1])


@njit(cache=True, nogil=True)
def _take_chunk(index, cls):
    """Takes a chunk of this class from the holders, which have room for a largest one."""
    state, holders = index.state, index.holders
    of = cls
    while of < LARGEST and state[HOLDER_FREE + of] == 0:
        of += 1
    at = state[HOLDER_FREE + of]
    if at != 0:
        state[HOLDER_FREE + of] = holders[2 * at]
    else:
        at = state[HOLDER_TOP]
        state[HOLDER_TOP] = at + CHUNK_ENTRIES
    while of > cls:
        of -= 1
        half = at + (1 << of)
        holders[2 * half] = state[HOLDER_FREE + of]
        state[HOLDER_FREE + of] = half
    return at


@njit(cache=True, nogil=True)
def _free_chunk(index, chunk):
    cls = index.holders[2 * chunk] >> 32
    index.holders[2 * chunk] = index.state[HOLDER_FREE + cls]
    index.state[HOLDER_FREE + cls] = chunk


@njit(cache=True, nogil=True)
def _add_holder(index, slot, handle, session):
    """Adds a holder to a shared slot; returns its entry."""
    pool, holders = index.pool, index.holders
    extras = index.slots_i[8 * slot + SECOND]
    chunk = -np.int64(pool[extras + X_DELETED])
    cls = holders[2 * chunk] >> 32
    if holders[2 * chunk + 1] >> _COUNT_SHIFT == (1 << cls) - 1:
        cls = min(cls + 1, LARGEST)
        new = _take_chunk(index, cls)
        holders[2 * new], holders[2 * new + 1] = slot | cls << 32, chunk
        chunk = new
        pool[extras + X_DELETED] = np.uint64(-chunk)
    holders[2 * chunk + 1] += _ONE_MORE
    entry = chunk + (holders[2 * chunk + 1] >> _COUNT_SHIFT)
    holders[2 * entry], holders[2 * entry + 1] = handle, session << SESSION_SHIFT | cls
    return entry


@njit(cache=True, nogil=True)
def share_slot(index, slot, handle, session):
    """Gives a live slot one more holder. The pool has room for two small blocks, the holders for
    two chunks, and `places` for the handle."""
    slots_i, pool, state = index.slots_i, index.pool, index.state
    extras = add_extras(slots_i, pool, index.pool_free, state, slot)
    own = slots_i[8 * slot + HANDLE]
    if np.int64(pool[extras + X_DELETED]) >= 0:
        chunk = _take_chunk(index, SMALLEST)
        index.holders[2 * chunk], index.holders[2 * chunk + 1] = slot | SMALLEST << 32, 0
        pool[extras + X_DELETED] = np.uint64(-chunk)
        at = find_place(index, own)
        entry = _add_holder(index, slot, own, slots_i[8 * slot + SESSION] >> SESSION_SHIFT)
        replace_ref(index, at, entry << 1 | HOLDER)
        state[SHARED] += 1
    slots_i[8 * slot + HANDLE] = min(own, handle)
    add_place(index, handle, _add_holder(index, slot, handle, session) << 1 | HOLDER)


@njit(cache=True, nogil=True)
def delete_holder(index, entry, lsn):
    """Gives a holder its delete LSN. The pool has room for a small block."""
    at, _ = take_words(index.pool, index.pool_free, index.state, 2)
    word = index.holders[2 * entry + 1]
    index.pool[at], index.pool[at + 1] = np.uint64(word >> SESSION_SHIFT), np.uint64(lsn)
    word = word & _CLASS_MASK | _DELETED
    index.holders[2 * entry + 1] = word | at << SESSION_SHIFT


@njit(cache=True, nogil=True)
def _free_deleted(index, entry):
    """Gives back the block of a deleted holder."""
    word = index.holders[2 * entry + 1]
    if word & _DELETED != 0:
        free_words(index.pool, index.pool_free, word >> SESSION_SHIFT, 0)


@njit(cache=True, nogil=True)
def _take_over(index, slot, chunk):
    """Makes the only holder of a slot its owner."""
    slots_i, entry = index.slots_i, chunk + 1
    session, lsn = describe_holder(index.holders, index.pool, entry)
    at = find_place(index, index.holders[2 * entry])
    slots_i[8 * slot + HANDLE] = index.holders[2 * entry]
    kept = slots_i[8 * slot + SESSION] & ((1 << SESSION_SHIFT) - 1)
    slots_i[8 * slot + SESSION] = session << SESSION_SHIFT | kept
    index.pool[slots_i[8 * slot + SECOND] + X_DELETED] = np.uint64(lsn)
    replace_ref(index, at, slot_ref(slot))
    _free_deleted(index, entry)
    _free_chunk(index, chunk)
    index.state[SHARED] -= 1


@njit(cache=True, nogil=True)
def remove_holder(index, entry):
    """Removes a holder and its handle; the last but one leaves the slot to the other."""
    holders, pool = index.holders, index.pool
    slot = slot_of_holder(holders, entry)
    extras = index.slots_i[8 * slot + SECOND]
    chunk = -np.int64(pool[extras + X_DELETED])
    remove_place(index, find_place(index, holders[2 * entry]))
    _free_deleted(index, entry)
    last = chunk + (holders[2 * chunk + 1] >> _COUNT_SHIFT)
    if last != entry:
        at = find_place(index, holders[2 * last])
        cls = holders[2 * entry + 1] & _CLASS_MASK
        holders[2 * entry] = holders[2 * last]
        holders[2 * entry + 1] = holders[2 * last + 1] & ~_CLASS_MASK | cls
        replace_ref(index, at, entry << 1 | HOLDER)
    holders[2 * chunk + 1] -= _ONE_MORE
    behind = holders[2 * chunk + 1] & _NEXT_MASK
    if last == chunk + 1:
        _free_chunk(index, chunk)
        chunk = behind
        pool[extras + X_DELETED] = np.uint64(-chunk)
        behind = holders[2 * chunk + 1] & _NEXT_MASK
    if behind == 0 and holders[2 * chunk + 1] >> _COUNT_SHIFT == 1:
        _take_over(index, slot, chunk)


@njit(cache=True, nogil=True)
def remove_all_holders(index, slot):
    """Removes the holders of a shared slot and their handles, which leaves it dead; returns how
    many of them were deleted before."""
    holders, deleted = index.holders, np.int64(0)
    chunk = holders_of(index.slots_i, index.pool, slot)
    while chunk != 0:
        head = holders[2 * chunk + 1]
        for entry in range(chunk + 1, chunk + 1 + (head >> _COUNT_SHIFT)):
            remove_place(index, find_place(index, holders[2 * entry]))
            if is_holder_deleted(holders, entry):
                deleted += 1
            else:
                index.state[LIVE] -= 1
            _free_deleted(index, entry)
        _free_chunk(index, chunk)
        chunk = head & _NEXT_MASK
    index.pool[index.slots_i[8 * slot + SECOND] + X_DELETED] = np.uint64(0)
    index.state[SHARED] -= 1
    return deleted


@njit(inline="always")
def _copy_words(index, at, words):
    """Copies a block of the pool; returns the offset and class of the copy."""
    to, cls = take_words(index.pool, index.pool_free, index.state, words)
    for i in range(words):
        index.pool[to + i] = index.pool[at + i]
    return to, cls


@njit(cache=True, nogil=True)
def detach_holder(index, entry, slot):
    """Makes a holder the owner of `slot`, an empty one, with a copy of its query that has no
    posting yet. The pool has room for the copy."""
    slots_i, pool, holders = index.slots_i, index.pool, index.holders
    old = slot_of_holder(holders, entry)
    handle = holders[2 * entry]
    session, lsn = describe_holder(holders, pool, entry)
    for i in range(8):
        slots_i[8 * slot + i] = slots_i[8 * old + i]
    at, extras = expression_of(slots_i, old), slots_i[8 * old + SECOND]
    head = np.int64(pool[at])
    # One word more than without a long `post`, which need not be there.
    words = 2 + (head >> 8 & 255) + (head >> 16 & 0xFFFF)
    at, cls = _copy_words(index, at, words)
    pool[at] = np.uint64(head & ~(255 << 32) | cls << 32)
    slots_i[8 * slot + FIRST] = slots_i[8 * old + FIRST] & ~OFFSET_MASK | at
    head = np.int64(pool[extras + X_HEAD])
    at, _ = _copy_words(index, extras, 4 << (head >> 16 & 255))
    slots_i[8 * slot + SECOND] = at
    pool[at + X_DELETED] = np.uint64(lsn)
    if np.int64(pool[at + X_LIST]) != 0:
        n = np.int64(pool[at + X_LISTED]) & 0xFFFFFFFF
        listed, cls = _copy_words(index, np.int64(pool[at + X_LIST]), n)
        pool[at + X_LIST] = np.uint64(listed)
        pool[at + X_LISTED] = np.uint64(n | cls << 32)
    slots_i[8 * slot + HANDLE] = handle
    kept = slots_i[8 * slot + SESSION] & ((1 << SESSION_SHIFT) - 1)
    slots_i[8 * slot + SESSION] = session << SESSION_SHIFT | kept
    remove_holder(index, entry)
    add_place(index, handle, slot_ref(slot))


@njit(cache=True, nogil=True)
def count_holders(holders, pool, chunk, lsn):
    """Returns the number of holders in a chain of chunks, and of those live at an LSN."""
    n = live = np.int64(0)
    while chunk != 0:
        head = holders[2 * chunk + 1]
        for entry in range(chunk + 1, chunk + 1 + (head >> _COUNT_SHIFT)):
            n += 1
            live += holders[2 * entry] <= lsn < describe_holder(holders, pool, entry)[1]
        chunk = head & _NEXT_MASK
    return n, live


@njit(cache=True, nogil=True)
def count_holding(lsn, session, holders, pool):
    """Returns the number of matches that those found stand for, as of an LSN, where -chunk in
    `session` stands for all holders of a shared slot."""
    held, words, n = pointer_to(holders), pointer_to(pool), np.int64(0)
    for i in range(session.shape[0]):
        n += 1 if session[i] >= 0 else count_holders(held, words, -session[i], lsn)[1]
    return n


@njit(cache=True, nogil=True)
def list_holding(lsn, row, handle, session, holders, pool, out_row, out_handle, out_session):
    """Fills in the matches that `count_holding` counts."""
    held, words, n = pointer_to(holders), pointer_to(pool), 0
    for i in range(handle.shape[0]):
        if session[i] >= 0:
            out_row[n], out_handle[n], out_session[n] = row[i], handle[i], session[i]
            n += 1
            continue
        chunk = -session[i]
        while chunk != 0:
            head = held[2 * chunk + 1]
            for entry in range(chunk + 1, chunk + 1 + (head >> _COUNT_SHIFT)):
                own, lsn_out = describe_holder(held, words, entry)
                if held[2 * entry] <= lsn < lsn_out:
                    out_row[n], out_handle[n], out_session[n] = row[i], held[2 * entry], own
                    n += 1
            chunk = head & _NEXT_MASK
