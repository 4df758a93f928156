"""The events of a machine on the service's loop: handled there, in order, none lost."""

from __future__ import annotations

import threading

import pytest

from ps2stream.cluster.loop_events import MOST, LoopEvents
from ps2stream.service.service_loop import ServiceLoop


@pytest.fixture(scope="module")
def loop() -> ServiceLoop:
    return ServiceLoop()


async def put_here(events: LoopEvents[int], *numbers: int) -> None:
    events.put(*numbers)


def test_what_the_loop_puts_is_handled_at_once(loop: ServiceLoop) -> None:
    found: list[tuple[list[int], bool]] = []

    def handle(taken: list[int]) -> bool:
        found.append((taken, loop.is_here))
        return False

    events: LoopEvents[int] = LoopEvents(handle, loop)

    async def put_and_look() -> int:
        events.put(1, 2)
        return len(found)

    assert loop.run(put_and_look()) == 1
    assert found == [([1, 2], True)]


def test_what_another_thread_puts_is_handled_on_the_loop(loop: ServiceLoop) -> None:
    handled, found = threading.Event(), list[tuple[list[int], bool]]()

    def handle(taken: list[int]) -> bool:
        found.append((taken, loop.is_here))
        handled.set()
        return False

    LoopEvents(handle, loop).put(1)
    assert handled.wait(60)
    assert found == [([1], True)]


def test_what_the_handler_itself_puts_is_handled_afterwards(loop: ServiceLoop) -> None:
    found: list[list[int]] = []

    def handle(taken: list[int]) -> bool:
        if taken == [1]:
            events.put(2)
            assert found == []
        found.append(taken)
        return False

    events: LoopEvents[int] = LoopEvents(handle, loop)
    loop.run(put_here(events, 1))
    events.finish()
    assert found == [[1], [2]]


def test_the_loop_moves_messages_between_two_groups(loop: ServiceLoop) -> None:
    found: list[str] = []

    def handle(taken: list[int]) -> bool:
        found.append(f"{len(taken)} events")
        return len(found) < 4

    events: LoopEvents[int] = LoopEvents(handle, loop)
    over = threading.Event()

    async def put_many() -> None:
        loop.post(found.append, "a message")
        events.put(*range(MOST + 1))
        loop.post(lambda: loop.post(lambda: loop.post(over.set)))

    loop.run(put_many())
    assert over.wait(60)
    assert found == [f"{MOST} events", "a message", "1 events", "0 events"]


def test_finish_waits_until_all_is_handled(loop: ServiceLoop) -> None:
    found: list[int] = []

    def handle(taken: list[int]) -> bool:
        found.extend(taken)
        return False

    LoopEvents(handle, loop).finish(*range(3 * MOST))
    assert found == [*range(3 * MOST)]


def test_finish_waits_for_what_is_to_do_without_events(loop: ServiceLoop) -> None:
    found: list[list[int]] = []

    def handle(taken: list[int]) -> bool:
        found.append(taken)
        return len(found) < 3

    LoopEvents(handle, loop).finish(1)
    assert found == [[1], [], []]


def test_no_event_of_many_threads_is_lost_or_handled_twice(loop: ServiceLoop) -> None:
    found: list[int] = []

    def handle(taken: list[int]) -> bool:
        found.extend(taken)
        return len(found) % 7 == 0

    events: LoopEvents[int] = LoopEvents(handle, loop)

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
    events.finish()
    assert sorted(found) == [*range(4000)]
