"""Arrays that hold a radix GI2, and the groups in which its kernels take them; like `arrays` of
the flat GI2, kernels take plain tuples of the fields in their order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ps2stream.protocol.frame import F64, I64, U8, U32, U64
from ps2stream.workers.arrays import grow_copy


class RadixArrays(NamedTuple):
    """The arrays of a radix GI2 (layout.py says what they hold), C-contiguous and writable.

    directory uint64[entries, 2]; nodes uint64[], n32 uint32[] and n16 uint16[]: one memory;
    node_free int64[13]: the first free block of each class; wide uint64[1024]: a bit for each
    hash of the terms with WIDE trees; pool uint64[] and pool_f float64[]: one memory; pool_free
    int64[48]; slots_f float64[slots, 8] and slots_i int64[slots, 8]: one memory; left
    uint32[slots]; dead uint64[slots / 64]; places uint32[]; cells uint32[2^k], counts
    int64[2^k, 2]; state int64[12].
    """

    directory: U64
    nodes: U64
    n32: U32
    n16: NDArray[np.uint16]
    node_free: I64
    wide: U64
    pool: U64
    pool_f: F64
    pool_free: I64
    slots_f: F64
    slots_i: I64
    left: U32
    dead: U64
    places: U32
    cells: U32
    counts: I64
    state: I64


class UpdateScratch(NamedTuple):
    """The memory of updates, C-contiguous and writable: trail int64[1024, 6], of walks through a
    tree; roots int64[4]; cell and tag_cell uint32[tags], term and tag_term uint64[tags], of one
    query."""

    trail: I64
    roots: I64
    cell: U32
    term: U64
    tag_cell: U32
    tag_term: U64


class RadixScratch(NamedTuple):
    """The memory of a match between its stages, C-contiguous and writable.

    keys uint32[keys of a block, 2]; leaves uint32[leaves of a block, 4]; inner uint32[keys, 3];
    at int64[block, 3]: steps, and the end of the keys; prints uint64[block, 4]: fingerprints;
    groups uint32[groups, 4]; cands uint32[candidates, 3]; later int64[candidates]: those with
    more to check; stack uint8[program].
    """

    keys: U32
    leaves: U32
    inner: U32
    at: I64
    prints: U64
    groups: U32
    cands: U32
    later: I64
    stack: U8


class RadixMatches(NamedTuple):
    """Room for matches, all equally long: row uint32[], handle, session and extras int64[];
    C-contiguous and writable. extras: the pool offset where the exact shape is still to be
    checked, else 0."""

    row: U32
    handle: I64
    session: I64
    extras: I64

    def grow(self) -> RadixMatches:
        """Returns copies that are twice as long."""
        size = 2 * len(self.row)
        return RadixMatches(*(grow_copy(column, size) for column in self))
