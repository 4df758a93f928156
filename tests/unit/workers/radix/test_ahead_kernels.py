"""Asking for memory ahead reads no more than there is, and changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ps2stream.workers.arrays import StoredRowColumns
from ps2stream.workers.radix import layout
from ps2stream.workers.radix.ahead_kernels import ask_for_blocks, ask_for_row, ask_for_trees
from ps2stream.workers.radix.gi2 import RadixGI2
from ps2stream.workers.radix.pointers import point_rows, point_updated, pointer_to
from tests.support.crowds import GRID, draw_crowd


@njit
def call_row(rows: Any, r: int, fields: Any, leaves: bool) -> None:
    ask_for_row(point_rows(rows), r, point_updated(fields), leaves)


@njit
def call_slot(slot: int, fields: Any, term: Any, leaves: bool) -> None:
    index = point_updated(fields)
    ask_for_blocks(index, slot)
    ask_for_trees(index, slot, pointer_to(term), leaves)


def test_nothing_changes() -> None:
    crowd = draw_crowd(np.random.default_rng(1), 2000, 0.5, 0.1)
    index = RadixGI2(GRID)
    index.insert(*crowd.rows(0, 1500))
    rows = crowd.rows(1500, 2000)[0]
    columns = tuple(getattr(rows, name) for name in StoredRowColumns._fields)
    fields = tuple(index._arrays)
    call_row(columns, 0, fields, False)  # which fills in the sizes
    before = {name: array.tobytes() for name, array in index._arrays._asdict().items()}
    for leaves in (False, True):
        for r in range(500):
            call_row(columns, r, fields, leaves)
        term = np.zeros(65, np.uint64)
        for slot in range(int(index._state[layout.SLOT_TOP])):
            call_slot(slot, fields, term, leaves)
    for name, array in index._arrays._asdict().items():
        assert array.tobytes() == before[name], name
