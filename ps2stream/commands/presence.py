"""Whether anything listens at the address of a service, asked before the first call: gRPC tries to
connect until the call's deadline."""

from __future__ import annotations

import socket

from ps2stream.errors import Unavailable

LISTEN_S = 1.0
"""Seconds until an address that does not answer at all is left to the call and its deadline."""
HINT = (
    "start a service with `ps2stream serve`, name its address with --server, or wait with --timeout"
)


def check_presence(server: str) -> None:
    """Raises Unavailable, with what to do, where HOST:PORT or unix:PATH refuses a connection, or
    HOST is not known. Any other trouble is left to the call, which may name it better."""
    try:
        if server.startswith("unix:"):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.settimeout(LISTEN_S)
                probe.connect(server.removeprefix("unix:"))
        else:
            host, _, port = server.rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), LISTEN_S).close()
    except (ConnectionRefusedError, FileNotFoundError, socket.gaierror) as error:
        if error.errno == socket.EAI_AGAIN:
            return
        raise Unavailable(f"cannot connect to {server}: {error.strerror}; {HINT}") from None
    except (OSError, UnicodeError):
        return
