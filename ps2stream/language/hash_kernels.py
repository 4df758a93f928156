"""Numba kernels of the hashes of words: the terms of objects and queries.

The hash is multilinear (Lemire & Kaser, "Strongly universal string hashing is fast"):
two sums over 32-bit words of the token with independent 64-bit keys drawn from the
salt, the upper halves of which make 64 bits. For any two tokens that were chosen
without knowing the keys the chance of a collision is 2^-64, whatever the tokens.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from ps2stream.limits import TOKEN_BYTES
from ps2stream.protocol.frame import I64, U8, U64

TOP: Final = np.uint64(0x746F705F7465726D)
_MAX = np.uint64(0xFFFFFFFFFFFFFFFF)
_ZERO = np.uint64(0)
_TWO = np.uint64(2)
_HIGH = np.uint64(0xFFFFFFFF00000000)
_HALF = np.uint64(32)
_ODD = np.uint64(0xD6E8FEB86659FD93)
_UNODD = np.uint64(pow(int(_ODD), -1, 1 << 64))  # times _ODD it is 1

WORDS = TOKEN_BYTES // 4
KEYS = 2 * (WORDS + 2)  # two a word, two for the length, two to start from
SCRATCH: Final = 64  # words that are sorted by counting
_SHORT = 48  # words that an insertion sort takes


@njit(inline="always")
def start_hash(keys: U64) -> tuple[np.uint64, np.uint64]:
    """Returns the two sums to begin a hash with."""
    return keys[KEYS - 2], keys[KEYS - 1]


@njit(inline="always")
def finish_hash(keys: U64, a: np.uint64, b: np.uint64, word: np.uint64, size: int) -> np.uint64:
    """Returns the hash of a token of `size` bytes; `word` holds its last size % 4 bytes."""
    at = size >> 2
    if size & 3:
        a += keys[2 * at] * word
        b += keys[2 * at + 1] * word
    a += keys[KEYS - 4] * np.uint64(size)
    b += keys[KEYS - 3] * np.uint64(size)
    return mix_sums(a, b)


@njit(inline="always")
def mix_sums(a: np.uint64, b: np.uint64) -> np.uint64:
    """Returns the hash that two sums make."""
    h = (a & _HIGH) | (b >> _HALF)
    h = (h ^ h >> _HALF) * _ODD  # one to one: it spreads the bits and adds no collision
    h ^= h >> _HALF
    if h in (TOP, _ZERO, _MAX):
        h ^= _TWO
    return h


@njit(inline="always")
def unmix_sums(h: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Returns the upper halves of two sums that make a hash by `mix_sums`, those of the first in
    the upper half, and of two others that perhaps make it too; the same again if there are none."""
    other = h ^ _TWO
    if other not in (TOP, _ZERO, _MAX):
        other = h
    return _unmix_halves(h), _unmix_halves(other)


@njit(inline="always")
def _unmix_halves(h: np.uint64) -> np.uint64:
    """Undoes what `mix_sums` does to the halves of two sums."""
    h = (h ^ h >> _HALF) * _UNODD
    return h ^ h >> _HALF


@njit(inline="always")
def token_hash(keys: U64, data: U8, begin: int, end: int, lut: U8) -> np.uint64:
    """Returns the hash of data[begin:end], each byte through `lut`."""
    a, b = start_hash(keys)
    word = _ZERO
    size = min(end - begin, TOKEN_BYTES)
    for i in range(size):
        word |= np.uint64(lut[data[begin + i]]) << np.uint64(8 * (i & 3))
        if i & 3 == 3:
            a += keys[2 * (i >> 2)] * word
            b += keys[2 * (i >> 2) + 1] * word
            word = _ZERO
    return finish_hash(keys, a, b, word, size)


@njit(cache=True, nogil=True)
def hash_rows(off: I64, data: U8, lut: U8, keys: U64) -> U64:
    """Returns the hash of each row of a column of tokens; `lut` is the identity."""
    out = np.empty(off.shape[0] - 1, np.uint64)
    for i in range(out.shape[0]):
        out[i] = token_hash(keys, data, off[i], off[i + 1], lut)
    return out


@njit(cache=True, nogil=True)
def sort_unique(values: U64, begin: int, end: int, scratch: U64) -> int:
    """Sorts values[begin:end], none of which is 0, in place, unique ones first, and returns the new
    end. scratch uint64[SCRATCH]: room.

    Few are sorted by counting for each how many are smaller, which has no branches. Many are sorted
    by a Shellsort, as NumPy's sort takes the compiler a second."""
    n = begin
    if end - begin <= SCRATCH:
        few = values[begin:end]
        size = few.shape[0]
        for i in range(size):
            scratch[i] = _ZERO
        for i in range(size):
            v = few[i]
            rank = 0
            for j in range(size):
                rank += few[j] < v
            scratch[rank] = v  # equal ones have one place, and leave others at 0
        for i in range(size):
            values[n] = scratch[i]
            n += scratch[i] != _ZERO
        return n
    gap = 1
    while _SHORT * gap < end - begin:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(begin + gap, end):
            v = values[i]
            j = i - gap
            while j >= begin and values[j] > v:
                values[j + gap] = values[j]
                j -= gap
            values[j + gap] = v
        gap //= 3
    for i in range(begin, end):
        if i == begin or values[i] != values[n - 1]:
            values[n] = values[i]
            n += 1
    return n
