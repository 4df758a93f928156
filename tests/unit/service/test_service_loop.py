"""The service's loop: other threads wake it once for many answers, and it holds nothing of them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from ps2stream.service.service_loop import ServiceLoop


@pytest.fixture
def loop() -> ServiceLoop:
    return ServiceLoop()


def test_many_posts_wake_the_loop_once(loop: ServiceLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    inner: Any = loop._loop
    wake, wakes = inner.call_soon_threadsafe, []

    def note_wake(*args: Any) -> Any:
        wakes.append(args)
        return wake(*args)

    entered, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def hold_up() -> None:
        entered.set()
        assert go_on.wait(60)

    inner.call_soon_threadsafe(hold_up)
    assert entered.wait(60)
    monkeypatch.setattr(inner, "call_soon_threadsafe", note_wake)
    found: list[int] = []
    for i in range(100):
        loop.post(found.append, i)
    loop.post(done.set)
    go_on.set()
    assert done.wait(60)
    assert found == list(range(100))
    assert len(wakes) == 1


def test_nothing_that_is_posted_is_lost_whoever_posts_it(loop: ServiceLoop) -> None:
    found: list[int] = []

    def post_many() -> None:
        for i in range(5_000):
            loop.post(found.append, i)

    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(post_many)

    async def none() -> None:
        """Runs after what was posted."""

    loop.run(none())
    assert len(found) == 20_000


def test_what_fails_keeps_nothing_else_from_being_run(
    loop: ServiceLoop, caplog: pytest.LogCaptureFixture
) -> None:
    done = threading.Event()
    loop.post(lambda: 1 // 0)
    loop.post(done.set)
    assert done.wait(60)
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("is_early", [True, False])
def test_a_future_is_followed(loop: ServiceLoop, is_early: bool) -> None:
    async def follow(future: Future[int], settle: Callable[[], None]) -> int:
        followed = loop.follow(future)
        if not is_early:
            threading.Thread(target=settle).start()
        return await followed

    good: Future[int] = Future()
    bad: Future[int] = Future()
    if is_early:
        good.set_result(7)
        bad.set_exception(KeyError("bad"))
    assert loop.run(follow(good, lambda: good.set_result(7))) == 7
    with pytest.raises(KeyError, match="bad"):
        loop.run(follow(bad, lambda: bad.set_exception(KeyError("bad"))))


def test_an_answer_that_nobody_waits_for_is_dropped(
    loop: ServiceLoop, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Future[int]] = [Future(), Future()]

    async def give_up() -> None:
        for answer in answers:
            followed = loop.follow(answer)
            followed.cancel()

    async def look() -> None:
        await asyncio.sleep(0)

    loop.run(give_up())
    answers[0].set_result(1)
    answers[1].set_exception(KeyError("late"))
    loop.run(look())
    gc.collect()
    assert caplog.text == ""


def test_a_thread_returns_or_raises(loop: ServiceLoop) -> None:
    with ThreadPoolExecutor(1) as pool:
        assert loop.run(loop.run_on(pool, max, 3, 4)) == 4
        with pytest.raises(ValueError, match="invalid literal"):
            loop.run(loop.run_on(pool, int, "x"))


def test_who_is_cancelled_waits_for_the_thread(loop: ServiceLoop) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def work() -> None:
        entered.set()
        go_on.wait(60)

    async def cancel_amid_work(pool: ThreadPoolExecutor) -> None:
        running = asyncio.create_task(loop.run_on(pool, work))
        assert await asyncio.to_thread(entered.wait, 60)
        running.cancel()
        await asyncio.sleep(0.05)
        assert not running.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await running

    with ThreadPoolExecutor(1) as pool:
        loop.run(asyncio.wait_for(cancel_amid_work(pool), 60))


def test_who_is_cancelled_as_the_thread_returns_ends_at_once(loop: ServiceLoop) -> None:
    returned = threading.Event()

    async def cancel_after_work(pool: ThreadPoolExecutor) -> None:
        running = asyncio.create_task(loop.run_on(pool, returned.set))
        await asyncio.sleep(0)
        assert returned.wait(60)  # the loop cannot look meanwhile
        loop.post(running.cancel)  # right behind what the thread has posted
        with pytest.raises(asyncio.CancelledError):
            await running

    with ThreadPoolExecutor(1) as pool:
        loop.run(asyncio.wait_for(cancel_after_work(pool), 60))


class Message:
    """What a message is here: something that can be watched."""


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_thread_was_given_is_freed_at_once(loop: ServiceLoop, fails: bool) -> None:
    def work(message: Message) -> None:
        if fails:
            raise KeyError("bad")

    async def use_message(pool: ThreadPoolExecutor) -> weakref.ref[Message]:
        message = Message()
        watched = weakref.ref(message)
        working = loop.run_on(pool, work, message)
        del message
        with contextlib.suppress(KeyError):
            await working
        return watched

    gc.collect()
    gc.disable()
    try:
        with ThreadPoolExecutor(1) as pool:
            watched = loop.run(use_message(pool))
        assert watched() is None
    finally:
        gc.enable()


def test_a_call_that_is_cancelled_as_its_thread_returns_ends(loop: ServiceLoop) -> None:
    """The outcome is posted before the cancellation, and delivered between it and the coroutine."""

    class HeldThread:
        def submit(self, do: Callable[..., None], *args: Any) -> None:
            self.run = lambda: do(*args)

    async def cancel_late() -> bool:
        thread: Any = HeldThread()
        waiting = asyncio.create_task(loop.run_on(thread, lambda: 7))
        await asyncio.sleep(0)
        thread.run()
        waiting.cancel()
        done, _ = await asyncio.wait((waiting,), timeout=5)
        return bool(done) and waiting.cancelled()

    assert loop.run(cancel_late())
