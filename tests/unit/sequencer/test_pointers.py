"""Memory by its address, in kernels."""

# mypy: disable-error-code="attr-defined, call-arg", no-warn-unreachable
from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit

from ps2stream.sequencer.pointers import borrow, point_to, prefetch


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
