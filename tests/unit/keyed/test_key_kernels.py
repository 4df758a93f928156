"""Hashes of keys against Murmur as it is defined, and second choices."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.keyed.key_kernels import hash_all, hash_to_second
from tests.support.keyed_twins import choices_of, hash_to, murmur64a


def test_hashes_are_murmurs() -> None:
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 2**64, 200, dtype=np.uint64, endpoint=False)
    out = np.empty_like(keys)
    for seed in (0, 1, 2**64 - 1):
        hash_all(keys, np.uint64(seed), out)
        assert out.tolist() == [murmur64a(key.tobytes(), seed) for key in keys]


@pytest.mark.parametrize("workers", [2, 3, 50])
def test_a_second_choice_is_hashed_anew_until_it_differs(workers: int) -> None:
    again = 0
    for key in range(500):
        first = hash_to(key, 7, workers)
        again += hash_to(key, 8, workers) == first
        second = hash_to_second(np.uint64(key), np.uint64(8), workers, first)
        assert second != first
        assert [first, second] == choices_of(key, (7, 8), workers, 2)
    assert again > 0


def test_the_same_hash_function_twice_gives_two_workers() -> None:
    """H1 = H2 is the case that the paper does not speak of (algorithms.md 4.1)."""
    for key in range(200):
        first = hash_to(key, 7, 16)
        assert hash_to_second(np.uint64(key), np.uint64(7), 16, first) != first
