"""The gRPC server: one port, PubSub, Admin, health and reflection.

server = serve(gateway, "127.0.0.1", 7077)
...
server.stop(1.0)
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from ps2stream.dispatcher.gateway import DispatcherGateway
from ps2stream.errors import InvalidArgument, invalid
from ps2stream.limits import BATCH_BYTES
from ps2stream.security import PortSecurity, is_loopback
from ps2stream.service import admin, pubsub, tls
from ps2stream.service.auth import CallGuard
from ps2stream.service.lanes import CallLanes
from ps2stream.service.tenants import TenantServices

log = logging.getLogger("ps2stream.service")

OPEN = PortSecurity()
"""The security of a loopback address: no TLS, and no identities."""
LOOKAHEAD_BYTES = 1 << 19
OPTIONS: list[tuple[str, int]] = [
    ("grpc.so_reuseport", 0),  # else two servers would share a port unnoticed
    # Above batch_bytes, so that a slightly larger batch gets our error, which names the limit.
    ("grpc.max_receive_message_length", BATCH_BYTES + (1 << 20)),
    ("grpc.max_send_message_length", 64 << 20),
    # What a stream sends ahead waits in our memory, where gRPC's default grows to many megabytes.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", LOOKAHEAD_BYTES),
    ("grpc.max_metadata_size", 16 << 10),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 2),
]


class GuardedHandlers(grpc.GenericRpcHandler):
    """The handlers of all methods that are chosen call by call, behind the guard. Services are
    added to it as to a server."""

    def __init__(self, guard: CallGuard) -> None:
        self._guard = guard
        self._handlers: list[grpc.GenericRpcHandler] = []

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Adds handlers."""
        self._handlers.extend(handlers)

    def add_registered_method_handlers(self, service: str, handlers: object) -> None:
        """Adds nothing: a service adds the same handlers as generic ones."""

    def service(self, handler_call_details: Any) -> Any:
        """Returns the handler of a call."""
        found = (handler.service(handler_call_details) for handler in self._handlers)
        handler = next((each for each in found if each is not None), None)
        return self._guard.choose_handler(handler, handler_call_details)


class GrpcServer:
    """A running server on `port`."""

    def __init__(
        self, gateway: DispatcherGateway, host: str, port: int, security: PortSecurity
    ) -> None:
        self._tenants = TenantServices(gateway, security)
        lanes = CallLanes()
        self._guard = CallGuard(security, gateway, self._tenants.end, lanes)
        self._admin = admin.AdminService(
            gateway,
            self._guard,
            lambda: {
                "shed_objects": float(self._tenants.refused()["shed"]),
                "cut_streams": float(self._tenants.cut()),
            },
        )
        self._health = health.HealthServicer()
        self._server = grpc.server(
            lanes.streams,
            options=OPTIONS,
            maximum_concurrent_rpcs=lanes.limit,
        )
        unary, streams = self._tenants.handlers()
        # Registered methods have queues of their own: a delete does not wait behind publications.
        self._server.add_registered_method_handlers(
            pubsub.SERVICE,
            {n: self._guard.guard_unary(f"/{pubsub.SERVICE}/{n}", h) for n, h in unary.items()},
        )
        guarded = GuardedHandlers(self._guard)
        guarded.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(pubsub.SERVICE, streams), self._admin.handler())
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, guarded)
        names = (pubsub.SERVICE, admin.SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, guarded)
        self._server.add_generic_rpc_handlers((guarded,))
        try:
            self.port = _bind_port(self._server, host, port, security)
        except InvalidArgument:
            self._tenants.close()
            raise
        self._server.start()
        for name in ("", pubsub.SERVICE, admin.SERVICE):
            self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    def status(self) -> dict[str, Any]:
        """Returns totals since the start."""
        return {"refused_objects": self._tenants.refused(), "cut_streams": self._tenants.cut()}

    def stop(self, grace: float = 1.0) -> None:
        """Refuses new calls, ends the streams of those who subscribe or watch, and lets others
        finish for `grace` seconds."""
        self._health.enter_graceful_shutdown()
        stopped = self._server.stop(grace)
        self._tenants.stop()
        self._admin.stop()
        self._guard.stop()
        stopped.wait()
        self._tenants.close()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the server has stopped; returns True when it still runs after `timeout`
        seconds."""
        return bool(self._server.wait_for_termination(timeout))


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


def _bind_port(server: grpc.Server, host: str, port: int, security: PortSecurity) -> int:
    if host.startswith("unix:"):
        return server.add_insecure_port(host)
    trust = tls.credentials(security)
    host, family = _resolve_address(host, trust is not None)
    with socket.socket(family, socket.SOCK_STREAM) as probe:  # gRPC's own error does not say why
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise invalid("port", f"{port} on {host} is in use") from None
            raise invalid("port", f"{host}:{port}: {os.strerror(error.errno or 0)}") from None
    address = f"[{host}]:{port}" if family == socket.AF_INET6 else f"{host}:{port}"
    try:
        if trust is not None:
            return server.add_secure_port(address, trust)
        return server.add_insecure_port(address)
    except RuntimeError as error:
        raise invalid("port", f"{port} on {host} cannot be opened: {error}") from None


def _resolve_address(host: str, secret: bool) -> tuple[str, socket.AddressFamily]:
    """Returns the address and its family. An address that other machines can reach is refused
    unless TLS keeps what passes there `secret`."""
    try:
        plain = is_loopback(host)
    except ValueError:
        raise invalid("host", f"{host!r} is not an IP address or localhost") from None
    if not (plain or secret):
        raise invalid(
            "host",
            f"{host} is not a loopback address, which needs TLS; set tls_cert and tls_key",
        )
    if host == "localhost":
        host = "127.0.0.1"
    return host, socket.AF_INET6 if ":" in host else socket.AF_INET
