"""A clock that charges the CPU time of a thread to steps, and counts function calls by step."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple


class StepCost(NamedTuple):
    """The cost of a step: CPU ns of the thread, and calls of Python functions if they were
    counted."""

    cpu_ns: int
    calls: int


class StepClock:
    """Charges what happens on one thread to the innermost step that is under way. A step within
    another one takes its time from that."""

    def __init__(self) -> None:
        self._under_way: list[str] = []
        self._since = 0
        self._spent: defaultdict[str, int] = defaultdict(int)  # a Counter would add calls
        self._calls: Counter[str] = Counter()

    def enter(self, step: str) -> None:
        """Begins a step."""
        self._charge_time()
        self._under_way.append(step)
        self._since = time.thread_time_ns()

    def leave(self) -> None:
        """Ends the innermost step."""
        self._charge_time()
        self._under_way.pop()
        self._since = time.thread_time_ns()

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Returns a context manager for a step."""
        self.enter(name)
        try:
            yield
        finally:
            self.leave()

    @contextlib.contextmanager
    def watch(self, owner: Any, name: str, step: str) -> Iterator[None]:
        """Returns a context in which each call of the method `name` of the class `owner` is a
        step. Raises AttributeError if there is no such method."""
        method, is_own = getattr(owner, name), name in vars(owner)

        @functools.wraps(method)
        def call_in_step(*args: Any, **options: Any) -> Any:
            self.enter(step)
            try:
                return method(*args, **options)
            finally:
                self.leave()

        setattr(owner, name, call_in_step)
        try:
            yield
        finally:
            if is_own:
                setattr(owner, name, method)
            else:
                delattr(owner, name)

    @contextlib.contextmanager
    def count_calls(self) -> Iterator[None]:
        """Returns a context in which calls of Python functions are counted, which takes time."""
        before = sys.getprofile()
        sys.setprofile(self._count_call)
        try:
            yield
        finally:
            sys.setprofile(before)

    def take(self) -> dict[str, StepCost]:
        """Returns the costs of the steps since the last call, in the order in which they were
        first entered since."""
        found = {name: StepCost(spent, self._calls[name]) for name, spent in self._spent.items()}
        self._spent.clear()
        self._calls.clear()
        return found

    def _charge_time(self) -> None:
        if self._under_way:
            self._spent[self._under_way[-1]] += time.thread_time_ns() - self._since

    def _count_call(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and self._under_way and frame.f_code.co_filename not in _OWN_FILES:
            self._calls[self._under_way[-1]] += 1


_OWN_FILES = frozenset({__file__, contextlib.__file__})
StepWatch = tuple[Any, str, str]
"""A class, its method, and the step that a call of it is."""


@contextlib.contextmanager
def watch_all(clock: StepClock, watches: list[StepWatch]) -> Iterator[None]:
    """Returns a context in which all these calls are steps."""
    with contextlib.ExitStack() as stack:
        for watch in watches:
            stack.enter_context(clock.watch(*watch))
        yield
