"""Samples for those who watch: how many objects and matches, and how much of a text."""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.frame import column_to_strings, strings_to_column
from ps2stream.protocol.messages.watch import (
    SEEN_PER_S,
    WatchAllowance,
    beginnings,
)


def test_an_allowance_is_a_second_at_most_and_spreads_what_it_takes() -> None:
    allowance = WatchAllowance()
    assert allowance.of(3).tolist() == [0, 1, 2]
    assert allowance.of(470).tolist() == [i * 10 for i in range(47)]
    assert len(allowance.of(5)) == 0
    allowance.tick()
    assert allowance.of(10).tolist() == [0, 2, 4, 6, 8]
    for _ in range(100):
        allowance.tick()
    assert len(allowance.of(1000)) == SEEN_PER_S
    assert allowance.of(0).tolist() == []


def test_only_the_beginnings_of_texts_are_told() -> None:
    off, text = strings_to_column(["a" * 3000, "", "bc"])
    at, some = beginnings(off, text, np.array([2, 0, 1, 0]))
    assert [len(t) for t in column_to_strings(at, some)] == [2, 1024, 0, 1024]
