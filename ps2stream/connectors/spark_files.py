"""Parquet files whose columns become posts as they are: Spark lists them and keeps the position,
and its tasks read them with Arrow, so that no row passes the JVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from ps2stream.connectors.parquet_parts import ColumnSource, FilePart, read_parts, split_files
from ps2stream.connectors.pipeline_config import PipelineJob
from ps2stream.connectors.pipeline_sender import (
    PartitionResult,
    SenderOptions,
    publish_partition,
)
from ps2stream.connectors.spark_mapping import (
    MappedPosts,
    describe_error,
    find_column_name,
    read_schema,
)
from ps2stream.connectors.spark_publisher import EpochIdentity
from ps2stream.posts.post import bad

_LISTING_COLUMNS = ("path", "length", "modificationTime")
_OF_LISTING = {
    name.lower()
    for name in (
        "maxFilesPerTrigger", "maxBytesPerTrigger", "latestFirst", "maxFileAge", "fileNameOnly",
        "cleanSource", "sourceArchiveDir", "pathGlobFilter", "recursiveFileLookup",
    )
}  # fmt: skip
"""Options that decide which files are read, and not how."""
_OF_READING = ("spark.sql.parquet.", "spark.sql.files.ignore")
"""Settings of Spark that decide how files are read begin with one of these."""
_PLAIN = (
    T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType,
    T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType,
)  # fmt: skip
_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)


class FileReading(NamedTuple):
    """How tasks read files: the stream that lists them, and the columns to be read."""

    listing: DataFrame
    columns: tuple[ColumnSource, ...]


def find_job_problem(job: PipelineJob) -> str:
    """Returns why Spark must read a job's rows itself, as far as its declaration tells; else the
    empty string."""
    mapping = job.mapping
    if job.reader == "spark":
        return "source.reader is spark"
    if job.format != "parquet":
        return f"{job.format} is not Parquet"
    if mapping.where or mapping.dedupe_s is not None:
        return "posts.where and posts.dedupe need Spark"
    if other := [name for name in job.options if name.lower() not in _OF_LISTING]:
        return f"source.options.{other[0]} needs Spark"
    if other := [name for name in job.spark if name.startswith(_OF_READING)]:
        return f"{other[0]} is for Spark"
    made = mapping.attributes if isinstance(mapping.attributes, Mapping) else {}
    for name, expression in {**mapping.fields, **made}.items():
        if find_column_name(expression) is None:
            return f"{name} is an expression"
    scheme, colon, _ = job.path.partition(":/")
    if colon and scheme != "file":
        return "the folder is not local"
    return ""


def plan_reading(
    spark: SparkSession, job: PipelineJob, rows: DataFrame, mapped: MappedPosts
) -> FileReading | str:
    """Returns how tasks read the files of a job, or why Spark must read them itself. rows: of the
    source, by Spark."""
    if problem := find_job_problem(job):
        return problem
    if problem := _find_column_problem(rows, mapped):
        return problem
    hadoop: Any = spark.sparkContext._jsc
    root = str(hadoop.hadoopConfiguration().get("fs.defaultFS"))
    if not job.path.startswith("file:") and not root.startswith("file:"):
        return "the folder is not local"
    try:
        schema = spark.read.format("binaryFile").load(job.path).schema
        stream = spark.readStream.format("binaryFile").schema(schema).options(**job.options)
        listing = stream.load(job.path)
    except PySparkException as error:
        raise bad("source", describe_error(error)) from None
    if set(listing.columns) != {*_LISTING_COLUMNS, "content"}:
        return "columns in the names of folders need Spark"
    kinds = read_schema(mapped.posts)
    columns = [ColumnSource(n, mapped.sources[n], kinds.field(n).type) for n in kinds.names]
    return FileReading(listing.select(*_LISTING_COLUMNS), tuple(columns))


def _find_column_problem(rows: DataFrame, mapped: MappedPosts) -> str:
    for name in mapped.posts.columns:
        source = mapped.sources.get(name)
        if source is None:
            return f"{name} is no column by its own name"
        kind = rows.schema[source].dataType
        fits: Any = (T.StringType, *_INTEGERS) if name == "id" else _PLAIN
        if not isinstance(kind, fits):
            return f"{name} is made of {kind.simpleString()}"
    return ""


class FileSender:
    """Publishes micro-batches of files: the rows of a listing, whose files the tasks read."""

    def __init__(
        self, options: SenderOptions, columns: Sequence[ColumnSource], partitions: int
    ) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._partitions = partitions

    def __call__(self, batch: DataFrame, identity: EpochIdentity) -> list[PartitionResult]:
        listed = batch.selectExpr("path", "length", "unix_millis(modificationTime)").collect()
        files = [(_read_path(path), size, ms) for path, size, ms in listed]
        work = list(enumerate(split_files(files, self._partitions)))
        if not work:
            return []
        send = _PartsSender(self._options, self._columns, identity)
        context = batch.sparkSession.sparkContext
        return context.parallelize(work, len(work)).map(send).collect()


def _read_path(path: str) -> str:
    """Returns the local path of a file that Hadoop names, which does not escape it."""
    return "/" + path.removeprefix("file:").lstrip("/")


class _PartsSender:
    """Publishes the parts of files that are a partition, on an executor."""

    def __init__(
        self, options: SenderOptions, columns: tuple[ColumnSource, ...], identity: EpochIdentity
    ) -> None:
        self._options = options
        self._columns = columns
        self._identity = identity

    def __call__(self, work: tuple[int, list[FilePart]]) -> PartitionResult:
        number, parts = work
        epoch, producer, prefix = self._identity
        rows = read_parts(parts, self._columns)
        return publish_partition(
            rows, self._options, f"{producer}/{number}", epoch, f"{prefix}/{number}/"
        )
