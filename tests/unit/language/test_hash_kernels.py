"""The kernels of hashes: what is sorted and made unique."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.language.hash_kernels import SCRATCH, TOP, mix_sums, sort_unique, unmix_sums


@pytest.mark.parametrize("size", [0, 1, 2, 48, SCRATCH, SCRATCH + 1, 200, 193, 3_000])
@pytest.mark.parametrize("values", [3, 1 << 40, (1 << 64) - 1])
def test_a_part_is_sorted_and_its_repeats_go(size: int, values: int) -> None:
    rng = np.random.default_rng((size, values))
    for order in (1, -1, 0):
        drawn = rng.integers(1, values, size + 20, dtype=np.uint64)
        part = np.sort(drawn[10 : size + 10])[:: order or 1]
        if order:
            drawn[10 : size + 10] = part
        before = drawn.copy()
        end = sort_unique(drawn, 10, size + 10, np.empty(SCRATCH, np.uint64))
        assert drawn[10:end].tolist() == np.unique(before[10 : size + 10]).tolist()
        assert (drawn[:10] == before[:10]).all()
        assert (drawn[size + 10 :] == before[size + 10 :]).all()


def test_the_halves_of_sums_are_found_again() -> None:
    """Also where the hash would have been one that is kept for other uses."""
    rng = np.random.default_rng(3)
    reserved = [int(TOP), 0, 2**64 - 1]
    special = [int(unmix_sums(np.uint64(h))[0]) for h in reserved]
    for halves in special + rng.integers(0, 2**64, 300, np.uint64).tolist():
        a, b = halves >> 32 << 32, (halves & 0xFFFFFFFF) << 32
        h = mix_sums(np.uint64(a), np.uint64(b | 12345))
        assert int(h) not in reserved
        assert halves in [int(found) for found in unmix_sums(np.uint64(h))]
