"""A server over the real machines, all in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ps2stream.client.client import Client
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    settings = Settings(
        runtime="local", port=0, workers=2, data_dir=Path(tmp_path_factory.mktemp("data"))
    )
    with start(settings) as running:
        yield running


@pytest.fixture(scope="module")
def target(service: RunningService) -> str:
    return service.targets[0]


@pytest.fixture
def client(target: str) -> Iterator[Client]:
    with Client(target, timeout=90) as connected:
        yield connected
