"""A service that is not there: an error at once, unless the user asked to wait for it."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.commands.presence import HINT, check_presence
from ps2stream.errors import Unavailable
from ps2stream.service.server import GrpcServer, serve
from tests.support.gateways import GATEWAY


@pytest.fixture
def free() -> int:
    """A port that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("command", ["health", "status", "list", "insert q flood", "migrations"])
def test_what_refuses_connections_is_an_error_at_once(command: str, free: int) -> None:
    begun = time.monotonic()
    found = CliRunner().invoke(main, [*command.split(), "--server", f"127.0.0.1:{free}"])
    assert time.monotonic() - begun < 5  # of the 10 that an answer may take
    assert found.exit_code == 5
    assert (
        found.stderr
        == f"ps2stream: cannot connect to 127.0.0.1:{free}: Connection refused; {HINT}\n"
    )


def test_a_socket_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=f"{tmp_path}/none: No such file or directory; start"):
        check_presence(f"unix:{tmp_path}/none")


def test_a_name_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a resolver of this machine says of it."""
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    late = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    for error, match in ((unknown, "nobody:7077: Name or service not known; start"), (late, "")):

        def look_up(*_: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        if match:
            with pytest.raises(Unavailable, match=match):
                check_presence("nobody:7077")
        else:
            check_presence("nobody:7077")


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_what_listens_is_left_alone(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as listener:
        port = listener.getsockname()[1]
        check_presence(f"[{address}]:{port}" if ":" in address else f"{address}:{port}")


def test_a_timeout_that_is_given_waits_no_longer(free: int) -> None:
    found = CliRunner().invoke(main, ["list", "--server", f"127.0.0.1:{free}", "--timeout", "0.5"])
    assert found.exit_code == 5
    assert (
        found.stderr
        == f"ps2stream: cannot connect to 127.0.0.1:{free}: Connection refused, for 0.5 s\n"
    )


@pytest.mark.parametrize("command", ["publish -", "subscribe --limit 1", "rebalance"])
def test_a_timeout_that_is_given_waits_before_what_is_not_repeated(command: str, free: int) -> None:
    words = [*command.split(), "--server", f"127.0.0.1:{free}", "--timeout", "2"]
    listening: list[socket.socket] = []
    starting = threading.Timer(
        1.0, lambda: listening.append(socket.create_server(("127.0.0.1", free)))
    )
    starting.start()
    try:
        found = CliRunner().invoke(main, words, input='{"text": "flood", "lon": 0, "lat": 0}')
    finally:
        starting.join()
        listening[0].close()
    assert found.exit_code == 5
    assert "refused" not in found.stderr
    assert "within 2 s" in found.stderr


def test_a_timeout_that_is_given_waits_for_the_service(free: int) -> None:
    served: list[GrpcServer] = []
    starting = threading.Timer(1.0, lambda: served.append(serve(GATEWAY, "127.0.0.1", free)))
    starting.start()
    try:
        found = CliRunner().invoke(
            main, ["health", "--server", f"127.0.0.1:{free}", "--timeout", "30"]
        )
    finally:
        starting.join()
        served[0].stop(0)
    assert (found.exit_code, found.stdout) == (0, f"127.0.0.1:{free} serves\n")


def test_of_several_dispatchers_one_is_enough(free: int) -> None:
    gone = f"127.0.0.1:{free}"
    server = serve(GATEWAY, "127.0.0.1", 0)
    try:
        both = f"{gone}, 127.0.0.1:{server.port}"
        for _ in range(5):
            found = CliRunner().invoke(main, ["health", "--server", both])
            assert (found.exit_code, found.stderr) == (0, "")
    finally:
        server.stop(0)
    with pytest.raises(Unavailable, match=f"cannot connect to {gone}: Connection refused"):
        check_presence(both)


def test_an_address_among_several_that_is_none_is_refused() -> None:
    found = CliRunner().invoke(main, ["health", "--server", "127.0.0.1:7077,here"])
    assert found.exit_code == 2
    assert "expected HOST:PORT, got 'here'" in found.stderr


@pytest.mark.parametrize("command", ["list", "scale --dispatchers 2", "scale --mergers 2"])
def test_what_accepts_connections_and_says_nothing_is_named_with_the_limit(command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = "{}:{}".format(*silent.getsockname())
        begun = time.monotonic()
        found = CliRunner().invoke(main, [*command.split(), "--server", server, "--timeout", "0.5"])
        assert time.monotonic() - begun < 30  # of the 120 that new actors may take to start
    assert found.exit_code == 5
    assert found.stderr == f"ps2stream: {server} did not answer within 0.5 s\n"
