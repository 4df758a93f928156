"""Arrays that hold an index, and how they grow; the groups in which kernels take them.

Numba takes about half a microsecond to see which NamedTuple an argument is, and a tenth of that
for a plain tuple. So the kernels that Python calls take plain tuples of the fields in their order
(`tuple(arrays)`), and give them their names at once.
"""

from __future__ import annotations

import contextlib
import mmap
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ps2stream.protocol.frame import F64, I16, I64, U8, U32, U64, Array

GROWTH = 1.25
_LINE = 8  # words of a cache line
_OWN_PAGES = 1 << 20  # bytes


class IndexArrays(NamedTuple):
    """The arrays of GI2 (layout.py says what they hold), C-contiguous and writable.

    table uint64[buckets, 8]; places uint32[]; runs uint32[]; run_free int64[32]: the first free
    run of each class; pool uint64[] and pool_f float64[]: one memory; pool_free int64[48]: the
    first free block of each class; slots_f float64[slots, 8] and slots_i int64[slots, 8]: one
    memory; general uint8[slots]: 1 where the slot has a block; left uint32[slots]: its postings;
    dead uint64[slots / 64]: a bit for each slot; level_postings int64[16]; state int64[12].
    """

    table: U64
    places: U32
    runs: U32
    run_free: I64
    pool: U64
    pool_f: F64
    pool_free: I64
    slots_f: F64
    slots_i: I64
    general: U8
    left: U32
    dead: U64
    level_postings: I64
    state: I64


class StoredRowColumns(NamedTuple):
    """The columns of query rows that an index stores, as in QueryRows; C-contiguous, read-only.

    kind, form, shape uint8[n]; handle, session int64[n]; post uint64[n]; ragged, each behind its
    offsets int64[n + 1]: term uint64[], prog int16[], box and geom float64[].
    """

    kind: U8
    handle: I64
    session: I64
    form: U8
    post: U64
    term_off: I64
    term: U64
    prog_off: I64
    prog: I16
    box_off: I64
    box: F64
    shape: U8
    geom_off: I64
    geom: F64


class TagColumns(NamedTuple):
    """The tags of rows, ragged: off int64[n + 1], cell uint32[], term uint64[]; C-contiguous,
    read-only."""

    off: I64
    cell: U32
    term: U64


class MatchedObjects(NamedTuple):
    """The objects of a batch: lon, lat float64[n], term_off int64[n + 1], term uint64[]; terms
    are sorted and unique in each row. chosen uint8[]: a bit for each term, set where postings may
    be found under it; empty: under all. value_off int64[n + 1], value uint64[]: the values that
    queries compare, see language/attribute_kernels.py. C-contiguous, read-only."""

    lon: F64
    lat: F64
    term_off: I64
    term: U64
    chosen: U8
    value_off: I64
    value: U64


class ProbedLevels(NamedTuple):
    """The grid as a match probes it: the levels that have postings, int64[], and its lines."""

    levels: I64
    lines: F64


class MatchScratch(NamedTuple):
    """The memory of a match between its stages, C-contiguous and writable.

    hits uint32[keys of a block, 5]; head int32[1024]: zero between calls, and follow
    int32[terms + 1]: the chains of an object's keywords; cands uint32[candidates, 4]; stack
    bool[program].
    """

    hits: U32
    head: NDArray[np.int32]
    follow: NDArray[np.int32]
    cands: U32
    stack: NDArray[np.bool_]


class MatchBuffers(NamedTuple):
    """Room for matches, all equally long: row uint32[], handle, session and block int64[];
    C-contiguous and writable. block: the pool offset where the exact shape is still to be
    checked, else 0."""

    row: U32
    handle: I64
    session: I64
    block: I64

    def grow(self) -> MatchBuffers:
        """Returns copies that are twice as long."""
        size = 2 * len(self.row)
        return MatchBuffers(*(grow_copy(column, size) for column in self))


def take_zeros(size: int, dtype: DTypeLike) -> Array:
    """Returns zeros[size]. Many of them have pages of their own, which go back to the system with
    the array: from the heap, what an array leaves when it has grown would stay with the process."""
    room = size * np.dtype(dtype).itemsize
    if room < _OWN_PAGES:
        return np.zeros(size, dtype)
    memory = mmap.mmap(-1, room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype, size)


def cache_lines(n: int) -> F64:
    """Returns a zeroed float64[n, 8] whose rows are whole cache lines."""
    raw = take_zeros(n * _LINE + _LINE, np.float64)
    skip = -(raw.ctypes.data // 8) % _LINE
    return raw[skip : skip + n * _LINE].reshape(n, _LINE)


def grow_copy(array: Array, size: int) -> Array:
    """Returns a copy with zeros appended, of at least `size` and a quarter longer or more."""
    out = take_zeros(max(size, int(len(array) * GROWTH)), array.dtype)
    out[: len(array)] = array
    return out


def split_range(n: int, parts: int) -> list[tuple[int, int]]:
    """Splits 0 to n into `parts` ranges of about equal length."""
    return list(pairwise(n * i // parts for i in range(parts + 1)))
