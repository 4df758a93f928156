"""The queue of events: one thread at a time handles, and nobody waits for it."""

from __future__ import annotations

import threading

import pytest

from ps2stream.cluster.event_queue import MOST, EventQueue


def test_an_event_is_handled_by_the_thread_that_brings_it() -> None:
    found: list[tuple[list[int], str]] = []

    def handle(events: list[int]) -> bool:
        found.append((events, threading.current_thread().name))
        return False

    EventQueue(handle).put(1, 2)
    assert found == [([1, 2], threading.current_thread().name)]


def test_what_comes_meanwhile_is_left_to_the_one_at_work_and_handled_together() -> None:
    entered, go_on = threading.Event(), threading.Event()
    found: list[list[int]] = []

    def handle(events: list[int]) -> bool:
        found.append(events)
        entered.set()
        assert go_on.wait(60)
        return False

    events: EventQueue[int] = EventQueue(handle)
    worker = threading.Thread(target=events.put, args=(1,))
    worker.start()
    assert entered.wait(60)
    for number in (2, 3):
        events.put(number)  # returns at once
    go_on.set()
    worker.join(60)
    assert found == [[1], [2, 3]]


def test_what_the_handler_itself_puts_is_handled_afterwards() -> None:
    found: list[list[int]] = []

    def handle(taken: list[int]) -> bool:
        if taken == [1]:
            events.put(2)
            assert found == []
        found.append(taken)
        return False

    events: EventQueue[int] = EventQueue(handle)
    events.put(1)
    assert found == [[1], [2]]


def test_it_goes_on_without_events_while_there_is_more_to_do() -> None:
    found: list[list[int]] = []

    def handle(taken: list[int]) -> bool:
        found.append(taken)
        return len(found) < 3

    EventQueue(handle).put(1)
    assert found == [[1], [], []]


def test_not_too_many_are_taken_together() -> None:
    sizes: list[int] = []

    def handle(taken: list[int]) -> bool:
        sizes.append(len(taken))
        return False

    EventQueue(handle).put(*range(MOST + 1))
    assert sizes == [MOST, 1]


def test_a_handler_that_fails_is_called_for_the_next_event() -> None:
    found: list[list[int]] = []

    def handle(taken: list[int]) -> bool:
        found.append(taken)
        if taken == [1]:
            raise ValueError("one")
        return False

    events: EventQueue[int] = EventQueue(handle)
    with pytest.raises(ValueError, match="one"):
        events.put(1)
    events.put(2)
    assert found == [[1], [2]]


def test_the_end_waits_for_the_thread_at_work_and_is_the_last_to_be_handled() -> None:
    found: list[int] = []
    begun, is_waited_for = threading.Event(), threading.Event()

    def handle(taken: list[int]) -> bool:
        if taken == [1]:
            begun.set()
            is_waited_for.wait(10)  # in vain unless `end` waits
        found.extend(taken)
        return False

    class Lock:
        """That of the queue, which tells when somebody waits for it."""

        def __init__(self) -> None:
            self._lock = threading.Lock()
            self.release = self._lock.release

        def acquire(self, blocking: bool = True) -> bool:
            if blocking:
                is_waited_for.set()
            return self._lock.acquire(blocking)

    events: EventQueue[int] = EventQueue(handle)
    events._at_work = Lock()  # type: ignore[assignment]
    worker = threading.Thread(target=events.put, args=(1,))
    worker.start()
    assert begun.wait(60)
    events.end(2)
    assert found == [1, 2]
    worker.join(60)
    events.put(3)
    assert found == [1, 2]


def test_no_event_of_many_threads_is_lost_or_handled_twice() -> None:
    found: list[int] = []
    at_work = threading.Lock()

    def handle(taken: list[int]) -> bool:
        assert at_work.acquire(blocking=False)
        found.extend(taken)
        at_work.release()
        return False

    events: EventQueue[int] = EventQueue(handle)

    def put_each(numbers: range) -> None:
        for number in numbers:
            events.put(number)

    threads = [
        threading.Thread(target=put_each, args=(range(i * 500, i * 500 + 500),)) for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == [*range(4000)]


def test_what_comes_after_the_end_is_refused() -> None:
    refused: list[int] = []
    events: EventQueue[int] = EventQueue(lambda _: False, refused.append)
    events.end(1)
    events.put(2, 3)
    events.put(4)
    assert refused == [2, 3, 4]


def test_an_end_that_fails_is_an_end() -> None:
    def handle(_: list[int]) -> bool:
        raise ValueError("one")

    refused: list[int] = []
    events: EventQueue[int] = EventQueue(handle, refused.append)
    with pytest.raises(ValueError, match="one"):
        events.end(1)
    events.put(2)
    assert refused == [2]


@pytest.mark.parametrize("_", range(20))
def test_each_event_of_many_threads_is_handled_or_refused(_: int) -> None:
    """Also one that comes exactly as the queue ends."""
    handled: list[int] = []
    refused: list[int] = []

    def handle(taken: list[int]) -> bool:
        handled.extend(taken)
        return False

    events: EventQueue[int] = EventQueue(handle, refused.append)
    begun = threading.Barrier(5)

    def put_each(numbers: range) -> None:
        begun.wait(60)
        for number in numbers:
            events.put(number)

    threads = [
        threading.Thread(target=put_each, args=(range(i * 100, i * 100 + 100),)) for i in range(4)
    ]
    for thread in threads:
        thread.start()
    begun.wait(60)
    events.end()
    for thread in threads:
        thread.join(60)
    assert sorted(handled + refused) == [*range(400)]
