"""Memory by its address, in kernels."""

# mypy: disable-error-code="attr-defined, call-arg, type-var", no-warn-unreachable
from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit

from ps2stream.protocol.frame import U8
from ps2stream.protocol.pointers import (
    borrow,
    count_high_zeros,
    count_low_zeros,
    find_address,
    is_same,
    load_half,
    load_word,
    point_to,
    prefetch,
    put_bytes,
    store_word,
)


@njit
def add_up(address: int, size: int) -> Any:
    """The sum of the numbers at an address."""
    prefetch(address)
    prefetch(address + (1 << 40))  # nobody's memory: nothing is read
    total = 0
    for value in carray(point_to(address), size, np.uint32):
        total += value
    return total


@njit
def fill(columns: Any, value: int) -> int:
    """Writes into a borrowed array, and returns how many numbers it has."""
    (column, factor), row = borrow(columns)
    for i in range(len(column)):
        column[i] = factor * value + row[i]
    return len(column)


def test_a_borrowed_array_is_the_same_memory() -> None:
    column, row = np.zeros(5, np.int64), np.arange(5)
    assert fill(((column, 3), row), 7) == 5
    assert column.tolist() == [21, 22, 23, 24, 25]
    del column, row  # nobody has counted them down


def test_an_array_is_read_by_its_address() -> None:
    column = np.arange(100, dtype=np.uint32)
    assert add_up(column.ctypes.data, 100) == 4950
    assert add_up(column[50:].ctypes.data, 2) == 101


@njit
def compare(data: U8, a: int, other: U8, b: int, size: int) -> bool:
    return is_same(data, a, other, b, size)


@njit
def copy(out: Any, at: int, data: Any, begin: int, end: int) -> int:
    return put_bytes(out, at, data, begin, end)


@njit
def load(data: U8, at: int, out: U8, to: int) -> Any:
    """The word and the half at a place, the zeros around the word, which is stored elsewhere."""
    word = load_word(find_address(data) + at)
    store_word(find_address(out) + to, word)
    return word, load_half(find_address(data) + at), count_low_zeros(word), count_high_zeros(word)


def test_bytes_are_compared_as_python_does() -> None:
    rng = np.random.default_rng(3)
    data = rng.integers(0, 256, 60, np.uint8)
    for size in range(41):
        a, b = rng.integers(0, 8, 2).tolist()
        other = np.zeros(60, np.uint8)
        other[b : b + size] = data[a : a + size]
        assert compare(data, a, other, b, size)
        for k in range(size):
            other[b + k] ^= 1 << (k % 8)
            assert not compare(data, a, other, b, size)
            other[b + k] ^= 1 << (k % 8)
        other[b + size] ^= 255  # not a part of it
        assert compare(data, a, other, b, size)


def test_elements_are_copied_even_where_they_overlap() -> None:
    for kind in (np.uint8, np.uint64):
        data = np.arange(50, dtype=kind)
        for at, begin, end in [(0, 3, 20), (3, 0, 20), (7, 7, 9), (5, 9, 9), (30, 1, 20)]:
            want, out = data.copy(), data.copy()
            want[at : at + end - begin] = data[begin:end]
            assert copy(out, at, out, begin, end) == at + end - begin
            assert out.tolist() == want.tolist()


def test_words_lie_anywhere() -> None:
    data, out = np.arange(40, dtype=np.uint8), np.zeros(40, np.uint8)
    for at in range(32):
        word, half, low, high = load(data, at, out, 31 - at)
        want = int.from_bytes(data[at : at + 8].tobytes(), "little")
        assert (word, half) == (want, want & 0xFFFFFFFF)
        assert (low, high) == ((want & -want).bit_length() - 1, 64 - want.bit_length())
        assert out[31 - at : 39 - at].tolist() == data[at : at + 8].tolist()
    assert load(np.zeros(8, np.uint8), 0, out, 0)[2:] == (64, 64)
