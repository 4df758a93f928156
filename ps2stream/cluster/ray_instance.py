"""The Ray that actors run in: either one of this host alone, which is started and ended here, or
a running cluster that this host is a node of."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import logging
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ps2stream.cluster import ray_environment
from ps2stream.cluster.intervals import LOOK_S
from ps2stream.cluster.placement import ActorPlacement, ClusterPlacement, OneHostPlacement
from ps2stream.cluster.private_folder import (
    end_processes,
    end_writers,
    find_children,
    find_writers,
)
from ps2stream.cluster.ray_probe import RayProbe
from ps2stream.cluster.shell import LanSettings
from ps2stream.config import Settings
from ps2stream.errors import Unavailable
from ps2stream.observability.process import is_running, read_name

log = logging.getLogger("ps2stream.cluster")
NAMESPACE = "ps2stream"
DAEMONS = {"raylet": "raylet", "gcs_server": "GCS"}
"""Names of the processes that Ray cannot go on without, and Ray's names for them."""
LATE = re.compile(
    r"Timed out waiting for file \S*gcs_server_port|Failed to start GCS|timed out during startup"
)
"""What Ray says where a busy machine did not start its daemons within half a minute."""
ACTION_BYTES = 1024
"""Room for a struct sigaction, more than it needs on any system."""
KEEP_S = 0.005
CLOSE_S = 3.0
"""How long Ray may take to end by itself; with both daemons dead it would take ten seconds."""


