"""The streams of the experiments, and how they wander."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.benchmarks.workload import PostColumns, make
from ps2stream.experiments.worlds import SYNTHETIC, westward
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.protocol.frame import column_to_strings


def test_the_hot_spot_wanders_west() -> None:
    load = make(SYNTHETIC, "q1", 100, 10, 4_000, 1, Analyzer(Analysis(salt=1)))
    moved = westward(load)
    lon, middle = moved.posts.lon, np.median(load.posts.lon)
    assert (lon[:1000] > middle).mean() == pytest.approx(0.75, abs=0.06)
    assert (lon[-1000:] > middle).mean() == pytest.approx(0.25, abs=0.06)

    def rows(posts: PostColumns) -> list[tuple[float, float, str]]:
        texts = column_to_strings(posts.text_off, posts.text)
        return sorted(zip(posts.lon.tolist(), posts.lat.tolist(), texts, strict=True))

    assert rows(moved.posts) == rows(load.posts)
