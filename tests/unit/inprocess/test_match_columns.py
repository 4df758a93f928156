"""Columns of matches are those of the objects and queries that they name, whatever their types."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ps2stream.errors import InvalidArgument
from ps2stream.inprocess import match_columns
from ps2stream.inprocess.match_columns import MatchedBatch, QueryIds, number_objects
from ps2stream.inprocess.match_table import MatchTable
from ps2stream.inprocess.query_index import Pairs

MOMENT = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
COLUMNS: dict[str, pa.Array] = {
    "id": pa.array(["a", "", "ccc" * 20], pa.large_string()),
    "text": pa.array(["flood", "\u00e9" * 40, ""]),
    "lon": pa.array([1.5, -2.0, 0.0]),
    "time": pa.array([MOMENT, MOMENT, MOMENT], pa.timestamp("us", "UTC")),
    "small": pa.array([1, 2, 3], pa.int8()),
    "flag": pa.array([True, False, True]),
    "query": pa.array([None, "x", None]),
    "gone": pa.array([None, 5, None], pa.int64()),
    "blob": pa.array([b"\x00", b"", b"\xff" * 50], pa.binary()),
}
IDS = QueryIds(pa.array(["q0", "a longer id than a record", "q2", "\u00e9"]))
NAMES = ["q0", "a longer id than a record", "q2", "\u00e9"]


def some_batch(offset: int = 0) -> MatchedBatch:
    """Three objects, the first of which has two matches, the second none, the third four."""
    before = {n: pa.concat_arrays([c.slice(0, offset), c]) for n, c in COLUMNS.items()}
    batch = pa.record_batch(list(before.values()), list(before)).slice(offset)
    return number_objects(batch, 100, Pairs(np.array([0, 2, 2, 6]), np.array([1, 3, 0, 1, 2, 3])))


EXPECTED: list[dict[str, Any]] = [
    {"query": q, "query_id": NAMES[q], "object": 100 + o}
    | {
        {"id": "object_id", "query": "object_query"}.get(name, name): column[o].as_py()
        for name, column in COLUMNS.items()
    }
    for o, q in [(0, 1), (0, 3), (2, 0), (2, 1), (2, 2), (2, 3)]
]


@pytest.mark.parametrize("offset", [0, 1, 2])
@pytest.mark.parametrize(("most", "parts"), [(match_columns.TEXT_BYTES, 1), (200, 2), (0, 6)])
def test_values_are_those_of_the_objects(
    offset: int, most: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(match_columns, "TEXT_BYTES", most)
    found = MatchTable(IDS, [some_batch(offset)])
    assert found.table.to_pylist() == EXPECTED
    assert found.table.num_columns == len(found.column_names)
    found.table.validate(full=True)
    kinds = {name: column.type for name, column in COLUMNS.items()}
    assert [field.type for field in found.table.schema][3:] == list(kinds.values())
    assert found.table.column("text").num_chunks == parts


def test_some_columns_are_selected() -> None:
    other = number_objects(
        pa.record_batch({"lon": [5.0], "extra": [7]}), 103, Pairs(np.array([0, 1]), np.array([2]))
    )
    found = MatchTable(IDS, [some_batch(), other])
    some = found.select(["extra", "object", "query_id"])
    assert some.schema.names == ["extra", "object", "query_id"]
    assert some.to_pylist()[5:] == [
        {"extra": None, "object": 102, "query_id": "\u00e9"},
        {"extra": 7, "object": 103, "query_id": "q2"},
    ]
    assert len(found.select([])) == len(found) == 7
    assert len(found.table.column("extra")) == 7
    assert found.head(4).to_pylist() == found.table.slice(0, 4).drop_columns(["extra"]).to_pylist()
    assert found.head(99).equals(found.table)
    with pytest.raises(InvalidArgument, match=r"columns: expected query, .* got 'extras'"):
        found.select(["extras"])


@pytest.mark.parametrize("is_alone", [True, False])
def test_objects_without_matches_are_not_kept(is_alone: bool) -> None:
    count = np.zeros(1000, np.int64)
    count[[5, 700]] = 1, 2
    texts = [f"text {i}" * 50 for i in range(1000)]
    whole = pa.record_batch({"text": texts})
    off = np.append(0, np.cumsum(count))
    found = number_objects(whole, 10, Pairs(off, np.array([1, 0, 2])))
    kept = found.drop_unmatched(is_alone)
    assert len(kept.batch) == 2
    assert kept.batch.get_total_buffer_size() < 2000
    table = MatchTable(IDS, [kept]).table
    assert table.equals(MatchTable(IDS, [found]).table)
    assert table.column("object").to_pylist() == [15, 710, 710]


def test_a_part_of_a_table_is_kept_whole_if_others_keep_the_table() -> None:
    table = pa.record_batch({"text": ["text" * 50] * 1000})
    pairs = Pairs(np.array([0, 100, 100, 200]), np.tile(np.arange(100), 2))
    found = number_objects(table.slice(7, 3), 7, pairs)
    assert found.drop_unmatched(is_alone=False) is found
    kept = found.drop_unmatched(is_alone=True)
    assert len(kept.batch) == 2
    assert kept.batch.get_total_buffer_size() < 2000
    assert kept.number.tolist() == [7, 9]
