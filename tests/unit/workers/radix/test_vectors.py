"""Vector instructions against twins in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from ps2stream.workers.radix.layout import ALL, ANY, FREE, GENERAL, pack_point, pack_rect
from ps2stream.workers.radix.pointers import pointer_to
from ps2stream.workers.radix.vectors import (
    count_bits,
    find_equal,
    find_holding,
    find_in_bucket,
    find_printed,
    find_term,
    is_in_box,
    judge_comparisons,
    judge_postings,
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
def call_term(words: Any, at: int, term: Any) -> Any:
    return find_term(pointer_to(words), at, term)


@njit
def call_judge(words: Any, at: int, prints: Any, print_at: int, bits: Any, bit_at: int) -> Any:
    return judge_postings(
        pointer_to(words), at, pointer_to(prints), print_at, pointer_to(bits), bit_at
    )


@njit
def call_printed(prints: Any, print_at: int, bits: Any, bit_at: int) -> Any:
    return find_printed(pointer_to(prints), print_at, pointer_to(bits), bit_at)


@njit
def call_compare(words: Any, at: int, prints: Any, print_at: int, bits: Any, bit_at: int) -> Any:
    return judge_comparisons(
        pointer_to(words), at, pointer_to(prints), print_at, pointer_to(bits), bit_at
    )


@njit
def call_box(boxes: Any, at: int, points: Any, point_at: int) -> Any:
    return is_in_box(pointer_to(boxes), at, pointer_to(points), point_at)


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


def test_a_term_is_found_among_four() -> None:
    words = np.array([7, 7, 5, 7, 5, 1 << 63, 7], np.uint64)
    for at in range(4):
        for term in (5, 7, 1 << 63, 6):
            found = int(call_term(words, at, np.uint64(term)))
            held = [int(word) == term for word in words[at : at + 4]]
            assert [bool(found >> i & 1) for i in range(4)] == held
            assert found < 16


@pytest.mark.parametrize("seed", range(3))
def test_postings_are_judged_as_their_modes_say(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ends = [0, 1, 31, 32, 255]
    for _ in range(200):
        has = set(rng.choice([*ends[1:], *range(60, 100)], 9).tolist())
        bits = np.full(24, (1 << 32) - 1, np.uint32)
        bits[8:16] = [sum(1 << i for i in range(32) if 32 * k + i in has) for k in range(8)]
        mode = rng.integers(0, 4, 40)
        words = (mode << 30 | rng.integers(0, 1 << 30, 40)).astype(np.uint32)
        print_ = rng.choice([*ends, *range(60, 100)], (40, 2))
        prints = (print_[:, 0] | print_[:, 1] << 8).astype(np.uint16)
        at, print_at = (int(v) for v in rng.integers(0, 24, 2))
        judged = int(call_judge(words, at, prints, print_at, bits, 8))
        kept, left = [], []
        for i in range(16):
            first, second = (int(p) in has for p in print_[print_at + i])
            way = int(mode[at + i])
            whole = first and (second or print_[print_at + i, 1] == 0)
            kept.append(way == FREE or (way == ANY and not first and not second))
            left.append(way == GENERAL or (whole if way == ALL else way == ANY and not kept[i]))
        assert [bool(judged >> i & 1) for i in range(32)] == kept + left
        words[:] = np.uint32(ALL << 30) | words & np.uint32((1 << 30) - 1)
        judged = int(call_judge(words, at, prints, print_at, bits, 8))
        assert int(call_printed(prints, print_at, bits, 8)) == judged >> 16


@pytest.mark.parametrize("seed", range(3))
def test_postings_with_codes_are_judged_as_these_say(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ends, seen = [0, 1, 31, 32, 255], set[tuple[int, ...]]()
    for _ in range(200):
        has, may = (set(rng.choice([*ends[1:], *range(60, 100)], 30).tolist()) for _ in range(2))
        may.add(0)
        sure = {0} | {code for code in may if rng.random() < 0.7}
        bits = np.full(40, (1 << 32) - 1, np.uint32)
        for k, codes in enumerate((has, may, sure)):
            for j in range(8):
                bits[8 * (k + 1) + j] = sum(1 << i for i in range(32) if 32 * j + i in codes)
        mode = rng.integers(0, 4, 40)
        words = (mode << 30 | rng.integers(0, 1 << 30, 40)).astype(np.uint32)
        print_ = rng.choice([0, *ends, *range(60, 100)], (40, 2))
        prints = (print_[:, 0] | print_[:, 1] << 8).astype(np.uint16)
        at, print_at = (int(v) for v in rng.integers(0, 24, 2))
        judged = int(call_compare(words, at, prints, print_at, bits, 8))
        plain = int(call_judge(words, at, prints, print_at, bits, 8))
        for i in range(16):
            way, both = int(mode[at + i]), {int(p) for p in print_[print_at + i]}
            found = tuple(bool(judged >> n + i & 1) for n in (0, 16, 32))
            first, second = print_[print_at + i].tolist()
            if way == ANY and first < second:  # which is a code
                seen.add((way, first in has, second in may))
                kept = second in may and first not in has
                assert found == (kept, second in may and first in has, False)
                continue
            if way in (ALL, ANY):
                assert found == (bool(plain >> i & 1), bool(plain >> 16 + i & 1), False)
                continue
            allowed, surely, whole = both <= may, both <= sure, first > second
            if way == FREE:
                assert found == (surely, allowed and not surely, False)
            else:
                assert found == (False, allowed, surely and whole)
            seen.add((way, *found))
    assert len(seen) == 10


def test_a_point_is_in_a_box_with_its_bounds() -> None:
    rng = np.random.default_rng(4)
    for _ in range(500):
        boxes, points = rng.integers(-2, 3, 9).astype(float), rng.integers(-2, 3, 5).astype(float)
        at, point_at = int(rng.integers(6)), int(rng.integers(4))
        (west, south, east, north), (x, y) = boxes[at : at + 4], points[point_at : point_at + 2]
        held = west <= x <= east and south <= y <= north
        assert bool(call_box(boxes, at, points, point_at)) == held


def test_words_are_packed_without_gaps() -> None:
    rng = np.random.default_rng(3)
    for chosen in (0, (1 << 16) - 1, *rng.integers(0, 1 << 16, 50).tolist()):
        words = rng.integers(0, 1 << 32, 40, np.uint32)
        at, to = (int(v) for v in rng.integers(0, 20, 2))
        want = [words[at + i] for i in range(16) if chosen >> i & 1]
        out = np.full(40, 7, np.uint32)
        n = int(call_pack(words, at, np.uint64(chosen), out, to))
        assert n == len(want)
        assert out[to : to + n].tolist() == want
        assert (np.delete(out, range(to, to + 16)) == 7).all()


def test_a_word_is_repeated_sixteen_times() -> None:
    words = np.zeros(20, np.uint32)
    call_repeat(words, 3, np.uint32(9))
    assert words.tolist() == [0] * 3 + [9] * 16 + [0]
