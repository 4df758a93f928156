"""H1: which worker owns a unit (cell, term). The compiled form of a routing plan.

The form is compact (algorithms.md 1.6): a space leaf has one worker; a text leaf has a shared
term map and a hash over the leaf's workers for every other term (7.14); a cell of which parts
migrated takes a few words. On coarser levels, where only very large regions live, the owner is
a hash of (cell, term) over all workers. H1 is therefore total: every unit has exactly one owner.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ps2stream.protocol.frame import U32, U64, Array
from ps2stream.routing.unit_kernels import U16, LeafArrays, empty_table, fill, owners


class HashedLeaf(NamedTuple):
    """A leaf with its terms hashed.

    A space leaf has one worker, and `term` is None. A text leaf maps `term` (uint64[n]) to `owner`
    (uint16[n]), and any other term to one of `workers`. A moved leaf maps `term` likewise, and any
    other term to its owner by leaf number `base`; if `moves` has a pair (from, to) that begins
    with this owner, the second of the pair owns it instead."""

    workers: tuple[int, ...]
    term: U64 | None = None
    owner: U16 | None = None
    base: int | None = None
    moves: tuple[tuple[int, int], ...] = ()


class H1:
    """An immutable map from term to worker in every cell.

    cells: the leaf number of each base-level cell, uint32[rows * columns], row-major.
    """

    def __init__(self, workers: int, cells: U32, leaves: Sequence[HashedLeaf]) -> None:
        self.workers = workers
        off, move_off = np.zeros(len(leaves) + 1, np.int64), np.zeros(len(leaves) + 1, np.int64)
        np.cumsum([len(leaf.workers) for leaf in leaves], out=off[1:])
        np.cumsum([len(leaf.moves) for leaf in leaves], out=move_off[1:])
        base = [n if leaf.base is None else leaf.base for n, leaf in enumerate(leaves)]
        moves = [pair for leaf in leaves for pair in leaf.moves]
        listed = sum(len(leaf.term) for leaf in leaves if leaf.term is not None)
        arrays = LeafArrays(
            cell_leaf=np.ascontiguousarray(cells, np.uint32),
            text=np.array([leaf.term is not None for leaf in leaves], np.uint8),
            off=off,
            worker=np.array([w for leaf in leaves for w in leaf.workers], np.uint16),
            base=np.array(base, np.uint32),
            move_off=move_off,
            moves=np.array(moves, np.uint16).reshape(-1, 2),
            table=empty_table(max(4, (2 * listed).bit_length())),
        )
        self.arrays = (*arrays,)  # of LeafArrays, as kernels take them
        for number, leaf in enumerate(leaves):
            if leaf.term is not None and leaf.owner is not None:
                place = np.full(len(leaf.term), number, np.uint32)
                fill(arrays.table, place, leaf.term, leaf.owner)

    def owners(self, tag_cell: U32, tag_term: U64) -> U16:
        """Returns the worker of each tag, uint16[n] (tag_cell = level << 28 | cell on that
        level)."""
        out = np.empty(len(tag_cell), np.uint16)
        owners(
            np.ascontiguousarray(tag_cell, np.uint32),
            np.ascontiguousarray(tag_term, np.uint64),
            self.arrays,
            self.workers,
            out,
        )
        return out

    @property
    def bytes(self) -> int:
        """The memory of all arrays."""
        arrays: tuple[Array, ...] = self.arrays
        return sum(int(a.nbytes) for a in arrays)
