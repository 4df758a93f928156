"""Objects of an archive as posts, whatever their publishers sent."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from ps2stream.posts.archived import make_archived_rows
from ps2stream.posts.members import AttributeChoice
from ps2stream.v1.object_pb2 import Attributes, AttributeValue

END_MS = 253_402_300_800_000  # of the year 9999


@pytest.mark.parametrize("far_ms", [END_MS, 2**62, -(2**63), -62_135_596_800_001])
def test_a_time_that_no_calendar_has_stops_no_reader(far_ms: int) -> None:
    values = {"at": AttributeValue(time_ms=far_ms), "last": AttributeValue(time_ms=END_MS - 1)}
    sent = Attributes(values=values | {"mag": AttributeValue(integer=5)}).SerializeToString()
    place = {"id": ["a"], "time": [1], "lon": [1.0], "lat": [2.0], "text": ["x"]}
    choice = AttributeChoice()
    [post] = make_archived_rows(pa.table(place | {"attributes": [sent]}), choice)
    last = datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC)
    assert post["attributes"] == {"last": last, "mag": 5}
    assert choice.pop_left_out() == ["at (a time beyond the years 1 to 9999)"]
