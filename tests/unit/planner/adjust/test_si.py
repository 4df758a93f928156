"""SI: the largest units until tau is reached."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.planner.adjust.si import si, until
from tests.support.selections import small_cases


def test_the_largest_units_are_taken_until_tau_is_reached() -> None:
    for case in small_cases(100):
        wanted, moved = list[int](), 0.0
        for unit in sorted(range(len(case.load)), key=lambda u: (-case.size[u], case.load[u], u)):
            if moved < case.tau:
                wanted.append(unit)
                moved += case.load[unit]
        assert si(*case, 0).tolist() == wanted


@pytest.mark.parametrize(
    ("tau", "first"), [(0.5, [2]), (4.0, [2]), (4.1, [2, 0]), (7.0, [2, 0, 1]), (99.0, [2, 0, 1])]
)
def test_an_order_is_followed_until_tau(tau: float, first: list[int]) -> None:
    order, load = np.array([2, 0, 1]), np.array([2.0, 1.0, 4.0])
    assert until(order, load, tau).tolist() == first
