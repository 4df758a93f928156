"""Scans of clusters of every size find what a look at each column finds."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.experiments.le_subscribe.scan_kernels import SPECIALISED, UNFOLD, scan_cluster

pytestmark = pytest.mark.takes_turns(2)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("rows", range(SPECIALISED + 4))
def test_a_scan_finds_the_columns_whose_predicates_hold(rows: int, ahead: bool) -> None:
    rng = np.random.default_rng(rows)
    for count in (1, UNFOLD - 1, UNFOLD, UNFOLD + 1, 1_000):
        cap, base = 1 << int(count).bit_length(), int(rng.integers(0, 50))
        bits = (rng.random(40) < 0.9).astype(np.uint8)
        block = rng.integers(0, 40, (rows + 1, cap)).astype(np.int32)
        block[0] = rng.permutation(cap)
        pool = np.concatenate([np.zeros(base, np.int32), block.ravel()])
        out = np.full(count + 3, -1, np.int64)
        end = scan_cluster(pool, base, cap, count, rows, bits, ahead, out, 3)
        want = [block[0, k] for k in range(count) if all(bits[block[1:, k]])]
        assert out[3:end].tolist() == want
        assert out[:3].tolist() == [-1] * 3
