"""Parts of Parquet files: each row in one of them, the same each time, as Spark would read it."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ps2stream.connectors.parquet_parts import (
    PART_BYTES,
    ColumnSource,
    FilePart,
    read_parts,
    split_files,
)
from ps2stream.errors import FailedPrecondition, InvalidArgument
from ps2stream.limits import BATCH_ROWS

NUMBER = ColumnSource("n", "number", pa.int64())


def list_file(path: Path, start: int = 0, end: int | None = None) -> FilePart:
    found = path.stat()
    modified_ms = found.st_mtime_ns // 1_000_000
    return FilePart(
        str(path), found.st_size, modified_ms, start, found.st_size if end is None else end
    )


def read_all(parts: list[FilePart], *columns: ColumnSource) -> dict[str, list[Any]]:
    batches = list(read_parts(parts, columns))
    assert all(len(batch) <= BATCH_ROWS for batch in batches)
    return pa.Table.from_batches(batches).to_pydict() if batches else {}


def test_each_byte_is_in_one_part_and_parts_are_alike() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        count, most = int(rng.integers(1, 12)), int(rng.integers(1, 9))
        sizes = rng.choice([0, 1, 7, 1000, PART_BYTES, 3 * PART_BYTES + 5], count).tolist()
        files = [(f"/{i:02}", size, 5) for i, size in enumerate(sizes)]
        found = split_files(files, most)
        assert split_files(files[::-1], most) == found
        total = sum(sizes)
        assert len(found) <= min(most, -(-total // PART_BYTES))
        in_order = [part for parts in found for part in parts]
        reached = dict.fromkeys((name for name, size, _ in files if size), 0)
        for part in in_order:
            assert part.start == reached[part.path] < part.end
            reached[part.path] = part.end
        assert reached == {name: size for name, size, _ in files if size}
        assert [p.path for p in in_order] == sorted(p.path for p in in_order)
        assert all(
            sum(p.end - p.start for p in parts) <= -(-total // len(found)) + 1 for parts in found
        )


@pytest.mark.parametrize("columns", [1, 3])
def test_each_row_is_read_once_in_order(tmp_path: Path, columns: int) -> None:
    rng = np.random.default_rng(columns)
    path = tmp_path / "a b%20.parquet"
    for groups in (1, 2, 7, 40):
        numbers = pa.array(np.arange(20_000))
        more = {f"c{i}": pa.array(rng.random(20_000)) for i in range(1, columns)}
        pq.write_table(
            pa.table({"number": numbers, **more}), path, row_group_size=-(-20_000 // groups)
        )
        size = path.stat().st_size
        for cuts in ([], [1], [size // 2], sorted(rng.integers(1, size, 6).tolist()), [size - 1]):
            edges = [0, *cuts, size]
            parts = [list_file(path, a, b) for a, b in pairwise(edges) if a < b]
            assert read_all(parts, NUMBER) == {"n": list(range(20_000))}
            apart = [read_all([part], NUMBER).get("n", []) for part in parts]
            assert list(chain.from_iterable(apart)) == list(range(20_000))


def test_columns_are_found_and_cast_as_spark_does(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    at = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    table = pa.table(
        {
            "Number": pa.array([1, None], pa.int32()),
            "word": pa.array(["x", "y"]).dictionary_encode(),
            "at": pa.array([at, None], pa.timestamp("ns", "UTC")),
            "day": pa.array([date(2026, 1, 2)] * 2),
        }
    )
    pq.write_table(table, path)
    zoned = pa.timestamp("us", "UTC")
    found = read_all(
        [list_file(path)],
        NUMBER,
        ColumnSource("text", "word", pa.string()),
        ColumnSource("time", "at", zoned),
        ColumnSource("since", "day", zoned),
        ColumnSource("lon", "nowhere", pa.float64()),
        ColumnSource("again", "word", pa.string()),
    )
    assert found == {
        "n": [1, None],
        "text": ["x", "y"],
        "time": [at, None],
        "since": [datetime(2026, 1, 2, tzinfo=UTC)] * 2,
        "lon": [None, None],
        "again": ["x", "y"],
    }


def test_files_that_are_not_as_listed_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"number": [1]}), path)
    part = list_file(path)
    assert read_all([part], NUMBER) == {"n": [1]}
    seconds = part._replace(modified_ms=part.modified_ms // 1000 * 1000)
    assert read_all([seconds], NUMBER) == {"n": [1]}
    with pytest.raises(FailedPrecondition, match=r"a\.parquet was changed since"):
        read_all([part._replace(size=part.size + 1)], NUMBER)
    os.utime(path, ns=(0, (part.modified_ms + 1) * 1_000_000))
    with pytest.raises(FailedPrecondition, match=r"a\.parquet was changed since"):
        read_all([part], NUMBER)
    path.unlink()
    with pytest.raises(FailedPrecondition, match=r"a\.parquet is gone since"):
        read_all([part], NUMBER)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"no Parquet at all")
    with pytest.raises(InvalidArgument, match=r"a\.parquet: cannot be read as Parquet"):
        read_all([list_file(path)], NUMBER)
    pq.write_table(pa.table({"number": ["x"], "NUMBER": [1]}), path)
    with pytest.raises(InvalidArgument, match=r"column number: expected int64, got string"):
        read_all([list_file(path)], NUMBER)
    with pytest.raises(InvalidArgument, match=r"has columns number, NUMBER; expected one Number"):
        read_all([list_file(path)], NUMBER._replace(source="Number"))
    folder = tmp_path / "day=3"
    folder.mkdir()
    pq.write_table(pa.table({"number": [1]}), folder / "a.parquet")
    with pytest.raises(InvalidArgument, match=r"has day in the names of folders.*reader to spark"):
        read_all([list_file(folder / "a.parquet")], ColumnSource("text", "day", pa.string()))
