"""`replan` over a running service: Spark finds what NumPy finds, and it is taken up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from tests.support.moving import World, by_text, lines, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.mark.takes_turns(0)
def test_spark_decides_as_numpy_does(spark: SparkSession, tmp_path: Path) -> None:
    assert spark.version
    settings = Settings(
        runtime="local", port=0, hot="off", adjust="off", dispatchers=2, data_dir=tmp_path / "data"
    )
    with start(settings, by_text()) as service, Client(service.targets[0], timeout=90) as client:
        world = World(client)
        world.insert(40)
        for _ in range(3):
            world.publish(60)
        replan = ("replan", "--from-service", service.targets[0], "--json")
        [expected] = lines(run(service, *replan, "--engine", "numpy", "--dry-run"))
        found, begun = lines(run(service, *replan))
        assert found == expected
        assert found["reason"] == "load"
        assert begun["event"] == "coexists"
        assert client.migrations().following_version == begun["plan_version"] == 2
        world.insert(5)
        world.publish(20)
        world.check()
