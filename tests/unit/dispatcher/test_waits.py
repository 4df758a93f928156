"""What a dispatcher knows of the queues of workers."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.dispatcher.waits import FIRST_US, LONGEST, MEMORY, WorkerWaits


def test_what_is_not_answered_waits() -> None:
    waits = WorkerWaits(3)
    waits.note_sent(0, 100)
    waits.note_sent(2, 10)
    assert waits.waits.tolist() == [100 * FIRST_US, 0, 10 * FIRST_US]
    waits.note_done(0, 60)  # dropped, not answered
    assert waits.waits.tolist() == [40 * FIRST_US, 0, 10 * FIRST_US]
    waits.note_done(0, 60)  # an answer to what an earlier incarnation sent
    assert waits.waits[0] == 0


def test_waiting_times_count_and_not_objects() -> None:
    """The worker that is twice as fast has less before it, though it has more objects (the test of
    algorithms.md 5.3: 50, 40, 100, 60)."""
    waits = WorkerWaits(4)
    took = [5, 2, 5, 6]
    for _ in range(20 * MEMORY):
        for worker, us in enumerate(took):
            waits.note_done(worker, 100, 100 * us)
    assert waits.times.tolist() == pytest.approx(took, rel=0.03)
    for worker, rows in enumerate([10, 20, 20, 10]):
        waits.note_sent(worker, rows)
    assert waits.waits.tolist() == pytest.approx([50, 40, 100, 60], rel=0.03)
    assert int(np.argmin(waits.waits)) == 1


def test_few_answers_are_no_measure() -> None:
    waits = WorkerWaits(2)
    for _ in range(100):
        waits.note_done(0, 100, 300)
    waits.note_done(1, 1, 24)  # eight times the mean
    assert waits.times.tolist() == pytest.approx([3.0, 3.0], rel=0.05)
    waits.note_done(1, 100, 1_000_000)  # the process waited for a processor
    assert waits.times[1] < 3.0 * LONGEST / 2


def test_answers_without_a_measure_do_no_harm() -> None:
    waits = WorkerWaits(2)
    waits.note_done(0, 8, 0)
    waits.note_done(0, 0, 100)
    assert (waits.times > 0).all()
    waits.note_sent(1, 3)
    assert np.isfinite(waits.waits).all()


def test_workers_come_and_go() -> None:
    waits = WorkerWaits(2)
    waits.note_sent(1, 8)
    waits.resize(4)
    assert waits.waits.tolist() == [0, 8 * FIRST_US, 0, 0]
    waits.note_sent(3, 5)
    waits.resize(1)
    waits.note_done(3, 5, 10)  # of a worker that has left
    waits.note_sent(3, 5)
    assert waits.waits.tolist() == [0.0]


def test_the_time_of_answers_is_told_once() -> None:
    waits = WorkerWaits(2)
    for worker, us in [(0, 30), (1, 5), (0, 70_000), (2, 8)]:  # the last is of one that has left
        waits.note_done(worker, 10, 100_000, us)
    waits.note_done(1, 10)  # dropped, not answered
    assert waits.take_busy().tolist() == [70_030, 5]
    assert waits.take_busy().tolist() == [0, 0]
    waits.note_done(0, 10, 9, 4)
    waits.resize(3)
    assert waits.take_busy().tolist() == [4, 0, 0]
