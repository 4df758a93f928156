"""Batches of objects are bounded in rows and in bytes, and lose nothing."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ps2stream.errors import InvalidArgument
from ps2stream.inprocess import object_batches
from ps2stream.inprocess.matching import match
from ps2stream.inprocess.object_batches import list_batches
from ps2stream.limits import BATCH_BYTES

ROWS = object_batches.ROWS + 500


def make_table(**columns: Any) -> pa.Table:
    texts = [f"flood {i}" for i in range(ROWS)]
    return pa.table({"lon": [0.0] * ROWS, "lat": [0.0] * ROWS, "text": texts} | columns)


HEAVY = {
    "long_attributes": lambda: make_table(body=["x" * 500] * ROWS),
    "many_attributes": lambda: make_table(
        **{f"a_column_with_name_{i}": range(ROWS) for i in range(40)}
    ),
    "payloads": lambda: make_table(payload=['"%s"' % ("x" * 3000)] * ROWS),
    "long_texts": lambda: make_table(text=["flood " * 500] * ROWS),
    "one_long_text": lambda: make_table(text=["flood"] * (ROWS - 1) + ["flood " * 10_000]),
}  # fmt: skip


@pytest.mark.takes_turns
@pytest.mark.parametrize("name", HEAVY)
def test_heavy_objects_come_in_smaller_batches(name: str, tmp_path: Path) -> None:
    table = HEAVY[name]()
    path = str(tmp_path / "posts.parquet")
    pq.write_table(table, path)
    columns = table.to_pydict()
    records = table.to_pylist()
    for source in (table, table.to_pandas(), path, columns, records):
        batches = list(list_batches(source))
        assert max(map(len, batches)) <= object_batches.ROWS
        assert max(batch.nbytes for batch in batches) <= BATCH_BYTES
        assert sum(map(len, batches)) == ROWS
    assert pa.Table.from_batches(list_batches(path)).to_pydict() == columns


@pytest.mark.takes_turns
@pytest.mark.parametrize("name", ["long_attributes", "many_attributes", "payloads"])
def test_objects_with_many_bytes_of_attributes_are_matched(name: str) -> None:
    found = match([("all", "flood"), ("one", "flood AND 8191")], HEAVY[name](), processes=1)
    assert len(found) == ROWS + 1
    assert found.table.filter(pc.field("query") == 1)["object"].to_pylist() == [8191]


def test_plain_objects_come_in_whole_batches(tmp_path: Path) -> None:
    path = str(tmp_path / "posts.parquet")
    pq.write_table(make_table(), path)
    for source in (make_table(), path):
        assert [len(batch) for batch in list_batches(source)] == [object_batches.ROWS, 500]


@pytest.mark.parametrize("name", ["text", "note"])
@pytest.mark.parametrize("row", [0, ROWS - 1])
def test_what_is_not_utf8_is_refused_by_its_row(name: str, row: int, tmp_path: Path) -> None:
    values = [b"flood"] * ROWS
    values[row] = b"\xff flood"
    table = make_table(**{name: pa.array(values).view(pa.string())})
    path = str(tmp_path / "posts.parquet")
    pq.write_table(table, path)
    for source in (table, path):
        with pytest.raises(InvalidArgument, match=rf"objects\[{row}\]\.{name}: .*UTF8"):
            match([("all", "flood")], source, processes=1)


def test_objects_have_some_of_many_attributes(tmp_path: Path) -> None:
    """More than a table may have columns, and a file more than an object attributes."""
    posts = [
        {"lon": 0.0, "lat": 0.0, "text": "flood", "n": i, f"a{i % 1500}": i, f"b{i % 150}": str(i)}
        for i in range(3000)
    ]
    queries = [("a", "a1499 = 2999"), ("b", 'b7 IN ("7", "157", "3007")'), ("n", "n >= 2998")]
    expected = [(7, 1), (157, 1), (2998, 2), (2999, 0), (2999, 2)]
    lines = tmp_path / "posts.jsonl"
    lines.write_text("".join(json.dumps(post) + "\n" for post in posts))
    names = ["lon", "lat", "text", "n", "a1499", *(f"b{i}" for i in range(150))]
    table = pa.table({name: [post.get(name) for post in posts] for name in names})
    with (tmp_path / "posts.csv").open("w") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows({name: post.get(name, "") for name in names} for post in posts)
    pq.write_table(table, tmp_path / "posts.parquet")
    sources = [posts, lines, table, table.to_pandas(), tmp_path / "posts.parquet"]
    for source in sources:
        found = match(queries, source, processes=1).table
        pairs = zip(*(found[name].to_pylist() for name in ("object", "query")), strict=True)
        assert list(pairs) == expected, source
    found = match(queries[1:2], tmp_path / "posts.csv", processes=1).table
    assert found["object"].to_pylist() == [7, 157]


def test_what_a_file_has_that_is_no_attribute_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    post = {"lon": 0.0, "lat": 0.0, "text": "flood", "n": 1, "some": [1]}
    (tmp_path / "x.jsonl").write_text(json.dumps(post))
    pq.write_table(pa.Table.from_pylist([post]), tmp_path / "x.parquet")
    (tmp_path / "x.csv").write_text("lon,lat,text,n\n0,0,flood,1\n")
    paths = [str(tmp_path / name) for name in ("x.jsonl", "x.parquet", "x.csv")]
    assert len(match([("all", "flood")], paths, processes=1)) == 3
    told = [
        record.getMessage() for record in caplog.records if str(tmp_path) in record.getMessage()
    ]
    assert [line.removeprefix(str(tmp_path)) for line in told] == [
        "/x.jsonl: left out, as no attributes: some (an array)",
        "/x.parquet: left out, as no attributes: some (of the type list<element: int64>)",
        "/x.csv: columns of CSV are texts; for numbers: n:number",
    ]
    caplog.clear()
    assert len(match([("all", "flood")], paths, attributes="n", processes=1)) == 3
    assert not caplog.records


def test_what_is_missing_in_a_batch_is_bounded_too() -> None:
    """A batch of few values in many columns has more rows than one of many values."""
    rows = 6000
    sparse = {f"a{i:04}": pa.array([i if r % 1000 == i else None for r in range(rows)])
              for i in range(1000)}  # fmt: skip
    place = {"lon": [0.0] * rows, "lat": [0.0] * rows, "text": ["flood"] * rows}
    batches = list(list_batches(pa.table(place | sparse)))
    assert sum(map(len, batches)) == rows
    assert BATCH_BYTES < max(batch.nbytes for batch in batches) <= 4 * BATCH_BYTES
    assert len(match([("all", "flood")], batches, processes=1)) == rows


@pytest.mark.parametrize("number", [0, 1])
def test_an_object_with_too_many_attributes_is_named(number: int) -> None:
    posts = [{"lon": 0.0, "lat": 0.0, "text": "flood"}, {"lon": 0.0, "lat": 0.0, "text": "flood"}]
    posts[number] |= {f"a{i}": i for i in range(65)}
    problem = rf"objects\[{number}\]\.attributes: 65 attributes are over the limit attributes 64"
    table = pa.table({name: [post.get(name) for post in posts] for name in posts[number]})
    for source in (posts, table):
        with pytest.raises(InvalidArgument, match=problem):
            match([("all", "flood")], source, processes=1)
