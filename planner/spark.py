"""The tables of planner/statistics.py from a sample, by Spark.

Executors count (planner/executors.py, the same code as the NumPy twin's) and add up. Only what is
bounded by cells and terms reaches the driver: counts of terms, cells and units, and at most
SIGNATURES objects per cell as sets of units; each distinct term once as a string, all else as
integers (planner/postings.py). The number of these rows is logged.
"""

from __future__ import annotations

import dataclasses
import itertools
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

from ps2stream.archive import columns as archive_columns
from ps2stream.archive.reading import list_files
from ps2stream.language.analyzer import Analysis
from ps2stream.planner import counting
from ps2stream.planner import executors as on
from ps2stream.planner.hits import ObjectSignatures
from ps2stream.planner.objects import OBJECTS
from ps2stream.planner.postings import HASHED, NAMES, PostingTable
from ps2stream.planner.sample import (
    COUNTS,
    MAX_FREQUENCIES,
    PlannerSample,
    build_sample,
    commonest,
    units_of,
    with_rows,
)
from ps2stream.planner.sample_rows import MAX_ROWS, OBJECT_ROWS, QUERY_ROWS
from ps2stream.planner.statistics import SIGNATURES, CellTable
from ps2stream.planner.updates import DELETE, INSERT, UPDATES
from ps2stream.posts.arrow_columns import post_columns
from ps2stream.posts.attribute_columns import choose_columns
from ps2stream.posts.members import AttributeChoice
from ps2stream.posts.post import KNOWN, POSTS, bad, check_head
from ps2stream.posts.readers import Format, format_of
from ps2stream.space.grid import Grid

log = logging.getLogger(__name__)

PART_ROWS = 4_000_000
"""About how many postings are collected by one job of Spark, whose results are limited."""
_SIGNATURES = pa.schema(
    [("cell", pa.int64()), ("hash", pa.int64()), ("units", pa.list_(pa.int32()))]
)
_WRAPPING = ("Exception thrown in awaitResult", "Job aborted", "None")


class SampleFiles(NamedTuple):
    """Files of objects and of queries, with further batches of OBJECTS and UPDATES; which of the
    former's members and columns are attributes."""

    objects: Sequence[str]
    queries: Sequence[str]
    posts: Sequence[Any] = ()
    updates: Sequence[Any] = ()
    attributes: str | None = None


def take(
    spark: SparkSession,
    files: SampleFiles,
    analysis: Analysis,
    grid: Grid | None = None,
    progress: Callable[[str], None] = lambda what: None,
    rows: bool = False,
) -> PlannerSample:
    """Samples these files. grid: by default the one for the queries' median box; rows: whether the
    sample is also kept row by row.

    Raises InvalidArgument for input that cannot be read or is wrong, and if there are no objects;
    PlanError for more rows than are kept.
    """
    job = _SamplingJob(spark, analysis, progress)
    try:
        return job.take(files, grid, rows)
    except (PySparkException, Py4JJavaError) as error:
        if (found := on.refused(str(error))) is not None:
            raise found from None
        raise bad("spark", describe_error(error)) from error
    finally:
        job.forget()


