"""Exits of processes on this host, which the kernel reports the moment they happen.

Ray needs some tenths of a second to see that an actor has died.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Set as AbstractSet


class ProcessExits:
    """Waits for the exits of watched processes; one thread waits, any may wake it. Where the kernel
    has no descriptors of processes (before Linux 5.3), no exit is ever reported."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._waker, self._woken = socket.socketpair()
        self._poll.register(self._woken, select.POLLIN)
        self._fds: dict[int, int] = {}

    def watch(self, pids: AbstractSet[int]) -> None:
        """Watches these processes from now on, and no others. One that is gone by now is not
        watched."""
        for pid in self._fds.keys() - pids:
            self._forget(pid)
        for pid in pids - self._fds.keys():
            with contextlib.suppress(OSError):
                self._fds[pid] = os.pidfd_open(pid)
                self._poll.register(self._fds[pid], select.POLLIN)

    def wait(self, limit_s: float) -> set[int]:
        """Waits for `limit_s` seconds, or until a process ends or `wake` is called. Returns the
        processes that have ended; they are watched no longer."""
        readable = {fd for fd, _ in self._poll.poll(limit_s * 1000)}
        ended = {pid for pid, fd in self._fds.items() if fd in readable}
        for pid in ended:
            self._forget(pid)
        return ended

    def wake(self) -> None:
        """Ends the wait that is under way, and each later one at once."""
        self._waker.close()

    def close(self) -> None:
        self.watch(set())
        self._waker.close()
        self._woken.close()

    def _forget(self, pid: int) -> None:
        fd = self._fds.pop(pid)
        self._poll.unregister(fd)
        os.close(fd)
