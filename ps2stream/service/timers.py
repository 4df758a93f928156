"""Tasks for later, on one thread for all of them."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger("ps2stream.service")


class TaskTimers:
    """A thread that runs each task when it is due. The tasks must not block."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], object]]] = []  # a heap
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._stopped = False
        threading.Thread(target=self._run_due, daemon=True, name="ps2stream-timers").start()

    def __len__(self) -> int:
        return len(self._due)

    def after(self, seconds: float, do: Callable[[], object]) -> None:
        """Runs `do` on the timers' thread after this many seconds."""
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._numbers), do))
            self._changed.notify()

    def stop(self) -> None:
        """Runs nothing more."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _run_due(self) -> None:
        while (do := self._await_due()) is not None:
            try:
                do()
            except Exception:
                log.exception("a delayed task failed")

    def _await_due(self) -> Callable[[], object] | None:
        """Waits for the next task that is due and returns it, or None once stopped."""
        with self._changed:
            while not self._stopped:
                if not self._due:
                    self._changed.wait()
                elif (left_s := self._due[0][0] - time.monotonic()) <= 0:
                    return heapq.heappop(self._due)[2]
                else:
                    self._changed.wait(left_s)
        return None
