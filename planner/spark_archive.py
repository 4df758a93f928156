"""The rows of an archive by Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from ps2stream.archive.columns import SCHEMA
from ps2stream.archive.withdrawn import WithdrawnObjects


def read_archived(
    spark: SparkSession, files: Sequence[Path], withdrawn: WithdrawnObjects | None = None
) -> DataFrame:
    """Returns the rows of some files of an archive. withdrawn: None if nothing is."""
    schema = from_arrow_schema(SCHEMA)
    if not files:
        return spark.createDataFrame([], schema)
    return leave_out_withdrawn(spark.read.schema(schema).parquet(*map(str, files)), withdrawn)


def leave_out_withdrawn(rows: DataFrame, withdrawn: WithdrawnObjects | None) -> DataFrame:
    """Returns the rows of an archive that are not withdrawn."""
    if not withdrawn:
        return rows

    def keep(parts: Iterator[Any]) -> Iterator[Any]:
        return map(withdrawn.keep, parts)

    return rows.mapInArrow(keep, rows.schema)
