"""What every algorithm is offered, and what becomes of its choice."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.planner.adjust.selection import by_size, select, without_spare
from ps2stream.protocol.frame import F64, I64
from tests.support.selections import small_cases


def everything(load: F64, size: I64, tau: float, seed: int) -> I64:
    """Chooses all units that it is offered."""
    return np.arange(len(load))


def test_units_above_two_tau_and_without_load_are_not_offered() -> None:
    load, size = np.array([9.0, 0.0, 3.0, 2.0]), np.array([1, 1, 1, 1])
    found = select(everything, load, size, 4.0)
    assert found is not None
    assert found.tolist() == [2, 3]


def test_there_may_be_no_set() -> None:
    size = np.array([1, 1])
    assert select(everything, np.array([9.0, 1.0]), size, 4.0) is None
    assert select(everything, np.array([2.0, 1.0]), size, 4.0) is None
    assert select(everything, np.zeros(0), np.zeros(0, np.int64), 4.0) is None


def test_a_set_above_two_tau_loses_its_largest_units() -> None:
    for case in small_cases(100):
        light = case.load <= 2 * case.tau
        found = select(everything, *case)
        if case.load[light].sum() < case.tau * (1 - 1e-9):
            assert found is None
            continue
        assert found is not None
        kept = set(np.flatnonzero(light).tolist())
        if case.load[light].sum() > 2 * case.tau:  # worked out anew, unit by unit
            for unit in sorted(kept, key=lambda u: (-case.size[u], case.load[u], u)):
                if sum(case.load[u] for u in kept - {unit}) >= case.tau * (1 - 1e-9):
                    kept.remove(unit)
        assert found.tolist() == sorted(kept)
        assert case.load[found].sum() <= 2 * case.tau * (1 + 1e-9)


def test_units_are_ordered_by_size_then_load_then_number() -> None:
    load, size = np.array([1.0, 5.0, 2.0, 2.0, 9.0]), np.array([7, 8, 7, 7, 8])
    assert by_size(np.array([4, 3, 2, 1, 0]), load, size).tolist() == [1, 4, 0, 2, 3]
    assert by_size(np.array([3, 0]), load, size).tolist() == [0, 3]


def test_what_can_be_spared_goes_largest_first() -> None:
    load, size = np.array([3.0, 3.0, 3.0, 1.0]), np.array([5, 9, 6, 7])
    kept = without_spare(load, size, np.array([0, 1, 2, 3]), 6.0)
    assert sorted(kept.tolist()) == [0, 2]
    assert sorted(without_spare(load, size, np.array([0, 1, 2, 3]), 9.5).tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("load", "size", "tau", "message"),
    [
        ([-1.0], [1], 1.0, "loads must be finite and not negative"),
        ([np.nan], [1], 1.0, "loads must be finite"),
        ([1.0], [1], 0.0, "tau finite and positive"),
        ([1.0], [1], np.inf, "tau finite and positive"),
        ([1.0], [-1], 1.0, "a size must not be negative, got -1 bytes"),
        ([1.0, 2.0], [1], 1.0, "load has 2 units, size has 1"),
    ],
)
def test_what_is_no_load_or_size_is_refused(
    load: list[float], size: list[int], tau: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        select(everything, np.array(load), np.array(size), tau)
