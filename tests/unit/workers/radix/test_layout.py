"""The small functions that the kernels share."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numba import njit

from ps2stream.workers.radix import layout
from ps2stream.workers.radix.layout import (
    fingerprint,
    free_words,
    posted_terms,
    root_at,
    step_x,
    step_y,
    take_words,
)
from ps2stream.workers.radix.pointers import pointer_to


@njit
def call_steps(lon: float, lat: float) -> Any:
    x, y = step_x(lon), step_y(lat)
    return x, y, root_at(x, y)


@njit
def call_print(term: Any) -> Any:
    return fingerprint(term)


@njit
def call_take(pool: Any, free: Any, state: Any, words: int) -> Any:
    return take_words(pointer_to(pool), pointer_to(free), pointer_to(state), words)


@njit
def call_free(pool: Any, free: Any, at: int, cls: int) -> None:
    free_words(pointer_to(pool), pointer_to(free), at, cls)


@njit
def call_posted(pool: Any, at: int) -> Any:
    return posted_terms(pointer_to(pool), at)


@njit
def call_entry(directory: Any, term: Any, root: int) -> Any:
    return layout.find_entry(pointer_to(directory), len(directory), term, root)


def test_steps_are_monotone_and_stay_within_the_world() -> None:
    lons = [-180.0, np.nextafter(-180, 0), -1e-300, 0.0, 1e-300, 45.0, np.nextafter(180, 0), 180.0]
    found = [call_steps(lon, lon / 2) for lon in lons]
    assert found == sorted(found)
    assert found[0] == (0, 0, 1)
    assert found[-1] == ((1 << 24) - 1, (1 << 23) - 1, 32)


def test_fingerprints_are_bytes_but_never_zero() -> None:
    prints = {int(call_print(np.uint64(t * 0x9E37 << 20 | t))) for t in range(20_000)}
    assert prints == set(range(1, 256))


def test_blocks_of_the_pool_are_taken_again() -> None:
    rng = np.random.default_rng(1)
    pool, free = np.zeros(1 << 14, np.uint64), np.zeros(48, np.int64)
    state = np.zeros(layout.STATE, np.int64)
    state[layout.POOL_TOP] = layout.POOL_UNIT
    held: dict[int, tuple[int, int]] = {}
    for _ in range(600):
        if held and rng.random() < 0.5:
            at = list(held)[int(rng.integers(len(held)))]
            call_free(pool, free, at, held.pop(at)[1])
            continue
        words = int(rng.integers(1, 40))
        at, cls = call_take(pool, free, state, words)
        assert (layout.POOL_UNIT << cls) >= words > (layout.POOL_UNIT << cls) // 2 * (cls > 0)
        held[int(at)] = words, int(cls)
        ends = sorted((a, a + (layout.POOL_UNIT << c)) for a, (_, c) in held.items())
        assert all(end <= start for (_, end), (start, _) in pairwise(ends))


@pytest.mark.parametrize("n", [1, 24, 25, 64])
def test_the_posted_terms_of_an_expression_of_any_length(n: int) -> None:
    post = (1 << n) - 1 & 0xA5A5_A5A5_A5A5_A5A5 | 1
    pool = np.zeros(80, np.uint64)
    pool[2] = np.uint64(n << 8 | 3 << 16 | (post << 40 if n <= layout.SHORT_POST else 0))
    pool[2 + 1 + n + 3] = post if n > layout.SHORT_POST else 7
    assert int(call_posted(pool, 2)) == post


def test_entries_of_one_term_are_told_apart_by_their_root_cells() -> None:
    """So full that most of them are not in the bucket where they belong."""
    directory = np.zeros((19, layout.BUCKET), np.uint64)
    words = directory.reshape(-1)
    held = [(term, root) for term in (0, 1, 1 << 63) for root in range(1, 25)]
    for number, (term, root) in enumerate(held):
        at = call_entry(directory, np.uint64(term), root)
        assert words[at] == 0
        words[at - layout.ENTRIES], words[at] = term, root << 32 | number
    for number, (term, root) in enumerate(held):
        at = call_entry(directory, np.uint64(term), root)
        assert int(words[at]) & 0xFFFFFFFF == number
        assert words[at - layout.ENTRIES] == term
