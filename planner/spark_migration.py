"""The engine of a migration plan on Spark: executors count the queries' bytes, and select for the
pairs of workers in parallel; only sums by worker, cell and step reach the driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from ps2stream.planner.migrate.job import Function, order_table
from ps2stream.planner.migrate.parts import CHOSEN
from ps2stream.planner.migrate.queries import LIVE
from ps2stream.planner.spark import describe_error
from ps2stream.posts.post import bad


class SparkEngine:
    """A MigrationEngine. queries: batches of LIVE."""

    def __init__(self, spark: SparkSession, queries: Sequence[Any]) -> None:
        self._spark = spark
        rows = self._spread(pa.Table.from_batches(queries, LIVE))
        self._queries = rows.repartition(spark.sparkContext.defaultParallelism)

    def measure(self, function: Function, schema: Any, keys: list[str], values: list[str]) -> Any:
        """See MigrationEngine. Raises InvalidArgument for what Spark refuses."""
        rows = self._queries.mapInArrow(function, from_arrow_schema(schema))
        summed = rows.groupBy(*keys).agg(*(F.sum(name).alias(name) for name in values))
        return order_table(_collect(summed.select(*schema.names), schema), keys)

    def choose(self, function: Function, pairs: Any) -> Any:
        """See MigrationEngine. Raises InvalidArgument for what Spark refuses."""

        def run(pair: pa.Table) -> pa.Table:  # Spark reads the types
            return pa.Table.from_batches(function(iter([pair.combine_chunks()])), CHOSEN)

        rows = self._spread(pairs).groupBy("pair")
        return _collect(rows.applyInArrow(run, from_arrow_schema(CHOSEN)), CHOSEN)

    def _spread(self, table: Any) -> DataFrame:
        return self._spark.createDataFrame(table)


def _collect(rows: DataFrame, schema: Any) -> Any:
    try:
        return rows.toArrow().cast(schema)
    except (PySparkException, Py4JJavaError) as error:
        raise bad("spark", describe_error(error)) from error
