"""Query updates as rows, and the queries that are live after them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ps2stream.errors import InvalidArgument
from ps2stream.planner import updates
from tests.support.samples import batch, some_sample, standing_naively


def test_rect_columns_are_the_same_updates() -> None:
    rects = np.array([[0.0, 1, 2, 3], [170, -5, -170, 5]])
    n = np.zeros(2, np.int64)
    columns = updates.of_rects(["a", "b"], n, n + 7, ["x", "y"], rects)
    rows = [
        {"id": id, "time": 7, "expression": x, "region": {"rect": rect}}
        for id, x, rect in zip("ab", "xy", rects.tolist(), strict=True)
    ]
    assert columns == batch(rows)


def test_wrong_rows_are_refused() -> None:
    for row, message in (
        ({"id": "x"}, "row 0: a query needs an expression or a region"),
        ({"expression": "a"}, "row 0 id: expected a string or an integer, got null"),
        ({"id": "x", "op": "drop"}, "row 0 op: expected insert, delete or live, got 'drop'"),
        ({"id": "x", "op": "delete"}, "row 0 time: expected the time of the delete, got null"),
        ({"id": "x", "expression": 5}, "row 0 expression: expected a string, got 5"),
        ({"id": "x", "region": "{"}, "row 0 region: expected JSON"),
        ({"id": "x", "region": {"rect": [0, 9, 1, 8]}}, "row 0 region.lat_min: 9.0 is above"),
        ({"id": "x", "lon_min": 1}, "row 0: expected numbers for lon_min, lat_min"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            batch([row])


@pytest.mark.parametrize("seed", range(4))
def test_the_queries_that_are_left_are_those_of_a_replay(seed: int) -> None:
    _, rows = some_sample(seed, queries=200)
    found = updates.standing(pa.Table.from_batches([batch(rows)], updates.UPDATES))
    columns = ("expression", "inserts", "live", "deletes")
    told = sorted(tuple(row[name] for name in columns) for row in found.to_pylist())
    queries = standing_naively(rows)
    want = sorted((q[0], q[2], int(not q[3]), q[3]) for q in queries)
    assert told == want
    assert {row[2:] for row in want} == {(1, 0), (0, 1)}


def test_an_id_that_comes_again_is_another_query() -> None:
    rows: list[dict[str, Any]] = [
        {"id": "a", "expression": "x", "op": "insert", "time": 1},
        {"id": "a", "expression": "ignored", "op": "insert", "time": 2},
        {"id": "a", "op": "delete", "time": 3},
        {"id": "a", "op": "delete", "time": 4},
        {"id": "a", "expression": "y", "op": "insert", "time": 5},
        {"id": "b", "op": "delete", "time": 1},
    ]
    table = pa.Table.from_batches([batch(rows)], updates.UPDATES)
    found = updates.standing(table).drop_columns(["box"]).to_pylist()
    assert found == [
        {"id": "a", "expression": "x", "live": 0, "inserts": 1, "deletes": 1},
        {"id": "a", "expression": "y", "live": 1, "inserts": 1, "deletes": 0},
    ]
    assert updates.standing(table.slice(0, 0)).num_rows == 0


@pytest.mark.parametrize(
    ("time", "ms"),
    [(7, 7), ("7", 7), ("1970-01-01T00:00:01Z", 1000), ("1970-01-01T01:00:01+01:00", 1000)],
)
def test_times_are_milliseconds_or_iso(time: object, ms: int) -> None:
    row = {"id": "a", "expression": "x", "timestamp": time}
    assert batch([row]).column("time").to_pylist() == [ms]


def test_regions_are_geojson_rectangles_or_text_of_them() -> None:
    rect = {"rect": [1.0, 2.0, 3.0, 4.0]}
    sides = {"lon_min": "1", "lat_min": 2, "lon_max": 3.0, "lat_max": "4"}
    ring = [[1, 2], [3, 2], [3, 4], [1, 4], [1, 2]]
    regions: list[dict[str, Any]] = [
        {"region": rect}, {"region": '{"rect": [1, 2, 3, 4]}'}, sides,
        {"region": {"type": "Polygon", "coordinates": [ring]}},
    ]  # fmt: skip
    for region in regions:
        [raw] = batch([{"id": "a"} | region]).column("box").to_pylist()
        assert np.frombuffer(raw, "<f8").tolist() == [1.0, 2.0, 3.0, 4.0]
    [raw] = batch([{"id": "a", "expression": "x"}]).column("box").to_pylist()
    assert np.frombuffer(raw, "<f8").tolist() == [-180.0, -90.0, 180.0, 90.0]
