"""Sets of workers as bits, one row per publication: uint64[n, ceil(workers / 64)]."""

from __future__ import annotations

import numpy as np

from ps2stream.multicast.bitset_kernels import count_column_bits, count_row_bits, list_workers
from ps2stream.protocol.frame import I64, U64


def make_sets(rows: int, workers: int) -> U64:
    """Returns empty sets, uint64[rows, ceil(workers / 64)]."""
    return np.zeros((rows, (workers + 63) // 64), np.uint64)


def count_targets(bits: U64) -> I64:
    """Returns the size of each set, int64[n]."""
    out = np.empty(len(bits), np.int64)
    count_row_bits(bits, out)
    return out


def count_copies(bits: U64, workers: int) -> I64:
    """Returns the sets that each worker is in, int64[workers]."""
    out = np.zeros(64 * bits.shape[1], np.int64)
    count_column_bits(bits, out)
    return out[:workers]


def list_members(bits: U64) -> tuple[I64, I64]:
    """Returns (row, worker) of all members in ascending order, int64[members] each."""
    size = int(count_targets(bits).sum())
    row, worker = np.empty(size, np.int64), np.empty(size, np.int64)
    list_workers(bits, row, worker)
    return row, worker
