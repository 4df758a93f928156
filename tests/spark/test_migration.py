"""Spark's executors find the same migration steps as one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ps2stream.errors import InvalidArgument
from ps2stream.planner.algorithms import ALGORITHMS
from ps2stream.planner.migrate.job import LocalEngine, MigrationOptions, plan_migration
from ps2stream.planner.migrate.queries import LIVE
from ps2stream.planner.partition import PartitionOptions, to_plan
from ps2stream.planner.spark_migration import SparkEngine
from ps2stream.routing.plan import built_in_plan
from tests.support.migrating import ANALYSIS, GRID, batches, sampled, some_queries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def test_executors_find_the_same_steps(spark: SparkSession) -> None:
    queries = some_queries(5, 300)
    stats, rows = sampled(5, queries), batches(queries)
    base = built_in_plan(ANALYSIS, GRID, 4)
    partition = ALGORITHMS["hybrid"](stats, 4, PartitionOptions())
    target = to_plan(partition, stats, 4, ANALYSIS, {})
    options = MigrationOptions(select="dp", step_bytes=20_000)
    expected = plan_migration(LocalEngine(rows), stats, base, target, options).to_dict()
    assert len(expected["steps"]) > 1
    assert len({c for step in expected["steps"] for c in step["loads"]}) > 4
    found = plan_migration(SparkEngine(spark, rows), stats, base, target, options).to_dict()
    assert found == expected


def test_a_query_that_no_service_takes_is_told(spark: SparkSession) -> None:
    bad = pa.record_batch([["q"], ["flood AND"], [None], [0]], LIVE)
    base = built_in_plan(ANALYSIS, GRID, 2)
    stats = sampled(5, some_queries(5, 50))
    target = to_plan(ALGORITHMS["kdtree"](stats, 2, PartitionOptions()), stats, 2, ANALYSIS, {})
    with pytest.raises(InvalidArgument):
        plan_migration(SparkEngine(spark, [bad]), stats, base, target, MigrationOptions())
