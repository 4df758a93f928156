"""A service in this process for the examples, which run as programs of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = Settings(
        runtime="local",
        port=0,
        hot="off",
        adjust="off",
        workers=2,
        data_dir=Path(tmp_path_factory.mktemp("data")),
    )
    with start(settings) as running:
        yield running.targets[0]


@pytest.fixture
def client(target: str) -> Iterator[Client]:
    with Client(target, timeout=90) as connected:
        yield connected


@pytest.fixture
def killed() -> Iterator[list[subprocess.Popen[str]]]:
    """Programs put here are killed in the end, whatever comes of the test."""
    held: list[subprocess.Popen[str]] = []
    yield held
    for process in held:
        process.kill()
        process.communicate(timeout=60)
