"""What a dispatcher knows of the queues of workers."""

from __future__ import annotations

import numpy as np

from ps2stream.dispatcher.waits import FIRST_US, FULL_ROWS, WorkerWaits


def test_what_is_not_answered_waits() -> None:
    waits = WorkerWaits(3)
    waits.note_sent(0, 100)
    waits.note_sent(2, 10)
    assert waits.waits.tolist() == [100 * FIRST_US, 0, 10 * FIRST_US]
    waits.note_done(0, 60)  # dropped, not answered
    assert waits.waits.tolist() == [40 * FIRST_US, 0, 10 * FIRST_US]
    waits.note_done(0, 60)  # an answer to what an earlier incarnation sent
    assert waits.waits[0] == 0


def test_answers_say_how_long_an_object_takes() -> None:
    waits = WorkerWaits(2)
    for _ in range(200):
        waits.note_sent(0, FULL_ROWS)
        waits.note_done(0, FULL_ROWS, 7 * FULL_ROWS)
    assert abs(waits.times[0] - 7) < 0.01
    assert waits.times[1] == FIRST_US
    waits.note_done(0, 1, 5_000)  # a single object hardly counts
    assert waits.times[0] < 8
    waits.note_done(0, 0, 100)  # nothing was sent
    waits.note_done(0, 8, 0)
    assert waits.times[0] > 0


def test_workers_come_and_go() -> None:
    waits = WorkerWaits(2)
    waits.note_sent(1, 8)
    waits.resize(4)
    assert waits.waits.tolist() == [0, 8 * FIRST_US, 0, 0]
    waits.note_sent(3, 5)
    waits.resize(1)
    waits.note_done(3, 5, 10)  # of a worker that has left
    waits.note_sent(3, 5)
    assert np.array_equal(waits.waits, [0.0])
    before = waits.times
    waits.resize(1)
    assert waits.times is before
