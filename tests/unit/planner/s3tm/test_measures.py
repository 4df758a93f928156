"""Spread, imbalance and throughput against sums over publications."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.multicast.word_mapping import WordMapping, leave_whole
from ps2stream.planner.s3tm.measures import measure_multicast
from tests.support.word_publications import list_sets, random_posts


@pytest.mark.parametrize("seed", range(4))
def test_measures_are_those_of_the_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    posts = random_posts(rng)
    mapping = WordMapping(5, rng.integers(0, 5, 12), leave_whole(12))
    routed = [{int(mapping.owner[w]) for w in words} for words in list_sets(posts)]
    loads = [sum(i in to for to in routed) for i in range(5)]
    found = measure_multicast(mapping.find_targets(posts.off, posts.word), 5)
    assert found.spread == pytest.approx(sum(map(len, routed)) / len(routed))
    assert found.imbalance == pytest.approx(max(loads) * 5 / sum(loads))
    assert found.throughput == pytest.approx(len(routed) / max(loads))
    assert found.estimate == pytest.approx(found.throughput / 5)


def test_another_load_than_copies_decides_imbalance_and_throughput() -> None:
    bits = np.array([[1], [2], [3]], np.uint64)
    found = measure_multicast(bits, 2, np.array([6.0, 2.0]))
    assert found.spread == pytest.approx(4 / 3)
    assert found.imbalance == 1.5
    assert found.throughput == 0.5
    assert found.estimate == pytest.approx(0.5)
