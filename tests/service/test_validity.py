"""Queries that end, and objects that stay valid: by the clients, Arrow, messages and the command
line."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.client.async_client import AsyncClient
from ps2stream.client.client import Client
from ps2stream.client.requests import Query
from ps2stream.errors import AlreadyExists, InvalidArgument, NotFound
from ps2stream.limits import VALIDITY_MS
from ps2stream.protocol.arrow_ipc import to_ipc
from ps2stream.v1 import pubsub_pb2, query_pb2


def now_ms() -> int:
    return round(time.time() * 1000)


def is_gone(client: Client, id: str) -> bool:
    try:
        client.get(id)
    except NotFound:
        return True
    return False


@pytest.mark.takes_turns
def test_a_query_ends_by_itself(client: Client) -> None:
    end = datetime.now(UTC) + timedelta(seconds=5)  # four calls are made before, maybe slowly
    lsn = client.insert("brief", "flood", until=end)
    assert client.insert("brief", "flood", until=end) == lsn  # a repeat
    with pytest.raises(AlreadyExists):
        client.insert("brief", "flood", until=end + timedelta(hours=1))
    with pytest.raises(AlreadyExists):
        client.insert("brief", "flood")
    whole = end.replace(microsecond=end.microsecond // 1000 * 1000)  # times are cut to milliseconds
    assert client.get("brief").until == round(whole.timestamp() * 1000)
    assert [query.until for query in client.list() if query.id == "brief"] != [None]
    while not is_gone(client, "brief"):
        assert datetime.now(UTC) < end + timedelta(seconds=20)
        time.sleep(0.05)
    assert datetime.now(UTC) >= end
    again = client.insert("brief", "flood", until=timedelta(hours=1))
    assert again > lsn
    longer = client.insert("brief", "flood", until=timedelta(hours=2), replace=True)
    assert longer > again
    client.delete("brief")


def test_ends_come_with_rows_and_columns(client: Client, call: Callable[..., Any]) -> None:
    end = now_ms() + 3_600_000
    rows = [Query("rows0", "x", until=end), {"id": "rows1", "expression": "x", "until": end}]
    client.insert_many([*rows, ("rows2", "x")])
    columns: dict[str, Any] = {
        "id": ["arrow0", "arrow1"], "expression": ["x", "y"],
        **{key: [1.0, 2.0] for key in ("lon_min", "lat_min", "lon_max", "lat_max")},
    }  # fmt: skip
    kinds: list[Any] = [pa.int64(), pa.timestamp("ms", "UTC"), pa.timestamp("s", "UTC")]
    for i, kind in enumerate(kinds):
        names = [f"arrow{i}", f"bare{i}"]
        until = pa.array([end // 1000 * 1000, None], pa.int64()).cast(pa.timestamp("ms")).cast(kind)
        batch = pa.record_batch({**columns, "id": names, "until": until})
        request = pubsub_pb2.InsertQueriesRequest(
            batch=query_pb2.QueryBatch(arrow=to_ipc(batch), session="s")
        )
        assert call("InsertQueries", request.SerializeToString())[0] == grpc.StatusCode.OK
    found = {query.id: query.until for query in client.list()}
    assert found["rows0"] == found["rows1"] == end
    assert found["rows2"] is None
    for i in range(len(kinds)):
        assert found[f"arrow{i}"] == end // 1000 * 1000
        assert found[f"bare{i}"] is None


@pytest.mark.parametrize(
    ("until", "problem"),
    [(0, "is over"), (-5, "is over"), (1_000, "is over"), (1 << 62, "over the limit validity_ms")],
)
def test_bad_ends_are_refused_by_name(client: Client, until: int, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem) as caught:
        client.insert("bad", "flood", until=until)
    assert [v.field for v in caught.value.violations] == ["query.until"]
    refused: list[Any] = []
    good = now_ms() + 60_000
    client.insert_many([("fine", "x"), Query("bad", "x", until=until)], refused=refused)
    client.insert_many([Query("fine too", "x", until=good)], refused=refused)
    assert [row.row for row in refused] == [1]
    assert problem in str(refused[0].error)
    assert is_gone(client, "bad")
    assert client.get("fine").until is None
    for id in ("fine", "fine too"):
        client.delete(id)


def test_ends_of_a_wrong_type_are_refused_by_the_client(client: Client) -> None:
    for until in ("tomorrow", float("nan"), True, datetime(2030, 1, 1), 1 << 63):
        with pytest.raises(InvalidArgument, match=r"query\.until"):
            client.insert("bad", "flood", until=until)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="validity_ms"):
        client.insert("bad", "flood", until=now_ms() + VALIDITY_MS + 60_000)


def test_the_asynchronous_client_takes_ends_too(target: str) -> None:
    async def run() -> int | None:
        async with AsyncClient(target) as client:
            await client.insert("async", "flood", until=timedelta(minutes=5))
            found = await client.get("async")
            await client.delete("async")
            return found.until

    found = asyncio.run(run())
    assert found is not None
    assert abs(found - now_ms() - 300_000) < 60_000


def test_the_command_line_takes_ends(target: str, tmp_path: Path) -> None:
    def run(*args: str, code: int = 0) -> str:
        found = CliRunner().invoke(main, [*args, "--server", target])
        assert found.exit_code == code, found.output
        return found.output

    assert "valid until 20" in run("insert", "cli", "flood", "--until", "1d2h")
    assert "  until 20" in run("list")
    shown = [json.loads(line) for line in run("list", "--json").splitlines()]
    [mine] = [query for query in shown if query["id"] == "cli"]
    assert abs(mine["until"] - now_ms() - 26 * 3_600_000) < 60_000
    run("delete", "cli")
    file = tmp_path / "queries.jsonl"
    lines = [mine, {"id": "cli2", "expression": "x", "until": "2033-01-01T00:00:00Z"}]
    file.write_text("\n".join(map(json.dumps, lines)))
    assert "inserted 2 queries" in run("insert", "--file", str(file))
    assert "until 2033-01-01 00:00:00 UTC" in run("list")
    file.write_text(json.dumps({"id": "cli3", "expression": "x", "until": "soon"}))
    refused = run("insert", "--file", str(file), code=1)
    assert "queries.jsonl:1 until: expected Unix milliseconds" in refused
    for bad in ("soon", "", "2 h", "-1h", "2020-01-01", "99999999999999w"):
        assert "until" in run("insert", "cli4", "x", "--until", bad, code=2)
    assert "or an end" in run("insert", "--file", str(file), "--until", "1h", code=2)
    for id in ("cli", "cli2"):
        run("delete", id)


HERE = {"lon": 8.5, "lat": 47.4}


def test_a_new_query_is_matched_against_objects_that_are_still_valid(client: Client) -> None:
    client.insert("old", "storm", session="retro")
    later = timedelta(hours=1)
    client.publish([
        HERE | {"id": "valid", "text": "storm warning", "until": later, "attributes": {"level": 3}},
        HERE | {"id": "brief", "text": "storm", "until": timedelta(seconds=0.7)},
        HERE | {"id": "ever", "text": "storm"},
        HERE | {"id": "other", "text": "calm", "until": later},
    ])  # fmt: skip
    time.sleep(1.2)
    client.insert("words", '"storm warning"', session="retro", retro=True)
    client.insert("level", "level >= 2", session="retro", retro=True)
    client.insert("plain", "storm", session="retro")
    client.insert("place", region=(8, 47, 9, 48), session="retro", retro=True)
    client.publish([HERE | {"id": "new", "text": "a storm warning"}])
    expected = {
        ("old", "valid"), ("old", "brief"), ("old", "ever"), ("words", "valid"), ("level", "valid"),
        ("place", "valid"), ("place", "other"), ("old", "new"), ("words", "new"), ("plain", "new"),
        ("place", "new"),
    }  # fmt: skip
    found: list[Any] = []
    with client.subscribe("retro", attributes=True) as matches:
        while len(found) < len(expected):
            found.append(next(matches))
    assert sorted((m.query_id, m.object_id) for m in found) == sorted(expected)
    places = {m.object_id: (m.partition, m.offset) for m in found if m.query_id == "old"}
    assert {(m.partition, m.offset) for m in found if m.query_id == "words"} == {
        places["valid"], places["new"],
    }  # fmt: skip
    assert {m.attributes.get("level") for m in found if m.object_id == "valid"} == {3}
    for id in ("old", "words", "level", "plain", "place"):
        client.delete(id)


def test_objects_come_with_ends_in_every_form(client: Client, call: Callable[..., Any]) -> None:
    end = now_ms() + 3_600_000
    columns = {"lon": [8.5, 8.5], "lat": [47.4, 47.4], "text": ["gale", "gale"]}
    client.publish({**columns, "id": ["c0", "c1"], "until": [end, None]})
    for i, kind in enumerate((pa.int64(), pa.timestamp("ms", "UTC"), pa.timestamp("us"))):
        until = pa.array([end, None], pa.int64()).cast(pa.timestamp("ms")).cast(kind)
        table = pa.table({**columns, "id": [f"t{i}", f"u{i}"], "until": until})
        client.publish(table)
    feature = {
        "type": "Feature", "id": "f", "geometry": {"type": "Point", "coordinates": [8.5, 47.4]},
        "properties": {"text": "gale", "until": end},
    }  # fmt: skip
    client.publish([feature])
    client.insert("gales", "gale", session="gales", retro=True)
    with client.subscribe("gales") as matches:
        found = {next(matches).object_id for _ in range(5)}
    assert found == {"c0", "t0", "t1", "t2", "f"}
    client.delete("gales")


@pytest.mark.parametrize(
    ("ends", "problem"),
    [
        ({"until": 1}, "is over"),
        ({"until": 0}, "is over"),
        ({"until": 1 << 62}, "over the limit validity_ms"),
        ({"until": timedelta(hours=1), "time": now_ms() + 7_200_000}, "is not after the time"),
    ],
)
def test_bad_ends_of_objects_are_refused_and_nothing_is_kept(
    client: Client, ends: dict[str, Any], problem: str
) -> None:
    good, bad = HERE | {"id": "good", "text": "hail"}, HERE | {"id": "bad", "text": "hail"} | ends
    with pytest.raises(InvalidArgument, match=problem) as caught:
        client.publish([good, bad])
    assert [v.field for v in caught.value.violations] == ["batch.objects[1].until"]
    receipt = client.publish([good, bad], allow_partial=True)
    assert receipt.accepted == 1
    for value in ("soon", float("nan"), True):
        with pytest.raises(InvalidArgument, match=r"objects\[0\]\.until"):
            client.publish([HERE | {"text": "hail", "until": value}])


def test_the_command_line_publishes_and_matches_what_is_valid(target: str, tmp_path: Path) -> None:
    def run(*args: str, code: int = 0) -> str:
        found = CliRunner().invoke(main, [*args, "--server", target])
        assert found.exit_code == code, found.output
        return found.output

    end = datetime.now(UTC) + timedelta(hours=2)
    file = tmp_path / "posts.jsonl"
    lines: list[Any] = [
        HERE | {"id": "p0", "text": "sleet", "until": end.isoformat()},
        HERE | {"id": "p1", "text": "sleet", "severity": 2},
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    run("publish", str(file))
    table = tmp_path / "posts.csv"
    csv = f"p2,47.4,8.5,sleet,{end.isoformat()}\np3,47.4,8.5,sleet,\n"
    table.write_text(f"id,lat,lon,text,until\n{csv}")
    run("publish", str(table))
    parquet = tmp_path / "posts.parquet"
    posts = {name: [lines[0][name]] * 2 for name in ("lon", "lat", "text")}
    until = pa.array([round(end.timestamp() * 1000), None], pa.timestamp("ms"))
    pq.write_table(pa.table({**posts, "id": ["p4", "p5"], "until": until}), parquet)
    run("publish", str(parquet))
    run("insert", "sleet", "sleet", "--session", "sleet", "--retro")
    run("publish", str(file), "--until", "1h", "--limit", "2")
    run("insert", "again", "sleet AND severity = 2", "--session", "sleet", "--retro")
    run("publish", str(parquet), "--until", "1h")
    run("insert", "p5", "sleet", "--session", "only", "--retro")
    with Client(target) as client:
        with client.subscribe("sleet") as matches:
            found = [next(matches) for _ in range(8)]
        with client.subscribe("only") as matches:
            only = sorted(next(matches).object_id for _ in range(7))
    pairs = sorted((m.query_id, m.object_id) for m in found)
    assert pairs == sorted([
        ("sleet", "p0"), ("sleet", "p2"), ("sleet", "p4"), ("sleet", "p0"), ("sleet", "p1"),
        ("again", "p1"), ("sleet", "p4"), ("sleet", "p5"),
    ])  # fmt: skip
    assert only == ["p0", "p0", "p1", "p2", "p4", "p4", "p5"]
    file.write_text(json.dumps(HERE | {"text": "x", "until": "soon"}))
    assert "posts.jsonl:1 until" in run("publish", str(file), code=2)
    for id in ("sleet", "again", "p5"):
        run("delete", id)
