"""The bytes that a worker gains are those of the columns that it is sent."""

from __future__ import annotations

import numpy as np

from ps2stream.routing.tags import measure_gain


def test_a_gain_is_what_the_columns_take() -> None:
    row_bytes, tags = np.array([40, 100]), np.array([1, 3])
    off, cell = np.array([0, 1, 4], np.int64), np.zeros(4, np.uint32)
    term = np.zeros(4, np.uint64)
    whole = int(row_bytes.sum()) + off.nbytes + cell.nbytes + term.nbytes
    first_offset = off.itemsize  # of a chunk, however many rows it has
    assert measure_gain(row_bytes, tags).sum() == whole - first_offset
    assert measure_gain(row_bytes, tags).tolist() == [40 + 8 + 12, 100 + 8 + 36]
