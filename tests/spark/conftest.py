"""One Spark session for all tests of this folder."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.spark_options import DAEMON, SETTINGS, submit_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from ps2stream.planner.spark_session import session

    with pytest.MonkeyPatch.context() as patch:
        words = [*submit_options(SETTINGS | DAEMON), "pyspark-shell"]
        patch.setenv("PYSPARK_SUBMIT_ARGS", shlex.join(words))
        with session() as found:
            yield found
