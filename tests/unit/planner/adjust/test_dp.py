"""DP against every set of units, and where its table would be too large."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.experiments.selections import SelectionCase
from ps2stream.planner.adjust import dp as module
from ps2stream.planner.adjust.dp import dp
from ps2stream.planner.adjust.gr import gr
from tests.support.selections import least_size, size_of, small_cases


def test_it_is_the_optimum() -> None:
    cases = [*small_cases(120)]
    assert [size_of(dp, case) for case in cases] == [least_size(case) for case in cases]
    assert [size_of(dp, case) for case in cases] != [size_of(gr, case) for case in cases]


def test_sizes_with_a_common_divisor_are_no_harder() -> None:
    """A million bytes a unit: their divisor is the quantum."""
    case = SelectionCase(np.array([9.0, 9, 10]), np.array([9, 9, 11]) * 1_000_000, 10.0)
    assert size_of(dp, case) == 11_000_000


@pytest.mark.parametrize("table", [1, 200, 2_000])
def test_a_coarser_quantum_costs_at_most_one_for_each_unit(
    table: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [case for case in small_cases(120) if case.size.max() > 1000]
    best = [least_size(case) for case in cases]
    monkeypatch.setattr(module, "TABLE", table)
    for case, least in zip(cases, best, strict=True):
        greedy, found = size_of(gr, case), size_of(dp, case)
        assert least <= found <= greedy
        quantum = np.ceil(greedy * len(case.load) / table)
        assert found <= least + quantum * len(case.load)
        if table == 1:
            assert found == greedy
