"""The event loop on which gRPC moves messages, one for all servers of a process.

The loop never waits and never computes for long: what may do either runs on a thread of a lane.
What other threads have for the loop is gathered, and wakes it once.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger("ps2stream.service")


class ThreadTask(Generic[T]):
    """What a thread runs for the loop; `returned` is the future of the coroutine that waits."""

    def __init__(self, returned: asyncio.Future[T]) -> None:
        self.returned: asyncio.Future[T] | None = returned

    def end(self, value: Any, error: BaseException | None) -> None:
        """Lets the coroutine have what the thread returned or raised; on the loop."""
        # The frames of an error hold this task, which must not hold the error.
        returned, self.returned = self.returned, None
        assert returned is not None
        if error is None:
            _set_value(returned, value)
        else:
            _set_error(returned, error)


class ServiceLoop:
    """An event loop on a thread of its own, for as long as the process lives."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._posted: deque[Callable[[], object]] = deque()
        self._is_awake = False  # it will look at what is posted
        self._thread = threading.Thread(
            target=self._loop.run_forever, daemon=True, name="ps2stream-service-loop"
        )
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether the caller runs on the loop."""
        return threading.get_ident() == self._thread.ident

    def post(self, do: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Has the loop call `do` soon; for any thread. What is posted before the loop wakes takes
        one wake-up."""
        self._posted.append(functools.partial(do, *args, **kwargs))
        if not self._is_awake:
            self._is_awake = True
            if self.is_here:
                self._loop.call_soon(self._run_posted)
            else:
                self._loop.call_soon_threadsafe(self._run_posted)

    def call_later(self, seconds: float, do: Callable[[], object]) -> asyncio.TimerHandle:
        """Calls `do` in so many seconds, unless what is returned is cancelled; on the loop."""
        return self._loop.call_later(seconds, do)

    def watch(self, descriptor: int, do: Callable[[], object]) -> None:
        """Calls `do` whenever the descriptor can be read, until `unwatch`; on the loop."""
        self._loop.add_reader(descriptor, do)

    def unwatch(self, descriptor: int) -> None:
        """Ends what `watch` began; on the loop."""
        self._loop.remove_reader(descriptor)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Returns what the coroutine returns, or raises what it raises; for other threads."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def follow(self, future: Future[T]) -> asyncio.Future[T]:
        """Returns a future of the loop with the outcome that `future` has or will have."""
        followed: asyncio.Future[T] = self._loop.create_future()
        if future.done():
            _copy_outcome(future, followed)
        else:
            future.add_done_callback(lambda done: self._copy_soon(done, followed))
        return followed

    def _copy_soon(self, done: Future[T], followed: asyncio.Future[T]) -> None:
        if self.is_here:
            _copy_outcome(done, followed)
        else:
            self.post(_copy_outcome, done, followed)

    async def run_on(
        self, threads: Executor, do: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Returns what `do` returns on one of the threads. If this is cancelled, it ends only once
        `do` has returned, so that who counts calls counts threads and what they hold too."""
        returned: asyncio.Future[T] = self._loop.create_future()
        task = ThreadTask(returned)
        threads.submit(self._run_and_post, task, functools.partial(do, *args, **kwargs))
        try:
            return await returned
        except asyncio.CancelledError:
            if returned.cancelled() and task.returned is not None:  # `do` has not returned
                task.returned = self._loop.create_future()
                await asyncio.wait((task.returned,))
            raise
        finally:
            del returned  # it holds an error, whose frames hold it

    def _run_and_post(self, task: ThreadTask[T], do: Callable[[], T]) -> None:
        try:
            value = do()
        except BaseException as error:  # noqa: BLE001
            self.post(task.end, None, error)
        else:
            self.post(task.end, value, None)

    def _run_posted(self) -> None:
        self._is_awake = False  # what is posted from now on wakes the loop again
        while self._posted:
            do = self._posted.popleft()
            try:
                do()
            except Exception:
                log.exception("what was posted to the service's loop failed")
            del do  # it may hold a message


@functools.cache
def service_loop() -> ServiceLoop:
    """Returns the loop of this process."""
    return ServiceLoop()


def _copy_outcome(done: Future[T], followed: asyncio.Future[T]) -> None:
    if (error := done.exception()) is not None:
        _set_error(followed, error)
    else:
        _set_value(followed, done.result())


def _set_value(future: asyncio.Future[T], value: T) -> None:
    if not future.done():  # nobody waits once the call has ended
        future.set_result(value)


def _set_error(future: asyncio.Future[T], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # it counts as seen, for the call may end before it looks
