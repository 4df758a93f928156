"""Arrays that hold an index: aligned, grown by copying, divided."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.workers.arrays import GROWTH, cache_lines, grow_copy, split_range


@pytest.mark.parametrize("n", [0, 1, 3, 1000])
def test_rows_are_whole_cache_lines(n: int) -> None:
    for _ in range(8):  # wherever the allocator puts them
        lines = cache_lines(n)
        assert lines.shape == (n, 8)
        assert lines.strides == (64, 8)
        assert not lines.any()
        assert not n or lines.ctypes.data % 64 == 0


@pytest.mark.parametrize(
    ("length", "size"), [(4, 5), (1000, 1001), (1000, 5000), (0, 3), (8, 8), (9, 1 << 19)]
)
def test_a_grown_copy_has_the_old_and_zeros(length: int, size: int) -> None:
    old = np.arange(1, length + 1, dtype=np.uint32)
    grown = grow_copy(old, size)
    assert grown.dtype == old.dtype
    assert len(grown) >= max(size, int(GROWTH * length))
    assert grown[:length].tolist() == old.tolist()
    assert not grown[length:].any()
    grown[:] = 7
    assert old.tolist() == list(range(1, length + 1))


@pytest.mark.parametrize(("n", "parts"), [(10, 3), (3, 10), (0, 2), (7, 1), (1000, 7)])
def test_a_range_is_split_into_like_parts(n: int, parts: int) -> None:
    found = split_range(n, parts)
    assert [i for start, stop in found for i in range(start, stop)] == list(range(n))
    sizes = [stop - start for start, stop in found]
    assert len(sizes) == parts
    assert max(sizes) - min(sizes) <= 1
