"""The leaves that a match finds, against all leaves of the index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from ps2stream.workers.arrays import MatchedObjects
from ps2stream.workers.index import ALL_TERMS
from ps2stream.workers.radix import layout
from ps2stream.workers.radix.gi2 import RadixGI2
from ps2stream.workers.radix.pointers import list_addresses, point_addresses, point_objects
from ps2stream.workers.radix.probe_kernels import (
    descend_trees,
    list_keys,
    place_objects,
    probe_keys,
)
from tests.support.crowds import GRID, brute_force, draw_crowd, draw_objects


@njit
def call_stages(addresses: Any, objects: Any, count: int, any_term: bool, size: int) -> Any:
    index, scratch, _ = point_addresses(addresses)
    of = point_objects(objects)
    place_objects(0, count, of, scratch)
    keys = list_keys(0, count, any_term, size, of, index, scratch)
    found, deep = probe_keys(keys, size, of, index, scratch)
    return keys, descend_trees(found, deep, 0, index, scratch)


def slots_of(index: RadixGI2, ref: int) -> set[int]:
    """The slots in a leaf, by its blocks."""
    arrays, slots = index._arrays, set()
    while ref:
        head = int(arrays.nodes[ref])
        capacity = int(layout.CAPACITY[head >> 40 & 127])
        at = 2 * (ref + 1) + capacity
        slots |= set((arrays.n32[at : at + (head >> 32 & 255)] & layout.SLOT_MASK).tolist())
        ref = head & 0xFFFFFFFF
    return slots


@pytest.mark.takes_turns(1)
@pytest.mark.parametrize("side", [0.1, 3.0, 60.0])
@pytest.mark.parametrize("chosen", [False, True])
def test_a_leaf_with_each_match_is_found_once(side: float, chosen: bool) -> None:
    rng = np.random.default_rng(int(side))
    crowd = draw_crowd(rng, 2000, 1.0, side)
    crowd.rect[:, 3] -= 1e-9 * np.arange(2000)  # so that none are alike, and share a slot
    index = RadixGI2(GRID)
    index.insert(*crowd.rows(0, 2000))
    some, has = draw_objects(rng, crowd, 60)
    bits = rng.integers(0, 256, -(-len(some[3]) // 8), np.uint8) if chosen else ALL_TERMS
    objects = MatchedObjects(*some, bits, np.zeros(61, np.int64), np.zeros(0, np.uint64))
    addresses = list_addresses(index._arrays, index._scratch, index._room)
    size = len(index._arrays.directory)
    keys, found = call_stages(addresses, tuple(objects), 60, not chosen, size)
    low = (1 << 32) - 1
    leaves = [
        (pair & low, pair >> 32, leaf & low)
        for pair, leaf in index._scratch.leaves[:found].tolist()
    ]
    assert len(set(leaves)) == found
    terms = range(len(some[3]))
    allowed = {t for t in terms if not chosen or bits[t >> 3] >> (t & 7) & 1}
    assert {t for _, t, _ in leaves} <= allowed
    assert len(allowed) <= keys <= 2 * len(allowed)
    met: set[tuple[int, int]] = set()
    handles = index._arrays.slots_i[:, layout.HANDLE]
    for o, t, ref in leaves:
        assert some[2][o] <= t < some[2][o + 1]
        met |= {(o, int(handles[slot])) for slot in slots_of(index, ref)}
    if not chosen:
        assert set(brute_force(crowd, 2000, some, has)) <= met
