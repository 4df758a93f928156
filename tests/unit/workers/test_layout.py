"""The small functions of GI2's layout: places that collide, runs and blocks that come again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.workers import layout
from ps2stream.workers.layout import BUCKET, HANDLE, POOL_UNIT, POSTING, STATE

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


@given(DEGREES, DEGREES, st.sampled_from([180.0, 90.0]), st.integers(0, 12))
def test_steps_never_fall_where_degrees_rise(a: float, b: float, offset: float, bits: int) -> None:
    scale = 65536 * 2.0**bits / 360
    low, high = (layout.cell_steps(x, offset, scale) for x in sorted((a, b)))
    assert low <= high
    line = low >> 16
    first, second = (int(layout.clamp_to_cell(step, line)) for step in (low, high))
    assert 0 <= first <= second <= 65535
    assert first == low & 65535


def test_runs_are_taken_from_the_end_and_used_again_by_class() -> None:
    runs, free, state = np.zeros(64, np.uint32), np.zeros(8, np.uint32), np.zeros(STATE, np.int64)
    state[layout.RUN_TOP] = 1  # 0 means none
    first, second = layout.take_run(runs, free, state, 0), layout.take_run(runs, free, state, 1)
    assert (first, second) == (1, 1 + 1 + POSTING)
    third = layout.take_run(runs, free, state, 0)
    assert third == second + 1 + 2 * POSTING
    for at in (first, third):
        layout.free_run(runs, free, at, 0)
    assert layout.take_run(runs, free, state, 1) > third, "of another class"
    assert [layout.take_run(runs, free, state, 0) for _ in range(2)] == [third, first]
    assert layout.take_run(runs, free, state, 3) == -1, "the array must grow"


def test_blocks_have_room_and_do_not_overlap() -> None:
    pool, free, state = np.zeros(200, np.uint64), np.zeros(8, np.int64), np.zeros(STATE, np.int64)
    state[layout.POOL_TOP] = 1  # 0 means none
    end = 1
    for words in (1, 8, 9, 16, 33):
        at, cls = layout.take_block(pool, free, state, words)
        assert at == end
        assert words <= POOL_UNIT << cls < 2 * max(words, POOL_UNIT)
        end = at + (POOL_UNIT << cls)
    assert layout.take_block(pool, free, state, 128) == (-1, 4)
    free[1] = 17  # a block of 16 words that was given back, the only one
    assert layout.take_block(pool, free, state, 10) == (17, 1)
    assert layout.take_block(pool, free, state, 10) == (end, 1)


def test_a_slot_is_dead_by_its_own_bit() -> None:
    dead = np.zeros(3, np.uint64)
    for slot in (0, 63, 64, 130):
        dead[slot >> 6] |= np.uint64(1) << np.uint64(slot & 63)
    assert [slot for slot in range(192) if layout.is_dead(dead, slot)] == [0, 63, 64, 130]


def test_a_level_has_a_quarter_of_the_lines_and_at_least_one() -> None:
    assert [layout.line_count(5, level) for level in range(5)] == [32, 8, 2, 1, 1]
