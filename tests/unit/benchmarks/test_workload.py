"""The benchmark's workload."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ps2stream.benchmarks.workload import make
from ps2stream.errors import InvalidArgument
from ps2stream.experiments.worlds import SYNTHETIC
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.protocol.frame import column_to_strings


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


def test_synthetic_words_are_those_that_the_analyzer_finds() -> None:
    analyzer = Analyzer(Analysis(salt=1))
    load = make("synthetic", "q1", 5, 0, 300, 1, analyzer)
    texts = column_to_strings(load.posts.text_off, load.posts.text)
    found = Counter(word for text in texts for word in analyzer.tokens(text))
    assert [*load.counts.items()] == [*found.items()]


def test_the_yardstick_is_not_scaled() -> None:
    load = make("yardstick", "q1", 10, 0, 10, 1, Analyzer(Analysis(salt=1)))
    with pytest.raises(InvalidArgument, match="mo: the"):
        load.scaled(2.0)
    with pytest.raises(InvalidArgument, match="workload: the"):
        load.flipping(5)
