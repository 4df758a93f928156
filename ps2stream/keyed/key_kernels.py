"""Seeded hashes of keys: 64-bit Murmur, as in Partial Key Grouping (algorithms.md 4.1)."""

# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from ps2stream.keyed.compiling import inline_kernel, kernel

_M = np.uint64(0xC6A4A7935BD1E995)
_R = np.uint64(47)
_EIGHT_M = np.uint64(8 * 0xC6A4A7935BD1E995 % 2**64)
_HALF = np.uint64(32)
_ONE = np.uint64(1)
RESEEDS = 64
"""Tries to find a second worker that differs from the first; then its neighbour is taken."""


@inline_kernel
def murmur(key, seed):
    """Returns MurmurHash64A of the 8 bytes of a key, little-endian: uint64."""
    k = key * _M
    k ^= k >> _R
    h = (seed ^ _EIGHT_M ^ k * _M) * _M
    h = (h ^ h >> _R) * _M
    return h ^ h >> _R


@inline_kernel
def hash_to_worker(key, seed, workers):
    """Returns the worker in 0..workers-1 that a hash function chooses, by the hash's upper half."""
    return np.int64((murmur(key, seed) >> _HALF) * np.uint64(workers) >> _HALF)


@kernel
def hash_to_second(key, seed, workers, first):
    """Returns the second choice, hashed with other seeds until it differs from the first."""
    worker = hash_to_worker(key, seed, workers)
    tries = 0
    while worker == first and tries < RESEEDS:
        seed += _ONE
        tries += 1
        worker = hash_to_worker(key, seed, workers)
    return (first + 1) % workers if worker == first else worker


@inline_kernel
def hash_to_choice(key, seeds, i, workers, first):
    """Returns choice i > 0 of a key. Those after the second may repeat others."""
    if i == 1:
        return hash_to_second(key, seeds[1], workers, first)
    return hash_to_worker(key, seeds[i], workers)


@kernel
def hash_all(keys, seed, out):
    """Writes the hash of each key into out, uint64[n]."""
    for i in range(keys.shape[0]):
        out[i] = murmur(keys[i], seed)