class RayInstance:
    """A running Ray. `ray` is the module; `placement` says where actors run. A Ray that is started
    here keeps its sockets and logs in `folder`, which only its owner may enter."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        """Starts or joins Ray. Raises FailedPrecondition when it demands no token, Unavailable
        when it cannot be reached."""
        joins = settings.ray_address is not None
        ray_environment.prepare(os.environ, joins, niceness=settings.niceness)
        import ray

        self.ray = ray
        self._settings = settings
        self._folder = folder / "ray"  # Ray makes this one readable for everybody
        self._started = False
        self._joined = False
        self._closed = False
        self._daemons: dict[int, str] = {}
        self._probe: RayProbe | None = None
        there = ray.is_initialized()
        with _keep_signals():
            if there:
                ray_environment.check_joined(os.environ)
            elif settings.ray_address is not None:
                self._join_cluster(settings, settings.ray_address)
            else:
                self._start_ray(settings)
        if (there or self._joined) and (settings.metrics_port or settings.dashboard_port):
            log.warning(
                "metrics_port and dashboard_port have no effect, because the Ray instance that "
                "already runs on this host has its own"
            )
        self.placement: ActorPlacement = OneHostPlacement(ray)
        if settings.ray_address is not None:
            lan = LanSettings(
                settings.link_range,
                logging.getLogger("ps2stream").getEffectiveLevel(),
                settings.log_format == "json",
            )
            self.placement = ClusterPlacement(ray, lan, settings.nodes_s)
        if not self._started:
            self._probe = RayProbe(ray)

    @property
    def is_ours(self) -> bool:
        """True if it was started here, so that it may be started again."""
        return self._started

    @property
    def dashboard_port(self) -> int:
        """The port of a dashboard that was started here, on the loopback address; 0 without one."""
        return self._settings.dashboard_port if self._started else 0

    def find_loss(self) -> str:
        """Returns the part of Ray that has died, so that it cannot go on: "raylet" or "GCS"; an
        empty string if none has. From any thread; costs two reads of /proc."""
        if self._probe is not None:
            return self._probe.find_loss()
        lost = (name for pid, name in self._daemons.items() if not is_running(pid))
        return next(lost, "") if self._daemons else "raylet"

    def get(self, call: Any, timeout_s: float, check: Callable[[], None]) -> Any:
        """Returns the result of a call, or the results of a list of calls. Raises what they
        raised, GetTimeoutError, and what `check` raises, which is called now and then: Ray itself
        would wait for a dead GCS for ever."""
        ray, calls = self.ray, call if isinstance(call, list) else [call]
        deadline = time.monotonic() + timeout_s
        while len(ray.wait(calls, num_returns=len(calls), timeout=LOOK_S)[0]) < len(calls):
            check()
            if time.monotonic() > deadline:
                raise ray.exceptions.GetTimeoutError(f"no answer within {timeout_s:g} s")
        return ray.get(call)

    def end_actors(self) -> None:
        """Kills the processes of all actors of a Ray that was started here."""
        end_processes(find_writers(self._folder) - self._daemons.keys())

    def restart(self) -> None:
        """Starts Ray again where it was started here and has died, once no process of the old one
        is left. Raises Unavailable, also when it was closed meanwhile."""
        self.end_actors()
        with _keep_signals():
            self.ray.shutdown()
        self._clear_folder("a process of the Ray instance that died does not end")
        with _keep_signals():
            self._start_ray(self._settings)
        self.placement = OneHostPlacement(self.ray)

    def close(self) -> None:
        """Ends Ray if it was started here, or leaves it if it was joined here; idempotent."""
        self._closed = True
        if self._started or self._joined:
            ending = threading.Thread(target=self.ray.shutdown, daemon=True, name="ray-shutdown")
            with _keep_signals():
                ending.start()
                ending.join(CLOSE_S)
            if ending.is_alive():
                # Otherwise the exit of this process would wait for it once more.
                atexit.unregister(self.ray.shutdown)
        if self._started:
            end_writers(self._folder)
        self._started = self._joined = False

    def _clear_folder(self, problem: str) -> None:
        """Kills what writes to the folder and removes it, so that Ray may be started there again.
        Raises Unavailable with this problem if something stays, and when this was closed."""
        if not end_writers(self._folder):
            raise Unavailable(problem)
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._closed:
            raise Unavailable("Ray is not started again, because it has been closed")

    def _start_ray(self, settings: Settings) -> None:
        """Starts Ray, a second time where the first took longer than Ray waits. Raises
        Unavailable."""
        self._started = True
        try:
            self._init_ray(settings)
        except Unavailable as error:
            if not LATE.search(str(error.__cause__)):
                raise
            log.warning("%s; it is started once more", str(error))
            self._end_first_try()
            self._init_ray(settings)
        names = {pid: read_name(pid) for pid in find_writers(self._folder)}
        self._daemons = {pid: DAEMONS[name] for pid, name in names.items() if name in DAEMONS}

    def _init_ray(self, settings: Settings) -> None:
        try:
            self.ray.init(
                address="local",
                namespace=NAMESPACE,
                include_dashboard=settings.dashboard_port > 0,
                dashboard_host="127.0.0.1",
                dashboard_port=settings.dashboard_port or None,
                log_to_driver=True,
                logging_level=logging.ERROR,
                object_store_memory=128 << 20,
                _temp_dir=str(self._folder),
                _metrics_export_port=settings.metrics_port or None,
            )
        except Exception as error:
            if isinstance(error, self.ray.exceptions.RayError) or LATE.search(str(error)):
                raise Unavailable(f"Ray did not start: {_first_line(error)}") from error
            raise

    def _end_first_try(self) -> None:
        """Ends what a start left that took too long: also a daemon that has opened no file yet.
        Raises Unavailable, also when this was closed meanwhile."""
        self.ray.shutdown()
        end_processes(find_children(self._folder))
        self._clear_folder("a process of the Ray instance that started too slowly does not end")

    def _join_cluster(self, settings: Settings, address: str) -> None:
        try:
            self.ray.init(
                address=address,
                namespace=NAMESPACE,
                log_to_driver=True,
                logging_level=logging.ERROR,
                _node_ip_address=settings.node_ip,
            )
        except (ConnectionError, RuntimeError, ValueError, self.ray.exceptions.RayError) as error:
            raise Unavailable(
                f"ray_address: {address} cannot be joined: {_first_line(error)}"
            ) from error
        self._joined = True
        try:
            ray_environment.check_guarded(self.ray.get_runtime_context().gcs_address)
        except BaseException:
            self.close()
            raise


@contextlib.contextmanager
def _keep_signals() -> Iterator[None]:
    """Keeps this process's handler of SIGTERM while Ray starts or ends.

    Ray sets a handler of Python's on the main thread, and from any thread one of the system's, or
    none. Seconds may pass until it returns, in which SIGTERM would end the process half stopped;
    so a thread sets the handler again every few milliseconds. That of Python's raises SystemExit:
    then this process's handler is called, and Unavailable raised.
    """
    before = signal.getsignal(signal.SIGTERM)
    action, libc = ctypes.create_string_buffer(ACTION_BYTES), ctypes.CDLL(None)
    libc.sigaction(signal.SIGTERM.value, None, action)
    over = threading.Event()

    def keep_handler() -> None:
        while not over.wait(KEEP_S):
            libc.sigaction(signal.SIGTERM.value, action, None)

    keeping = threading.Thread(target=keep_handler, daemon=True, name="sigterm")
    keeping.start()
    try:
        yield
    except SystemExit as error:
        if error.code != signal.SIGTERM or not callable(before):
            raise
        before(signal.SIGTERM, None)
        raise Unavailable("SIGTERM has come while Ray was starting") from None
    finally:
        over.set()
        keeping.join()
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
        libc.sigaction(signal.SIGTERM.value, action, None)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
