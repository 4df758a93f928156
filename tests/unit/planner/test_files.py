"""Query updates from files of every format."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ps2stream.errors import InvalidArgument
from ps2stream.planner.files import BATCH, read_updates
from tests.support.samples import batch

ROWS: list[dict[str, Any]] = [
    {"id": "a", "expression": "flood", "op": "insert", "time": 5,
     "lon_min": 1.0, "lat_min": 2.0, "lon_max": 3.0, "lat_max": 4.0},
    {"id": "b", "expression": "river OR flood", "op": "live", "time": 1,
     "lon_min": 170.0, "lat_min": -5.0, "lon_max": -170.0, "lat_max": 5.0},
    {"id": "a", "expression": "", "op": "delete", "time": 9,
     "lon_min": None, "lat_min": None, "lon_max": None, "lat_max": None},
]  # fmt: skip


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_formats_are_the_same_rows(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"updates.{kind}"
    if kind == "jsonl":
        path.write_text("\n".join(map(json.dumps, ROWS)))
    elif kind == "csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ROWS[0])
            writer.writeheader()
            writer.writerows(ROWS)
    else:
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    assert [*read_updates(str(path))] == [batch(ROWS)]


def test_a_long_file_comes_in_batches(tmp_path: Path) -> None:
    path = tmp_path / "updates.csv"
    lines = [f"q{i},flood" for i in range(2 * BATCH + 1)]
    path.write_text("id,expression\n" + "\n".join(lines))
    found = [*read_updates(str(path))]
    assert [len(part) for part in found] == [BATCH, BATCH, 1]
    ids = [id for part in found for id in part.column("id").to_pylist()]
    assert ids == [f"q{i}" for i in range(2 * BATCH + 1)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bad.jsonl", '{"id": "a", "expression": "x"}\n{"id": "b"}\n', r"bad\.jsonl:2"),
        ("bad.csv", "expression\nflood\n", r"bad\.csv.*expected a column id"),
        ("bad.csv", "id,expression,op\nx,flood,drop\n", r"bad\.csv.* op: expected insert"),
        ("bad.jsonl", '{"id": "a", \n', r"bad\.jsonl.*expected one JSON object per line"),
    ],
)
def test_a_wrong_row_is_named_with_its_file(
    name: str, content: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(InvalidArgument, match=message):
        [*read_updates(str(path))]


def test_an_empty_file_has_no_updates(tmp_path: Path) -> None:
    path = tmp_path / "none.jsonl"
    path.write_text("\n")
    assert [*read_updates(str(path))] == []
