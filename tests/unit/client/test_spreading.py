"""Calls are spread over dispatchers, and go to those that answer."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import pytest

from ps2stream.client.failures import AWAY_S
from ps2stream.client.spreading import DispatcherChoice
from ps2stream.errors import NotFound, Unavailable


def test_two_choices_keep_the_calls_under_way_nearly_equal() -> None:
    """A random choice alone would differ by some 60."""
    random.seed(1)
    choice = DispatcherChoice(10)
    counts = Counter(choice.begin_call().number for _ in range(4000))
    assert max(counts.values()) - min(counts.values()) < 10


def test_a_call_that_has_ended_counts_no_longer() -> None:
    choice = DispatcherChoice(2)
    first = choice.begin_call()
    second = choice.begin_call()
    assert {first.number, second.number} == {0, 1}
    first.end()
    first.end()
    for _ in range(20):
        with choice.begin_call() as opened:
            assert opened.number == first.number


def test_calls_that_last_are_counted_apart() -> None:
    """Else the dispatcher of a subscription would get no publication of its client."""
    choice = DispatcherChoice(2)
    streams = {choice.begin_call(lasts=True).number for _ in range(2)}
    assert streams == {0, 1}
    choice.begin_call(lasts=True)
    seen = set()
    for _ in range(60):
        with choice.begin_call() as opened:
            seen.add(opened.number)
    assert seen == {0, 1}


def test_a_call_that_is_passed_on_outlives_its_block() -> None:
    choice = DispatcherChoice(2)
    with choice.begin_call() as opened:
        passed = opened.pass_on()
    assert choice.begin_call().number != passed.number
    passed.end()


def test_one_that_is_unavailable_is_passed_over_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    choice = DispatcherChoice(3)
    with pytest.raises(NotFound), choice.begin_call():
        raise NotFound("it has answered")
    assert {choice.begin_call().number for _ in range(60)} == {0, 1, 2}
    choice = DispatcherChoice(3)
    with pytest.raises(Unavailable), choice.begin_call() as gone:
        raise Unavailable("no connection")
    seen = Counter(choice.begin_call().number for _ in range(60))
    assert seen.keys() == {0, 1, 2} - {gone.number}
    now[0] += AWAY_S
    assert gone.number in {choice.begin_call().number for _ in range(60)}


def test_where_all_are_unavailable_each_is_tried_again() -> None:
    choice = DispatcherChoice(2)
    for number in (0, 1):
        while (call := choice.begin_call()).number != number:
            call.end()
        call.end(Unavailable("no connection"))
    assert {choice.begin_call().number for _ in range(40)} == {0, 1}


def test_threads_count_each_call_once() -> None:
    choice = DispatcherChoice(4)

    def call_often() -> None:
        for _ in range(2000):
            with choice.begin_call():
                pass

    threads = [threading.Thread(target=call_often) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = Counter(choice.begin_call().number for _ in range(2000))
    assert max(counts.values()) - min(counts.values()) < 10
