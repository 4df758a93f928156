"""Objects with their attributes, from files of every format."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ps2stream.errors import InvalidArgument
from ps2stream.language.attribute_values import values_of
from ps2stream.planner.objects import OBJECTS, opaque_of, pack_rows, read_objects
from ps2stream.planner.sample import posts
from ps2stream.protocol.opaque import split_opaque
from ps2stream.v1.object_pb2 import Attributes
from tests.support.attributes import value_of

AT = datetime(2026, 11, 24, 10, 0, 0, 5000, UTC)
ROWS: list[dict[str, Any]] = [
    {"mag": 6.5, "deep": True, "place": "e\u0301", "count": 3, "at": AT},
    {},
    {"mag": 2.0, "deep": False, "place": None, "count": -(2**63)},
]


def known(i: int) -> dict[str, Any]:
    return {"id": f"o{i}", "lon": float(i), "lat": 1.0, "text": "flood"}


def held(batches: list[Any]) -> list[dict[str, Any]]:
    table = pa.Table.from_batches(batches, OBJECTS)
    assert table["lon"].to_pylist() == [0.0, 1.0, 2.0]
    messages = [Attributes.FromString(raw or b"") for raw in table["attributes"].to_pylist()]
    return [dict(values_of(message)) for message in messages]


def wanted(kinds: set[str]) -> list[dict[str, Any]]:
    return [{n: value_of(v) for n, v in r.items() if v is not None and n in kinds} for r in ROWS]


def test_json_lines_have_the_types_of_json(tmp_path: Path) -> None:
    path = tmp_path / "o.jsonl"
    lines = [known(i) | {n: v for n, v in row.items() if n != "at"} for i, row in enumerate(ROWS)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    assert held([*read_objects(str(path))]) == wanted({"mag", "deep", "place", "count"})
    assert held([*read_objects(str(path), "mag")]) == wanted({"mag"})
    assert held([*read_objects(str(path), "none")]) == [{}, {}, {}]


def test_columns_of_parquet_have_their_own_types(tmp_path: Path) -> None:
    path = tmp_path / "o.parquet"
    names = ["mag", "deep", "place", "count", "at"]
    rows = [known(i) | {n: row.get(n) for n in names} for i, row in enumerate(ROWS)]
    pq.write_table(pa.Table.from_pylist(rows), path)
    assert held([*read_objects(str(path))]) == wanted({*names})
    bare = tmp_path / "bare.parquet"
    pq.write_table(pa.Table.from_pylist([known(i) for i in range(3)]), bare)
    assert held([*read_objects(str(bare))]) == [{}, {}, {}]


def test_csv_is_text_unless_types_are_given(tmp_path: Path) -> None:
    path = tmp_path / "o.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*known(0), "mag"])
        writer.writeheader()
        writer.writerows(known(i) | {"mag": row.get("mag", "")} for i, row in enumerate(ROWS))
    as_text = [{"mag": value_of(str(row["mag"]))} if "mag" in row else {} for row in ROWS]
    assert held([*read_objects(str(path))]) == as_text
    assert held([*read_objects(str(path), "mag:number")]) == wanted({"mag"})
    with pytest.raises(InvalidArgument, match="expected a column depth"):
        [*read_objects(str(path), "depth")]


def test_the_opaque_column_of_a_batch_and_of_its_slices() -> None:
    batch = pack_rows([known(i) | {"time": None, "attributes": row} for i, row in enumerate(ROWS)])
    whole = split_opaque(*opaque_of(batch), 3)
    assert np.diff(whole.attributes_off).tolist()[1] == 0
    for at in range(3):
        part = split_opaque(*opaque_of(batch.slice(at, 1)), 1)
        first, end = whole.attributes_off[at : at + 2]
        assert part.attributes.tolist() == whole.attributes[first:end].tolist()
    off, data = opaque_of(posts(np.zeros(2), np.zeros(2), ["a", "b"]))
    assert (len(off), len(data)) == (0, 0)
