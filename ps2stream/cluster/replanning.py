"""`ps2stream replan` every so often, in a process of its own, one at a time.

Planning takes a JVM, memory and minutes, so it runs beside the service, at a low priority, and
ends with it. What it is told and asks for goes through sockets in a folder that only the
service's user may enter, so that it needs no token. Whatever becomes of it, the service goes on.
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
from ps2stream.config import Settings

log = logging.getLogger("ps2stream.cluster")
LIMIT_S = 3600.0
"""How long it may take."""
STOP_S = 10.0
PROGRAM = """
import ctypes, os, signal
os.nice(10)
if hasattr(end := ctypes.CDLL(None), "prctl"):
    end.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: not to outlive the service
from ps2stream.cli import main
main()
"""
CREDENTIALS = ("PS2STREAM_TOKEN", "PS2STREAM_TOKEN_FILE", "PS2STREAM_TLS_CA")


class Replanning:
    """Every settings.replan_s seconds, on a thread of its own; never if that is 0. `note` is given
    the counters for `ps2stream status`. folder: where the dispatchers have their sockets."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        note: Callable[[Mapping[str, Any]], None],
        program: str = PROGRAM,
    ) -> None:
        self._folder = folder
        self._every_s = settings.replan_s
        targets = [f"unix:{self._path(i)}" for i in range(settings.dispatchers)]
        command = ["replan", "--json", "--engine", settings.replan_engine, "--server", targets[0]]
        command += [word for target in targets for word in ("--from-service", target)]
        if settings.costs is not None:
            command += ["--costs", str(settings.costs)]
        self._command = [sys.executable, "-c", program, *command]
        self._note = note
        self._counts = {"replans": 0, "replans_failed": 0}
        self._last: dict[str, Any] = {}
        self._child: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="replanning")

    def socket(self, dispatcher: int) -> Path | None:
        """Where this one is to answer whoever may enter the folder; None: nowhere."""
        return self._path(dispatcher) if self._every_s else None

    def start(self) -> None:
        if self._every_s:
            self._thread.start()

    def stop(self) -> None:
        """End what is under way."""
        with self._lock:
            self._stopping.set()
            if self._child is not None:
                _end(self._child)
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def status(self) -> dict[str, Any]:
        """As of an actor: replans, replans_failed; of the last one seconds, and what it said, or
        its failure."""
        if not self._every_s:
            return {}
        return {"replanning-0": {"failure": "", **self._counts, **self._last}}

    def _path(self, dispatcher: int) -> Path:
        return self._folder / f"dispatcher-{dispatcher}.grpc"

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            try:
                self.once()
            except Exception:
                log.exception("planning anew failed; tried again in %g s", self._every_s)

    def once(self) -> None:
        """Run it, and tell how it ended."""
        begun = time.monotonic()
        with self._lock:
            if self._stopping.is_set():
                return
            child = self._child = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=_environment(),
                start_new_session=True,  # with Spark's JVM it is one group
            )
        try:
            said, problem = child.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            _end(child)
            said, _ = child.communicate()
            problem = f"it took more than {LIMIT_S:g} s"
        if self._stopping.is_set():
            return
        self._counts["replans"] += 1
        last = {"seconds": round(time.monotonic() - begun, 1)}
        if child.returncode:
            self._counts["replans_failed"] += 1
            error = _error(problem) or f"it ended with code {child.returncode}"
            self._last = last | {"failure": error}
            log.error("planning anew failed; tried again in %g s: %s", self._every_s, error)
        else:
            self._last = last | {"said": [json.loads(line) for line in said.splitlines()]}
            log.info("planned anew: %s", " ".join(said.split()))
        self._note({name: float(count) for name, count in self._counts.items()})


def _end(child: subprocess.Popen[str]) -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _error(said: str) -> str:
    """The program's own words where it found some, else the last line."""
    last = said.strip().rpartition("\n")[2]
    try:
        return str(json.loads(last)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return last


def _environment() -> dict[str, str]:
    """Ours, without what is for other servers, and with this package."""
    found = {name: value for name, value in os.environ.items() if name not in CREDENTIALS}
    package = str(Path(ps2stream.__file__).parents[1])
    found["PYTHONPATH"] = os.pathsep.join(filter(None, (package, found.get("PYTHONPATH"))))
    return found
