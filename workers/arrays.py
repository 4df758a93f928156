"""Arrays that hold an index, and how they grow."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ps2stream.protocol.frame import F64, Array

GROWTH = 1.25
_LINE = 8  # words of a cache line


def cache_lines(n: int) -> F64:
    """Returns a zeroed float64[n, 8] whose rows are whole cache lines."""
    raw = np.zeros(n * _LINE + _LINE, np.float64)
    skip = -(raw.ctypes.data // 8) % _LINE
    return raw[skip : skip + n * _LINE].reshape(n, _LINE)


def grow_copy(array: Array, size: int) -> Array:
    """Returns a copy with zeros appended, of at least `size` and a quarter longer or more."""
    out = np.zeros(max(size, int(len(array) * GROWTH)), array.dtype)
    out[: len(array)] = array
    return out


def split_range(n: int, parts: int) -> list[tuple[int, int]]:
    """Splits 0 to n into `parts` ranges of about equal length."""
    return list(pairwise(n * i // parts for i in range(parts + 1)))
