"""How long sessions have not acknowledged, as merger and metrics tell it."""

from __future__ import annotations

import random
from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from ps2stream.merger.ages import MOST, LogAges
from ps2stream.observability.metrics import samples
from tests.support.merging import Rig, attach, credit, inserts, release, rig


@given(st.integers(1, 4000), st.integers(0, 2**32), st.sampled_from([0.0, 0.01, 0.5]))
def test_an_age_is_nearly_that_of_what_stands_there(seconds: int, seed: int, gone: float) -> None:
    rng = random.Random(seed)
    ages, written, end = LogAges(), deque[tuple[int, int]](), 0
    for now in range(0, 1000 * seconds, 1000):
        oldest, then = written[0] if written else (None, now)
        age = ages.of(oldest, end, now)
        assert 0.98 * (now - then) - 1000 <= age <= now - then
        assert len(ages._marks) <= MOST
        if rng.random() < 0.5:
            written.append((end, now))
            end += rng.randint(1, 99)
        while written and rng.random() < gone:
            written.popleft()


def lag(r: Rig) -> float:
    found = {s.metric.name: s.value for s in samples("merger", 0, r.machine.counters)}
    seconds = found["ps2stream_session_lag_seconds"]
    assert isinstance(seconds, float)
    return seconds


def test_the_lag_in_seconds_grows_until_the_oldest_is_acknowledged() -> None:
    r = rig()
    r.send(inserts(1, [1]), attach(1))
    r.tick(20)
    assert lag(r) == 0
    r.send(release(0, 4, 1, [(0, 1, 1)]))
    r.tick(50)
    first = lag(r)
    assert 3.5 <= first <= 5.5
    r.send(release(4, 4, 1, [(0, 1, 1)]))
    r.tick(50)
    assert lag(r) == first + 5
    r.send(credit(1, 1, 1, 0, 1))
    r.tick(10)
    assert 4.5 <= lag(r) <= 6.5
    r.restart()
    r.tick(30)
    assert 0 < lag(r) <= 10
    r.send(inserts(1, [1]), attach(1, epoch=2))
    r.send(credit(1, 2, 2, 0, 2))
    r.tick(10)
    assert lag(r) == 0
