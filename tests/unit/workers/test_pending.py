"""Batches that wait for updates, and suspects, which are looked at one by one."""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.messages.objects import RoutedObjects
from ps2stream.workers.pending import WaitingObjects


def objects(
    needs: int, batch: int, attempt: int = 1, dispatcher: int = 0, suspect: int = 0
) -> RoutedObjects:
    none = np.zeros(0)
    return RoutedObjects(
        dispatcher=dispatcher,
        batch=batch,
        attempt=attempt,
        route=0,
        lsn=needs + 7,  # which nothing that concerns the worker has
        needs=needs,
        watermark=0,
        suspect=suspect,
        row=np.zeros(0, np.uint32),
        lon=none,
        lat=none,
        term_off=np.zeros(1, np.int64),
        term=np.zeros(0, np.uint64),
        chosen=np.zeros(0, np.uint8),
    )


def taken(waiting: WaitingObjects, applied: int) -> list[tuple[int, int]]:
    return [(found.batch, found.attempt) for found in waiting.take_due(applied)]


def test_batches_wait_for_what_they_need_and_keep_their_order() -> None:
    waiting = WaitingObjects()
    for needs, batch in ((5, 1), (3, 9), (5, 0), (8, 2)):
        waiting.add(objects(needs, batch))
    assert taken(waiting, 2) == []
    assert taken(waiting, 5) == [(9, 1), (1, 1), (0, 1)]
    assert len(waiting) == 1
    assert taken(waiting, 9) == [(2, 1)]
    assert len(waiting) == 0


def test_of_a_batch_that_came_again_only_the_newest_is_kept() -> None:
    waiting = WaitingObjects()
    waiting.add(objects(5, 1, attempt=1))
    waiting.add(objects(5, 1, attempt=2))
    waiting.add(objects(5, 1, attempt=7, dispatcher=1))
    assert len(waiting) == 2
    assert taken(waiting, 5) == [(1, 2), (1, 7)]


def test_a_batch_that_comes_again_later_waits_anew() -> None:
    waiting = WaitingObjects()
    waiting.add(objects(5, 1, attempt=1))
    assert taken(waiting, 5) == [(1, 1)]
    waiting.add(objects(5, 1, attempt=2))
    assert taken(waiting, 5) == [(1, 2)]


def test_nothing_is_set_aside_while_no_suspect_is_announced() -> None:
    waiting = WaitingObjects()
    assert not waiting.set_aside(objects(5, 1))
    assert waiting.announce_suspect(99) is None
    assert waiting.take_announced() is None
    assert len(waiting) == 0


def test_a_suspect_waits_for_its_updates_before_it_is_announced() -> None:
    waiting = WaitingObjects()
    assert waiting.set_aside(objects(5, 1, suspect=1))
    assert waiting.announce_suspect(5) is None
    found = waiting.announce_suspect(6)
    assert found is not None
    assert found.batch == 1
    assert len(waiting) == 1
    assert waiting.take_announced() is found
    assert waiting.take_announced() is None
    assert len(waiting) == 0


def test_what_comes_behind_an_announced_suspect_is_kept_in_order() -> None:
    waiting = WaitingObjects()
    waiting.set_aside(objects(5, 1, suspect=1))
    waiting.announce_suspect(9)
    for batch in (8, 2):
        assert waiting.set_aside(objects(5, batch))
    assert waiting.set_aside(objects(5, 3, suspect=1))
    assert len(waiting) == 4
    waiting.take_announced()
    assert [found.batch for found in waiting.take_deferred()] == [8, 2]
    assert waiting.take_deferred() == []
    assert not waiting.set_aside(objects(5, 4)), "none is announced any more"
    assert len(waiting) == 1


def test_of_a_suspect_that_came_again_only_the_last_is_announced() -> None:
    waiting = WaitingObjects()
    for attempt in (1, 2):
        waiting.set_aside(objects(5, 1, attempt=attempt, suspect=1))
    found = waiting.announce_suspect(9)
    assert found is not None
    assert found.attempt == 2
    assert waiting.announce_suspect(9) is None
