"""The Numba kernel that counts the words of a sample that begin with a prefix."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from ps2stream.language.area_kernels import Integer
from ps2stream.language.word_kernels import ZERO
from ps2stream.protocol.frame import I64, U8

_LAST: Final = np.frombuffer("\U0010ffff".encode(), np.uint8)


@njit(inline="always")
def _count_before(
    off: I64, data: U8, low: Integer, prefix: U8, begin: Integer, end: Integer, is_last: bool
) -> np.int64:
    """Returns how many words are less than a prefix, or with `is_last` than the prefix and the last
    character behind it; the first `low` are."""
    a, b = np.int64(low), np.int64(off.shape[0] - 1)
    while a < b:
        middle = (a + b) // 2
        at, size = off[middle], off[middle + 1] - off[middle]
        width = end - begin
        whole = width + _LAST.shape[0] if is_last else width
        is_less = size < whole
        for i in range(min(size, whole)):
            own = data[at + i]
            other = prefix[begin + i] if i < width else _LAST[i - width]
            if own != other:
                is_less = own < other
                break
        if is_less:
            a = middle + 1
        else:
            b = middle
    return a


@njit(cache=True, nogil=True)
def count_prefix(
    off: I64, data: U8, before: I64, prefix: U8, begin: Integer, end: Integer
) -> np.int64:
    """Returns the sum of the counts of the words that begin with prefix[begin:end], 0 of no words.

    off, data: the words in the order of their bytes, which is that of their characters; before
    int64[n + 1]: the sums of the counts before each of them and of all.
    """
    first = _count_before(off, data, ZERO, prefix, begin, end, False)
    last = _count_before(off, data, first, prefix, begin, end, True)
    return np.int64(before[last] - before[first])
