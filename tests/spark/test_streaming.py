"""Structured Streaming to and from a service, over restarts from a checkpoint."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ps2stream.client.client import Client
from ps2stream.errors import InvalidArgument

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NOW = {"availableNow": True}


def taken(client: Client, session: str, count: int) -> list[Any]:
    found: list[Any] = []
    with client.subscribe(session) as matches:
        for match in matches:
            found.append(match)
            if len(found) == count:
                break
    return found


def test_a_stream_is_published_and_a_repeated_batch_is_recognised(
    spark: SparkSession,
    target: str,
    client: Client,
    tmp_path: Path,
    forget_last: Callable[[Path], None],
) -> None:
    from ps2stream.connectors.spark_streaming import publish_stream

    folder, checkpoint = tmp_path / "posts", tmp_path / "checkpoint"
    folder.mkdir()
    client.insert("spark", "spark", session="spark")

    def add(name: str, numbers: range) -> None:
        rows = ({"lat": 1.0, "lon": 2.0, "text": f"spark {i}", "mag": i} for i in numbers)
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run() -> None:
        schema = "lat double, lon double, text string, mag double, tags array<string>"
        posts = spark.readStream.schema(schema).json(str(folder))
        query = publish_stream(posts, target, name="feed", checkpoint=str(checkpoint), trigger=NOW)
        assert query.awaitTermination(90)

    add("a.json", range(5))
    run()
    first = taken(client, "spark", 5)
    assert {m.object_id for m in first} == {f"feed/0/0/{i}" for i in range(5)}
    assert [m.attributes for m in first] == [{"mag": float(m.text.split()[1])} for m in first]
    add("b.json", range(5, 8))
    run()
    assert {m.text for m in taken(client, "spark", 3)} == {f"spark {i}" for i in range(5, 8)}
    forget_last(checkpoint)
    run()
    client.publish([{"lat": 1.0, "lon": 2.0, "text": "spark", "id": "last"}])
    assert [m.object_id for m in taken(client, "spark", 1)] == ["last"]  # none came again
    posts = spark.readStream.schema("lat double, lon double").json(str(folder))
    with pytest.raises(InvalidArgument, match="expected a column text"):
        publish_stream(posts, target, name="bad", checkpoint=str(tmp_path / "bad"))


@pytest.mark.takes_turns(1)
def test_a_session_is_read_once_over_restarts_and_acknowledged(
    spark: SparkSession,
    target: str,
    client: Client,
    tmp_path: Path,
    forget_last: Callable[[Path], None],
) -> None:
    from ps2stream.connectors.spark_streaming import MatchSource

    checkpoint = tmp_path / "checkpoint"
    spark.dataSource.register(MatchSource)
    client.insert("source", "ocean", session="source")
    seen: dict[int, list[Any]] = {}

    def keep(batch: DataFrame, epoch: int) -> None:
        found = batch.orderBy("seq").collect()
        seen.setdefault(epoch, []).append(found)

    def run(until: Callable[[], bool]) -> None:
        matches = spark.readStream.format("ps2stream").option("server", target)
        query = (
            matches.option("session", "source")
            .load()
            .writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(checkpoint))
            .start()
        )
        try:
            while not (until() and (checkpoint / "commits" / f"{max(seen)}").exists()):
                assert query.exception() is None
                time.sleep(0.05)
        finally:
            query.stop()

    def rows() -> list[Any]:
        return [row for runs in seen.values() for row in runs[-1]]

    post = {"lon": 1.0, "lat": 2.0, "time": 1_767_600_000_123}
    with_depth = {**post, "attributes": {"depth": 4.5}}
    client.publish([{**with_depth, "id": str(i), "text": f"ocean {i}"} for i in range(4)])
    run(lambda: len(rows()) == 4)
    assert [row.seq for row in rows()] == [1, 2, 3, 4]
    row = rows()[0]
    assert (row.query_id, row.text, row.lon, row.lat) == ("source", f"ocean {row.object_id}", 1, 2)
    assert row.attributes == '{"depth":4.5}'
    assert round(row.time.timestamp() * 1000) % 1000 == 123
    forget_last(checkpoint)
    some = [{**post, "id": str(i), "text": f"ocean {i}"} for i in range(4, 6)]
    client.publish([some[0], {**some[1], "time": 2**62}])  # of which no calendar knows
    run(lambda: len(rows()) == 6)
    last = max(epoch for epoch, runs in seen.items() if len(runs) == 2)
    assert seen[last][0] == seen[last][1]  # the same micro-batch, again
    assert [row.seq for row in rows()] == [1, 2, 3, 4, 5, 6]
    assert {row.object_id for row in rows()} == set("012345")
    assert [row.object_id for row in rows() if row.time is None] == ["5"]
    with client.subscribe("source") as matches:
        assert next(matches.batches(manual=True)).first > 4  # what was committed is acknowledged
