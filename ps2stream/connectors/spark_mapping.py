"""Columns of a streaming DataFrame as the fields of posts, by names and by expressions in SQL."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import __version__
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from ps2stream.connectors.pipeline_config import (
    FILES,
    OF_VALUES,
    POST_FIELDS,
    PipelineJob,
    PostMapping,
)
from ps2stream.errors import FailedPrecondition
from ps2stream.posts.arrow_columns import post_columns
from ps2stream.posts.attribute_columns import choose_columns
from ps2stream.posts.members import AttributeChoice
from ps2stream.posts.post import KNOWN, NAMES, bad

log = logging.getLogger(__name__)

KAFKA = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
KEY = "_ps2stream_key"
"""Column by which rows are sorted after they were shuffled."""
_PACKAGES = {
    "kafka": "org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION",
    "delta": "io.delta:delta-spark_4.2_2.13:4.4.0",
}
_HINTS = {
    "kafka": "; where there is none of this version, that of the version before may do, as 4.2.0 "
    "does with 4.3.0",
    "delta": "; its name has the version of Spark, here 4.2, which must be this one's, VERSION (if "
    "there is none, use an older PySpark), and it needs Delta's two settings, spark.sql.extensions "
    "and spark.sql.catalog.spark_catalog",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_SOURCE = re.compile("find (the )?data source", re.IGNORECASE)
_OTHER_SPARK = re.compile(
    r"NoSuchMethodError|NoClassDefFoundError|AbstractMethodError"
    r"|'[^\s']+ org\.apache\.spark\.[^\s']+\("
)
"""What the JVM says of a package that was compiled for another version; of a method that is not
there it may be the signature alone."""
_ADVICE = {
    "DELTA_SCHEMA_NOT_SET": "at that place is no table of Delta's, or one without columns",
    "DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG": "give "
    "--spark spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension and "
    "--spark spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "DELTA_SOURCE_TABLE_IGNORE_CHANGES": (
        _PASSED := "published posts stay as they are; --option skipChangeCommits=true passes over "
        "commits that change or delete rows, and over what else these write"
    ),
    "DELTA_SOURCE_IGNORE_DELETE": _PASSED,
}
"""What is added to errors of Spark's, by their names."""


class MappedPosts(NamedTuple):
    """The posts of a DataFrame. attributes: the type of each, as RowConverter takes it. choice: the
    spec of AttributeChoice. sources: of the columns that are no expressions, those of the DataFrame
    that they are."""

    posts: DataFrame
    attributes: dict[str, str]
    choice: AttributeChoice
    spec: str | None
    sources: dict[str, str]

    def warn_left_out(self) -> None:
        """Logs which columns are no attributes."""
        for line in self.choice.pop_left_out():
            log.warning("left out, as no attribute: %s", line)


def open_source(spark: SparkSession, job: PipelineJob) -> DataFrame:
    """Returns the rows of a pipeline's source as a stream. Raises InvalidArgument for options or a
    schema that Spark refuses, FailedPrecondition for a source that needs a package."""
    reader = spark.readStream.format(job.format)
    is_json = job.format in OF_VALUES and bool(job.schema)
    try:
        if job.schema and not is_json:
            reader = reader.schema(job.schema)
        elif job.format in FILES and job.format != "text":
            reader = reader.schema(spark.read.format(job.format).load(job.path).schema)
        if job.format in ("rate", "socket"):
            reader = reader.option("numPartitions", job.partitions)
        reader = reader.options(**job.options)
        rows = reader.load(job.path) if job.path else reader.load()
        if is_json:
            parsed_value = F.from_json(F.col("value").cast("string"), job.schema).alias("_value")
            beside = [c for c in rows.columns if c != "value"]
            parsed = rows.select(*beside, parsed_value)
            names = parsed.select("_value.*").columns
            kept = [c for c in beside if c not in names]
            rows = parsed.select(*kept, "_value.*")
        return rows
    except (PySparkException, Py4JJavaError) as error:
        raise _explain_source(job, error, spark.version) from None


