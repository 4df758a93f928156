"""Whether anything listens at the address of a service, asked before the first call: gRPC tries to
connect until the call's deadline."""

from __future__ import annotations

import socket
import time

from ps2stream.client.targets import split_target
from ps2stream.errors import Unavailable

LISTEN_S = 1.0
"""Seconds until an address that does not answer at all is left to the call and its deadline."""
HINT = (
    "start a service with `ps2stream serve`, name its address with --server, or wait with --timeout"
)


PAUSE_S = 0.2
"""Seconds between two looks at a service that is waited for."""


def wait_for_presence(server: str, seconds: float) -> None:
    """As `check_presence`, which is repeated for so many seconds: only some calls wait by
    themselves for a service that is not there yet."""
    end = time.monotonic() + seconds
    while True:
        try:
            return check_presence(server)
        except Unavailable as error:
            if time.monotonic() >= end:
                if not seconds:
                    raise
                problem = str(error).removesuffix(f"; {HINT}")
                raise Unavailable(f"{problem}, for {seconds:g} s") from None
        time.sleep(min(PAUSE_S, max(0.0, end - time.monotonic())))


def check_presence(server: str) -> None:
    """Raises Unavailable, with what to do, where HOST:PORT or unix:PATH refuses a connection, or
    HOST is not known; with several of them, if all do. Any other trouble is left to the call, which
    may name it better."""
    first: Unavailable | None = None
    for address in split_target(server):
        try:
            _check_address(address)
        except Unavailable as error:
            first = first or error
        else:
            return
    if first is not None:
        raise first


def _check_address(server: str) -> None:
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
