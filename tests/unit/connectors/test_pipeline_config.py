"""Declarations of pipelines: what they mean, and the errors of what is wrong with them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from ps2stream.connectors.pipeline_config import (
    PipelineJob,
    PostMapping,
    build_job,
    merge_declarations,
    parse_seconds,
    read_declaration,
)
from ps2stream.errors import InvalidArgument

GOOD = """
name = "news"
checkpoint = "s3a://feed/position"
trigger = "10s"
partitions = 4
dead_letters = "bad.jsonl"

[source]
format = "kafka"
schema = "x DOUBLE, y DOUBLE, body STRING"
[source.options]
"kafka.bootstrap.servers" = "localhost:9092"
subscribe = "posts"
maxOffsetsPerTrigger = 100000

[posts]
lon = "x"
lat = "y"
text = "concat(title, ' ', body)"
where = "lang = 'en'"
dedupe = "1h"

[attributes]
severity = "cast(sev AS INT)"

[spark]
"spark.driver.memory" = "4g"
"""
FILES = {"source": {"format": "parquet", "path": "posts"}, "checkpoint": "position"}


def test_a_file_declares_all(tmp_path: Path) -> None:
    path = tmp_path / "news.toml"
    path.write_text(GOOD)
    assert build_job(read_declaration(path)) == PipelineJob(
        name="news",
        format="kafka",
        checkpoint="s3a://feed/position",
        schema="x DOUBLE, y DOUBLE, body STRING",
        options={
            "kafka.bootstrap.servers": "localhost:9092",
            "subscribe": "posts",
            "maxOffsetsPerTrigger": "100000",
        },
        mapping=PostMapping(
            {"lon": "x", "lat": "y", "text": "concat(title, ' ', body)"},
            {"severity": "cast(sev AS INT)"},
            "lang = 'en'",
            3600.0,
        ),
        trigger=10.0,
        partitions=4,
        dead_letters=Path("bad.jsonl"),
        spark={"spark.driver.memory": "4g"},
    )


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"nmae": "a"}, r"nmae: is unknown; expected one of name, checkpoint"),
        ({"name": "a/b"}, r"name: expected 1 to 64 letters, digits.*got 'a/b'"),
        ({"name": "a" * 65}, r"name: expected 1 to 64 letters"),
        ({"checkpoint": ""}, r"checkpoint: expected the folder or URL.*got ''"),
        ({"partitions": 257}, r"partitions: expected a whole number from 1 to 256, got 257"),
        ({"partitions": True}, r"partitions: expected a whole number from 1 to 256, got true"),
        ({"trigger": "soon"}, r"trigger: expected a duration above 0.*at most 366d.*got 'soon'"),
        ({"trigger": "0s"}, r"trigger: expected a duration above 0"),
        ({"skip_bad": "yes"}, r"skip_bad: expected true or false, got 'yes'"),
        ({"skip_bad": True, "dead_letters": "f"}, r"dead_letters: cannot be combined with skip"),
        (
            {"source": {"format": "xml", "path": "a"}},
            r"source.format: expected one of parquet",
        ),
        ({"source": {"format": "parquet"}}, r"source.path: is missing; parquet is read"),
        ({"source": {"format": "rate", "path": "a"}}, r"source.path: does not go with rate"),
        ({"source": {"format": "json", "path": "a"}}, r"source.schema: is missing; json needs"),
        (
            {"source": {"format": "rate", "schema": "a INT"}},
            r"source.schema: does not go with",
        ),
        ({"source": {"format": "rate", "paht": "a"}}, r"source.paht: is unknown; expected one"),
        ({"source": {"format": "socket"}}, r"source.options.host: is missing.*socket needs it"),
        (
            {"source": {"format": "kafka", "options": {"kafka.bootstrap.servers": "h:1"}}},
            r"source.options: expected one of subscribe, subscribePattern and assign.*got none",
        ),
        (
            {"source": {"format": "rate", "options": {"a": {"b": 1}}}},
            r"source.options.a: expected a text or number.*a name with dots is put in quotes",
        ),
        ({"source": 5}, r"source: expected a table, got 5"),
        (
            {"source": {"format": "parquet", "path": "a", "reader": "jvm"}},
            r"source.reader: expected one of auto, arrow, spark, got 'jvm'",
        ),
        ({"posts": {"lng": "x"}}, r"posts.lng: is unknown; expected one of id, time, lon"),
        ({"posts": {"lon": 5}}, r"posts.lon: expected a text that is not empty, got 5"),
        ({"posts": {"dedupe": "400d"}}, r"posts.dedupe: expected a duration.*at most 366d"),
        ({"attributes": {"lon": "x"}}, r"attributes.lon: is a field of posts; map it as posts"),
        ({"attributes": {"a" * 65: "x"}}, r"attributes.a+: cannot be the name of an attribute"),
        ({"attributes": "mag:nmber"}, r"attributes.mag: expected a type of number.*nmber"),
        ({"attributes": 5}, r"attributes: expected a table of expressions, or names, got 5"),
        ({"spark": ["a"]}, r"spark: expected a table"),
    ],
)
def test_what_is_wrong_is_named(more: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        build_job({**FILES, **more})


def test_all_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(InvalidArgument) as found:
        build_job({"partitions": 0, "posts": {"lon": ""}, "source": {"format": "csv"}})
    fields = {v.field for v in found.value.violations}
    assert fields == {"checkpoint", "partitions", "posts.lon", "source.path", "source.schema"}


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"cannot read .*: No such file"):
        read_declaration(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("name = ")
    with pytest.raises(InvalidArgument, match="is not TOML"):
        read_declaration(tmp_path / "bad.toml")


def test_options_are_merged_into_a_file() -> None:
    base = {"name": "a", "posts": {"lon": "x", "lat": "y"}, "attributes": {"b": "c"}}
    more = {"posts": {"lat": "z"}, "attributes": "none"}
    assert merge_declarations(base, more) == {
        "name": "a",
        "posts": {"lon": "x", "lat": "z"},
        "attributes": "none",
    }


def test_durations() -> None:
    assert [parse_seconds("a", t) for t in ("10s", "1.5h", "250ms", "2 d")] == [
        10, 5400, 0.25, 172_800
    ]  # fmt: skip


def test_the_mark_is_of_what_decides_the_rows_and_of_nothing_else() -> None:
    job = build_job(FILES)
    other = PostMapping(where="a = 1")
    same = {"name": "b", "checkpoint": "c", "skip_bad": True, "options": {"kafka.password": "x"}}
    different = {"mapping": other, "partitions": 9, "path": "d", "options": {"wholetext": "true"}}
    assert all(
        dataclasses.replace(job, **{n: v}).compute_mark() == job.compute_mark()  # type: ignore[arg-type]
        for n, v in same.items()
    )
    assert all(
        dataclasses.replace(job, **{n: v}).compute_mark() != job.compute_mark()  # type: ignore[arg-type]
        for n, v in different.items()
    )


def test_the_mark_stays_when_a_table_that_was_changed_is_read_on() -> None:
    job = build_job({"source": {"format": "delta", "path": "t"}, "checkpoint": "c"})

    def mark(options: dict[str, str], format: str = "delta") -> str:
        return dataclasses.replace(job, format=format, options=options).compute_mark()

    passing = {"skipChangeCommits": "true", "IGNOREDELETES": "true"}
    assert mark(passing) == mark({}) == job.compute_mark()
    assert mark({"ignoreChanges": "true"}) != mark({})  # which reads rows that were there before
    assert mark(passing, "parquet") != mark({}, "parquet")
