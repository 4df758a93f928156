"""Whether a port can be served: its address, whether it is free, and its TLS files."""

from __future__ import annotations

import errno
import os
import socket

import grpc

from ps2stream.errors import invalid
from ps2stream.security import PortSecurity, is_loopback
from ps2stream.service import tls


def check_endpoint(
    host: str, port: int, security: PortSecurity
) -> tuple[str, grpc.ServerCredentials | None]:
    """Returns the address to bind and the credentials of the port, None without TLS. Raises
    InvalidArgument, naming the setting, for an address that cannot be served, a port in use (0:
    any free one), and unusable TLS files."""
    trust = tls.credentials(security)
    address = _check_address(host, trust is not None)
    if (error := try_binding(address, port)) is not None:
        if error.errno == errno.EADDRINUSE:
            raise invalid("port", f"{port} on {address} is in use")
        raise invalid("port", f"{address}:{port}: {os.strerror(error.errno or 0)}")
    return address, trust


def try_binding(address: str, port: int) -> OSError | None:
    """Binds the port of an IP address and frees it again; returns why it cannot be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            return error
    return None


def _check_address(host: str, secret: bool) -> str:
    """Returns the IP address. One that other machines can reach is refused unless TLS keeps what
    passes there `secret`."""
    try:
        plain = is_loopback(host)
    except ValueError:
        raise invalid("host", f"{host!r} is not an IP address or localhost") from None
    if not (plain or secret):
        raise invalid(
            "host",
            f"{host} is not a loopback address, which needs TLS; set tls_cert and tls_key",
        )
    return "127.0.0.1" if host == "localhost" else host
