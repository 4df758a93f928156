"""Which messages are taken for quick ones."""

from __future__ import annotations

import time

from ps2stream.service.quick import QUICK_S, QuickReading, QuickTime


def test_a_message_is_quick_up_to_a_size() -> None:
    reading = QuickReading(1000)
    assert reading.expects(1000)
    assert not reading.expects(1001)


def test_after_a_slow_message_only_small_ones_are_quick_until_quick_ones_have_come() -> None:
    reading = QuickReading(100_000)
    reading.note(100_000, 100 * QUICK_S)
    assert not reading.expects(1001)
    assert reading.expects(999)
    for _ in range(40):
        assert not reading.expects(100_000)
        reading.note(100_000, QUICK_S / 100)
    for _ in range(10):
        reading.note(100_000, QUICK_S / 100)
    assert reading.expects(100_000)


def test_a_message_of_a_few_bytes_says_little_of_larger_ones() -> None:
    reading = QuickReading(100_000)
    reading.note(50, QUICK_S / 8)  # nearly all of it is there for any message
    assert reading.expects(100_000)


def test_a_time_is_left_until_it_is_over_and_always_without_a_limit() -> None:
    limited, free = QuickTime(is_limited=True), QuickTime(is_limited=False)
    assert limited.is_left()
    until = time.thread_time() + 2 * QUICK_S
    while time.thread_time() < until:
        pass
    assert not limited.is_left()
    assert free.is_left()
    assert free.taken_s >= 2 * QUICK_S
