"""GR against its text: candidates of all units, without the early stop, on sets."""

from __future__ import annotations

import numpy as np

from ps2stream.experiments.selections import SelectionCase
from ps2stream.planner.adjust.gr import cheapest, gr
from tests.support.selections import least_size, size_of, small_cases


def as_printed(case: SelectionCase) -> int:
    """The least candidate: units that stay below tau, and one that reaches it with them."""
    taken, candidates = list[int](), list[int]()
    rest = sorted(
        range(len(case.load)), key=lambda u: (case.size[u] / case.load[u], -case.load[u], u)
    )
    for unit in rest:
        if case.load[[*taken, unit]].sum() < case.tau:
            taken.append(unit)
        else:
            candidates.append(int(case.size[[*taken, unit]].sum()))
    return min(candidates)


def test_it_is_as_printed() -> None:
    cases = [*small_cases(200, 12)]
    assert [size_of(gr, case) for case in cases] == [as_printed(case) for case in cases]


def test_the_worked_example() -> None:
    """By size over load: 0.5, 0.5, 1 and 1.2. The third one completes {6, 5}, and {6, 4} before
    it, which is smaller."""
    case = SelectionCase(np.array([4.0, 5, 6, 10]), np.array([2, 5, 3, 12]), 9.0)
    assert sorted(gr(*case, 0).tolist()) == [0, 2]
    assert size_of(gr, case) == 5


def test_it_costs_at_most_twice_the_optimum() -> None:
    ratios = [size_of(gr, case) / max(least_size(case), 1) for case in small_cases(200)]
    assert 1.0 < max(ratios) <= 2.0


def test_of_equal_prices_the_heavier_unit_comes_first() -> None:
    load, size = np.array([2.0, 4.0, 1.0, 4.0, 3.0]), np.array([2, 4, 9, 4, 1])
    assert cheapest(load, size).tolist() == [4, 1, 3, 0, 2]
    with np.errstate(all="raise"):
        assert cheapest(np.array([5e-324, 1.0]), np.array([1 << 60, 1])).tolist() == [1, 0]
