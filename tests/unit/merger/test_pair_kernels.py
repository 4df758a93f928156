"""The merger's kernels against their twins."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.merger import kernels

PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 60)), max_size=150)


@pytest.mark.takes_turns
@settings(deadline=None)
@given(PAIRS)
def test_equal_pairs_collapse_and_the_rest_is_sorted(pairs: list[tuple[int, int]]) -> None:
    row, handle = np.array(pairs, np.int64).reshape(-1, 2).T
    out = kernels.distinct_pairs(row.astype(np.uint32), handle, handle * 7, 7)
    want = sorted(set(pairs))
    assert list(zip(*(c.tolist() for c in out), strict=True)) == [(r, h, 7 * h) for r, h in want]


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), max_size=6), st.booleans())
def test_rows_rise_if_none_is_below_the_one_before(values: list[int], is_sorted: bool) -> None:
    rows = sorted(values) if is_sorted else values
    rising = kernels.is_rising(np.array(rows, np.uint32))
    assert rising == all(a <= b for a, b in itertools.pairwise(rows))


@settings(deadline=None)
@given(st.lists(st.integers(0, 9)))
def test_runs_number_equal_values(values: list[int]) -> None:
    column = np.array(sorted(values), np.uint32)
    value, index = kernels.runs(column)
    assert value.tolist() == sorted(set(values))
    assert value[index].tolist() == column.tolist()
