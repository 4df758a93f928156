"""Ranges of offsets against a set of integers."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.merger.intervals import OffsetIntervals


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6))), st.integers(0, 40))
def test_ranges_hold_what_a_set_of_integers_holds(
    ranges: list[tuple[int, int]], start: int
) -> None:
    found, twin = OffsetIntervals(), set[int]()
    for a, size in ranges:
        found.add(a, a + size)
        twin |= set(range(a, a + size))
    assert {i for a, b in found.items() for i in range(a, b)} == twin
    assert all(b < c for (_, b), (c, _) in itertools.pairwise(found.items()))
    for stop in range(start, start + 8):
        asked = set(range(start, stop))
        assert found.covers(start, stop) == ((asked or {start}) <= twin)
        assert {i for a, b in found.within(start, stop) for i in range(a, b)} == twin & asked
