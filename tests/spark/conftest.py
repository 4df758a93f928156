"""One Spark session and one service for all tests of this folder."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from tests.support.piped_posts import forget_last_batch
from tests.support.spark_options import SETTINGS, SHARED, submit_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from ps2stream.planner.spark_session import session

    with pytest.MonkeyPatch.context() as patch:
        words = [*submit_options(SETTINGS | SHARED), "pyspark-shell"]
        patch.setenv("PYSPARK_SUBMIT_ARGS", shlex.join(words))
        with session() as found:
            yield found


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = Path(tmp_path_factory.mktemp("data"))
    with start(Settings(runtime="local", port=0, workers=1, data_dir=data)) as running:
        yield running.targets[0]


@pytest.fixture
def client(target: str) -> Iterator[Client]:
    with Client(target, timeout=60) as found:
        yield found


@pytest.fixture
def forget_last() -> Callable[[Path], None]:
    """What makes of a checkpoint that of a driver which died after the work of a micro-batch,
    before it was noted."""
    return forget_last_batch
