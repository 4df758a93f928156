"""The gRPC server: one port, PubSub, Admin, health and reflection.

server = serve(gateway, "127.0.0.1", 7077)
...
server.stop(1.0)
"""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import grpc.aio

from ps2stream.dispatcher.gateway import DispatcherGateway
from ps2stream.errors import invalid
from ps2stream.limits import BATCH_BYTES
from ps2stream.security import PortSecurity
from ps2stream.service import admin, pubsub
from ps2stream.service.auth import CallGuard
from ps2stream.service.endpoint_checks import check_endpoint
from ps2stream.service.lanes import CallLanes
from ps2stream.service.service_loop import service_loop
from ps2stream.service.standard_calls import HEALTH, HealthCalls, reflection_methods
from ps2stream.service.tenants import TenantServices

log = logging.getLogger("ps2stream.service")

OPEN = PortSecurity()
"""The security of a loopback address: no TLS, and no identities."""
REGISTERED = ("DeleteQuery",)
LOOKAHEAD_BYTES = 1 << 19
HANDSHAKE_S = 20.0
"""Seconds within which a connection must have spoken TLS and HTTP/2. A client does so at once,
whatever its language; a busy one, or one far away, takes a second or two."""
OPTIONS: list[tuple[str, int]] = [
    ("grpc.so_reuseport", 0),  # else two servers would share a port unnoticed
    # Above batch_bytes, so that a slightly larger batch gets our error, which names the limit.
    ("grpc.max_receive_message_length", BATCH_BYTES + (1 << 20)),
    ("grpc.max_send_message_length", 64 << 20),
    # What a stream sends ahead waits in our memory, where gRPC's default grows to many megabytes.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", LOOKAHEAD_BYTES),
    ("grpc.max_metadata_size", 16 << 10),
    # Also until the client's preface and settings are there; gRPC's default is two minutes.
    ("grpc.server_handshake_timeout_ms", int(HANDSHAKE_S * 1000)),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 2),
]


class GrpcServer:
    """A running server on `port`."""

    def __init__(
        self, gateway: DispatcherGateway, host: str, port: int, security: PortSecurity
    ) -> None:
        lanes = CallLanes()
        threads = lanes.streams
        self._tenants = TenantServices(gateway, security, threads)
        self._guard = CallGuard(security, gateway, self._tenants.end, lanes)
        self._admin = admin.AdminService(
            gateway,
            self._guard,
            threads,
            lambda: {
                "shed_objects": float(self._tenants.refused()["shed"]),
                "cut_streams": float(self._tenants.cut()),
            },
        )
        self._health = HealthCalls((pubsub.SERVICE, admin.SERVICE))
        self._guard.serve(self._tenants.methods())
        self._guard.serve(self._admin.methods())
        self._guard.serve(self._health.methods())
        self._guard.serve(reflection_methods((pubsub.SERVICE, admin.SERVICE, HEALTH)))
        self._stopped = threading.Event()
        self._server, self.port = service_loop().run(
            self._start_server(lanes.limit, host, port, security)
        )

    async def _start_server(
        self, limit: int, host: str, port: int, security: PortSecurity
    ) -> tuple[grpc.aio.Server, int]:
        server = grpc.aio.server(options=OPTIONS, maximum_concurrent_rpcs=limit)
        # Registered methods have queues of their own: a delete does not wait behind publications.
        own = {name: self._guard.registered(f"/{pubsub.SERVICE}/{name}") for name in REGISTERED}
        server.add_registered_method_handlers(pubsub.SERVICE, own)
        server.add_generic_rpc_handlers(self._guard.generic_handlers())
        bound = _bind_port(server, host, port, security)
        await server.start()
        return server, bound

    def status(self) -> dict[str, Any]:
        """Returns totals since the start."""
        return {"refused_objects": self._tenants.refused(), "cut_streams": self._tenants.cut()}

    def stop(self, grace: float = 1.0) -> None:
        """Refuses new calls, ends the streams of those who subscribe or watch, and lets others
        finish for `grace` seconds."""
        service_loop().run(self._stop_server(grace))
        self._stopped.set()

    async def _stop_server(self, grace: float) -> None:
        self._health.stop()
        stopping = asyncio.create_task(self._server.stop(grace))
        await asyncio.sleep(0)  # it refuses new calls
        self._tenants.stop()
        self._admin.stop()
        self._guard.stop()
        await stopping

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the server has stopped; returns True when it still runs after `timeout`
        seconds."""
        return not self._stopped.wait(timeout)


def serve(
    gateway: DispatcherGateway, host: str, port: int, security: PortSecurity = OPEN
) -> GrpcServer:
    """Starts serving `gateway`; port 0 picks a free one. Raises InvalidArgument, naming the
    setting, for an address that cannot be served, a port in use, and unusable TLS files."""
    server = GrpcServer(gateway, host, port, security)
    log.info("serving on %s:%d", host, server.port)
    return server


def serve_privately(gateway: DispatcherGateway, path: Path) -> GrpcServer:
    """Serves everyone who may enter the folder of the Unix socket `path`, without token or TLS."""
    return GrpcServer(gateway, f"unix:{path}", 0, OPEN)


def _bind_port(server: grpc.aio.Server, host: str, port: int, security: PortSecurity) -> int:
    if host.startswith("unix:"):
        return server.add_insecure_port(host)
    host, trust = check_endpoint(host, port, security)  # gRPC's own error does not say why
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        if trust is not None:
            return server.add_secure_port(address, trust)
        return server.add_insecure_port(address)
    except RuntimeError as error:
        raise invalid("port", f"{port} on {host} cannot be opened: {error}") from None
