"""Vector instructions against twins in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from ps2stream.workers.radix.layout import pack_point, pack_rect
from ps2stream.workers.radix.pointers import pointer_to
from ps2stream.workers.radix.vectors import (
    count_bits,
    find_below,
    find_equal,
    find_holding,
    find_in_bucket,
    lowest_bit,
    pack_words,
    repeat_word,
)


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
def call_bucket(words: Any, at: int, term: Any, root: Any) -> Any:
    return find_in_bucket(pointer_to(words), at, term, root)


@njit
def call_below(words: Any, at: int, bound: Any) -> Any:
    return find_below(pointer_to(words), at, bound)


@njit
def call_pack(words: Any, at: int, chosen: Any, out: Any, to: int) -> Any:
    pack_words(pointer_to(words), at, chosen, pointer_to(out), to)
    return count_bits(chosen)


@njit
def call_repeat(words: Any, at: int, value: Any) -> None:
    repeat_word(pointer_to(words), at, value)


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


def test_an_entry_of_a_bucket_is_found_by_term_and_root() -> None:
    rng = np.random.default_rng(2)
    for filled in range(5):
        words = np.zeros(24, np.uint64)
        words[8 : 8 + filled] = rng.choice([0, 5, 1 << 63], filled).astype(np.uint64)
        words[12 : 12 + filled] = rng.choice([1, 2, 65], filled) << 32 | 0xFF << 40 | 1
        words[:8], words[16:] = 5, 2 << 32
        for term in (0, 5, 1 << 63):
            for root in (1, 2, 65, 3):
                found = int(call_bucket(words, 8, np.uint64(term), np.uint64(root)))
                held = [
                    int(words[8 + i]) == term and int(words[12 + i]) >> 32 & 255 == root
                    for i in range(4)
                ]
                assert [bool(found >> i & 1) for i in range(4)] == held
                assert found >> 4 == (16 if filled == 4 else 0)


def test_words_below_a_bound_are_found_and_packed() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        words = rng.integers(0, 1 << 32, 40, np.uint32)
        at, to = (int(v) for v in rng.integers(0, 20, 2))
        bound = np.uint32(rng.choice([0, 1 << 30, 1 << 31, (1 << 32) - 1]))
        found = int(call_below(words, at, bound))
        want = words[at : at + 16] < bound
        assert [bool(found >> i & 1) for i in range(16)] == want.tolist()
        out = np.full(40, 7, np.uint32)
        n = int(call_pack(words, at, np.uint64(found), out, to))
        assert n == want.sum()
        assert out[to : to + n].tolist() == words[at : at + 16][want].tolist()
        assert (np.delete(out, range(to, to + n)) == 7).all()


def test_a_word_is_repeated_sixteen_times() -> None:
    words = np.zeros(20, np.uint32)
    call_repeat(words, 3, np.uint32(9))
    assert words.tolist() == [0] * 3 + [9] * 16 + [0]
