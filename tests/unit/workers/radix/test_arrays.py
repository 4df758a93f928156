"""Room for matches grows and keeps what it holds."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.protocol.frame import Array
from ps2stream.workers.radix.arrays import RadixMatches, make_room, restore_arrays, take_lines
from ps2stream.workers.radix.gi2 import RadixGI2
from tests.support.crowds import GRID, draw_crowd


def test_room_for_matches_is_doubled() -> None:
    room = make_room(4)
    columns: list[Array] = list(room)
    for number, column in enumerate(columns):
        column[:] = np.arange(4) + number
    grown = room.grow()
    assert [len(getattr(grown, name)) for name in RadixMatches._fields] == [8] * 5
    for name in RadixMatches._fields:
        old, new = getattr(room, name), getattr(grown, name)
        assert new.dtype == old.dtype
        assert (new[:4] == old).all()


def test_lines_begin_where_a_cache_line_does() -> None:
    for words in (1, 8, 9, 1000):
        lines = take_lines(words)
        assert lines.ctypes.data % 64 == 0
        assert words <= len(lines) < words + 8
        assert not lines.any()


@pytest.mark.parametrize("skip", range(9))
def test_restored_arrays_are_one_memory_wherever_the_parts_lie(skip: int) -> None:
    """A copy is made only of what does not begin with a cache line."""
    index = RadixGI2(GRID)
    index.insert(*draw_crowd(np.random.default_rng(1), 200, 1.0, 1.0).rows(0, 200))
    parts = {}
    for name, part in index.hold().items():
        memory = np.zeros(part.nbytes + 128, np.uint8)
        start = -memory.ctypes.data % 64 + 8 * skip
        parts[name] = memory[start : start + part.nbytes].view(part.dtype).reshape(part.shape)
        parts[name][...] = part
    arrays = restore_arrays(parts)
    for views in (("nodes", "n32", "n16"), ("slots_f", "slots_i"), ("pool", "pool_f")):
        assert len({getattr(arrays, name).ctypes.data for name in views}) == 1
    for name in ("directory", "nodes", "slots_f"):
        assert getattr(arrays, name).ctypes.data % 64 == 0
        assert (getattr(arrays, name) == parts[name.replace("slots_f", "slots")]).all()
