"""The small functions of GI2's layout: places that collide, runs and blocks that come again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.space.grid import Grid
from ps2stream.workers import layout
from ps2stream.workers.layout import BUCKET, HANDLE
from tests.support.grids import uneven_grids

DEGREES = st.floats(-180, 180)


def tag(rng: np.random.Generator) -> tuple[np.uint64, np.uint64]:
    """A term, often 0 or the largest, and a cell, often 0."""
    term = rng.choice(np.array([0, 2**64 - 1, rng.integers(0, 2**63)], np.uint64))
    return np.uint64(term), np.uint64(rng.integers(0, 50))


@pytest.mark.parametrize("size", [5, 64, 1009])
def test_every_tag_is_found_again_and_no_other(size: int) -> None:
    rng = np.random.default_rng(size)
    table = np.zeros((size, 2 * BUCKET), np.uint64)
    words: dict[tuple[int, int], int] = {}
    while len(words) < 3 * size:  # of four places a bucket
        key, cell = (
            tag(rng) if rng.random() < 0.2 else (np.uint64(rng.integers(1, 2**63)), np.uint64(3))
        )
        start = layout.home(key, np.uint32(cell), size)
        assert 0 <= start < size
        at, word = layout.find_tag(table, start, key, cell)
        assert int(word) == words.get((int(key), int(cell)), 0)
        if not word:
            column = layout.count_tags(table, at)
            table[at, column] = key
            word = words[int(key), int(cell)] = int(cell) << 32 | len(words) + 1
            table[at, BUCKET + column] = word
    for (k, c), want in words.items():
        start = layout.home(np.uint64(k), np.uint32(c), size)
        assert int(layout.find_tag(table, start, np.uint64(k), np.uint64(c))[1]) == want
    assert sum(layout.count_tags(table, at) for at in range(size)) == len(words)
    unknown = layout.find_tag(table, 0, np.uint64(12345), np.uint64(60))
    assert (int(unknown[1]), layout.count_tags(table, unknown[0]) < BUCKET) == (0, True)


def test_every_handle_has_a_place_of_its_own() -> None:
    size = 64
    places, slots = np.zeros(size, np.uint32), np.zeros((size, 8), np.int64)
    handles = np.random.default_rng(2).integers(1, 2**62, 50)
    for slot, handle in enumerate(handles):
        at = layout.find_place(places, slots, handle)
        assert places[at] == 0
        places[at], slots[slot, HANDLE] = slot + 1, handle
    for slot, handle in enumerate(handles):
        assert places[layout.find_place(places, slots, handle)] == slot + 1
    assert places[layout.find_place(places, slots, np.int64(7))] == 0


def test_positions_run_on_over_the_end() -> None:
    for start in range(5):
        at = start
        for steps in range(5):
            assert layout.probe_distance(at, start, 5) == steps
            at = layout.next_position(at, 5)
        assert at == start


@given(DEGREES, DEGREES, uneven_grids(), st.integers(0, 7), st.integers(0, 1), st.data())
def test_steps_never_fall_where_degrees_rise(
    a: float, b: float, grid: Grid, level: int, is_lat: int, data: st.DataObject
) -> None:
    count = (grid.rows if is_lat else grid.columns)(level)
    line = data.draw(st.integers(0, count - 1))
    start, scale = layout.cell_side(grid.lines, is_lat, line, level)
    tag = level << 28 | (line * grid.columns(level) if is_lat else line)
    bounds = grid.bounds(tag)
    assert (start, 65536 / scale) == pytest.approx((bounds[is_lat], bounds[2 + is_lat]), rel=1e-9)
    low, high = (int(layout.cell_step(x, start, scale)) for x in sorted((a, b)))
    assert 0 <= low <= high <= 65535
    assert layout.cell_step(start, start, scale) == 0
