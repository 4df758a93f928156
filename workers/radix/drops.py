"""Which tags of the radix GI2 the plan gives to others, before any is dropped."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ps2stream.protocol.frame import U32, U64
from ps2stream.workers.index import Mask
from ps2stream.workers.radix import tag_kernels as kt
from ps2stream.workers.radix.arrays import RadixArrays, UpdateScratch
from ps2stream.workers.radix.layout import SLOT_TOP

_CHUNK = 1 << 16
SlotsKept = tuple[int, int, Mask]
"""The first slot and the one behind the last, and which of their tags are kept, some of which are
not."""


def list_lost_tags(
    arrays: RadixArrays, updates: UpdateScratch, grid: int, keep: Callable[[U32, U64], Mask]
) -> list[SlotsKept]:
    """Asks `keep` for all tags, of cells and terms; a unit may be asked for more than once.
    grid: the address of its lines."""
    return _list_lost(arrays, updates, grid, lambda _, __, cell, term: keep(cell, term))


def list_lost_shards(
    arrays: RadixArrays, updates: UpdateScratch, grid: int, keep: Callable[[U32, U64, U64], Mask]
) -> list[SlotsKept]:
    """Asks `keep` for all tags, with the places of their queries. Queries that are stored once are
    in one place."""

    def keep_placed(first: int, last: int, cell: U32, term: U64) -> Mask:
        place: U64 = np.empty(len(cell), np.uint64)
        kt.list_places(first, last, grid, tuple(arrays), place)
        return keep(cell, term, place)

    return _list_lost(arrays, updates, grid, keep_placed)


def _list_lost(
    arrays: RadixArrays,
    updates: UpdateScratch,
    grid: int,
    keep: Callable[[int, int, U32, U64], Mask],
) -> list[SlotsKept]:
    changed: list[SlotsKept] = []
    first = 0
    while first < int(arrays.state[SLOT_TOP]):
        last, tags = kt.bound_tags(first, _CHUNK, grid, tuple(arrays))
        cell: U32 = np.empty(tags, np.uint32)
        term: U64 = np.empty(tags, np.uint64)
        kt.list_tags(first, last, tuple(arrays), tuple(updates), grid, cell, term)
        kept = keep(first, last, cell, term)
        if not kept.all():
            changed.append((first, last, kept))
        first = last
    return changed
