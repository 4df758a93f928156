"""Regular runs of `ps2stream replan`, each in a process of its own, one at a time.

Planning takes a JVM, memory and minutes, so it runs beside the service, at a low priority, and
ends with it. It calls the service by sockets in a folder that only the service's user may enter,
so it needs no token. If it fails, the service goes on.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ps2stream
from ps2stream.cluster.intervals import REPLAN_STOP_S
from ps2stream.config import Settings

log = logging.getLogger("ps2stream.cluster")
LIMIT_S = 3600.0
"""How long a run may take."""
PROGRAM = """
import ctypes, os, signal
os.nice(10)
if hasattr(end := ctypes.CDLL(None), "prctl"):
    end.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: not to outlive the service
from ps2stream.cli import main
main()
"""
CREDENTIALS = ("PS2STREAM_TOKEN", "PS2STREAM_TOKEN_FILE", "PS2STREAM_TLS_CA")


class PeriodicReplanning:
    """Runs the command every settings.replan_s seconds, on a thread of its own; never if that is
    0. `note` receives the counters for `ps2stream status`. folder: that of the dispatchers'
    sockets."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        note: Callable[[Mapping[str, Any]], None],
        program: str = PROGRAM,
    ) -> None:
        self._folder = folder
        self._every_s = settings.replan_s
        self._dispatchers: set[int] = set()  # those that listen
        command = ["replan", "--json", "--engine", settings.replan_engine]
        command += ["--migrate"] if settings.replan_migrate else []
        if settings.costs is not None:
            command += ["--costs", str(settings.costs)]
        self._command = [sys.executable, "-c", program, *command]
        self._note = note
        self._counts = {"replans": 0, "replans_failed": 0}
        self._last: dict[str, Any] = {}
        self._child: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run_rounds, daemon=True, name="replanning")

    def socket(self, dispatcher: int) -> Path | None:
        """Returns the path of the socket that a dispatcher should listen at; None: at none."""
        self._dispatchers.add(dispatcher)
        return self._socket_path(dispatcher) if self._every_s else None

    def forget(self, dispatcher: int) -> None:
        """Asks a dispatcher that has left no more."""
        self._dispatchers.discard(dispatcher)

    def start(self) -> None:
        if self._every_s:
            self._thread.start()

    def stop(self) -> None:
        """Ends the thread, and a run that is under way."""
        with self._lock:
            self._stopping.set()
            if self._child is not None:
                _kill_group(self._child)
        if self._thread.is_alive():
            self._thread.join(REPLAN_STOP_S)

    def status(self) -> dict[str, Any]:
        """Returns a status like an actor's: replans and replans_failed, and of the last run its
        seconds and output, or its failure."""
        if not self._every_s:
            return {}
        return {"replanning-0": {"failure": "", **self._counts, **self._last}}

    def _list_servers(self) -> list[str]:
        """Returns the options that name the dispatchers: the first one is told, all are asked."""
        dispatchers = sorted(self._dispatchers.copy()) or [0]
        targets = [f"unix:{self._socket_path(i)}" for i in dispatchers]
        asked = [word for target in targets for word in ("--from-service", target)]
        return ["--server", targets[0], *asked]

    def _socket_path(self, dispatcher: int) -> Path:
        return self._folder / f"dispatcher-{dispatcher}.grpc"

    def _run_rounds(self) -> None:
        while not self._stopping.wait(self._every_s):
            try:
                self.once()
            except Exception:
                log.exception("replanning failed; retrying in %g s", self._every_s)

    def once(self) -> None:
        """Runs the command once, and notes how it ended."""
        begun = time.monotonic()
        with self._lock:
            if self._stopping.is_set():
                return
            child = self._child = subprocess.Popen(
                [*self._command, *self._list_servers()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=_make_environment(),
                start_new_session=True,  # with Spark's JVM it is one group
            )
        try:
            output, errors = child.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            _kill_group(child)
            output, _ = child.communicate()
            errors = f"it took more than {LIMIT_S:g} s"
        if self._stopping.is_set():
            return
        self._counts["replans"] += 1
        last = {"seconds": round(time.monotonic() - begun, 1)}
        if child.returncode:
            self._counts["replans_failed"] += 1
            error = _parse_error(errors) or f"it ended with code {child.returncode}"
            self._last = last | {"failure": error}
            log.error("replanning failed; retrying in %g s: %s", self._every_s, error)
        else:
            self._last = last | {"said": [json.loads(line) for line in output.splitlines()]}
            log.info("replanning ended: %s", " ".join(output.split()))
        self._note({name: float(count) for name, count in self._counts.items()})


def _kill_group(child: subprocess.Popen[str]) -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _parse_error(output: str) -> str:
    """Returns the message of the program's error, or its last line if that is not in JSON."""
    last = output.strip().rpartition("\n")[2]
    try:
        return str(json.loads(last)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return last


def _make_environment() -> dict[str, str]:
    """Returns this process's environment without credentials, and with this package in its path."""
    found = {name: value for name, value in os.environ.items() if name not in CREDENTIALS}
    package = str(Path(ps2stream.__file__).parents[1])
    found["PYTHONPATH"] = os.pathsep.join(filter(None, (package, found.get("PYTHONPATH"))))
    return found
