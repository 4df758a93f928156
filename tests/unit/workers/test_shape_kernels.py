"""The kernels that drop pairs, against definitions in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import shapely

from ps2stream.space.polygon_kernels import UNDECIDED
from ps2stream.space.polygons import encode
from ps2stream.workers.shape_kernels import drop_outside, judge_polygons


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


def test_polygons_are_judged_for_the_object_of_their_pair_and_doubts_are_counted() -> None:
    shapes = [shapely.box(0, 0, 4, 4), shapely.Polygon([(0, 0), (9, 0), (0, 9)])]
    parts = [encode(shape) for shape in shapes]
    geom = np.concatenate([np.zeros(3), *parts])
    start = np.array([3, 3 + len(parts[0])])[[0, 1, 1, 0, 1]]
    lon, lat = np.array([1.0, 5.0, 180.0]), np.array([1.0, 1.0, 0.0])
    row = np.array([2, 0, 1, 1, 2, 0, 1], np.uint32)
    at, verdict = np.array([1, 2, 0, 3, 6]), np.full(5, 9, np.uint8)
    assert judge_polygons(at, start, geom, row, lon, lat, verdict) == 1
    assert verdict.tolist() == [1, 1, UNDECIDED, 0, 1]
