"""Where a handle is stored: `places`, a table of handles that does not hold them.

Buckets of sixteen words, a cache line each. A word is ref | tag << state[PLACE_BITS] | displaced <<
31, 0 = empty: the ref says where the handle is to be read, and what bits it leaves are a tag of the
handle, by which one instruction tells the words of a bucket apart. So the table can be nearly full,
and a look-up hardly ever reads the line of another query. A bucket is filled from its start; what
finds it full goes to the next one and is marked as displaced.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.workers.radix.layout import (
    HANDLE,
    NO_WORD,
    PLACE_BITS,
    PLACES_SIZE,
)
from ps2stream.workers.radix.pointers import point_updated, prefetch
from ps2stream.workers.radix.vectors import find_equal, lowest_bit

BUCKET = 16
HOLDER = 1  # a bit of a ref: entry of a holder << 1 | HOLDER, or (slot + 1) << 1
_LAST = BUCKET - 1
_AHEAD = 32
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_DISPLACED = np.uint32(1 << 31)
_ALL_BITS = np.uint32(0xFFFFFFFF)
_NONE = np.uint32(0)


@njit(inline="always")
def bucket_of(index, handle):
    """Returns the bucket where a handle belongs."""
    buckets = np.uint64(index.state[PLACES_SIZE] >> 4)
    high = (np.uint64(handle) * _SPREAD) >> np.uint64(32)
    return np.int64((high * buckets) >> np.uint64(32))


@njit(inline="always")
def _following(index, bucket):
    return bucket + 1 if BUCKET * (bucket + 1) < index.state[PLACES_SIZE] else 0


@njit(inline="always")
def _tag_bits(index):
    """Returns the bits of a word that are the tag."""
    return np.uint32((1 << 31) - (1 << index.state[PLACE_BITS]))


@njit(inline="always")
def _tag_of(index, handle):
    return np.uint32(np.uint64(handle) * _SPREAD & np.uint64(0x7FFFFFFF)) & _tag_bits(index)


@njit(inline="always")
def ref_at(index, at):
    """Returns the ref of the word at a position of `places`."""
    return np.int64(index.places[at]) & ((1 << index.state[PLACE_BITS]) - 1)


@njit(inline="always")
def handle_of(index, ref):
    """Returns the handle that a ref refers to."""
    if ref & HOLDER:
        return index.holders[2 * (ref >> 1)]
    return index.slots_i[8 * ((ref >> 1) - 1) + HANDLE]


@njit(inline="always")
def slot_ref(slot):
    """Returns the ref of a slot that has one handle."""
    return (slot + 1) << 1


@njit(inline="always")
def replace_ref(index, at, ref):
    """Lets the handle at a position of `places` be read elsewhere."""
    low = np.uint32((1 << index.state[PLACE_BITS]) - 1)
    index.places[at] = index.places[at] & ~low | np.uint32(ref)


@njit(inline="always")
def prefetch_place(index, handle):
    """Asks for the bucket where a handle belongs."""
    prefetch(index.places, BUCKET * bucket_of(index, handle))


@njit(inline="always")
def prefetch_stored(index, handle):
    """Asks for what the words under the tag of a handle refer to, in the bucket where it belongs,
    which is there."""
    first, mask = BUCKET * bucket_of(index, handle), (1 << index.state[PLACE_BITS]) - 1
    found = find_equal(index.places, first, _tag_of(index, handle), _tag_bits(index))
    while found != NO_WORD:
        _prefetch_ref(index, np.int64(index.places[first + lowest_bit(found)]) & mask)
        found &= found - np.uint64(1)


@njit(inline="always")
def _prefetch_ref(index, ref):
    if ref & HOLDER:
        prefetch(index.holders, ref)
    else:
        prefetch(index.slots_i, 8 * ((ref >> 1) - 1))


@njit(cache=True, nogil=True)
def find_place(index, handle):
    """Returns the position of a handle in `places`, or -1."""
    bucket, bits, tag = bucket_of(index, handle), _tag_bits(index), _tag_of(index, handle)
    while True:
        first = BUCKET * bucket
        found = find_equal(index.places, first, tag, bits)
        while found != NO_WORD:
            at = first + lowest_bit(found)
            found &= found - np.uint64(1)
            ref = ref_at(index, at)
            if ref != 0 and handle_of(index, ref) == handle:
                return at
        if index.places[first + _LAST] == _NONE:
            return -1
        bucket = _following(index, bucket)


@njit(inline="always")
def find_ref(index, handle):
    """Returns the ref of a handle, or 0."""
    at = find_place(index, handle)
    return ref_at(index, at) if at >= 0 else 0


@njit(inline="always")
def add_place(index, handle, ref):
    """Adds a handle that is not in `places`, which has room."""
    bucket, displaced = bucket_of(index, handle), _NONE
    while index.places[BUCKET * bucket + _LAST] != _NONE:
        bucket, displaced = _following(index, bucket), _DISPLACED
    at = BUCKET * bucket + lowest_bit(find_equal(index.places, BUCKET * bucket, _NONE, _ALL_BITS))
    index.places[at] = np.uint32(ref) | _tag_of(index, handle) | displaced


@njit(inline="always")
def _take_out(index, at):
    """Fills the gap at a position from the end of its bucket; returns whether that was full."""
    first = at // BUCKET * BUCKET
    empty = find_equal(index.places, first, _NONE, _ALL_BITS)
    last = first + (lowest_bit(empty) if empty != NO_WORD else BUCKET) - 1
    index.places[at] = index.places[last]
    index.places[last] = _NONE
    return last == first + _LAST


@njit(cache=True, nogil=True)
def remove_place(index, at):
    """Removes the handle at a position of `places`."""
    places, buckets = index.places, index.state[PLACES_SIZE] >> 4
    gap = at // BUCKET
    opened = _take_out(index, at)
    while opened:  # what was displaced from here, or from before, may now be nearer to its bucket
        opened = False
        bucket = gap
        while True:
            bucket = _following(index, bucket)
            if bucket == gap:
                return
            first = BUCKET * bucket
            moved = find_equal(places, first, _DISPLACED, _DISPLACED)
            full = places[first + _LAST] != _NONE
            while moved != NO_WORD:
                here = first + lowest_bit(moved)
                moved &= moved - np.uint64(1)
                own = bucket_of(index, handle_of(index, ref_at(index, here)))
                if (bucket - own) % buckets < (bucket - gap) % buckets:
                    continue
                word = places[here] & ~_DISPLACED
                places[BUCKET * gap + _LAST] = word if own == gap else word | _DISPLACED
                opened = _take_out(index, here)
                gap = bucket
                moved = NO_WORD
                full = False
            if not full:
                break


@njit(cache=True, nogil=True)
def rehash_places(old, old_bits, fields):
    """Puts the handles of `old`, whose refs have this many bits, into the empty `places` of
    RadixArrays given as a plain tuple."""
    index = point_updated(fields)
    mask = (1 << old_bits) - 1
    for i in range(old.shape[0]):
        if i + _AHEAD < old.shape[0]:
            _prefetch_ref(index, np.int64(old[i + _AHEAD]) & mask)
        ref = np.int64(old[i]) & mask
        if ref != 0:
            add_place(index, handle_of(index, ref), ref)
