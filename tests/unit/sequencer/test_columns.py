"""Columns of strings as lists of bytes, and the rows that are equal."""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.frame import strings_to_column
from ps2stream.sequencer.columns import find_first_rows, split, take_strings


def test_a_column_is_split_into_its_rows() -> None:
    words = [b"one", b"", b"three", b"one"]
    column = strings_to_column(words)
    assert split(*column) == words
    first, count = find_first_rows(*column, np.zeros(4, np.uint64))
    assert (first.tolist(), count) == ([0, 1, 2, 0], 3)


def test_rows_are_taken_in_their_order() -> None:
    column = strings_to_column([b"one", b"", b"three"])
    assert split(*take_strings(column, np.array([2, 1, 0]))) == [b"three", b"", b"one"]
    assert split(*take_strings(column, np.zeros(0, np.int64))) == []
