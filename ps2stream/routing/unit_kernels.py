# mypy: disallow-untyped-decorators=False
"""Kernels over units (place, term) -> worker: the open-addressing table of H1.

A table is a uint64[2^k, 2] of 16-byte records, so that a probe touches one cache line:
word 0 is the term hash, word 1 is `place << 32 | worker << 16 | 1`; word 1 = 0 is an empty slot.
Place is a leaf number or, for replicated units, a tag cell. Both keys are kept whole, so that two
units with the same hash stay distinct: if they were confused, matches would be lost.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ps2stream.protocol.frame import I64, U8, U32, U64
from ps2stream.protocol.pointers import borrow

U16 = NDArray[np.uint16]

LEVEL_SHIFT = 28  # of a tag cell: level << 28 | cell
FIRST_GROUP = 1024
"""Above all workers: from this number on, an owner is a group of workers that own a unit together
(replicas.py); its number among the groups is what exceeds this one."""
_C1 = np.uint64(0x9E3779B97F4A7C15)
_C2 = np.uint64(0xBF58476D1CE4E5B9)
_S16, _S29, _S32 = np.uint64(16), np.uint64(29), np.uint64(32)
_LOW16 = np.uint64(0xFFFF)
_ONE = np.uint64(1)
_FALLBACK = np.uint64(0x5053325354524541)


class LeafArrays(NamedTuple):
    """The arrays of H1, C-contiguous.

    cell_leaf uint32[cells]: the leaf of each base-level cell; text uint8[leaves]: 1 for a leaf
    with terms; off int64[leaves + 1] and worker uint16[]: the workers of each leaf, ragged; base
    uint32[leaves]: the leaf itself unless parts of it migrated; move_off int64[leaves + 1] and
    moves uint16[, 2]: the pairs (from, to) of each leaf, ragged; table uint64[2^k, 2]: the units
    (leaf, term). replicated uint64[2^k, 2], in which the place is a tag cell, ANY_CELL or, for all
    terms of a cell, term 0 of `whole` uint64[2^k, 2]: the groups that own units together; both are
    empty, of length 0, where no unit is replicated.
    """

    cell_leaf: U32
    text: U8
    off: I64
    worker: U16
    base: U32
    move_off: I64
    moves: U16
    table: U64
    replicated: U64
    whole: U64


LeafTuple = tuple[U32, U8, I64, U16, U32, I64, U16, U64, U64, U64]
"""The fields of LeafArrays, which a kernel takes faster from Python than the class itself."""
ANY_CELL = np.uint64(0xFFFFFFFF)
"""The place of a term that is replicated in all cells; its level would be 15."""
NO_TABLE = np.zeros((0, 2), np.uint64)


def empty_table(bits: int) -> U64:
    """Returns 2^bits empty records, uint64[2^bits, 2]."""
    return np.zeros((1 << bits, 2), np.uint64)


@njit(cache=True, nogil=True, inline="always")
def mix(place: np.uint64, term: np.uint64) -> np.uint64:
    """Returns a hash of 64 bits that depends on all bits of both."""
    h = term ^ (place * _C1)
    h ^= h >> _S32
    h *= _C2
    h ^= h >> _S29
    return h


@njit(cache=True, nogil=True, inline="always")
def scale(h: np.uint64, n: np.uint64) -> np.uint64:
    """Scales a hash to 0..n-1 by its upper half, with a multiplication instead of a division."""
    return ((h >> _S32) * n) >> _S32


@njit(cache=True, nogil=True)
def find(table: U64, place: np.uint64, term: np.uint64) -> np.int64:
    """Returns the slot of a unit, or -1 - (the empty slot where it would go)."""
    mask = np.uint64(len(table) - 1)
    slot = mix(place, term) & mask
    while True:
        meta = table[slot, 1]
        if meta == 0:
            return -1 - np.int64(slot)
        if table[slot, 0] == term and meta >> _S32 == place:
            return np.int64(slot)
        slot = (slot + _ONE) & mask


@njit(cache=True, nogil=True)
def pack(place: np.uint64, worker: np.uint64) -> np.uint64:
    """Returns word 1 of a record."""
    return (place << _S32) | (worker << _S16) | _ONE


@njit(cache=True, nogil=True)
def fill(table: U64, place: U32, term: U64, worker: U16) -> None:
    """Sets units; of equal ones the last wins. The table must have room for all of them."""
    for i in range(len(term)):
        p = np.uint64(place[i])
        slot = find(table, p, term[i])
        if slot < 0:
            slot = -1 - slot
        table[slot, 0] = term[i]
        table[slot, 1] = pack(p, np.uint64(worker[i]))


@njit(inline="always")
def find_owner(
    cell: np.uint32,
    term: np.uint64,
    arrays: LeafTuple,
    workers: int,
) -> np.uint16:
    """Returns the owner of a unit by H1, a worker or, from FIRST_GROUP on, a group."""
    cell_leaf, text, off, worker, bases, move_off, moves, table, replicated, whole = arrays
    if len(replicated):
        place = np.uint64(cell)
        slot = find(replicated, place, term)
        if slot < 0:
            slot = find(replicated, ANY_CELL, term)
        if slot >= 0:
            return np.uint16((replicated[slot, 1] >> _S16) & _LOW16)
        slot = find(whole, place, np.uint64(0))
        if slot >= 0:
            return np.uint16((whole[slot, 1] >> _S16) & _LOW16)
    if cell >> LEVEL_SHIFT:
        return np.uint16(scale(mix(np.uint64(cell), term) * _C1, np.uint64(workers)))
    leaf = cell_leaf[cell]
    if text[leaf]:
        slot = find(table, np.uint64(leaf), term)
        if slot >= 0:
            return np.uint16((table[slot, 1] >> _S16) & _LOW16)
    base = bases[leaf]
    first = off[base]
    owner = np.uint16(worker[first])
    if text[base]:
        slot = find(table, np.uint64(base), term) if base != leaf else np.int64(-1)
        if slot >= 0:
            owner = np.uint16((table[slot, 1] >> _S16) & _LOW16)
        else:
            several = np.uint64(off[base + 1] - first)
            at = first + np.int64(scale(mix(_FALLBACK, term) * _C1, several))
            owner = np.uint16(worker[at])
    for k in range(move_off[leaf], move_off[leaf + 1]):
        if moves[k, 0] == owner:
            return np.uint16(moves[k, 1])
    return owner


@njit(cache=True, nogil=True)
def owners(
    tag_cell: U32,
    tag_term: U64,
    arrays: LeafTuple,
    workers: int,
    out: U16,
) -> None:
    """Sets out[i] to the owner of unit (tag_cell[i], tag_term[i]) by H1 (`find_owner`)."""
    leaves = borrow(arrays)
    for i in range(len(tag_cell)):
        out[i] = find_owner(tag_cell[i], tag_term[i], leaves, workers)
