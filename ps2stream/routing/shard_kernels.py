"""Kernels of sharded units: which worker of a group holds a posting (algorithms.md 6.3).

A posting is held by one worker of the group, by the place of its query, a hash of the first box,
and the term. Every actor knows both: an index has them of each posting that it stores, so that it
can drop what belongs to another worker. Queries that are alike go to the same one. The worker is
the one whose hash with the posting is highest (rendezvous hashing): a worker that joins takes
postings from all others, which take none from each other.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.protocol.frame import I64, U8, U64
from ps2stream.routing.unit_kernels import FIRST_GROUP, U16, mix

_SIGN = np.uint64(1 << 63)
_NONE = np.uint64(0)
_ONE = np.uint64(1)
_SPREAD = np.uint64(0xD6E8FEB86659FD93)


@njit(cache=True, nogil=True, inline="always")
def hash_corner(place: np.uint64, bits: np.uint64) -> np.uint64:
    """Adds the bits of one of the four numbers of a box to a hash. -0.0 counts as 0.0."""
    return mix(place + _ONE, _NONE if bits == _SIGN else bits)


@njit(cache=True, nogil=True)
def hash_places(box_off: I64, bits: U64, out: U64) -> None:
    """Sets out[r] to the place of query r. box_off int64[n + 1] and bits uint64[]: of
    QueryRows, the bits of `box`."""
    for r in range(len(out)):
        out[r] = _NONE
        if box_off[r + 1] > box_off[r]:
            for i in range(box_off[r], box_off[r] + 4):
                out[r] = hash_corner(out[r], bits[i])


@njit(cache=True, nogil=True)
def choose_shard(
    group: int, term: np.uint64, place: np.uint64, groups: tuple[I64, U16, U8]
) -> np.uint16:
    """Returns the worker of a group that holds a posting. groups: of WorkerGroups."""
    first, end = groups[0][group], groups[0][group + 1]
    posting = mix(place, term) * _SPREAD
    best: np.uint16 = groups[1][first]
    highest = _NONE
    for i in range(first, end):
        score = mix(np.uint64(groups[1][i]) + _ONE, posting) * _SPREAD
        if score > highest:
            best, highest = groups[1][i], score
    return best


@njit(cache=True, nogil=True)
def choose_shards(
    holder: U16, term: U64, place: U64, groups: tuple[I64, U16, U8], out: U16
) -> None:
    """Sets out[i] to the worker of posting i where its holder is a group that shards, else to the
    holder. term, place uint64[n]; groups: of WorkerGroups."""
    for i in range(len(holder)):
        out[i] = holder[i]
        if holder[i] >= FIRST_GROUP and groups[2][holder[i] - FIRST_GROUP]:
            out[i] = choose_shard(holder[i] - FIRST_GROUP, term[i], place[i], groups)