def _explain_source(job: PipelineJob, error: Exception, version: str) -> Exception:
    reason = describe_error(error)
    if job.format in _PACKAGES and _NO_SOURCE.search(reason):
        package = _PACKAGES[job.format].replace("VERSION", version)
        return FailedPrecondition(
            f"source.format: this Spark has no source {job.format}; give its package with "
            f"--spark spark.jars.packages={package}{_HINTS[job.format].replace('VERSION', version)}"
        )
    place = f"{job.path}: " if job.path and job.path not in reason else ""
    return bad("source", f"{place}{reason}")


def describe_error(error: Exception) -> str:
    """Returns the first line of what Spark says of an error, and what helps, where we know it."""
    text = str(error).strip() or type(error).__name__
    if isinstance(error, Py4JJavaError):  # PySpark wraps some errors of the JVM, and not all
        text = text.partition("\n: ")[2] or text
    line = text.splitlines()[0].removesuffix(";").strip()
    for name, advice in _ADVICE.items():
        if f"[{name}]" in text:
            return f"{line}; {advice}"
    if not _OTHER_SPARK.search(text):
        return line
    return f"{line}; a package is made for another version of Spark than this one, {__version__}"


def map_posts(rows: DataFrame, mapping: PostMapping) -> MappedPosts:
    """Returns the columns of posts: those of POST_FIELDS that there are, then the attributes.

    Raises InvalidArgument, naming the field, for an expression that Spark does not understand or
    that is of a wrong type, and for a field of posts that is missing.
    """
    if mapping.where:
        rows = _filter_rows(rows, mapping.where)
    fields = dict(mapping.fields)
    if {*KAFKA[:6]} <= {*rows.columns, "value"}:
        fields.setdefault("id", "concat_ws('/', topic, partition, offset)")
    columns: dict[str, Column] = {}
    sources: dict[str, str] = {}
    for name in POST_FIELDS:
        expression = fields.get(name) or _find_usual_name(name, rows.columns)
        if expression is None:
            continue
        columns[name] = _read_expression(rows, f"posts.{name}", expression, name)
        source = find_column_name(expression)
        if source is not None and source in rows.columns:
            sources[name] = source
    for name in ("lon", "lat", "text"):
        if name not in columns:
            wanted, have = " or ".join(NAMES[name]), ", ".join(rows.columns)
            raise bad(
                f"posts.{name}",
                f"expected a column {wanted}, or a mapping; there are: {have or 'none'}",
            )
    more, choice, spec = _choose_attributes(rows, mapping, fields)
    posts = rows.select(
        *(c.alias(n) for n, c in columns.items()), *(c.alias(n) for n, c in more.items())
    )
    schema = read_schema(posts.select(*columns))
    post_columns("posts", schema)
    others = read_schema(posts.select(*more))
    attributes = choose_columns("attributes", others, (), choice)
    if mapping.dedupe_s is not None:
        posts = _drop_repeats(posts, mapping.dedupe_s, {*columns})
    kept = [*columns, *attributes] + [KEY] * (mapping.dedupe_s is not None)
    made = mapping.attributes if isinstance(mapping.attributes, Mapping) else {}
    for name in attributes:
        source = find_column_name(made.get(name, f"`{name}`"))
        if source is not None and source in rows.columns:
            sources[name] = source
    posts = posts.select(*(F.col(f"`{n}`") for n in kept))
    return MappedPosts(posts, attributes, choice, spec, sources)


def find_column_name(expression: str) -> str | None:
    """Returns the name, if an expression is that of a column and no more."""
    name = expression.strip()
    if len(name) > 2 and name[0] == name[-1] == "`" and "`" not in name[1:-1]:
        return name[1:-1]
    is_word = _NAME.fullmatch(name) and name.lower() not in ("true", "false", "null")
    return name if is_word else None


