"""Arrays that hold an index, and how they grow."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ps2stream.protocol.frame import F64, Array

GROWTH = 1.25
_LINE = 8  # words of a cache line


def cache_lines(n: int) -> F64:
    """Zeroed float64[n, 8] whose rows are whole cache lines."""
    raw = np.zeros(n * _LINE + _LINE, np.float64)
    skip = -(raw.ctypes.data // 8) % _LINE
    return raw[skip : skip + n * _LINE].reshape(n, _LINE)


def grown(array: Array, size: int) -> Array:
    """A copy with zeros behind, a quarter longer or more."""
    out = np.zeros(max(size, int(len(array) * GROWTH)), array.dtype)
    out[: len(array)] = array
    return out


def parts_of(n: int, parts: int) -> list[tuple[int, int]]:
    """0 to n in so many ranges of about one length."""
    return list(pairwise(n * i // parts for i in range(parts + 1)))
