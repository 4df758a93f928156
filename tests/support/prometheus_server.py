"""A Prometheus server of the tests' own, and its promtool."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def program(name: str) -> Path:
    """prometheus or promtool; without, the test is skipped loudly."""
    beside = Path(sys.prefix) / "prometheus/usr/bin" / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name} here (Debian: apt-get install prometheus)")
    return Path(found)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """Asked over its HTTP API."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}/api/v1/"

    def get(self, path: str, **query: str) -> Any:
        """The data of an answer. Raises urllib.error.URLError."""
        url = f"{self._base}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def values(self, expr: str) -> list[tuple[dict[str, str], float]]:
        """Of an instant query: labels and value."""
        found = self.get("query", query=expr)
        return [(row["metric"], float(row["value"][1])) for row in found["result"]]

    def total(self, expr: str) -> float:
        return sum(value for _, value in self.values(expr))

    def until(self, expr: str, wanted: float) -> None:
        """Wait until a query adds up to this."""
        deadline = time.monotonic() + 60
        while (value := self.total(expr)) != wanted:
            assert time.monotonic() < deadline, f"{expr}: {value}, not {wanted}"
            time.sleep(0.2)


@contextlib.contextmanager
def server(folder: Path, port: int | None = None) -> Iterator[Server]:
    """Runs by `folder`/prometheus.yml, but scrapes every second. port: None takes a free one."""
    config = folder / "prometheus.yml"
    config.write_text(config.read_text().replace("15s", "1s"))
    port = port or free_port()
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        found = Server(port)
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError):
                found.get("query", query="1")
                break
            assert process.poll() is None, (folder / "prometheus.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield found
    finally:
        process.terminate()
        process.wait(30)
