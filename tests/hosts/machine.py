"""Commands on a host, and how it dies: all its processes at once."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from tests.conftest import ROOT
from tests.hosts.net import Net

MARK = "_PS2STREAM_TEST_HOST"
UP_S = 300.0


class Machine:
    """Host `number` of `net`. What runs there is known by a word in its environment, which all
    that it starts inherit; nothing else is ever killed."""

    def __init__(self, net: Net, number: int, folder: Path, environ: Mapping[str, str]) -> None:
        self.address = net.hosts[number]
        self.disk = folder / str(number)
        self.disk.mkdir(mode=0o711)
        self.log = folder / f"host-{number}.log"
        self._said = folder / f"host-{number}.said"
        self._said.touch()
        self._begin = net.within(number)
        self._word = secrets.token_hex(8)
        self._environ = {k: v for k, v in os.environ.items() if not k.startswith("PS2STREAM_")}
        self._environ |= {"PYTHONPATH": str(ROOT), "TMPDIR": str(self.disk / "t"), MARK: self._word}
        self._environ |= environ
        self._ran: list[subprocess.Popen[bytes]] = []
        (self.disk / "t").mkdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def run(self, *words: str) -> subprocess.Popen[bytes]:
        """`ps2stream` with these words."""
        with self.log.open("ab") as errors, self._said.open("ab") as out:
            process = subprocess.Popen(
                [*self._begin, sys.executable, "-m", "ps2stream", *words],
                stdout=out, stderr=errors, stdin=subprocess.DEVNULL,
                env=self._environ, start_new_session=True,
            )  # fmt: skip
        self._ran.append(process)
        return process

    def await_said(self, what: str, process: subprocess.Popen[bytes], times: int = 1) -> None:
        """Raises RuntimeError with what it said when it ends instead."""
        deadline = time.monotonic() + UP_S
        while self._said.read_text().count(what) < times:
            if process.poll() not in (None, 0) or time.monotonic() > deadline:
                raise RuntimeError(f"{what} did not come: {self.log.read_text()[-3000:]}")
            time.sleep(0.05)

    def said(self) -> str:
        """On standard output, by all that ran."""
        return self._said.read_text()

    def shells(self) -> dict[int, str]:
        """The roles of the actors that run here, by process."""
        found: dict[int, str] = {}
        for pid in self.pids():
            with contextlib.suppress(OSError):
                name = Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0].decode()
                if name.startswith("ray::") and "Shell" in name:
                    found[pid] = name.removeprefix("ray::").partition("Shell")[0].lower()
        return found

    def lose_disk(self) -> None:
        """Removes all that it stores; another disk is empty. Nothing may run there."""
        shutil.rmtree(self.disk)
        self.disk.mkdir(mode=0o711)
        (self.disk / "t").mkdir()

    def kill(self) -> None:
        """kill -9 of every process; returns when none is left."""
        while pids := list(self.pids()):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        for process in self._ran:
            process.wait()

    def pids(self) -> Iterator[int]:
        """Live processes."""
        word = f"{MARK}={self._word}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                state = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                if state[0] not in "ZX" and word in (entry / "environ").read_bytes():
                    yield int(entry.name)
