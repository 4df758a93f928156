"""A start that cannot succeed ends before Ray is started, and names what is wrong."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ps2stream.cluster import service
from ps2stream.cluster.private_folder import OWNER, PREFIX
from ps2stream.cluster.start_checks import check_start
from ps2stream.config import Settings
from ps2stream.errors import DataDirectoryError, InvalidArgument
from ps2stream.store.directory import lock_directory
from tests.support.certificates import Authority

ACTOR = """
import fcntl, socket, sys, time
lock, log = open(sys.argv[1], "a"), open(sys.argv[2], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
time.sleep(600)
"""


@pytest.fixture
def taken() -> Iterator[int]:
    """A port in use."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails the test where Ray would be started, or kernels compiled."""
    for name in ("RayService", "compile_kernels"):
        monkeypatch.setattr(service, name, lambda *_: pytest.fail("the start went on"))


def settings_for(folder: Path, **given: Any) -> Settings:
    return Settings(**{"port": 0, "data_dir": folder / "data", **given})


def test_a_port_in_use(tmp_path: Path, taken: int) -> None:
    with pytest.raises(InvalidArgument, match=f"^port: {taken} on 127.0.0.1 is in use"):
        service.start(settings_for(tmp_path, port=taken))
    assert not (tmp_path / "data").exists()


def test_the_port_of_the_second_dispatcher_in_use(tmp_path: Path, taken: int) -> None:
    with pytest.raises(InvalidArgument, match=f"port: {taken} on 127.0.0.1 is in use"):
        check_start(settings_for(tmp_path, port=taken - 1, dispatchers=2))


def test_a_host_that_this_machine_has_not(tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue("server")
    tls = {"tls_cert": pair.cert, "tls_key": pair.key}
    with pytest.raises(InvalidArgument, match=r"port: 192\.0\.2\.1:7077: Cannot assign"):
        service.start(settings_for(tmp_path, host="192.0.2.1", port=7077, **tls))


def test_a_tls_file_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "none.pem"
    with pytest.raises(InvalidArgument, match=f"tls_cert: {missing}: No such file"):
        service.start(settings_for(tmp_path, tls_cert=missing, tls_key=missing))


def test_a_data_directory_in_use(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    with (
        contextlib.closing(lock_directory(settings.data_dir)),
        pytest.raises(DataDirectoryError, match="data is in use by process"),
    ):
        service.start(settings)
    check_start(settings)
    check_start(settings)  # it holds nothing itself


def test_other_hosts_have_ports_and_data_of_their_own(tmp_path: Path, taken: int) -> None:
    url = "postgresql://user@host/db"
    check_start(settings_for(tmp_path, port=taken, ray_address="10.0.0.1:6379", database_url=url))


def test_what_a_killed_service_left_is_ended_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An actor outlives a service that was killed, with the lock and the port that it holds."""
    settings = settings_for(tmp_path)
    lock_directory(settings.data_dir).close()
    with tempfile.TemporaryDirectory(dir="/tmp") as base:
        monkeypatch.setattr(tempfile, "tempdir", base)
        left = Path(base) / f"{PREFIX}left"
        left.mkdir()
        (left / OWNER).write_text("1\n")
        words = [sys.executable, "-c", ACTOR, str(settings.data_dir / "lock"), str(left / "log")]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as actor:
            assert actor.stdout is not None
            port = int(actor.stdout.readline())
            check_start(settings.model_copy(update={"port": port}))
            assert actor.wait(10) == -signal.SIGKILL
        assert not left.exists()
