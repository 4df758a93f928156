"""The Ray that actors run in: one of this host alone, which is started and ended here, or a
cluster that runs already, which this host is a node of."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from ps2stream.cluster import ray_environment
from ps2stream.cluster.placement import ManyHosts, OneHost, Placement
from ps2stream.cluster.shell import Lan
from ps2stream.config import Settings
from ps2stream.errors import Unavailable

log = logging.getLogger("ps2stream.cluster")
NAMESPACE = "ps2stream"


class RayInstance:
    """`ray` is the module; `placement` says where its actors go."""

    def __init__(self, settings: Settings) -> None:
        """Raises FailedPrecondition when it asks for no token, Unavailable when it cannot be
        reached."""
        ray_environment.prepare(os.environ, joins=settings.ray_address is not None)
        import ray

        self.ray = ray
        self._temp: Path | None = None
        self._joined = False
        there = ray.is_initialized()
        with _signals_kept():
            if there:
                ray_environment.check_joined(os.environ)
            elif settings.ray_address is not None:
                self._join(settings, settings.ray_address)
            else:
                self._start(settings)
        if (there or self._joined) and (settings.metrics_port or settings.dashboard_port):
            log.warning(
                "metrics_port and dashboard_port have no effect: the Ray that runs here has its own"
            )
        self.placement: Placement = OneHost(ray)
        if settings.ray_address is not None:
            lan = Lan(
                settings.link_range,
                logging.getLogger("ps2stream").getEffectiveLevel(),
                settings.log_format == "json",
            )
            self.placement = ManyHosts(ray, lan, settings.nodes_s)

    def close(self) -> None:
        """End it, or leave it, if that was begun here; idempotent."""
        if self._temp is not None or self._joined:
            self.ray.shutdown()
        if self._temp is not None:
            shutil.rmtree(self._temp, ignore_errors=True)
        self._temp, self._joined = None, False

    def _start(self, settings: Settings) -> None:
        self._temp = Path(tempfile.mkdtemp(prefix="ps2s-"))
        self.ray.init(
            address="local",
            namespace=NAMESPACE,
            include_dashboard=settings.dashboard_port > 0,
            dashboard_host="127.0.0.1",
            dashboard_port=settings.dashboard_port or None,
            log_to_driver=True,
            logging_level=logging.ERROR,
            object_store_memory=128 << 20,
            _temp_dir=str(self._temp),
            _metrics_export_port=settings.metrics_port or None,
        )

    def _join(self, settings: Settings, address: str) -> None:
        try:
            self.ray.init(
                address=address,
                namespace=NAMESPACE,
                log_to_driver=True,
                logging_level=logging.ERROR,
                _node_ip_address=settings.node_ip,
            )
        except (ConnectionError, RuntimeError, ValueError, self.ray.exceptions.RayError) as error:
            raise Unavailable(f"ray_address: {address} cannot be joined: {_said(error)}") from error
        self._joined = True
        try:
            ray_environment.check_guarded(self.ray.get_runtime_context().gcs_address)
        except BaseException:
            self.close()
            raise


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray ends a process at SIGTERM in its own way."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _said(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
