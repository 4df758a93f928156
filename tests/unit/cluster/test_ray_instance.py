"""SIGTERM while Ray starts or ends, for which it takes the process's own handler away; and a start
that Ray itself gives up."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ps2stream.cluster.ray_instance import RayInstance, _keep_signals
from ps2stream.config import Settings
from ps2stream.errors import Unavailable

LATE = "Timed out waiting for file /tmp/ps2s-x/ray/session_1/gcs_server_port_40c4"
DAEMON = "import sys, time; print('here', flush=True); time.sleep(600)"


def is_caught() -> bool:
    """Whether SIGTERM reaches a handler of this process."""
    status = Path("/proc/self/status").read_text()
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def test_sigterm_reaches_its_handler_also_while_ray_ends() -> None:
    got: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: got.append(number))
    default = ctypes.create_string_buffer(1024)  # of zeros: SIG_DFL, no flags, an empty mask
    try:
        with _keep_signals():
            for _ in range(2):
                ctypes.CDLL(None).sigaction(signal.SIGTERM.value, default, None)
                deadline = time.monotonic() + 30
                while not is_caught():
                    assert time.monotonic() < deadline
                    time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGTERM)
            assert got == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_sigterm_that_ray_makes_an_exit_reaches_its_handler() -> None:
    """ray.init sets such a handler on the main thread, and goes on for seconds."""
    got: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: got.append(number))

    def start_ray() -> None:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(number))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)

    try:
        with pytest.raises(Unavailable, match="SIGTERM"), _keep_signals():
            start_ray()
        assert got == [signal.SIGTERM]
        with pytest.raises(SystemExit, match="7"), _keep_signals():
            sys.exit(7)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with pytest.raises(SystemExit, match="15"), _keep_signals():
            sys.exit(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


class SlowRay:
    """A Ray whose starts end with these errors, one after the other; then one succeeds. Each leaves
    a daemon, which has opened no file yet, and whose name tells of the folder."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.daemons: list[subprocess.Popen[bytes]] = []
        self.exceptions = SimpleNamespace(RayError=ConnectionError)
        strategy = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda *_, **__: None)
        self.util = SimpleNamespace(scheduling_strategies=strategy)

    def is_initialized(self) -> bool:
        return False

    def init(self, **options: Any) -> None:
        command = [sys.executable, "-c", DAEMON, f"{options['_temp_dir']}/session"]
        self.daemons.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        assert self.daemons[-1].stdout is not None
        self.daemons[-1].stdout.readline()
        if self.errors:
            raise self.errors.pop(0)

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "node")

    def shutdown(self) -> None:
        pass


def begin(ray: SlowRay, folder: Path, monkeypatch: pytest.MonkeyPatch) -> RayInstance:
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr("ps2stream.cluster.ray_environment.prepare", lambda *_, **__: None)
    return RayInstance(Settings(), folder)


def ends(ray: SlowRay) -> list[int | None]:
    """How the daemon of each start has ended, if it has; none runs afterwards."""
    found: list[int | None] = []
    for daemon in ray.daemons:
        try:
            found.append(daemon.wait(5 if daemon is not ray.daemons[-1] else 0.1))
        except subprocess.TimeoutExpired:
            found.append(None)
            daemon.kill()
        daemon.communicate()
    return found


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(LATE),
        RuntimeError("Failed to start GCS.  Last 0 lines of error files:"),
        Exception("The current node timed out during startup. This could happen because"),
    ],
)
def test_a_start_that_took_too_long_is_tried_once_more(
    error: Exception,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ray = SlowRay(error)
    with caplog.at_level(logging.WARNING, "ps2stream"):
        instance = begin(ray, tmp_path, monkeypatch)
    assert instance.is_ours
    assert ends(ray) == [-signal.SIGKILL, None]  # nothing is left of the first
    [line] = [record.getMessage() for record in caplog.records]
    assert line == f"Ray did not start: {error}; it is started once more"


def test_twice_too_long_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = SlowRay(RuntimeError(LATE), RuntimeError(LATE))
    with pytest.raises(Unavailable, match="Ray did not start: Timed out waiting for file"):
        begin(ray, tmp_path, monkeypatch)
    assert len(ends(ray)) == 2


@pytest.mark.parametrize("error", [RuntimeError("a bug"), ConnectionError("no token")])
def test_any_other_error_is_told_at_once(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = SlowRay(error)
    with pytest.raises((RuntimeError, Unavailable), match=str(error)):
        begin(ray, tmp_path, monkeypatch)
    assert len(ends(ray)) == 1
