"""This host as a node of a Ray cluster, in the foreground: what is started here ends here.

Ray's own program starts the node, in a session of its own. It ends with this process, whatever
ends that. Its folder of sockets and logs is then removed, after kill -9 at the next start.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from ps2stream.cluster.intervals import NODE_STOP_S
from ps2stream.cluster.private_folder import PrivateFolder
from ps2stream.errors import Unavailable

UP_S = 60.0
STARTING_S = 1.0
"""How long a node that is not up may take to stop: it holds nothing, and may ignore SIGTERM until
it has connected."""
OBJECT_STORE = 128 << 20
"""Bytes of the object store, which messages between actors do not pass through."""
OWN_PORTS = ("node-manager", "object-manager", "runtime-env-agent", "dashboard-agent-grpc",
             "dashboard-agent-listen", "metrics-export")  # fmt: skip
"""Ray's own ports on each host; those of its workers follow."""
LEAST_PORTS = 64
_ENDS = """
import ctypes, signal
if hasattr(libc := ctypes.CDLL(None), "prctl"):
    libc.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG: not to outlive the process that started it
"""
_RAY = f"{_ENDS}\nfrom ray.scripts.scripts import main\nmain()"
_SERVE = f"{_ENDS}\nfrom ps2stream.cli import main\nmain(prog_name='ps2stream')"
_ADDRESS = "ray_current_cluster"


def words(
    resources: Mapping[str, int], *, node_ip: str | None, ports: range, metrics_port: int
) -> list[str]:
    """Returns the arguments of `ray start` for this host; `ports` may be empty: any."""
    arguments = [f"--resources={json.dumps(resources)}", "--num-cpus=0", "--disable-usage-stats"]
    arguments += [f"--object-store-memory={OBJECT_STORE}"]
    if node_ip is not None:
        arguments.append(f"--node-ip-address={node_ip}")
    own = dict(zip(OWN_PORTS, ports, strict=False))
    if metrics_port:
        own["metrics-export"] = metrics_port
    arguments += [f"--{name}-port={port}" for name, port in own.items()]
    if ports:
        arguments += [
            f"--min-worker-port={ports[len(OWN_PORTS)]}",
            f"--max-worker-port={ports[-1]}",
        ]
    return arguments


class RayNode:
    """A node that `ray start` starts with the arguments `words`; it ends with the `with` block."""

    def __init__(self, words: Sequence[str]) -> None:
        self._folder = PrivateFolder(holds_sockets=True)
        self._temp = self._folder.path / "ray"  # which Ray opens to everybody
        self._output = self._folder.path / "ray-start.log"
        with self._output.open("wb") as out:
            self._child = subprocess.Popen(
                [sys.executable, "-c", _RAY, "start", *words, "--log-color=false", "--block",
                 f"--temp-dir={self._temp}"],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def code(self) -> int | None:
        """The exit code if the node has ended by itself; None while it runs."""
        return self._child.poll()

    @property
    def address(self) -> str:
        """HOST:PORT of the cluster; empty until the node is up."""
        path = self._temp / _ADDRESS
        return path.read_text().strip() if path.exists() else ""

    def await_up(self) -> bool:
        """Returns whether the node is up. Raises Unavailable when it has ended."""
        self.check()
        return bool(self.address)

    def check(self) -> None:
        """Raises Unavailable when it has ended."""
        if (code := self.code) is not None:
            raise Unavailable(f"Ray has ended on this host (code {code}): {self.last()}")

    def stop(self) -> None:
        """Ends the node and all that it started; idempotent."""
        if self._child.poll() is None:
            self._child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(NODE_STOP_S if self.address else STARTING_S)
        deadline = time.monotonic() + NODE_STOP_S
        while (pids := list(_list_session(self._child.pid))) and time.monotonic() < deadline:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._child.poll()
            time.sleep(0.02)
        self._child.wait()
        self._folder.remove()

    def last(self) -> str:
        """Returns the last lines of its output, those with errors if there are any."""
        lines = self._output.read_text("utf-8", "replace").splitlines()
        found = [line.strip() for line in lines if line.strip()]
        wrong = [line for line in found if "Error" in line or "ERR" in line]
        return " ".join((wrong or found)[-2:])


def serving(options: Sequence[str]) -> subprocess.Popen[bytes]:
    """Starts `ps2stream serve` with these options, in a session of its own, so that only this
    process ends it and not also the terminal."""
    program = [sys.executable, "-c", _SERVE, "serve", *options]
    return subprocess.Popen(program, stdin=subprocess.DEVNULL, start_new_session=True)


def _list_session(leader: int) -> Iterator[int]:
    """Yields the live processes of the session that this process led."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = (
                entry.read_text("utf-8", "replace").rpartition(")")[2].split()[:4]
            )
        except (OSError, ValueError):
            continue
        if int(session) == leader and state not in "ZX":
            yield int(entry.parent.name)
