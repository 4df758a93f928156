"""A broker, a service and a connector, each a process of its own that can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ps2stream.client.client import Client
from tests.conftest import ROOT
from tests.support.kafka_broker import free_port

QUOTA = 2_000
"""Objects a second that the service takes, so that it refuses some now and then."""


class Program:
    """A `ps2stream` command with --json: what it prints, and how it ends."""

    def __init__(self, folder: Path, *words: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ps2stream", *words, "--json"],
                stdout=out,
                stderr=err,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
            )

    @property
    def said(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._out.read_text().splitlines(True) if "\n" in line]

    @property
    def complained(self) -> str:
        return self._err.read_text()

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first line of this kind. Fails when the program ends without."""
        deadline = time.monotonic() + 300
        while True:
            ended = self._process.poll() is not None
            for line in self.said:
                if wanted(line):
                    return line
            assert not ended, self.complained
            assert time.monotonic() < deadline, (self.said[-3:], self.complained[-3000:])
            time.sleep(0.02)

    def ready(self) -> dict[str, Any]:
        return self.until(lambda line: line["event"] == "ready")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(30)

    def stop(self) -> dict[str, Any]:
        """As an operator does; the last thing that it says."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(60) == 0, self.complained
        last = self.said[-1]
        assert last["event"] == "stopped"
        return last

    def failed(self) -> tuple[int, dict[str, Any]]:
        """Its exit code and error, once it has ended by itself."""
        code = self._process.wait(60)
        error: dict[str, Any] = json.loads(self.complained.splitlines()[-1])["error"]
        return code, error

    @property
    def running(self) -> bool:
        return self._process.poll() is None


class World:
    """A service at one port over one data directory, and connectors of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._programs: list[Program] = []
        self._service: Program | None = None
        self.target = ""
        self._metrics_port = free_port()
        self.start()

    def start(self) -> None:
        port = self.target.rpartition(":")[2] or "0"
        config = self._folder / "ps2stream.toml"
        config.write_text(f"[quotas.default]\nobjects_per_s = {QUOTA}\n")
        options = ["--runtime", "local", "--workers", "1", "--port", port, "--config", str(config)]
        options += ["--metrics-port", str(self._metrics_port)]
        self._service = self._begin("serve", *options, "--data-dir", str(self._folder / "data"))
        self.target = self._service.ready()["targets"][0]

    def kill(self) -> None:
        """kill -9 of the service."""
        assert self._service is not None
        self._service.kill()

    def connect(self, *words: str) -> Program:
        """A connector, which tells its status often."""
        more = ["--server", self.target, "--status-every", "0.05"]
        return self._begin("connect", *words, *more)

    def client(self) -> Client:
        return Client(self.target, timeout=60)

    def refused(self, reason: str) -> float:
        """Objects that the service did not take since it was started."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics") as answer:
            lines: list[str] = answer.read().decode().splitlines()
        of = [line for line in lines if line.startswith("ps2stream_objects_refused_total{")]
        return sum(float(line.split()[-1]) for line in of if f'reason="{reason}"' in line)

    def _begin(self, *words: str) -> Program:
        program = Program(self._folder / f"program-{len(self._programs)}", *words)
        self._programs.append(program)
        return program

    def end(self) -> None:
        for program in self._programs:
            if program.running:
                program.kill()


@contextmanager
def _world(folder: Path) -> Iterator[World]:
    world = World(folder)
    try:
        yield world
    finally:
        world.end()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Of all tests of a module."""
    with _world(tmp_path_factory.mktemp("world")) as found:
        yield found


def arrived(client: Client, session: str, texts: set[str]) -> Counter[tuple[str, str]]:
    """How often (object id, text) came, until all these texts have."""
    missing = set(texts)
    found: Counter[tuple[str, str]] = Counter()
    deadline = time.monotonic() + 300
    with client.subscribe(session) as matches:
        for match in matches:
            found[match.object_id, str(match.text)] += 1
            missing.discard(str(match.text))
            if not missing:
                return found
            assert time.monotonic() < deadline
    return found
