"""Pointers read and write the arrays that they were made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from ps2stream.workers.radix.pointers import advance, find_entry, pointer_to, prefetch


@njit
def write_third(array: Any) -> Any:
    first = pointer_to(array)
    second = advance(first, 1)
    prefetch(second, 1 << 20)  # need not exist
    second[1] = first[0] + 5
    return second[0]


def test_a_pointer_is_indexed_like_the_array() -> None:
    for dtype in (np.uint8, np.uint16, np.uint32, np.int64, np.uint64, np.float64):
        array = np.arange(1, 7, dtype=dtype)
        assert write_third(array) == 2
        assert array.tolist() == [1, 2, 6, 4, 5, 6]


def test_a_table_is_indexed_row_by_row() -> None:
    table = np.arange(6).reshape(3, 2)
    write_third(table)
    assert table[1, 0] == 5


@njit
def add_columns(number: int, pair: Any) -> Any:
    return number + pair[0][-1] + pair[1].sum()


def test_the_code_of_a_kernel_takes_arrays_that_are_writable_or_not() -> None:
    pair = np.arange(4), np.array([0.5, 2.0])
    enter = find_entry(add_columns, 1, pair)
    for seal in (False, True):
        for column in pair:
            column.setflags(write=not seal)
        assert enter(1, pair) == add_columns(1, pair) == 6.5
    assert len(add_columns.overloads) == 2  # as the kernel itself looks at their types
    assert find_entry(add_columns, 1, pair) is not enter
    with pytest.raises(TypeError):
        enter(1, (np.arange(4, dtype=np.int32), pair[1]))
