"""Kernels on sets of workers: a row of bits per publication, uint64[n, ceil(workers / 64)]."""

# mypy: allow-untyped-defs, allow-untyped-decorators, no-check-untyped-defs
from __future__ import annotations

import numpy as np
from numba import njit

_ONE = np.uint64(1)
_SIX = np.uint64(6)
_LOW = np.uint64(63)


@njit(cache=True, nogil=True)
def mark_workers(off, term, owner, bits):
    """Sets the bit of the owner of each term. off int64[n + 1], term int64[t], owner int64[terms],
    bits uint64[n, words], zero before."""
    for i in range(len(off) - 1):
        for j in range(off[i], off[i + 1]):
            worker = np.uint64(owner[term[j]])
            bits[i, worker >> _SIX] |= _ONE << (worker & _LOW)


@njit(cache=True, nogil=True)
def count_row_bits(bits, out):
    """Writes the number of bits of each row into out, int64[n]."""
    for i in range(len(bits)):
        count = np.int64(0)
        for k in range(bits.shape[1]):
            left = bits[i, k]
            while left:
                left &= left - _ONE
                count += 1
        out[i] = count


@njit(cache=True, nogil=True)
def count_column_bits(bits, out):
    """Adds the rows that have each worker's bit to out, int64[workers]."""
    for i in range(len(bits)):
        for k in range(bits.shape[1]):
            left = bits[i, k]
            at = np.int64(64 * k)
            while left:
                if left & _ONE:
                    out[at] += 1
                left >>= _ONE
                at += 1


@njit(cache=True, nogil=True)
def list_workers(bits, row, worker):
    """Writes each (row, worker) whose bit is set, in ascending order, into row and worker,
    int64[bits that are set]."""
    n = np.int64(0)
    for i in range(len(bits)):
        for k in range(bits.shape[1]):
            left = bits[i, k]
            at = np.int64(64 * k)
            while left:
                if left & _ONE:
                    row[n] = i
                    worker[n] = at
                    n += 1
                left >>= _ONE
                at += 1