class _SamplingJob:
    def __init__(
        self, spark: SparkSession, analysis: Analysis, progress: Callable[[str], None]
    ) -> None:
        self._spark, self._analysis, self._progress = spark, analysis, progress
        self._collected: dict[str, int] = {}
        self._held: list[DataFrame] = []

    def take(self, files: SampleFiles, grid: Grid | None, rows: bool) -> PlannerSample:
        spark, analysis = self._spark, self._analysis
        read = [self._read_objects(path, files.attributes) for path in files.objects]
        posts = self._union_parts([*read, *self._convert_batches(files.posts, OBJECTS)], OBJECTS)
        self._progress("Spark: counting the terms of the objects")
        terms = _map_rows(posts, partial(on.count_terms, analysis), counting.TERMS)
        top = _sum_rows(terms, ["term"], ("objects",)).orderBy(F.desc("objects"), "term")
        frequencies = commonest(
            self._collect_rows("terms", top.limit(MAX_FREQUENCIES), counting.TERMS)
        )
        self._progress("Spark: posting the queries")
        read = [self._read_updates(path) for path in files.queries]
        read += self._convert_batches(files.updates, UPDATES)
        held = self._persist_rows(standing(self._union_parts(read, UPDATES)))
        totals = held.agg(*(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in COUNTS))
        counts = {name: int(n) for name, n in totals.collect()[0].asDict().items()}
        if grid is None:
            sides = _map_rows(held, on.count_sides, counting.SIDES)
            sides = _sum_rows(sides, ["axis", "side"], ("queries",))
            grid = counting.grid_of(self._collect_rows("sides", sides, counting.SIDES))
        known = spark.sparkContext.broadcast(frequencies)
        found = _map_rows(
            held, partial(on.count_postings, analysis, known, grid), counting.POSTINGS
        )
        postings = self._collect_postings(_sum_rows(found, ["cell", "term"], COUNTS))
        self._progress("Spark: counting the objects of each cell and term")
        units = units_of(postings, on.analyzer_of(analysis))
        shared = spark.sparkContext.broadcast(units)
        tables = self._count_hits(posts, grid, shared, len(units))
        sample = build_sample(grid, frequencies, counts, postings, *tables)
        if rows:
            listed = partial(on.list_objects, analysis, shared, grid)
            objects = _map_rows(posts, listed, OBJECT_ROWS).limit(MAX_ROWS + 1)
            asked = partial(on.list_queries, analysis, known, grid)
            queries = _map_rows(held, asked, QUERY_ROWS).limit(MAX_ROWS + 1)
            sample = with_rows(
                sample,
                self._collect_rows("objects", objects, OBJECT_ROWS),
                self._collect_rows("queries", queries, QUERY_ROWS),
                on.analyzer_of(analysis),
            )
        self._report_sample(sample)
        return dataclasses.replace(sample, collected=dict(self._collected))

    def _persist_rows(self, rows: DataFrame) -> DataFrame:
        self._held.append(rows.persist())
        return self._held[-1]

    def forget(self) -> None:
        """Drops the rows of this job that the executors hold."""
        for rows in self._held:
            rows.unpersist()

    def _collect_postings(self, found: DataFrame) -> PostingTable:
        """Collects sums of POSTINGS: each distinct term once, the rows in integers and in parts."""
        found = self._persist_rows(found)
        parts = 1 + found.count() // PART_ROWS
        for seed in itertools.count():
            hashed = found.withColumn("hash", F.xxhash64(F.lit(seed), "term"))
            names = self._collect_rows("names", hashed.select(*NAMES.names).distinct(), NAMES)
            fields = from_arrow_schema(HASHED)
            rows = hashed.select(*(F.col(f.name).cast(f.dataType).alias(f.name) for f in fields))
            mine = F.pmod(F.xxhash64("cell", "hash"), F.lit(parts))
            tables = [
                self._collect_rows("postings", rows.where(mine == part), HASHED)
                for part in range(parts)
            ]
            table = PostingTable.of_hashes(names, pa.concat_tables(tables))
            if table is not None:  # else two terms have one hash: by another seed
                self._collected["postings"] = len(table)
                return table
        raise AssertionError

    def _count_hits(
        self, posts: DataFrame, grid: Grid, units: Any, count: int
    ) -> tuple[CellTable, Any, ObjectSignatures]:
        hits = _map_rows(posts, partial(on.count_hits, self._analysis, units, grid), on.HITS)
        hits = self._persist_rows(hits)
        cells = self._collect_rows("cells", *_sum_objects(hits, "cell"))
        of_unit = self._collect_rows("units", *_sum_objects(hits, "unit"))
        unit_objects = np.zeros(count, np.int64)
        unit_objects[of_unit["unit"].to_numpy()] = of_unit["objects"].to_numpy()
        least = Window.partitionBy("cell").orderBy("hash", "units")
        kept = (
            hits.where("hash is not null")
            .withColumn("rank", F.row_number().over(least))
            .where(F.col("rank") <= SIGNATURES)
            .select("cell", "hash", F.col("units").cast("array<int>").alias("units"))
        )
        rows = self._collect_rows("signatures", kept, _SIGNATURES).combine_chunks()
        off = np.zeros(len(rows) + 1, np.int64)
        lists = rows["units"].combine_chunks()
        np.cumsum(lists.value_lengths().to_numpy(zero_copy_only=False), out=off[1:])
        signatures = ObjectSignatures(
            rows["cell"].to_numpy(), rows["hash"].to_numpy(), off, lists.flatten().to_numpy()
        )
        number, objects = cells["cell"].to_numpy(), cells["objects"].to_numpy()
        return CellTable(number, objects.astype(np.float64)), unit_objects, signatures

    def _read_objects(self, path: str, attributes: str | None) -> DataFrame:
        kind, rows = self._read_file(path)
        columns: dict[str, str] = {}
        more: dict[str, str] = {}
        if kind == "archive":
            rows = rows.select(*OBJECTS.names)
        elif kind == "parquet":
            schema, choice = to_arrow_schema(rows.schema), AttributeChoice(attributes)
            columns = post_columns(path, schema)
            choice.check_columns(path, schema.names)
            more = choose_columns(path, schema, KNOWN, choice)
            columns.pop("id", None)
            rows = rows.select(*{f"`{name}`" for name in (*columns.values(), *more)})
        elif kind == "csv":
            check_head(path, rows.columns, POSTS)
            AttributeChoice(attributes).check_columns(path, rows.columns)
            rows = rows.fillna("", ["text"])
        source = on.ObjectSource(kind, path, columns, more, attributes)
        return _map_rows(self._spread_rows(rows), partial(on.read_objects, source), OBJECTS)

    def _read_updates(self, path: str) -> DataFrame:
        kind, rows = self._read_file(path)
        if kind != "jsonl":
            check_head(path, rows.columns, [("id",)])
        return _map_rows(self._spread_rows(rows), partial(on.read_updates, kind, path), UPDATES)

    def _read_file(self, path: str) -> tuple[Format, DataFrame]:
        """Reads JSON lines as text and CSV as strings: their rows are checked as `publish` checks
        them."""
        kind, reader = format_of(path), self._spark.read
        try:
            if kind == "parquet":
                return kind, reader.parquet(path)
            if kind == "archive":
                return kind, read_archive(self._spark, path)
            if kind == "jsonl":
                return kind, reader.text(path)
            rows = reader.csv(
                path, header=True, quote='"', escape='"', multiLine=True, mode="FAILFAST",
                ignoreLeadingWhiteSpace=False, ignoreTrailingWhiteSpace=False,
            )  # fmt: skip
        except (AnalysisException, Py4JJavaError) as error:
            raise bad(path, f"cannot read it: {describe_error(error)}") from None
        return kind, rows

    def _spread_rows(self, rows: DataFrame) -> DataFrame:
        """Spreads rows over all cores: a small file is one partition."""
        cores = self._spark.sparkContext.defaultParallelism
        return rows if rows.rdd.getNumPartitions() >= cores else rows.repartition(cores)

    def _convert_batches(self, batches: Sequence[Any], schema: Any) -> list[DataFrame]:
        if not batches:
            return []
        return [self._spark.createDataFrame(pa.Table.from_batches(batches, schema))]

    def _union_parts(self, parts: list[DataFrame], schema: Any) -> DataFrame:
        if not parts:
            return self._spark.createDataFrame([], from_arrow_schema(schema))
        return reduce(DataFrame.unionByName, parts)

    def _collect_rows(self, name: str, rows: DataFrame, schema: Any) -> Any:
        table = rows.select(*schema.names).toArrow().cast(schema)
        self._collected[name] = len(table)
        return table

    def _report_sample(self, sample: PlannerSample) -> None:
        read = {"objects": sample.objects, "queries": sample.live + sample.deletes}
        log.info("sampled", extra={"rows_read": read, "rows_collected": self._collected})
        self._progress(
            f"Spark: read {sum(read.values()):,} rows, collected {sum(self._collected.values()):,}"
        )


