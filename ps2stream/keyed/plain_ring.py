"""The ring of consistent hashing for one key now and then, without kernels.

Kernels take half a second to load into a process that has called none, which is what the controller
would begin the first answer to a hot spot with.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from ps2stream.protocol.frame import I64, U32, U64

NODES = 128
_M = np.uint64(0xC6A4A7935BD1E995)
_R, _HALF = np.uint64(47), np.uint64(32)
_EIGHT_M = np.uint64(8 * 0xC6A4A7935BD1E995 % 2**64)


class _RingNodes(NamedTuple):
    """The virtual nodes of all workers: place uint32[nodes], ascending; owner int64[nodes]."""

    place: U32
    owner: I64
    key_seed: np.uint64


def list_clockwise(key: int, workers: int, seed: int) -> list[int]:
    """Returns the workers 0 to workers - 1 in the order in which they come clockwise of a key: what
    HashRing of this seed has, however many workers there are. key: of 64 bits."""
    ring = _make_nodes(workers, seed)
    place = hash_keys(np.array([key], np.uint64), ring.key_seed)[0] >> _HALF
    order = np.roll(ring.owner, -int(np.searchsorted(ring.place, np.uint32(place))))
    first = np.unique(order, return_index=True)[1]
    clockwise: list[int] = order[np.sort(first)].tolist()
    return clockwise


@functools.lru_cache(maxsize=2)
def _make_nodes(workers: int, seed: int) -> _RingNodes:
    seeds = np.random.default_rng([seed, 1]).integers(0, 1 << 63, 2).astype(np.uint64)
    owner = np.repeat(np.arange(workers), NODES)
    number = (owner.astype(np.uint64) << _HALF) | np.tile(
        np.arange(NODES, dtype=np.uint64), workers
    )
    place = (hash_keys(number, seeds[1]) >> _HALF).astype(np.uint32)
    rank = np.lexsort((number, place))
    return _RingNodes(place[rank], owner[rank], seeds[0])


def hash_keys(keys: U64, seed: np.uint64) -> U64:
    """Returns MurmurHash64A of the 8 bytes of each key, as key_kernels.murmur, uint64[n]."""
    k = keys * _M
    k ^= k >> _R
    h = ((seed ^ _EIGHT_M) ^ (k * _M)) * _M
    h = (h ^ (h >> _R)) * _M
    hashed: U64 = h ^ (h >> _R)
    return hashed
