"""The processes of a control plane: each has a name and a file of output, and ends with us."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")
"""What a command begins with that ends when this process does, even by kill -9."""


class ProcessGroup:
    """Processes with a log each in `folder`; `end` stops them, the last one first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self, name: str, command: Sequence[str], environ: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Starts a process; its output goes to NAME.log."""
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*DIES_WITH_US, *command], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env=dict(environ or os.environ), start_new_session=True,
            )  # fmt: skip
        self._running[name] = process
        return process

    def kill(self, name: str) -> None:
        """kill -9; returns when it has ended."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def check(self) -> None:
        """Raises RuntimeError with the end of its log if a process has ended."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise RuntimeError(f"{name} has ended: {self.read_log(name)[-3000:]}")

    def read_log(self, name: str) -> str:
        """Returns what the process wrote."""
        return (self._folder / f"{name}.log").read_text("utf-8", "replace")

    def end(self) -> None:
        """Stops all processes."""
        for process in reversed(self._running.values()):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()


def wait_until(found: Callable[[], bool], what: str, seconds: float, every_s: float = 0.5) -> float:
    """Waits until `found` returns true; returns the seconds that it took. Raises TimeoutError
    that names what did not happen."""
    begin = time.monotonic()
    while not found():
        if time.monotonic() > begin + seconds:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(every_s)
    return time.monotonic() - begin
