"""ComputeNumberPartitions against its worked example and against all ways to choose."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.planner.numbers import compute_number_partitions

costs = st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=5), min_size=1, max_size=4)


def test_the_worked_example() -> None:
    assert compute_number_partitions([[10, 6], [8, 9]], 3) == (14, (2, 1))


@given(costs, st.integers(0, 6))
def test_the_least_total_of_all_ways(C: list[list[int]], more: int) -> None:
    m = len(C) + more
    total, parts = compute_number_partitions(C, m)
    ways = list(itertools.product(*(range(1, len(row) + 1) for row in C)))
    most = max(sum(way) for way in ways if sum(way) <= m)
    prices = [
        sum(row[k - 1] for row, k in zip(C, way, strict=True)) for way in ways if sum(way) == most
    ]
    assert total == min(prices)
    assert sum(parts) == most
    assert total == sum(row[k - 1] for row, k in zip(C, parts, strict=True))


def test_more_nodes_than_parts_are_refused() -> None:
    with pytest.raises(ValueError, match="2 nodes cannot be cut into 1"):
        compute_number_partitions([[1], [1]], 1)
