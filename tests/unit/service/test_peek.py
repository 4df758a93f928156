"""What a refused request holds, read without parsing it: equal to what parsing finds."""

from __future__ import annotations

import struct

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.limits import BATCH_ROWS
from ps2stream.protocol.arrow_ipc import to_ipc
from ps2stream.service.calls import OBJECT_ROWS, check_batch
from ps2stream.service.peek import read_level_and_rows
from ps2stream.v1 import object_pb2, pubsub_pb2

KIND = pubsub_pb2.PublishRequest
levels = st.sampled_from(object_pb2.PublishLevel.values())


def arrow_of(rows: int) -> bytes:
    columns = {"lon": [1.0] * rows, "lat": [2.0] * rows, "text": ["word"] * rows}
    return to_ipc(pa.RecordBatch.from_pydict(columns)) if rows else b""


@given(levels, st.integers(0, 40), st.booleans(), st.sampled_from(["", "p"]), st.integers(0, 9))
def test_messages_are_counted(
    level: int, rows: int, partial: bool, producer: str, seq: int
) -> None:
    batch = object_pb2.ObjectBatch(objects=[object_pb2.Object(text="word")] * rows)
    request = KIND(batch=batch, allow_partial=partial, producer=producer, seq=seq)
    request.level = level  # type: ignore[assignment]
    data = request.SerializeToString()
    assert read_level_and_rows(KIND, data, check_batch(KIND, data, OBJECT_ROWS)) == (level, rows)


@given(levels, st.integers(0, 40))
def test_rows_of_arrow_are_counted(level: int, rows: int) -> None:
    request = KIND(batch=object_pb2.ObjectBatch(arrow=arrow_of(rows)))
    request.level = level  # type: ignore[assignment]
    assert read_level_and_rows(KIND, request.SerializeToString(), 0) == (level, rows)


@given(st.integers(BATCH_ROWS + 1, (1 << 63) - 1))
def test_rows_that_no_batch_may_have_are_not_counted(rows: int) -> None:
    said, true = struct.pack("<q", rows), struct.pack("<q", 3001)  # the first of them in the head
    request = KIND(batch=object_pb2.ObjectBatch(arrow=arrow_of(3001).replace(true, said, 1)))
    assert read_level_and_rows(KIND, request.SerializeToString(), 0) == (0, 0)


def test_what_no_client_of_ours_sends_is_parsed() -> None:
    twice = KIND(batch=object_pb2.ObjectBatch(objects=[object_pb2.Object()])).SerializeToString()
    assert read_level_and_rows(KIND, twice * 2, check_batch(KIND, twice * 2, OBJECT_ROWS)) == (0, 2)
    strange = twice + b"\x7d\x00\x00\x00\x00"  # a fixed32 field that there is not
    assert read_level_and_rows(KIND, strange, 1) == (0, 1)
    numbers = twice + b"\x10\x02" * (BATCH_ROWS + 1)  # the level again and again
    assert read_level_and_rows(KIND, numbers, 1) == (2, 1)
    assert read_level_and_rows(KIND, b"", 0) == (0, 0)
