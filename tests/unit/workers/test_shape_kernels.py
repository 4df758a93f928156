"""The kernel that drops pairs, against its definition in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.workers.shape_kernels import drop_outside


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("pairs", [0, 1, 2, 50])
def test_pairs_outside_are_dropped_and_the_others_keep_their_order(seed: int, pairs: int) -> None:
    rng = np.random.default_rng(seed)
    found = rng.integers(0, 99, pairs).astype(np.uint32), rng.integers(0, 99, (2, pairs))
    at = rng.permutation(pairs)[: int(rng.integers(0, pairs + 1))]
    verdict = rng.integers(0, 2, len(at)).astype(np.uint8)
    kept = np.full(pairs, 7, np.uint32), np.full(pairs, 7), np.full(pairs, 7)
    is_kept = np.full(pairs + 1, 9, np.uint8)
    n = drop_outside(at, verdict, (found[0], *found[1]), is_kept, kept)
    want = np.setdiff1d(np.arange(pairs), at[verdict == 0])
    assert n == len(want)
    for got, column in zip(kept, (found[0], *found[1]), strict=True):
        assert got[:n].tolist() == column[want].tolist()
        assert (got[n:] == 7).all()
