"""Dropping units of GI2, or some of their postings, that the plan gives to others.

Nothing changes before it is known of all of them whether they are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ps2stream.protocol.frame import I64, U32, U64
from ps2stream.workers import scan_kernels as ks
from ps2stream.workers.arrays import IndexArrays
from ps2stream.workers.index import Mask

_CHUNK = 1 << 16


def drop_units(arrays: IndexArrays, keep: Callable[[U32, U64], Mask]) -> int:
    """Drops the units for which `keep` is false, as `Index.drop` says. Returns how many deletes
    need not wait any more: their slots are to be freed."""
    dropped = []
    for cell, term, run in _list_units(arrays):
        gone = np.flatnonzero(~keep(cell, term))
        dropped.append((cell[gone], term[gone], run[gone]))
    return sum(ks.drop_units(*units, tuple(arrays)) for units in dropped)


def drop_postings(arrays: IndexArrays, keep: Callable[[U32, U64, U64], Mask]) -> int:
    """Drops the postings for which `keep` is false, as `Index.drop_shards` says. Returns the same
    as `drop_units`."""
    dropped, divided = [], []
    for cell, term, run in _list_units(arrays):
        off: I64 = np.empty(len(run) + 1, np.int64)
        ks.count_units(run, arrays.runs, off)
        place: U64 = np.empty(int(off[-1]), np.uint64)
        ks.list_places(run, arrays.runs, arrays.slots_i, place)
        size = np.diff(off)
        unit = np.repeat(np.arange(len(run)), size)
        kept = keep(cell[unit], term[unit], place)
        stay = np.bincount(unit[kept], minlength=len(run))
        gone, parted = np.flatnonzero(stay == 0), (stay > 0) & (stay < size)
        dropped.append((cell[gone], term[gone], run[gone]))
        left = np.r_[0, np.cumsum(size[parted])]
        divided.append((cell[parted], run[parted], left, kept[parted[unit]]))
    waiting = sum(ks.keep_postings(*units, tuple(arrays)) for units in divided)
    return int(waiting + sum(ks.drop_units(*units, tuple(arrays)) for units in dropped))


def _list_units(arrays: IndexArrays) -> Iterator[tuple[U32, U64, U32]]:
    """Yields the units in chunks: cells, terms, and where their postings are."""
    bucket = 0
    while bucket < len(arrays.table):
        cell: U32 = np.empty(_CHUNK, np.uint32)
        term: U64 = np.empty(_CHUNK, np.uint64)
        run: U32 = np.empty(_CHUNK, np.uint32)
        bucket, n = ks.list_units(arrays.table, bucket, cell, term, run)
        yield cell[:n], term[:n], run[:n]
