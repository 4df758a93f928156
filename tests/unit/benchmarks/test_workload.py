"""The benchmark's workload."""

from __future__ import annotations

import numpy as np

from ps2stream.benchmarks.workload import make
from ps2stream.experiments.worlds import SYNTHETIC
from ps2stream.language.analyzer import Analysis, Analyzer


def test_regions_with_a_tenth_of_the_queries_flip() -> None:
    load = make(SYNTHETIC, "q3", 2_000, 2_000, 4_000, 1, Analyzer(Analysis(salt=1)))
    flipped = load.flipping(500, first=500)
    same = flipped.kind == load.kind
    assert same[: load.start + 1_000].all()
    for turn, first in enumerate(range(load.start + 1_000, load.start + 2_000, 500)):
        # Of 500 queries; the second turn may take back some of the first.
        most = 0.15 * (turn + 1)
        assert 0.05 < (~same[first : first + 500]).mean() < most
    before, after = load.interests, flipped.interests
    assert (before.word[same] == after.word[same]).all()
    assert (before.rect[same] == after.rect[same]).all()
    now = np.flatnonzero(~same & (flipped.kind == 2))
    common = len(load.words) // 100
    assert (after.word[now, 0] >= common).all()
    assert 50 < flipped.square[now, 2].max() <= 100
    assert flipped.square[~same & (flipped.kind == 1), 2].max() <= 50
