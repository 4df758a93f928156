"""The regions of Q3."""

from __future__ import annotations

import numpy as np

from ps2stream.benchmarks.query_regions import REGIONS, choose_regions, find_region


def test_regions_are_rectangles_with_as_many_posts_each() -> None:
    rng = np.random.default_rng(1)
    lon, lat = rng.lognormal(0, 1, 5_000), rng.normal(0, 9, 5_000)
    region = find_region(lon, lat)
    count = np.bincount(region, minlength=REGIONS)
    assert len(count) == REGIONS
    assert 45 <= count.min() <= count.max() <= 55
    for k in range(10):  # columns lie beside each other, and in each the rows
        mine = region // 10 == k
        assert (lon[mine].min() >= lon[region // 10 < k]).all()
        for row in range(1, 10):
            low, high = lat[region == 10 * k + row - 1], lat[region == 10 * k + row]
            assert low.max() <= high.min()


def test_a_place_with_many_posts_is_in_one_region() -> None:
    lon = np.array([1.0] * 60 + [2.0] * 30 + [3.0] * 10)
    region = find_region(lon, lon)
    assert [len({*region[lon == x].tolist()}) for x in (1.0, 2.0, 3.0)] == [1, 1, 1]
    assert len({*region.tolist()}) == 3


def test_regions_are_chosen_until_their_share_is_reached() -> None:
    rng = np.random.default_rng(3)
    weight = rng.random(REGIONS)
    weight[:40] = 0.0
    weight /= weight.sum()
    seen = set()
    for _ in range(20):
        chosen = choose_regions(weight, 0.1, rng)
        assert abs(weight[chosen].sum() - 0.1) <= weight.max() / 2
        assert len({*chosen.tolist()}) == len(chosen)
        assert (weight[chosen] > 0).all()
        seen.add(tuple(sorted(chosen.tolist())))
    assert len(seen) > 15
    heavy = np.array([0.5, 0.5])
    assert len(choose_regions(heavy, 0.1, rng)) == 1
