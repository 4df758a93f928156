"""The check whether a Ray that others started still runs: its GCS, and the raylet of this host.

Ray's own calls notice a loss only after a minute, and end this process then. So the probe checks
whether both accept a connection.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from ps2stream.cluster.intervals import PROBE_S

CONNECT_S = 1.0
LOST_S = 2.0
"""A daemon that has refused connections for so long has ended."""
CUT_OFF_S = 45.0
"""A daemon that has not answered at all for so long is lost, too: before, the network may recover.
After 60 s Ray would abort this process."""
RECONNECT = "RAY_gcs_rpc_server_reconnect_timeout_s"
"""How long Ray waits for its GCS, where this is set, as by KubeRay for a GCS that uses a Redis."""
MARGIN_S = 10.0
"""How long before Ray would abort this process the loss is reported."""
Connect = Callable[[tuple[str, int]], None]


class RayProbe:
    """Checks the daemons, at most every PROBE_S; from any thread."""

    def __init__(
        self,
        ray: Any,
        connect: Connect | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        context = ray.get_runtime_context()
        [node] = [n for n in ray.nodes() if n["NodeID"] == context.get_node_id()]
        reconnect_s = float(environ.get(RECONNECT, 0)) - MARGIN_S
        self._try_connection = _try_connection if connect is None else connect
        self._daemons = {
            "raylet": (node["NodeManagerAddress"], int(node["NodeManagerPort"])),
            "GCS": _parse_address(context.gcs_address),
        }
        self._limits_s = {
            "raylet": (LOST_S, CUT_OFF_S),
            "GCS": (max(LOST_S, reconnect_s), max(CUT_OFF_S, reconnect_s)),
        }
        self._refuses = dict.fromkeys(self._daemons, False)
        now = time.monotonic()
        self._answered_at = dict.fromkeys(self._daemons, now)
        self._next_look = now

    def find_loss(self) -> str:
        """Returns "raylet" or "GCS" if it has not answered for too long, else an empty string."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + PROBE_S
            for name, address in self._daemons.items():
                try:
                    self._try_connection(address)
                    self._answered_at[name] = time.monotonic()
                except OSError as error:
                    self._refuses[name] = isinstance(error, ConnectionRefusedError)
        return next((name for name in self._daemons if self._is_lost(name)), "")

    def _is_lost(self, name: str) -> bool:
        refused_s, silent_s = self._limits_s[name]
        limit_s = refused_s if self._refuses[name] else silent_s
        return time.monotonic() - self._answered_at[name] > limit_s


def _try_connection(address: tuple[str, int]) -> None:
    socket.create_connection(address, CONNECT_S).close()


def _parse_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