def read_schema(rows: DataFrame) -> pa.Schema:
    """Returns the columns' types as Arrow has them. Newer versions of Spark must be given a
    time zone."""
    has_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    more: dict[str, Any] = {"timezone": "UTC"} if has_zone else {}
    return to_arrow_schema(rows.schema, **more)


def _find_usual_name(name: str, columns: list[str]) -> str | None:
    aliases = NAMES.get(name, (name,))
    found = [alias for alias in aliases if alias in columns]
    return f"`{found[0]}`" if found else None


def _filter_rows(rows: DataFrame, where: str) -> DataFrame:
    try:
        return rows.where(where)
    except PySparkException as error:
        raise bad("posts.where", describe_error(error)) from None


def _read_expression(rows: DataFrame, field: str, expression: str, name: str = "") -> Column:
    """Returns an expression as a column, decimals as doubles, which SQL makes of 1.5."""
    try:
        column = F.expr(expression)
        kind = rows.select(column.alias("value")).schema["value"].dataType
    except PySparkException as error:
        raise bad(field, f"{describe_error(error)}: {expression}") from None
    if isinstance(kind, T.DecimalType):
        return column.cast("double")
    if name == "time" and isinstance(kind, T.DateType | T.TimestampNTZType):
        return column.cast("timestamp")
    if name == "id" and not isinstance(kind, T.StringType):
        return column.cast("string")
    return column


def _choose_attributes(
    rows: DataFrame, mapping: PostMapping, fields: Mapping[str, str]
) -> tuple[dict[str, Column], AttributeChoice, str | None]:
    if isinstance(mapping.attributes, Mapping):
        made = {
            name: _read_expression(rows, f"attributes.{name}", expression)
            for name, expression in mapping.attributes.items()
        }
        spec = ",".join(f"`{name}`" for name in made) if made else "none"
        return made, AttributeChoice(spec), spec
    choice = AttributeChoice(mapping.attributes)
    used = {e.strip("`") for e in fields.values() if _NAME.fullmatch(e.strip("`"))}
    is_kafka = {*KAFKA[:6]} <= {*rows.columns, "value"}
    used |= {*KNOWN} | ({*KAFKA} if is_kafka else set())
    if choice.types is not None:
        choice.check_columns("attributes", rows.columns)
        used -= choice.types.keys() - KNOWN
    found = {name: F.col(f"`{name}`") for name in rows.columns if name not in used}
    if choice.types is not None:
        found = {name: column for name, column in found.items() if name in choice.types}
    kinds = {f.name: f.dataType for f in rows.schema}
    return {
        name: column.cast("double") if isinstance(kinds[name], T.DecimalType) else column
        for name, column in found.items()
    }, choice, mapping.attributes  # fmt: skip


def _drop_repeats(posts: DataFrame, seconds: float, there: set[str]) -> DataFrame:
    """Drops the rows of an id that come within so many seconds of another, of their own time. A row
    without an id is no repeat of another: it is refused later, as it is no post."""
    for name in ("id", "time"):
        if name not in there:
            problem = f"needs posts.{name}, " + (
                "by which rows are recognised" if name == "id" else "by which rows are forgotten"
            )
            raise bad("posts.dedupe", problem)
    if not isinstance(posts.schema["time"].dataType, T.TimestampType):
        posts = posts.withColumn("time", F.timestamp_millis(F.col("time").cast("bigint")))
    alone = F.concat(F.lit("\0"), F.expr("uuid()"))  # at any place: these rows are not published
    return (
        posts.withColumn("time", F.coalesce(F.col("time"), F.current_timestamp()))
        .withColumn(KEY, F.coalesce(F.col("id"), alone))
        .withWatermark("time", f"{round(seconds * 1000)} milliseconds")
        .dropDuplicatesWithinWatermark([KEY])
    )
