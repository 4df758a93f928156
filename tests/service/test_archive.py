"""The archive of a service: what came through every door, and what reads it."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from click.testing import CliRunner

from ps2stream.archive.layout import read_mark, read_snapshot
from ps2stream.cli import main
from ps2stream.client.answers import Receipt
from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.inprocess.matching import match
from ps2stream.posts.members import AttributeChoice
from ps2stream.posts.readers import read_posts, read_rows, row_count
from tests.support.archived import archived

ROWS: list[dict[str, Any]] = [
    {
        "id": f"row {i}",
        "lon": i / 10,
        "lat": 1.0,
        "text": ["storm", "a river in flood", "雨 😀"][i % 3],
        "time": 1_700_000_000_000 + i,
        "attributes": {"mag": i / 2, "sure": True, "at": datetime(2020, 1, 2, tzinfo=UTC)},
        "payload": {"n": i},
    }
    for i in range(30)
]
QUERIES = [{"id": "q", "expression": "storm OR mag > 3"}, {"id": "r", "expression": "flood"}]


class ArchivedService(NamedTuple):
    """The archive of a service that has stopped; which objects it answered for at DURABLE, by
    partition and offset, and the words of those at other levels."""

    path: Path
    ids: dict[tuple[int, int], str]
    tmp: Path


def run(*arguments: str) -> Any:
    result = CliRunner().invoke(main, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> ArchivedService:
    tmp = tmp_path_factory.mktemp("archived")
    path = tmp / "archive"
    settings = Settings(
        runtime="local", port=0, workers=1, dispatchers=2, data_dir=tmp / "data", archive=path
    )
    ids: dict[tuple[int, int], str] = {}

    def note(receipt: Receipt, names: list[str]) -> None:
        ids.update({(receipt.partition, receipt.first_offset + i): n for i, n in enumerate(names)})

    with start(settings) as service:
        first, second = (Client(target, timeout=90) for target in service.targets)
        with first, second:
            for i in range(0, 30, 7):
                note(first.publish(ROWS[i : i + 7]), [row["id"] for row in ROWS[i : i + 7]])
            table = pa.record_batch(
                {"id": ["a", "b"], "lon": [1.0, 2.0], "lat": [0.0, 0.0], "text": ["x", "y"]}
            )
            note(second.publish(table), ["a", "b"])
            for client in (first, second):  # the second is a repeat
                note(client.publish(ROWS[:2], producer="ann", seq=1), ["row 0", "row 1"])
            first.publish([{"lon": 0, "lat": 0, "text": "in memory"}], level="accepted")
            while (census := first.status()["census"]) is None:
                time.sleep(0.05)
            assert census["archive"]["problems"] == []
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        found = run("publish", str(path), "--server", service.targets[0])
        assert found["published"] == len(ids)
        note(client.publish([{"id": "last", "lon": 0, "lat": 0, "text": "end"}]), ["last"])
    return ArchivedService(path, ids, tmp)


def test_the_archive_has_what_was_answered_for_once(stopped: ArchivedService) -> None:
    found = archived(stopped.path)
    by_place = {(partition, offset): post for (partition, _, offset), (_, post) in found.items()}
    assert {place: post.id for place, post in by_place.items() if place in stopped.ids} == (
        stopped.ids
    )
    again = [post for place, post in by_place.items() if place not in stopped.ids]
    names = sorted(name for name in stopped.ids.values() if name != "last")
    assert sorted(post.id for post in again) == names  # what was published from the archive
    assert not any("in memory" in post.text for post in by_place.values())
    marks = [read_mark(stopped.path / f"dispatcher-{i}") for i in range(2)]
    for i, mark in enumerate(marks):
        assert mark is not None
        assert mark.offset > max(offset for partition, offset in stopped.ids if partition == i)
        assert not mark.gaps


def test_posts_come_back_as_they_were(stopped: ArchivedService) -> None:
    choice = AttributeChoice()
    rows = [post for part in read_rows(str(stopped.path), batch=7, choice=choice) for post in part]
    for row in ROWS:
        twins = [post for post in rows if post["id"] == row["id"]]
        assert len(twins) == (4 if row["id"] in ("row 0", "row 1") else 2)
        for post in twins:  # of which half went through the archive
            assert json.loads(post.pop("payload")) == row["payload"]
            assert post == {name: row[name] for name in row if name != "payload"}
    assert row_count(str(stopped.path)) == len(rows)
    plain = pa.Table.from_batches(list(read_posts(str(stopped.path), batch=9)))
    assert plain["id"].to_pylist() == [post["id"] for post in rows]
    only = AttributeChoice("mag")
    some = next(read_rows(str(stopped.path), batch=1, choice=only))
    assert some[0]["attributes"].keys() == {"mag"}
    assert next(read_rows(str(stopped.path)))[0].keys() == {"id", "time", "lon", "lat", "text"}


def test_an_archive_is_matched_with_its_attributes(stopped: ArchivedService) -> None:
    rows = [p for part in read_rows(str(stopped.path), choice=AttributeChoice()) for p in part]
    expected = [
        (i, query)
        for i, post in enumerate(rows)
        for query, holds in enumerate(
            ("flood" in post["text"], post.get("attributes", {}).get("mag", -1) >= 3)
        )
        if holds
    ]
    assert {query for _, query in expected} == {0, 1}
    found = match([("words", "flood"), ("strong", "mag >= 3")], str(stopped.path)).table
    columns = (found[name].to_pylist() for name in ("object", "query"))
    assert list(zip(*columns, strict=True)) == expected
    only = match([("strong", "mag >= 3")], str(stopped.path), attributes="sure")
    assert not len(only)


def test_the_planner_reads_an_archive_as_it_reads_a_file(stopped: ArchivedService) -> None:
    tmp = stopped.tmp
    posts = [p for part in read_rows(str(stopped.path), choice=AttributeChoice()) for p in part]
    lines = [
        json.dumps(post | {"attributes": {n: v for n, v in post.get("attributes", {}).items()
                                          if n != "at"}}, default=str)
        for post in posts
    ]  # fmt: skip
    (tmp / "posts.jsonl").write_text("\n".join(lines))
    (tmp / "queries.jsonl").write_text("\n".join(map(json.dumps, QUERIES)))
    made = []
    for objects in (str(stopped.path), str(tmp / "posts.jsonl")):
        found = run(
            "plan", "--objects", objects, "--queries", str(tmp / "queries.jsonl"),
            "--engine", "numpy", "--workers", "2", "-o", str(tmp / "plan.json"),
            "--attributes", "mag,sure",
        )  # fmt: skip
        made.append({name: found[name] for name in ("sample", "predicted")})
    assert made[0] == made[1]
    assert made[0]["sample"]["objects"] == len(posts)
    whole = run(
        "plan", "--objects", str(stopped.path), "--queries", str(tmp / "queries.jsonl"),
        "--engine", "numpy", "--workers", "2", "-o", str(tmp / "plan.json"),
    )  # fmt: skip
    assert whole["sample"] == made[0]["sample"]


def test_a_snapshot_names_files_of_both_dispatchers(stopped: ArchivedService) -> None:
    snapshot = read_snapshot(stopped.path)
    assert {partition for partition, _ in snapshot.raw} == {0, 1}
    assert [mark.partition for mark in snapshot.marks] == [0, 1]


def test_the_command_shows_what_is_there(stopped: ArchivedService) -> None:
    found = run("archive", "show", str(stopped.path))
    assert found["objects"] == len(archived(stopped.path)) == 2 * len(stopped.ids) - 1
    assert [each["lost"] for each in found["dispatchers"]] == [0, 0]
    assert sum(each["archived"] for each in found["dispatchers"]) == found["objects"]
    files = run("archive", "show", str(stopped.path), "--files")["files"]
    assert files == [str(file) for file in read_snapshot(stopped.path).files]
    told = CliRunner().invoke(main, ["archive", "show", str(stopped.path)])
    assert f"{found['objects']:,} objects" in told.output
    nothing = CliRunner().invoke(main, ["archive", "show", str(stopped.tmp)])
    assert "is no archive" in nothing.stderr
    assert nothing.exit_code != 0
