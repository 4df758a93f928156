"""Asking for memory ahead finds the leaves that are needed, reads no more than there is, and
changes nothing but its notes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from ps2stream.workers.arrays import StoredRowColumns
from ps2stream.workers.radix import layout
from ps2stream.workers.radix.ahead_kernels import GROUP, ask_for_rows, ask_for_slots
from ps2stream.workers.radix.arrays import WALKS_AHEAD
from ps2stream.workers.radix.gi2 import RadixGI2
from ps2stream.workers.radix.pointers import (
    point_rows,
    point_tags,
    point_update_addresses,
    pointer_to,
)
from tests.support.crowds import GRID, draw_crowd


@njit
def call_rows(rows: Any, tags: Any, first: int, end: int, addresses: Any) -> Any:
    index, scratch = point_update_addresses(addresses)
    return ask_for_rows(point_rows(rows), point_tags(tags), first, end, index, scratch)


@njit
def call_slots(slots: Any, first: int, end: int, addresses: Any) -> Any:
    index, scratch = point_update_addresses(addresses)
    return ask_for_slots(pointer_to(slots), first, end, index, scratch)


def slots_of_leaf(index: RadixGI2, ref: int) -> list[int]:
    """The slots of the postings in a leaf."""
    nodes, n32, out = index._arrays.nodes, index._arrays.n32, []
    while ref:
        head = int(nodes[ref])
        cap, first = int(layout.CAPACITY[head >> 40 & 127]), 2 * (ref + 1)
        words = n32[first + cap : first + cap + (head >> 32 & 255)]
        out += (words & np.uint32(layout.SLOT_MASK)).tolist()
        ref = head & 0xFFFFFFFF
    return out


@pytest.mark.takes_turns
def test_the_leaves_of_a_slot_are_found() -> None:
    """Also in trees of several levels: each leaf that is asked for holds the slot."""
    crowd = draw_crowd(np.random.default_rng(1), 4000, 5.0, 0.5)
    index = RadixGI2(GRID)
    index.insert(*crowd.rows(0, 4000))
    arrays, deep = index._arrays, 0
    assert np.any(arrays.directory[:, layout.ENTRIES :] & np.uint64(layout.INNER))
    boxes = layout.X_HEAD
    for slot in range(0, int(index._state[layout.SLOT_TOP]), 9):
        slots = np.array([slot])
        found = call_slots(slots, 0, 1, index._locate_updates())
        extras = int(arrays.slots_i[slot, layout.SECOND])
        kind = int(arrays.slots_i[slot, layout.SESSION]) & layout.KIND_MASK
        if kind == layout.BLOCK and extras and int(arrays.pool[extras + boxes]) >> 8 & 255 > 1:
            continue
        assert found > 0
        deep = max(deep, found)
        for ref in index._updates.leaves[:found].tolist():
            assert slot in slots_of_leaf(index, ref)
    assert deep > 2


@pytest.mark.takes_turns
def test_nothing_changes() -> None:
    crowd = draw_crowd(np.random.default_rng(1), 2000, 0.5, 0.1)
    index = RadixGI2(GRID)
    index.insert(*crowd.rows(0, 1500))
    rows, *tags = crowd.rows(1500, 2000)  # tags as TagColumns
    columns = tuple(getattr(rows, name) for name in StoredRowColumns._fields)
    slots = np.arange(int(index._state[layout.SLOT_TOP]))
    addresses = index._locate_updates()
    before = {name: array.tobytes() for name, array in index._arrays._asdict().items()}
    for first in range(0, 500, GROUP):
        end = min(first + GROUP, 500)
        found = call_rows(columns, tuple(tags), first, end, addresses)
        assert 0 < found <= WALKS_AHEAD
    for first in range(0, len(slots), GROUP):
        call_slots(slots, first, min(first + GROUP, len(slots)), addresses)
    for name, array in index._arrays._asdict().items():
        assert array.tobytes() == before[name], name


def test_more_walks_than_there_is_room_for_are_left_out() -> None:
    crowd = draw_crowd(np.random.default_rng(1), 1500, 0.5, 0.1)
    index = RadixGI2(GRID)
    index.insert(*crowd.rows(0, 1500))
    scratch = index._updates
    for name, width in (("walks", 8), ("leaves", 1)):  # with something behind them
        guarded = np.full(width * (WALKS_AHEAD + 8), -7)
        scratch = scratch._replace(**{name: guarded})
    index._updates = scratch
    slots = np.arange(int(index._state[layout.SLOT_TOP]))
    assert 0 < call_slots(slots, 0, len(slots), index._locate_updates()) <= WALKS_AHEAD
    assert (scratch.walks[8 * WALKS_AHEAD :] == -7).all()
    assert (scratch.leaves[WALKS_AHEAD:] == -7).all()
    assert (scratch.walks[: 8 * WALKS_AHEAD] != -7).all()  # all of the room was used
