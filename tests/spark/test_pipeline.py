"""`ps2stream pipeline` from files to matches, over crashes; and what Spark refuses of it."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ps2stream.client.client import Client
from ps2stream.connectors.counts import ConnectorCounts, CountsReporter
from ps2stream.connectors.pipeline_config import PostMapping, build_job
from ps2stream.errors import AlreadyExists, FailedPrecondition, InvalidArgument
from tests.support.piped_posts import (
    MAPPING,
    draw_rows,
    find_due,
    insert_queries,
    select_good,
    select_wanted,
    write_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def run(declared: dict[str, Any], target: str) -> dict[str, Any]:
    """Runs a pipeline until it has published what there is; its counts, and who read."""
    from ps2stream.connectors.spark_pipeline import COUNTS, run_pipeline

    counts = ConnectorCounts(*COUNTS)
    teller = CountsReporter(counts, lambda value, line: None, 0)
    job = build_job({"trigger": "once", **declared})
    readers: list[str] = []
    run_pipeline(
        job, target, {}, counts, teller, threading.Event(), lambda r, reason: readers.append(r)
    )
    return counts.now() | {"reader": readers[0]}


def arrived(client: Client, session: str, count: int) -> Counter[tuple[str, str]]:
    """The next matches of a session: query and object; the object `last` is the last of all."""
    found: Counter[tuple[str, str]] = Counter()
    with client.subscribe(session) as matches:
        for match in matches:
            if match.object_id == "last":
                break
            found[match.query_id, match.object_id] += 1
            assert found.total() <= count, found
    return found


def test_from_parquet_each_match_once_over_a_crash(
    spark: SparkSession,
    target: str,
    client: Client,
    tmp_path: Path,
    forget_last: Callable[[Path], None],
) -> None:
    insert_queries(client, "pipeline")
    folder, checkpoint, letters = (tmp_path / n for n in ("posts", "position", "bad.jsonl"))
    folder.mkdir()
    rng = np.random.default_rng(5)
    rows = [draw_rows(rng, first, 60) for first in (0, 60, 120)]
    declared = {
        "source": {"format": "parquet", "path": str(folder), "options": {"maxFilesPerTrigger": 1}},
        **MAPPING,
        "checkpoint": str(checkpoint),
        "partitions": 3,
        "dead_letters": str(letters),
    }  # fmt: skip
    for number in range(2):
        write_rows(folder / f"{number}.parquet", rows[number])
    first = run(declared, target)
    forget_last(checkpoint)  # its rows are published and not committed
    write_rows(folder / "2.parquet", rows[2])
    second = run(declared, target)
    drawn = [row for part in rows for row in part]
    english, good, repeated = select_wanted(drawn), select_good(drawn), select_good(rows[1])
    assert first["done"] + second["done"] == len(good) + len(repeated)
    assert (first["taken"], second["taken"], first["batches"]) == (120, 120, 2)
    told = [json.loads(line) for line in letters.read_text().splitlines()]
    assert {t["record"]["id"] for t in told} == {r["event"] for r in english if r not in good}
    assert any("expected degrees in [-180, 180], got 999.0" in t["reason"] for t in told)
    expected = find_due(drawn)
    client.publish([{"lon": 0.0, "lat": 0.0, "text": "flood river", "id": "last"}])
    assert arrived(client, "pipeline", expected.total()) == expected
    assert len(expected) > 30
    # A row that is no post stops the pipeline without a place for it.
    del declared["dead_letters"]
    declared |= {"checkpoint": str(tmp_path / "other"), "name": "other"}
    with pytest.raises(InvalidArgument, match=r"batch 0 other-\w+/\d row \d+: .*(999|null)"):
        run(declared, target)


def write_plain(path: Path, first: int, rows: int = 9000, changed: int = -1) -> None:
    """A file whose columns are posts as they are: row 3 is outside of the world, row 5 has no
    text; row `changed` has other words."""
    numbers = np.arange(first, first + rows)
    lon = np.where(numbers == 3, 999.0, numbers % 90)
    words = [None if n == 5 else "flood" if n % 100 == 0 or n < 40 else "calm" for n in numbers]
    if changed >= 0:
        words[changed] = "calm flood"
    columns = {
        "event": pa.array(numbers), "x": pa.array(lon),
        "lat": pa.array((numbers % 45).astype(np.int16)),
        "text": pa.array(words).dictionary_encode(), "ts": pa.array(numbers.astype("M8[ms]")),
        "day": pa.array(numbers.astype("M8[D]")), "mag": pa.array((numbers / 4).astype(np.float32)),
    }  # fmt: skip
    pq.write_table(pa.table(columns), path, row_group_size=1000)


@pytest.mark.takes_turns(1)
def test_arrow_publishes_the_same_posts_as_spark(
    spark: SparkSession,
    target: str,
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    forget_last: Callable[[Path], None],
) -> None:
    from ps2stream.connectors import parquet_parts

    monkeypatch.setattr(parquet_parts, "PART_BYTES", 1000)
    folder = tmp_path / "some posts%20"
    folder.mkdir()
    write_plain(folder / "0.parquet", 0)
    write_plain(folder / "1.parquet", 9000)
    (folder / "2.parquet").touch()
    found: dict[str, list[Any]] = {}
    for reader in ("auto", "spark"):
        client.insert(reader, "flood", session=reader)
        letters = tmp_path / f"{reader}.jsonl"
        declared = {
            "name": reader,
            "source": {"format": "parquet", "path": str(folder), "reader": reader},
            "posts": {"id": "event", "lon": "x"},
            "attributes": "day,mag",
            "checkpoint": str(tmp_path / reader),
            "partitions": 3,
            "dead_letters": str(letters),
        }
        counts = run(declared, target)
        assert counts["reader"] == ("arrow" if reader == "auto" else "spark")
        assert (counts["taken"], counts["done"], counts["bad"]) == (18_000, 17_998, 2)
        if reader == "auto":
            forget_last(tmp_path / reader)
            assert run(declared, target)["done"] == 17_998
        client.publish([{"lon": 0.0, "lat": 0.0, "text": "flood", "id": "last"}])
        with client.subscribe(reader) as matches:
            taken = []
            for match in matches:
                if match.object_id == "last":
                    break
                taken.append(
                    (
                        match.object_id,
                        match.lon,
                        match.lat,
                        match.text,
                        match.time,
                        match.attributes,
                    )
                )
        told = [json.loads(line) for line in letters.read_text().splitlines()]
        reasons = {(t["reason"].partition(" row")[0], json.dumps(t["record"])) for t in told}
        found[reader] = [sorted(taken, key=str), sorted(reasons)]
        client.delete(reader)
    assert found["auto"] == found["spark"]
    assert len(found["auto"][0]) == len({*range(0, 18_000, 100), *range(40)} - {3, 5})
    # Other rows than those that are published in part are told.
    for path in folder.iterdir():
        path.unlink()
    write_plain(folder / "0.parquet", 0, 9000, 8000)
    write_plain(folder / "1.parquet", 9000)
    forget_last(tmp_path / "auto")
    declared |= {"name": "auto", "checkpoint": str(tmp_path / "auto")}
    declared["source"] = {"format": "parquet", "path": str(folder)}
    with pytest.raises(AlreadyExists, match="has not given the same rows again"):
        run(declared, target)
    (folder / "0.parquet").unlink()
    with pytest.raises(AlreadyExists, match="has not given the same rows again"):
        run(declared, target)


def test_a_jvm_without_rows_compiles_little() -> None:
    from ps2stream.connectors.spark_pipeline import choose_settings

    name, little = "spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1"
    files = {"format": "parquet", "path": "p"}
    plain = {"source": files, "posts": {"lon": "`a b`"}, "checkpoint": "c"}
    assert choose_settings(build_job(plain))[name] == little
    assert choose_settings(build_job(plain | {"spark": {name: "-Xss2m"}}))[name] == "-Xss2m"
    for more in (
        {"source": files | {"reader": "spark"}},
        {"source": files | {"path": "s3a://p"}},
        {"source": {"format": "delta", "path": "p"}},
        {"posts": {"lon": "x * 2"}},
        {"posts": {"dedupe": "1h"}},
        {"attributes": {"a": "null"}},
        {"spark": {"spark.sql.files.ignoreCorruptFiles": "true"}},
    ):
        assert name not in choose_settings(build_job(plain | more))


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"source": {"format": "json", "schema": "lon DOUBLE, lat DOUBLE, text STRING"}},
         "json is not Parquet"),
        ({"posts": {"lon": "x", "where": "x > 0"}}, "posts.where and posts.dedupe need Spark"),
        ({"posts": {"lon": "x + 1"}}, "lon is an expression"),
        ({"posts": {"lon": "x", "id": "mag"}}, "id is made of float"),
        ({"attributes": {"a": "mag * 2"}, "posts": {"lon": "x"}}, "a is an expression"),
        ({"source": {"format": "parquet", "options": {"mergeSchema": True}}, "posts": {"lon": "x"}},
         "source.options.mergeSchema needs Spark"),
    ],
)  # fmt: skip
def test_what_arrow_cannot_read_is_said(
    spark: SparkSession, tmp_path: Path, more: dict[str, Any], problem: str
) -> None:
    from ps2stream.connectors.spark_files import plan_reading
    from ps2stream.connectors.spark_mapping import map_posts, open_source

    write_plain(tmp_path / "0.parquet", 0, 10)
    declared = {"source": {"format": "parquet"}, "checkpoint": "c", **more}
    declared["source"] |= {"path": str(tmp_path)}
    job = build_job(declared)
    rows = open_source(spark, job)
    found = plan_reading(spark, job, rows, map_posts(rows, job.mapping))
    assert isinstance(found, str)
    assert problem in found


@pytest.mark.takes_turns(2)
def test_rows_of_one_id_are_published_once(
    spark: SparkSession,
    target: str,
    client: Client,
    tmp_path: Path,
    forget_last: Callable[[Path], None],
) -> None:
    client.insert("dedupe", "quake", session="dedupe")
    folder, checkpoint = tmp_path / "posts", tmp_path / "position"
    folder.mkdir()

    def add(name: str, rows: list[tuple[str | None, int]]) -> None:
        lines = (
            json.dumps({"id": i, "ts": minute * 60_000, "lon": 1, "lat": 1, "text": "quake"}) + "\n"
            for i, minute in rows
        )
        (folder / name).write_text("".join(lines))

    declared = {
        "source": {
            "format": "json",
            "path": str(folder),
            "schema": "id STRING, ts BIGINT, lon DOUBLE, lat DOUBLE, text STRING",
        },
        "posts": {"dedupe": "10m"},
        "checkpoint": str(checkpoint),
        "partitions": 2,
        "skip_bad": True,
    }
    add("0.json", [("a", 100), ("b", 101), ("a", 102), (None, 103), (None, 103), ("c", 103)])
    first = run(declared, target)
    add("1.json", [("c", 104), ("d", 100), ("e", 140), ("b", 105)])
    second = run(declared, target)
    forget_last(checkpoint)
    add("2.json", [("e", 141), ("late", 20), ("f", 141)])
    third = run(declared, target)
    client.publish([{"lon": 1.0, "lat": 1.0, "text": "quake", "id": "last"}])
    expected = Counter(("dedupe", i) for i in "abcdef")
    assert arrived(client, "dedupe", 6) == expected
    assert (first["done"], first["bad"], first["repeats"]) == (3, 2, 1)
    assert (second["done"], second["repeats"]) == (2, 2)
    assert third["late"] == 1
    assert third["repeats"] >= 1


@pytest.mark.parametrize(
    ("mapping", "problem"),
    [
        (PostMapping({"lon": "nothing"}), r"posts.lon: .*nothing"),
        (PostMapping({"lon": "x +"}), r"posts.lon: .*x \+"),
        (PostMapping({"lon": "body"}), r"posts column lon: expected numbers, got string"),
        (PostMapping({"lon": "x", "text": "x"}), r"posts column text: expected strings, got doub"),
        (PostMapping({"lon": "x", "time": "body"}), r"posts column time: expected timestamps or"),
        (PostMapping({}), r"posts.lon: expected a column lon or lng or longitude, or a mapping"),
        (PostMapping({"lon": "x"}, where="langs = 1"), r"posts.where: .*langs"),
        (PostMapping({"lon": "x"}, {"a": "array(1)"}), r"attributes column a: cannot be an attrib"),
        (PostMapping({"lon": "x"}, {"a": "nope"}), r"attributes.a: .*nope"),
        (PostMapping({"lon": "x"}, "nope"), r"attributes: expected a column nope; there are: x"),
        (PostMapping({"lon": "x"}, dedupe_s=9.0), r"posts.dedupe: needs posts.id, by which rows"),
        (
            PostMapping({"lon": "x", "id": "body"}, dedupe_s=9.0),
            r"posts.dedupe: needs posts.time, by which rows are forgotten",
        ),
    ],
)
def test_what_spark_refuses_is_named(
    spark: SparkSession, mapping: PostMapping, problem: str
) -> None:
    from ps2stream.connectors.spark_mapping import map_posts

    rows = spark.createDataFrame([], "x DOUBLE, lat DOUBLE, text STRING, body STRING")
    with pytest.raises(InvalidArgument, match=problem):
        map_posts(rows, mapping)


def test_columns_that_are_mapped_by_name_are_no_attributes(spark: SparkSession) -> None:
    from ps2stream.connectors.spark_mapping import map_posts

    rows = spark.createDataFrame([], "x DOUBLE, lat DOUBLE, body STRING, mag DECIMAL(5, 1)")
    found = map_posts(rows, PostMapping({"lon": "x", "text": "upper(body)"}))
    assert found.posts.columns == ["lon", "lat", "text", "body", "mag"]
    assert found.attributes == {"body": "", "mag": ""}
    assert dict(found.posts.dtypes)["mag"] == "double"


def test_a_source_without_its_package_is_named(spark: SparkSession) -> None:
    from ps2stream.connectors.spark_mapping import open_source

    options = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "a"}
    job = build_job({"source": {"format": "kafka", "options": options}, "checkpoint": "c"})
    with pytest.raises(FailedPrecondition, match=r"no source kafka.*spark-sql-kafka-0-10_2.13:4"):
        open_source(spark, job)
    # Of Delta, Spark tells it with an error of the JVM that PySpark does not wrap.
    table = build_job({"source": {"format": "delta", "path": "t"}, "checkpoint": "c"})
    with pytest.raises(FailedPrecondition) as raised:
        open_source(spark, table)
    said = str(raised.value)
    assert "source.format: this Spark has no source delta" in said
    assert "io.delta:delta-spark_4.2_2.13:4" in said
    assert f"must be this one's, {spark.version}" in said
    files = {"source": {"format": "parquet", "path": "/nowhere"}, "checkpoint": "c"}
    with pytest.raises(InvalidArgument, match=r"source: .*/nowhere"):
        open_source(spark, build_job(files))


def test_a_package_for_another_spark_is_named() -> None:
    from pyspark.errors import PySparkException

    from ps2stream.connectors.spark_mapping import describe_error

    # As Delta 4.3.0, made for Spark 4.1, ended a query of PySpark 4.3.0.
    said = "[STREAM_FAILED] Query terminated: 'void org.apache.spark.sql.A.<init>(scala.B)' SQL"
    for text in (said, "java.lang.NoClassDefFoundError: org/apache/spark/A", f"a\n{said}"):
        found = describe_error(PySparkException(text))
        assert found.startswith(text.splitlines()[0])
        assert "a package is made for another version of Spark than this one, 4." in found
    for text in ("no column 'a' in org.apache.spark.sql.A", "[A] 'x' org.apache.spark.B(1)"):
        assert describe_error(PySparkException(text)) == text


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        (
            "[STREAM_FAILED] Query terminated: [DELTA_SOURCE_TABLE_IGNORE_CHANGES] Detected a data",
            "--option skipChangeCommits=true passes over",
        ),
        (
            "[DELTA_SOURCE_IGNORE_DELETE] Detected deleted data from streaming source at version 4",
            "--option skipChangeCommits=true passes over",
        ),
        ("[DELTA_SCHEMA_NOT_SET] Table schema is not set.  Write data", "is no table of Delta's"),
        (
            "[DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG] configured with the\nDelta",
            "give --spark spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension and",
        ),
    ],
)
def test_what_ends_a_stream_of_delta_is_said_with_what_helps(said: str, advice: str) -> None:
    from pyspark.errors import PySparkException

    from ps2stream.connectors.spark_mapping import describe_error

    # As Delta 4.4.0 said it under PySpark 4.2.0.
    found = describe_error(PySparkException(said))
    assert found.startswith(f"{said.splitlines()[0]}; ")
    assert advice in found
