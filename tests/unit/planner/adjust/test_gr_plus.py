"""GR+: what it promises over GR, on sets."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.experiments.selections import SelectionCase
from ps2stream.planner.adjust import gr_plus as module
from ps2stream.planner.adjust.gr import gr
from ps2stream.planner.adjust.gr_plus import gr_plus
from tests.support.selections import least_size, size_of, small_cases


def test_it_never_costs_more_than_gr_and_often_less() -> None:
    cases = [*small_cases(200)]
    both = [(least_size(c), size_of(gr_plus, c), size_of(gr, c)) for c in cases]
    assert all(best <= mine <= greedy for best, mine, greedy in both)
    assert sum(mine < greedy for _, mine, greedy in both) > 10
    assert sum(mine == best for best, mine, _ in both) > 0.9 * len(cases)


def test_a_large_unit_behind_many_small_ones_is_found() -> None:
    """GR fills up with 9 and completes with 9; the unit of 10 alone is smaller."""
    case = SelectionCase(np.array([9.0, 9, 10]), np.array([9, 9, 11]), 10.0)
    assert size_of(gr, case) == 18
    assert gr_plus(*case, 0).tolist() == [2]


def test_nothing_can_be_spared_or_exchanged_for_less() -> None:
    for case in (*small_cases(100), *small_cases(100, 40)):
        chosen = gr_plus(*case, 0).tolist()
        total = case.load[chosen].sum()
        for unit in chosen:
            if case.size[unit]:
                assert total - case.load[unit] < case.tau
            for other in set(range(len(case.load))) - set(chosen):
                if total - case.load[unit] + case.load[other] >= case.tau:
                    assert case.size[other] >= case.size[unit]


def test_with_too_many_units_only_the_cheapest_are_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [*small_cases(100, 40)]
    all_starts = [size_of(gr_plus, case) for case in cases]
    monkeypatch.setattr(module, "WORK", 1)
    one_start = [size_of(gr_plus, case) for case in cases]
    assert all(a <= b for a, b in zip(all_starts, one_start, strict=True))
    assert all_starts != one_start
