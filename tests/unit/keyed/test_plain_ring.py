"""The ring without kernels: the order of the ring with them."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.keyed.key_kernels import hash_all
from ps2stream.keyed.plain_ring import hash_keys, list_clockwise
from ps2stream.keyed.ring import HashRing


@pytest.mark.parametrize("workers", [1, 2, 5, 40])
def test_workers_come_as_on_the_ring_with_kernels(workers: int) -> None:
    seed = 0x5053
    ring = HashRing(range(workers), seed)
    keys = np.random.default_rng(3).integers(0, 1 << 64, 200, np.uint64)
    _, found = ring.candidates(keys, np.full(len(keys), workers))
    expected = found.reshape(len(keys), workers).tolist()
    assert [list_clockwise(int(key), workers, seed) for key in keys] == expected


def test_keys_beyond_the_last_node_come_to_the_first() -> None:
    """Of so many keys some are behind the last of 128 nodes."""
    ring = HashRing(range(1), 1)
    keys = np.arange(2_000, dtype=np.uint64)
    place = (hash_keys(keys, ring.key_seed) >> np.uint64(32)).astype(np.uint32)
    assert (place > ring.places[-1]).any()
    assert all(list_clockwise(key, 1, 1) == [0] for key in range(50))


def test_hashes_are_those_of_the_kernel() -> None:
    keys = np.random.default_rng(5).integers(0, 1 << 64, 1_000, np.uint64)
    out = np.empty_like(keys)
    for seed in (0, 7, (1 << 64) - 1):
        hash_all(keys, np.uint64(seed), out)
        assert hash_keys(keys, np.uint64(seed)).tolist() == out.tolist()
