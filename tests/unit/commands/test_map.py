"""A map whose service is not there yet."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

from ps2stream.service.server import serve
from tests.support.gateways import GATEWAY


def run_until_ready(server: str) -> tuple[str, str]:
    """Runs a map until it is served, and ends it; returns its output and its errors."""
    program = [sys.executable, "-m", "ps2stream", "map", "--server", server, "--port", "0"]
    running = subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    assert running.stdout is not None
    try:
        first = running.stdout.readline()
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 0
    return first + out, err


def test_a_service_that_is_not_there_is_named_and_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        gone = f"127.0.0.1:{probe.getsockname()[1]}"
    out, err = run_until_ready(gone)
    assert out.startswith(f"the map of {gone} is at http")
    assert out.endswith("stopped\n")
    problem = f"cannot connect to {gone}: Connection refused"
    assert err == f"ps2stream: {problem}; the map waits for the service\n"


def test_a_service_that_is_there_is_not_spoken_of() -> None:
    server = serve(GATEWAY, "127.0.0.1", 0)
    try:
        out, err = run_until_ready(f"127.0.0.1:{server.port}")
    finally:
        server.stop(0)
    assert (out.endswith("stopped\n"), err) == (True, "")
