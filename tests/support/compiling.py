"""Kernels that several processes of tests call at the same time are compiled by one of them."""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

_HELD = threading.local()


def compile_each_kernel_once() -> None:
    """Lets this process wait while another one compiles the same kernel, and then read it from
    disk: Numba has no lock for that, and each process would compile it."""
    compile_kernel = Dispatcher.compile

    def compile_alone(self: Any, sig: Any) -> Any:
        code = self.py_func.__code__
        source = Path(code.co_filename)
        lock = source.parent / "__pycache__" / f"{source.stem}.{self.py_func.__qualname__}.lock"
        # The compiler's own lock first, as kernels that are called are compiled while it is held:
        # so locks are always taken in the order of calls.
        with global_compiler_lock, held_alone(lock):
            return compile_kernel(self, sig)

    Dispatcher.compile = compile_alone  # type: ignore[method-assign]


@contextmanager
def held_alone(lock: Path) -> Iterator[None]:
    """Holds a lock among processes; this process may hold it already."""
    held: set[Path] = _HELD.__dict__.setdefault("locks", set())
    if lock in held or not lock.parent.is_dir():
        yield
        return
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        held.add(lock)
        try:
            yield
        finally:
            held.discard(lock)
