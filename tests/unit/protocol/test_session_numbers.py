from __future__ import annotations

from ps2stream.protocol.session_numbers import LEAP, count_pairs


def test_pairs_are_counted_by_their_numbers() -> None:
    assert count_pairs(1, 1) == 1
    assert count_pairs(3, 12) == 10
    assert count_pairs(4, 3) == 0


def test_a_leap_among_the_numbers_counts_as_no_pairs() -> None:
    assert count_pairs(1, LEAP) == 0
    assert count_pairs(1, 10 + LEAP) == 10
    assert count_pairs(1, 10 + 3 * LEAP) == 10


def test_the_rest_of_a_leap_counts_as_no_pairs() -> None:
    assert count_pairs(1_000, LEAP) == 0
    assert count_pairs(LEAP // 4, LEAP) == 0
