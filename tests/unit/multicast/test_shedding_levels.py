"""Levels of shedding, the derived segments, and the steps of a level."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ps2stream.errors import InvalidArgument
from ps2stream.multicast.shedding_levels import (
    BufferSegments,
    SheddingLevel,
    divide_buffer,
    targets_at,
)

TEN = BufferSegments(10.0, 20.0)


def steps(machine: SheddingLevel, *waiting: float) -> list[int]:
    return [machine.step(each) for each in waiting]


def test_levels_go_from_no_cap_to_one_worker() -> None:
    assert targets_at(0) == float("inf")
    assert targets_at(1) == 7.0
    assert targets_at(8) == pytest.approx(1.0)
    falls = [a - b for a, b in itertools.pairwise(targets_at(n) for n in range(1, 9))]
    assert falls == pytest.approx([6 / 7] * 7)
    for level in (-1, 9):
        with pytest.raises(InvalidArgument, match="level: expected 0 to 8"):
            targets_at(level)


def test_overload_raises_the_level_once_a_step_up_to_the_highest() -> None:
    machine = SheddingLevel(TEN)
    assert steps(machine, *range(21, 33)) == [1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 8, 8]
    assert machine.targets == pytest.approx(1.0)


def test_ideal_lowers_it_and_stable_leaves_it() -> None:
    machine = SheddingLevel(TEN, 5)
    assert steps(machine, 15, 19, 11) == [5, 5, 5]
    assert steps(machine, 10, 9, 8, 8, 7, 0, 0) == [4, 3, 2, 1, 0, 0, 0]


def test_in_the_same_segment_it_waits_while_the_buffer_moves_the_right_way() -> None:
    machine = SheddingLevel(TEN)
    assert steps(machine, 30, 29, 29, 28, 40) == [1, 1, 2, 2, 3]
    assert steps(machine, 5, 6, 7, 7, 8) == [2, 2, 2, 1, 1]


def test_a_segment_that_is_entered_again_moves_it_at_once() -> None:
    machine = SheddingLevel(TEN)
    assert steps(machine, 30, 15, 25) == [1, 1, 2]
    assert steps(machine, 15, 5, 15, 8) == [2, 1, 1, 0]


@pytest.mark.parametrize("seed", range(5))
def test_one_level_less_never_takes_an_ideal_queue_into_overload(seed: int) -> None:
    """Little's law, as the paper uses it: queue lengths are in proportion to L."""
    rng = np.random.default_rng(seed)
    loads = np.sort(rng.uniform(1.0, 5.0, 9))[::-1].tolist()
    segments = divide_buffer(1000.0, loads)
    for before, after in itertools.pairwise(loads):
        longer = segments.ideal_end * before / after
        assert segments.find(segments.ideal_end) == "ideal"
        assert longer <= segments.stable_end * (1 + 1e-12)
        shorter = segments.stable_end * (1 + 1e-9) * after / before
        assert shorter >= segments.ideal_end
    tight = max(segments.ideal_end * a / b for a, b in itertools.pairwise(loads))
    assert tight == pytest.approx(segments.stable_end)


def test_loads_must_be_positive() -> None:
    for loads in ([1.0], [1.0, 0.0]):
        with pytest.raises(InvalidArgument, match="loads: expected at least two positive loads"):
            divide_buffer(10.0, loads)
