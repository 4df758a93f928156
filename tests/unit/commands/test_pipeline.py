"""`ps2stream pipeline` before Spark starts: options, files, and the errors of both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.commands.pipeline import declare_by_options
from ps2stream.connectors.counts import ConnectorCounts
from ps2stream.connectors.pipeline_config import build_job

NOTHING: dict[str, Any] = dict.fromkeys(
    (
        "where", "dedupe", "attributes", "name", "checkpoint", "trigger", "partitions", "skip_bad",
        "dead_letters", "reader",
    )
)  # fmt: skip


def test_options_declare_what_a_file_does() -> None:
    found = declare_by_options(
        "json:posts/new",
        ("maxFilesPerTrigger=5", "a=b=c"),
        "x DOUBLE",
        ("lon=x", "text=concat(a, '=', b)"),
        ("mag=m * 2",),
        ("spark.master=local[1]",),
        NOTHING
        | {
            "where": "x > 0",
            "dedupe": "1h",
            "checkpoint": "c",
            "partitions": 3,
            "reader": "spark",
        },
    )
    assert found == {
        "source": {
            "format": "json",
            "path": "posts/new",
            "schema": "x DOUBLE",
            "options": {"maxFilesPerTrigger": "5", "a": "b=c"},
            "reader": "spark",
        },
        "posts": {"lon": "x", "text": "concat(a, '=', b)", "where": "x > 0", "dedupe": "1h"},
        "attributes": {"mag": "m * 2"},
        "spark": {"spark.master": "local[1]"},
        "checkpoint": "c",
        "partitions": 3,
    }
    assert build_job(found).mapping.dedupe_s == 3600
    assert declare_by_options(None, (), None, (), (), (), NOTHING) == {}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "source.format: expected one of parquet, orc"),
        (["--from", "parquet:a"], "checkpoint: expected the folder or URL"),
        (["--from", "parquet:a", "--checkpoint", "c", "--map", "x"], "--map: expected NAME"),
        (["--from", "rate", "--checkpoint", "c", "--dedupe", "1h"], "posts.dedupe: needs posts.id"),
        (["none.toml"], "FILE: cannot read none.toml: No such file"),
    ],
)
def test_what_is_wrong_is_named_before_spark_starts(
    words: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["pipeline", *words, "--json"])
    assert done.exit_code == 2
    assert problem in json.loads(done.output)["error"]["message"]


def test_micro_batches_are_counted_once() -> None:
    spark_pipeline = pytest.importorskip("ps2stream.connectors.spark_pipeline")
    counts = ConnectorCounts(*spark_pipeline.COUNTS)
    follower = spark_pipeline.ProgressFollower(counts)
    state = {"numRowsDroppedByWatermark": 2, "customMetrics": {"numDroppedDuplicateRows": 3}}
    reports = [
        {
            "batchId": i, "numInputRows": rows, "processedRowsPerSecond": 10.4,
            "durationMs": {"triggerExecution": 50}, "stateOperators": [state],
        }
        for i, rows in enumerate((7, 0, 9))
    ]  # fmt: skip
    follower.note_progress(reports[:2])
    follower.note_progress(reports)
    assert counts.now() == {
        "taken": 16, "done": 0, "bad": 0, "late": 4, "repeats": 6, "batches": 2, "read_rate": 10,
        "batch_ms": 50,
    }  # fmt: skip
    assert follower.busy_ms == 100
