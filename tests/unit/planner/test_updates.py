"""Query updates as rows, and the queries that are live after them."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.errors import InvalidArgument
from ps2stream.planner import updates
from tests.support.samples import batch


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
