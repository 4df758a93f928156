"""Arrays that grow keep what they hold, and every handle is found again."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.workers.radix import layout
from ps2stream.workers.radix.gi2 import RadixGI2
from ps2stream.workers.radix.growth import (
    fit_places,
    grow_cells,
    grow_holders,
    grow_nodes,
    reserve_pool,
    reserve_slots,
)
from tests.support.crowds import GRID, brute_force, draw_crowd, draw_objects, pairs_of


def test_an_index_whose_arrays_all_grew_is_the_same() -> None:
    rng = np.random.default_rng(1)
    crowd = draw_crowd(rng, 1500, 1.0, 0.2)
    crowd.rect[1000:], crowd.term[1000:] = crowd.rect[:500], crowd.term[:500]
    crowd.every[1000:] = crowd.every[:500]
    index = RadixGI2(GRID)
    index.insert(*crowd.rows(0, 1500))
    assert index._state[layout.SHARED] > 400
    before = index._arrays
    arrays = reserve_slots(before, 5000)
    arrays = reserve_pool(grow_nodes(arrays, 3), 1 << 20)
    arrays = fit_places(grow_holders(grow_cells(arrays, 50)), 100_000)
    for name in ("slots_i", "dead", "pool", "nodes", "holders", "places", "cells"):
        assert len(getattr(arrays, name)) > len(getattr(before, name)), name
    assert arrays.state[layout.PLACE_BITS] == (2 * len(arrays.slots_f) + 2).bit_length()
    index._arrays = arrays
    index.delete(np.arange(1, 1501, 2), np.full(750, 2000))
    assert index.stats().live == 750
    crowd.lsns[::2, 1] = 2000
    for lsn in (1999, 2000):
        objects, has = draw_objects(rng, crowd, 60)
        assert pairs_of(index.match(lsn, *objects)) == brute_force(crowd, lsn, objects, has)


def test_what_has_room_stays_as_it_is() -> None:
    arrays = RadixGI2(GRID)._arrays
    assert reserve_slots(arrays, 5) is arrays
    assert reserve_pool(arrays, 5) is arrays
    assert fit_places(arrays, 5) is arrays


def test_slots_are_not_doubled_beyond_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "SLOT_MASK", 1500)
    arrays = RadixGI2(GRID)._arrays
    assert len(arrays.slots_f) == 1024
    arrays = reserve_slots(arrays, 1025)
    assert len(arrays.slots_f) == len(arrays.dead) * 64 == 1472
    with pytest.raises(MemoryError, match="1472 queries"):
        reserve_slots(arrays, 1473)
