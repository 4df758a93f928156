"""Batches of objects are bounded in rows and in bytes, and lose nothing."""

from __future__ import annotations

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
