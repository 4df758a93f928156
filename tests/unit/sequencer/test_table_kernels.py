"""Records that are removed from the table of hashes."""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.frame import U64
from ps2stream.sequencer import table_kernels
from ps2stream.sequencer.hash_table import find_address
from ps2stream.sequencer.table_kernels import ADDRESS, COUNT, NONE, PART_BITS, SIZE


def reached(slots: U64, home: int, row: int) -> bool:
    """Whether a search from this slot on meets the row before a gap."""
    at = home
    while slots[at]:
        if int(slots[at]) & 0xFFFFFFFF == row + 1:
            return True
        at = (at + 1) % len(slots)
    return False


def test_a_removed_record_leaves_no_gap() -> None:
    """Records of three homes in one run, removed in every order."""
    slots = np.zeros(8, np.uint64)
    parts = np.zeros((1 << PART_BITS, 3), np.int64)
    parts[3, ADDRESS], parts[3, SIZE] = find_address(slots), len(slots)
    homes = [6, 6, 7, 7, 0]
    hashes = np.uint64(3 << 56) | np.array(homes, np.uint64) << np.uint64(53)
    rows = np.arange(5)
    for order in np.random.default_rng(0).permuted(np.tile(rows, (60, 1)), axis=1):
        assert table_kernels.insert_rows(parts, hashes, rows) == 5
        left = set(rows.tolist())
        for row in order.tolist():
            gone = np.array([row])
            assert table_kernels.remove_rows(parts, hashes[gone], gone) == NONE
            left.remove(row)
            assert all(reached(slots, homes[other], other) for other in left)
            assert parts[3, COUNT] == len(left)
        assert not slots.any()


def test_a_full_part_takes_no_record() -> None:
    slots = np.zeros(8, np.uint64)
    parts = np.zeros((1 << PART_BITS, 3), np.int64)
    parts[0, ADDRESS], parts[0, SIZE] = find_address(slots), len(slots)
    hashes = np.arange(8, dtype=np.uint64) << np.uint64(53)
    assert table_kernels.insert_rows(parts, hashes, np.arange(8)) == 6
    assert int(parts[0, COUNT]) == np.count_nonzero(slots) == 6
