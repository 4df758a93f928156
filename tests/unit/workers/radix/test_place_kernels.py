"""Where handles are stored, against a dictionary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from ps2stream.workers.radix import layout
from ps2stream.workers.radix.arrays import make_arrays, make_places
from ps2stream.workers.radix.place_kernels import (
    BUCKET,
    add_place,
    find_place,
    find_ref,
    rehash_places,
    remove_place,
)
from ps2stream.workers.radix.pointers import point_updated


@njit
def call_find(fields: Any, handle: int) -> Any:
    return find_ref(point_updated(fields), handle)


@njit
def call_add(fields: Any, handle: int, ref: int) -> None:
    add_place(point_updated(fields), handle, ref)


@njit
def call_remove(fields: Any, handle: int) -> None:
    index = point_updated(fields)
    remove_place(index, find_place(index, handle))


@pytest.mark.takes_turns(0)
@pytest.mark.parametrize(
    ("seed", "buckets", "bits"), [(1, 3, 8), (2, 7, 11), (3, 7, 31), (4, 1, 8)]
)
def test_handles_come_and_go_in_a_table_that_is_nearly_full(
    seed: int, buckets: int, bits: int
) -> None:
    """Few bits for the tag too, or none: then all words of a bucket look alike."""
    rng = np.random.default_rng(seed)
    arrays = make_arrays()._replace(places=make_places(BUCKET * buckets))
    arrays.state[layout.PLACE_BITS] = bits
    fields, held = tuple(arrays), dict[int, int]()
    free = list(range(120))
    for _ in range(1500):
        if held and (rng.random() < 0.45 or len(held) == BUCKET * buckets - 1):
            gone = int(rng.choice(list(held)))
            call_remove(fields, gone)
            free.append(held.pop(gone))
        else:
            handle = int(rng.integers(0, 1 << 40))
            assert call_find(fields, handle) == 0
            slot = free.pop(int(rng.integers(len(free))))
            arrays.slots_i[slot, layout.HANDLE] = handle
            call_add(fields, handle, 2 * slot + 2)
            held[handle] = slot
        assert np.count_nonzero(arrays.places) == len(held)
        for handle, slot in held.items():
            assert call_find(fields, handle) == 2 * slot + 2


def test_a_larger_table_with_longer_refs_has_the_same_handles() -> None:
    rng = np.random.default_rng(5)
    arrays = make_arrays()._replace(places=make_places(BUCKET * 20))
    arrays.state[layout.PLACE_BITS] = 10
    handles = rng.choice(1 << 50, 300, replace=False)
    arrays.slots_i[:300, layout.HANDLE] = handles
    for slot, handle in enumerate(handles.tolist()):
        call_add(tuple(arrays), handle, 2 * slot + 2)
    larger = arrays._replace(places=make_places(BUCKET * 27))
    larger.state[layout.PLACE_BITS] = 20
    rehash_places(arrays.places, 10, tuple(larger))
    found = [call_find(tuple(larger), handle) for handle in handles.tolist()]
    assert found == list(range(2, 602, 2))
    assert call_find(tuple(larger), 1 << 51) == 0
