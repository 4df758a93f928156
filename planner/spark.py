"""The tables of planner/statistics.py from a sample, by Spark.

Executors count (planner/executors.py, the same code as the NumPy twin's) and add up. Only what is
bounded by cells and terms reaches the driver: counts of terms, cells and units, and at most
SIGNATURES objects per cell as sets of units; each distinct term once as a string, all else as
integers (planner/postings.py); of many units, sums (planner/spark_rest.py). The number of these
rows is logged.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from ps2stream.archive.withdrawn import WithdrawnObjects, read_archive
from ps2stream.language.analyzer import Analysis
from ps2stream.planner import counting
from ps2stream.planner import executors as on
from ps2stream.planner.archived_terms import ArchiveTerms
from ps2stream.planner.hits import ObjectSignatures
from ps2stream.planner.objects import OBJECTS
from ps2stream.planner.postings import HASHED, NAMES, PostingTable
from ps2stream.planner.rest import MAX_UNITS
from ps2stream.planner.sample import (
    COUNTS,
    MAX_FREQUENCIES,
    PlannerSample,
    UnitCounts,
    build_sample,
    commonest,
    units_of,
    with_rows,
)
from ps2stream.planner.sample_rows import MAX_ROWS, OBJECT_ROWS, QUERY_ROWS
from ps2stream.planner.spark_archive import read_archived
from ps2stream.planner.spark_rest import RestSampling, map_rows, sum_rows
from ps2stream.planner.statistics import MAX_SIGNATURES, CellTable, limit_signatures
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
    max_units: int = MAX_UNITS,
    max_signatures: int = MAX_SIGNATURES,
) -> PlannerSample:
    """Samples these files. grid: by default the one for the queries' median box; rows: whether the
    sample is also kept row by row; else at most max_units units are held one by one.
    max_signatures: kept in all, or one per cell.

    Raises InvalidArgument for input that cannot be read or is wrong, and if there are no objects;
    PlanError for more rows than are kept.
    """
    job = _SamplingJob(spark, analysis, progress, max_units, max_signatures)
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
        self,
        spark: SparkSession,
        analysis: Analysis,
        progress: Callable[[str], None],
        max_units: int,
        max_signatures: int,
    ) -> None:
        self._spark, self._analysis, self._progress = spark, analysis, progress
        self._max_units, self._max_signatures = max_units, max_signatures
        self._collected: dict[str, int] = {}
        self._held: list[DataFrame] = []
        self._archives: dict[str, tuple[ArchiveTerms, WithdrawnObjects]] = {}

    def take(self, files: SampleFiles, grid: Grid | None, rows: bool) -> PlannerSample:
        spark, analysis = self._spark, self._analysis
        read = [self._read_objects(path, files.attributes) for path in files.objects]
        given = self._convert_batches(files.posts, OBJECTS)
        posts = self._union_parts([*read, *given], OBJECTS)
        self._progress("Spark: counting the terms of the objects")
        terms = self._count_terms(files, read, given)
        top = sum_rows(terms, ["term"], ("objects",)).orderBy(F.desc("objects"), "term")
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
            sides = map_rows(held, on.count_sides, counting.SIDES)
            sides = sum_rows(sides, ["axis", "side"], ("queries",))
            grid = counting.grid_of(self._collect_rows("sides", sides, counting.SIDES))
        known = spark.sparkContext.broadcast(frequencies)
        found = map_rows(held, partial(on.count_postings, analysis, known, grid), counting.POSTINGS)
        found = self._persist_rows(sum_rows(found, ["cell", "term"], COUNTS))
        count, rest = found.where(F.col("cell") >= 0).count(), None
        if not rows and count > self._max_units:
            self._progress(f"Spark: choosing {self._max_units:,} of {count:,} units")
            rest = RestSampling(spark, analysis, self._persist_rows, self._collect_rows)
            found = self._persist_rows(rest.separate(found, posts, grid, self._max_units))
            count = found.count()
        postings = self._collect_postings(found, count)
        self._progress("Spark: counting the objects of each cell and term")
        # Only executors look units up, so the driver keeps no table of them.
        shared = spark.sparkContext.broadcast(units_of(postings, on.analyzer_of(analysis)))
        tables = self._count_hits(posts, grid, shared, postings, rest)
        sample = build_sample(grid, frequencies, counts, tables)
        if rows:
            listed = partial(on.list_objects, analysis, shared, grid)
            objects = map_rows(posts, listed, OBJECT_ROWS).limit(MAX_ROWS + 1)
            asked = partial(on.list_queries, analysis, known, grid)
            queries = map_rows(held, asked, QUERY_ROWS).limit(MAX_ROWS + 1)
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

    def _collect_postings(self, found: DataFrame, count: int) -> PostingTable:
        """Collects sums of POSTINGS: each distinct term once, the rows in integers and in parts."""
        parts = 1 + count // PART_ROWS
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

    def _count_terms(
        self, files: SampleFiles, read: list[DataFrame], given: list[DataFrame]
    ) -> DataFrame:
        """Returns counting.TERMS, not yet added up, of the objects that were read of files, and of
        `given` ones: of an archive by its tables of words, as far as these go."""
        texts, tables = [*given], list[DataFrame]()
        for path, found in zip(files.objects, read, strict=True):
            if path not in self._archives:
                texts.append(found)
                continue
            terms, withdrawn = self._archives[path]
            source = on.ObjectSource("archive", path, {}, {}, files.attributes)
            read_rows = partial(on.read_objects, source)
            known = read_archived(self._spark, terms.counted)
            others = read_archived(self._spark, terms.others, withdrawn)
            texts += [
                map_rows(rows.select(*OBJECTS.names), read_rows, OBJECTS)
                for rows in (known.withColumn("text", F.lit("")), others)
            ]
            if terms.tables:
                words = self._spark.read.parquet(*map(str, terms.tables)).where("term != ''")
                tables.append(words.select(*counting.TERMS.names))
        counted = partial(on.count_terms, self._analysis)
        rows = map_rows(self._union_parts(texts, OBJECTS), counted, counting.TERMS)
        return reduce(DataFrame.unionByName, tables, rows)

    def _count_hits(
        self,
        posts: DataFrame,
        grid: Grid,
        units: Any,
        postings: PostingTable,
        rest: RestSampling | None,
    ) -> UnitCounts:
        words = None if rest is None else rest.vocabulary
        counted = partial(on.count_hits, self._analysis, units, grid, words)
        hits = self._persist_rows(map_rows(posts, counted, on.HITS))
        cells = self._collect_rows("cells", *_sum_objects(hits, "cell"))
        unit_objects = np.zeros(len(postings), np.int64)
        for part in self._collect_rows("units", *_sum_objects(hits, "unit")).to_batches():
            unit_objects[part["unit"].to_numpy()] = part["objects"].to_numpy()
        objects = cells["objects"].to_numpy().astype(np.float64)
        least = Window.partitionBy("cell").orderBy("hash", "units")
        kept = (
            hits.where("hash is not null")
            .withColumn("rank", F.row_number().over(least))
            .where(F.col("rank") <= limit_signatures(objects, self._max_signatures))
            .select("cell", "hash", F.col("units").cast("array<int>").alias("units"))
        )
        rows = self._collect_rows("signatures", kept, _SIGNATURES).combine_chunks()
        off = np.zeros(len(rows) + 1, np.int64)
        lists = rows["units"].combine_chunks()
        np.cumsum(lists.value_lengths().to_numpy(zero_copy_only=False), out=off[1:])
        signatures = ObjectSignatures(
            rows["cell"].to_numpy(), rows["hash"].to_numpy(), off, lists.flatten().to_numpy()
        )
        return UnitCounts(
            postings,
            CellTable(cells["cell"].to_numpy(), objects),
            unit_objects,
            signatures,
            None if rest is None else rest.take(kept),
        )

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
        return map_rows(self._spread_rows(rows), partial(on.read_objects, source), OBJECTS)

    def _read_updates(self, path: str) -> DataFrame:
        kind, rows = self._read_file(path)
        if kind != "jsonl":
            check_head(path, rows.columns, [("id",)])
        return map_rows(self._spread_rows(rows), partial(on.read_updates, kind, path), UPDATES)

    def _read_file(self, path: str) -> tuple[Format, DataFrame]:
        """Reads JSON lines as text and CSV as strings: their rows are checked as `publish` checks
        them."""
        kind, reader = format_of(path), self._spark.read
        try:
            if kind == "parquet":
                return kind, reader.parquet(path)
            if kind == "archive":
                snapshot, withdrawn = read_archive(path)
                terms = ArchiveTerms.of(snapshot, withdrawn, self._analysis)
                self._archives[path] = terms, withdrawn
                return kind, read_archived(self._spark, snapshot.files, withdrawn)
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


def _sum_objects(hits: DataFrame, key: str) -> tuple[DataFrame, Any]:
    """Returns the objects of HITS by cell or unit, and their schema."""
    rows = hits.where(F.col(key).isNotNull() & F.col("objects").isNotNull())
    return sum_rows(rows, [key], ("objects",)), pa.schema(
        [(key, pa.int64()), ("objects", pa.int64())]
    )
