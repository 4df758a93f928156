"""A sample as the tables of planner/statistics.py, by Spark.

Executors count (planner/executors.py, the same code as the NumPy twin's) and add up. Only
what is bounded by cells and terms comes to the driver: counts of terms, cells and units,
and at most SIGNATURES objects a cell as sets of units. How many rows that was is logged.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from ps2stream.language.analyzer import Analysis
from ps2stream.planner import counting
from ps2stream.planner import executors as on
from ps2stream.planner.hits import Signatures
from ps2stream.planner.sample import (
    COUNTS,
    MAX_FREQUENCIES,
    Sample,
    assemble,
    commonest,
    ordered,
    units_of,
)
from ps2stream.planner.statistics import SIGNATURES, CellTable
from ps2stream.planner.updates import DELETE, INSERT, UPDATES
from ps2stream.posts.arrow_columns import post_columns
from ps2stream.posts.post import POSTS, SCHEMA, bad, check_head
from ps2stream.posts.readers import Format, format_of
from ps2stream.space.grid import Grid

log = logging.getLogger(__name__)

_WRAPPING = ("Exception thrown in awaitResult", "Job aborted", "None")


class Files(NamedTuple):
    """Files of objects and of queries, and batches of posts.SCHEMA and UPDATES besides."""

    objects: Sequence[str]
    queries: Sequence[str]
    posts: Sequence[Any] = ()
    updates: Sequence[Any] = ()


def take(
    spark: SparkSession,
    files: Files,
    analysis: Analysis,
    grid: Grid | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> Sample:
    """The sample of these files. Without a grid, the one for the queries' median box.

    Raises InvalidArgument for what cannot be read or is wrong, and where there are no
    objects.
    """
    job = _Job(spark, analysis, progress)
    try:
        return job.take(files, grid)
    except (PySparkException, Py4JJavaError) as error:
        if (found := on.refused(str(error))) is not None:
            raise found from None
        raise bad("spark", _said(error)) from error
    finally:
        job.forget()


class _Job:
    def __init__(
        self, spark: SparkSession, analysis: Analysis, progress: Callable[[str], None]
    ) -> None:
        self._spark, self._analysis, self._progress = spark, analysis, progress
        self._collected: dict[str, int] = {}
        self._held: list[DataFrame] = []

    def take(self, files: Files, grid: Grid | None) -> Sample:
        spark, analysis = self._spark, self._analysis
        read = [self._objects(path) for path in files.objects]
        posts = self._union([*read, *self._given(files.posts, SCHEMA)], SCHEMA)
        self._progress("Spark: counting the terms of the objects")
        terms = _mapped(posts, partial(on.count_terms, analysis), counting.TERMS)
        top = _sums(terms, ["term"], ("objects",)).orderBy(F.desc("objects"), "term")
        frequencies = commonest(self._collect("terms", top.limit(MAX_FREQUENCIES), counting.TERMS))
        self._progress("Spark: posting the queries")
        read = [self._updates(path) for path in files.queries]
        rows = [*read, *self._given(files.updates, UPDATES)]
        held = self._persist(standing(self._union(rows, UPDATES)))
        totals = held.agg(*(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in COUNTS))
        counts = {name: int(n) for name, n in totals.collect()[0].asDict().items()}
        if grid is None:
            sides = _mapped(held, on.count_sides, counting.SIDES)
            sides = _sums(sides, ["axis", "side"], ("queries",))
            grid = counting.grid_of(self._collect("sides", sides, counting.SIDES))
        known = spark.sparkContext.broadcast(frequencies)
        found = _mapped(held, partial(on.count_postings, analysis, known, grid), counting.POSTINGS)
        found = _sums(found, ["cell", "term"], COUNTS)
        postings = ordered(self._collect("postings", found, counting.POSTINGS))
        self._progress("Spark: counting the objects of each cell and term")
        units = units_of(postings, on.analyzer_of(analysis))
        tables = self._hits(posts, grid, spark.sparkContext.broadcast(units), len(units))
        sample = assemble(grid, frequencies, counts, postings, *tables)
        self._report(sample)
        return dataclasses.replace(sample, collected=dict(self._collected))

    def _persist(self, rows: DataFrame) -> DataFrame:
        self._held.append(rows.persist())
        return self._held[-1]

    def forget(self) -> None:
        """Drop what the executors hold of it."""
        for rows in self._held:
            rows.unpersist()

    def _hits(
        self, posts: DataFrame, grid: Grid, units: Any, count: int
    ) -> tuple[CellTable, Any, Signatures]:
        hits = _mapped(posts, partial(on.count_hits, self._analysis, units, grid), on.HITS)
        hits = self._persist(hits)
        cells = self._collect("cells", *_keyed(hits, "cell"))
        of_unit = self._collect("units", *_keyed(hits, "unit"))
        unit_objects = np.zeros(count, np.int64)
        unit_objects[of_unit["unit"].to_numpy()] = of_unit["objects"].to_numpy()
        least = Window.partitionBy("cell").orderBy("hash", "units")
        kept = (
            hits.where("hash is not null")
            .withColumn("rank", F.row_number().over(least))
            .where(F.col("rank") <= SIGNATURES)
            .select("cell", "hash", "units")
        )
        schema = pa.schema([on.HITS.field(name) for name in ("cell", "hash", "units")])
        rows = self._collect("signatures", kept, schema).combine_chunks()
        off = np.zeros(len(rows) + 1, np.int64)
        lists = rows["units"].combine_chunks()
        np.cumsum(lists.value_lengths().to_numpy(zero_copy_only=False), out=off[1:])
        signatures = Signatures(
            rows["cell"].to_numpy(), rows["hash"].to_numpy(), off, lists.flatten().to_numpy()
        )
        number, objects = cells["cell"].to_numpy(), cells["objects"].to_numpy()
        return CellTable(number, objects.astype(np.float64)), unit_objects, signatures

    def _objects(self, path: str) -> DataFrame:
        kind, rows = self._read(path)
        columns: dict[str, str] = {}
        if kind == "parquet":
            columns = post_columns(path, to_arrow_schema(rows.schema))
            columns.pop("id", None)
            rows = rows.select(*{f"`{name}`" for name in columns.values()})
        elif kind == "csv":
            check_head(path, rows.columns, POSTS)
            rows = rows.fillna("", ["text"])
        return _mapped(self._spread(rows), partial(on.read_objects, kind, path, columns), SCHEMA)

    def _updates(self, path: str) -> DataFrame:
        kind, rows = self._read(path)
        if kind != "jsonl":
            check_head(path, rows.columns, [("id",)])
        return _mapped(self._spread(rows), partial(on.read_updates, kind, path), UPDATES)

    def _read(self, path: str) -> tuple[Format, DataFrame]:
        """JSON lines as text, CSV as strings: its rows are checked as `publish` does it."""
        kind, reader = format_of(path), self._spark.read
        try:
            if kind == "parquet":
                return kind, reader.parquet(path)
            if kind == "jsonl":
                return kind, reader.text(path)
            rows = reader.csv(
                path, header=True, quote='"', escape='"', multiLine=True, mode="FAILFAST",
                ignoreLeadingWhiteSpace=False, ignoreTrailingWhiteSpace=False,
            )  # fmt: skip
        except (AnalysisException, Py4JJavaError) as error:
            raise bad(path, f"cannot read it: {_said(error)}") from None
        return kind, rows

    def _spread(self, rows: DataFrame) -> DataFrame:
        """Over all cores: a small file is one partition."""
        cores = self._spark.sparkContext.defaultParallelism
        return rows if rows.rdd.getNumPartitions() >= cores else rows.repartition(cores)

    def _given(self, batches: Sequence[Any], schema: Any) -> list[DataFrame]:
        if not batches:
            return []
        return [self._spark.createDataFrame(pa.Table.from_batches(batches, schema))]

    def _union(self, parts: list[DataFrame], schema: Any) -> DataFrame:
        if not parts:
            return self._spark.createDataFrame([], from_arrow_schema(schema))
        return reduce(DataFrame.unionByName, parts)

    def _collect(self, name: str, rows: DataFrame, schema: Any) -> Any:
        table = rows.select(*schema.names).toArrow().cast(schema)
        self._collected[name] = len(table)
        return table

    def _report(self, sample: Sample) -> None:
        read = {"objects": sample.objects, "queries": sample.live + sample.deletes}
        log.info("sampled", extra={"rows_read": read, "rows_collected": self._collected})
        self._progress(
            f"Spark: read {sum(read.values()):,} rows, collected {sum(self._collected.values()):,}"
        )


def standing(updates: DataFrame) -> DataFrame:
    """counting.QUERIES of UPDATES, as updates.standing gives them."""
    turns = Window.partitionBy("id").orderBy("time", "op", "expression", "box")
    before = F.lag("op").over(turns)
    alive = F.coalesce(before != DELETE, F.lit(False))
    changes = updates.withColumn("alive", alive).where((F.col("op") == DELETE) == F.col("alive"))
    ended = F.coalesce(F.lead("op").over(turns) == DELETE, F.lit(False))
    return (
        changes.withColumn("ended", ended)
        .where(F.col("op") != DELETE)
        .select(
            "id",
            "expression",
            "box",
            (~F.col("ended")).cast("long").alias("live"),
            (F.col("op") == INSERT).cast("long").alias("inserts"),
            F.col("ended").cast("long").alias("deletes"),
        )
    )


def _said(error: Exception) -> str:
    """What Spark or Java said: a line each of the failure and its causes."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    said = [] if java is not None else [str(error)]
    while java is not None:
        said.append(str(java.getMessage()))
        java = java.getCause()
    lines = dict.fromkeys(next(iter(text.splitlines()), "") for text in said)
    told = [line for line in lines if line and not line.startswith(_WRAPPING)]
    return "; ".join(told) or "failed"


def _mapped(rows: DataFrame, function: Callable[..., Iterator[Any]], schema: Any) -> DataFrame:
    return rows.mapInArrow(function, from_arrow_schema(schema))


def _sums(rows: DataFrame, keys: list[str], values: Sequence[str]) -> DataFrame:
    return rows.groupBy(*keys).agg(*(F.sum(name).alias(name) for name in values))


def _keyed(hits: DataFrame, key: str) -> tuple[DataFrame, Any]:
    """The objects of HITS by cell or unit, and their schema."""
    rows = hits.where(F.col(key).isNotNull() & F.col("objects").isNotNull())
    return _sums(rows, [key], ("objects",)), pa.schema([(key, pa.int64()), ("objects", pa.int64())])
