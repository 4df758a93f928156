"""Vector instructions against twins in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from ps2stream.workers.radix.layout import pack_point, pack_rect
from ps2stream.workers.radix.pointers import pointer_to
from ps2stream.workers.radix.vectors import find_equal, find_holding, lowest_bit


@njit
def call_holding(words: Any, at: int, point: Any) -> Any:
    return find_holding(pointer_to(words), at, point)


@njit
def call_equal(words: Any, at: int, want: Any, bits: Any) -> Any:
    return find_equal(pointer_to(words), at, want, bits)


@njit
def call_lowest(word: Any) -> Any:
    return lowest_bit(word)


@njit
def pack(rect: Any, out: Any) -> None:
    for i in range(len(rect)):
        out[i] = pack_rect(rect[i, 0], rect[i, 1], rect[i, 2], rect[i, 3])


@njit
def point_of(x: int, y: int) -> Any:
    return pack_point(x, y, 0)


@pytest.mark.parametrize("seed", range(5))
def test_the_rectangles_that_hold_a_point_are_found(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ends = rng.choice([0, 1, 7, 127, 128, 254, 255], (40, 2, 2))
    rect = np.concatenate([ends.min(1), ends.max(1)], 1).astype(np.int64)
    words = np.zeros(40, np.uint32)
    pack(rect, words)
    for _ in range(200):
        x, y = (int(v) for v in rng.choice([0, 1, 6, 7, 8, 127, 128, 254, 255], 2))
        at = int(rng.integers(0, 25))
        held = [a <= x <= c and b <= y <= d for a, b, c, d in rect[at : at + 16].tolist()]
        found = int(call_holding(words, at, np.uint32(point_of(x, y))))
        assert [bool(found >> i & 1) for i in range(16)] == held


def test_words_are_found_by_some_of_their_bits() -> None:
    rng = np.random.default_rng(1)
    words = rng.integers(0, 1 << 32, 32, np.uint32)
    words[5] = words[9] ^ np.uint32(1 << 31)
    low = np.uint32((1 << 30) - 1)
    for at in range(16):
        for want in words:
            found = int(call_equal(words, at, want, low))
            same = ((words[at : at + 16] & low) == (want & low)).tolist()
            assert [bool(found >> i & 1) for i in range(16)] == same


def test_the_lowest_bit_is_counted_from_zero() -> None:
    for i in range(64):
        assert call_lowest(np.uint64((1 << i | 1 << 63) % (1 << 64))) == i
