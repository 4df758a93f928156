"""The service under test as a group of processes, to be killed in part or whole.

`ps2stream serve` leads a session of its own, which all that it starts stay in; an actor is
the process that listens at the Unix socket named role-index.epoch. So everything is known
from outside, whatever state the service is in, and nothing else is ever killed.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from ps2stream.cluster.ray_instance import DAEMONS
from ps2stream.observability.process import read_name
from tests.conftest import ROOT

READY_S = 180.0
MOST_DISPATCHERS = 3
"""So many have ports."""
_LISTENS = "00010000"


class Actor(NamedTuple):
    """A live incarnation."""

    name: str
    epoch: int
    pid: int

    @property
    def role(self) -> str:
        return self.name.partition("-")[0]


class Host:
    """A service over `data`, at fixed ports. Use as a context manager: nothing stays behind
    but `data` and `log`."""

    def __init__(
        self, data: Path, log: Path, *, workers: int, dispatchers: int = 2, mergers: int = 2,
        options: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.data = data
        self.log = log
        self.dispatchers = dispatchers
        self.port = free_ports(max(dispatchers, MOST_DISPATCHERS))
        self.targets = [f"127.0.0.1:{self.port + i}" for i in range(dispatchers)]
        self.access: Mapping[str, Any] = {}
        self._options = [
            f"--workers={workers}", f"--dispatchers={dispatchers}", f"--mergers={mergers}",
            f"--port={self.port}", f"--data-dir={data}", *options,
        ]  # fmt: skip
        # Short: Ray puts sockets into it, whose paths may have 107 bytes.
        self._temp = Path(tempfile.mkdtemp(prefix="ch-", dir="/tmp"))
        self._leader: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._temp, ignore_errors=True)

    @property
    def leader(self) -> int:
        """The supervisor's process; it leads the session."""
        assert self._leader is not None
        return self._leader.pid

    @property
    def running(self) -> bool:
        """Whether the supervisor's process lives."""
        return self._leader is not None and self._leader.poll() is None

    def start(self) -> None:
        """Returns once the service is ready. Raises RuntimeError with what it said when it
        ends instead."""
        if self._leader is not None:
            self._leader.wait()  # killed, while what it started may still be there
        environment = os.environ | {"TMPDIR": str(self._temp), "PYTHONPATH": str(ROOT)}
        said = self.log.with_suffix(".ready")
        with self.log.open("ab") as errors, said.open("wb") as out:
            errors.write(b"--- start\n")
            errors.flush()
            begin = errors.tell()
            program = [sys.executable, "-m", "ps2stream", "serve", "--json", *self._options]
            self._leader = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", *program],  # it does not outlive this thread
                stdout=out, stderr=errors, stdin=subprocess.DEVNULL,
                env=environment, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + READY_S
        while b'"ready"' not in said.read_bytes():
            if not self.running or time.monotonic() > deadline:
                with self.log.open("rb") as errors:
                    errors.seek(begin)
                    raise RuntimeError(errors.read().decode("utf-8", "replace").strip()[-2000:])
            time.sleep(0.02)

    def stop(self, number: int = signal.SIGINT) -> int:
        """Send the signal, by default that of Ctrl-C, and return the exit code."""
        assert self._leader is not None
        self._leader.send_signal(number)
        code = self._leader.wait(60)
        self.kill()
        return code

    def kill(self) -> None:
        """kill -9 of every process of the service; returns when none is left."""
        if self._leader is None:
            return
        while pids := list(self._pids()):
            for pid in pids:
                send(pid, signal.SIGKILL)
            self._leader.poll()
            time.sleep(0.02)
        self._leader.wait()
        self._leader = None
        for left in self._temp.iterdir():
            shutil.rmtree(left, ignore_errors=True)

    def actors(self) -> dict[str, Actor]:
        """Those that listen now, by name."""
        paths = dict(_sockets(str(self._temp)))
        found: dict[str, Actor] = {}
        for pid in self._pids():
            for inode in _inodes(pid):
                if inode in paths:
                    name, _, epoch = paths[inode].rpartition("/")[2].partition(".")
                    actor = Actor(name, int(epoch or 0), pid)
                    if name not in found or found[name].epoch < actor.epoch:
                        found[name] = actor
        return found

    def shuffle_targets(self, rng: random.Random) -> str:
        """All targets for a client, in any order: dispatchers may be away, or have left."""
        return ",".join(rng.sample(self.targets, len(self.targets)))

    def epochs(self) -> dict[str, int]:
        """The newest epoch of each actor that listens now, in one read: `actors` looks at every
        open file, which takes a client in the same process some 50 ms."""
        found: dict[str, int] = {}
        for _, path in _sockets(str(self._temp)):
            name, _, epoch = path.rpartition("/")[2].partition(".")
            found[name] = max(int(epoch or 0), found.get(name, 0))
        return found

    def daemons(self) -> dict[str, int]:
        """The processes of Ray itself: raylet and gcs_server, by name."""
        names = {read_name(pid): pid for pid in self._pids()}
        return {name: pid for name, pid in names.items() if name in DAEMONS}

    def _pids(self) -> Iterator[int]:
        return iter(()) if self._leader is None else find_session(self._leader.pid)


def find_session(leader: int) -> Iterator[int]:
    """The live processes of the session that a process leads."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                state, _, _, session = (
                    (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[:4]
                )
            except (OSError, ValueError):
                continue
            if int(session) == leader and state not in "ZX":
                yield int(entry.name)


def send(pid: int, number: int) -> bool:
    """Whether the process was there to get the signal."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def free_ports(n: int) -> int:
    """The first of n consecutive ports below the ephemeral ones that nobody listens at."""
    for port in range(20_000 + os.getpid() % 1000 * 8, 32_000, n):
        try:
            for i in range(n):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port + i))
        except OSError:
            continue
        return port
    raise RuntimeError(f"no {n} consecutive ports are free")


def _sockets(folder: str) -> Iterator[tuple[str, str]]:
    """(inode, path) of the Unix sockets below `folder` that are listened at, Ray's aside."""
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split(maxsplit=7)
        if len(fields) < 8 or fields[3] != _LISTENS or "/session_" in fields[7]:
            continue
        if fields[7].startswith(folder):
            yield fields[6], fields[7]


def _inodes(pid: int) -> Iterator[str]:
    """Of the sockets that a process has open."""
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            link = os.readlink(entry)  # noqa: PTH115
            if link.startswith("socket:["):
                yield link[8:-1]
    except OSError:
        return