def read_archive(spark: SparkSession, path: str) -> DataFrame:
    """Returns the rows of an archive as of now. Raises InvalidArgument."""
    schema = from_arrow_schema(archive_columns.SCHEMA)
    files = list_files(path)
    return spark.read.schema(schema).parquet(*files) if files else spark.createDataFrame([], schema)


def standing(updates: DataFrame) -> DataFrame:
    """Returns counting.QUERIES of UPDATES, as updates.standing returns them."""
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


def describe_error(error: Exception) -> str:
    """Returns the message of Spark or Java: a line for the failure and for each cause."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    messages = [] if java is not None else [str(error)]
    while java is not None:
        messages.append(str(java.getMessage()))
        java = java.getCause()
    lines = dict.fromkeys(next(iter(text.splitlines()), "") for text in messages)
    causes = [line for line in lines if line and not line.startswith(_WRAPPING)]
    return "; ".join(causes) or "failed"


def _map_rows(rows: DataFrame, function: Callable[..., Iterator[Any]], schema: Any) -> DataFrame:
    return rows.mapInArrow(function, from_arrow_schema(schema))


def _sum_rows(rows: DataFrame, keys: list[str], values: Sequence[str]) -> DataFrame:
    return rows.groupBy(*keys).agg(*(F.sum(name).alias(name) for name in values))


def _sum_objects(hits: DataFrame, key: str) -> tuple[DataFrame, Any]:
    """Returns the objects of HITS by cell or unit, and their schema."""
    rows = hits.where(F.col(key).isNotNull() & F.col("objects").isNotNull())
    return _sum_rows(rows, [key], ("objects",)), pa.schema(
        [(key, pa.int64()), ("objects", pa.int64())]
    )
