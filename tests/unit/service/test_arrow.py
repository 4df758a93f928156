"""Streams of Arrow as strangers may write them."""

from __future__ import annotations

import random
import re
import struct

import pyarrow as pa
import pytest

from ps2stream.errors import InvalidArgument, Ps2StreamError
from ps2stream.protocol.arrow_ipc import to_ipc
from ps2stream.service.objects import read_objects
from ps2stream.v1.object_pb2 import ObjectBatch

ROWS = 20
STREAM = to_ipc(
    pa.RecordBatch.from_pydict(
        {
            "lon": [0.0] * ROWS,
            "lat": [0.0] * ROWS,
            "text": ["flood"] * ROWS,
            "n": [1, None] * (ROWS // 2),
            "word": ["x", None] * (ROWS // 2),
            "any": pa.UnionArray.from_sparse(
                pa.array([0, 1] * (ROWS // 2), pa.int8()),
                [pa.array([1] * ROWS), pa.array(["y"] * ROWS)],
            ),
        }
    )
)


def read(data: bytes) -> str:
    """Returns why a stream is refused, empty if it is not."""
    try:
        read_objects(ObjectBatch(arrow=data), 5)
    except Ps2StreamError as error:
        return str(error)
    return ""


def test_a_stream_begins_with_a_schema() -> None:
    schema, batch = pa.ipc.MessageReader.open_stream(pa.BufferReader(STREAM))
    assert read(STREAM) == ""
    for message in (batch, schema):
        sink = pa.BufferOutputStream()
        message.serialize_to(sink)
        with pytest.raises(InvalidArgument, match=r"batch\.arrow: expected .* a schema|got 0"):
            read_objects(ObjectBatch(arrow=sink.getvalue().to_pybytes()), 5)


@pytest.mark.parametrize("byte", [0, 1, 127, 128, 255])
def test_no_byte_that_is_wrong_does_more_than_refuse_the_stream(byte: int) -> None:
    found = [read(STREAM[:at] + bytes([byte]) + STREAM[at + 1 :]) for at in range(len(STREAM))]
    assert any("that begins with a schema, got" in problem for problem in found)
    assert "" in found


def test_no_bytes_that_are_wrong_do_more_than_refuse_the_stream() -> None:
    rng = random.Random(1)
    refused = 0
    for _ in range(5000):
        data = bytearray(STREAM)
        for _ in range(rng.randint(2, 5)):
            data[rng.randrange(len(data))] = rng.choice([0, 1, 127, 255, rng.randrange(256)])
        refused += read(bytes(data)) != ""
    assert 1000 < refused < 4900


def share_bytes(columns: int, size: int) -> bytes:
    """A stream in which all columns of texts are the same bytes."""
    table = {f"c{i}": ["x" * size] * ROWS for i in range(columns)}
    place = {"lon": [0.0] * ROWS, "lat": [0.0] * ROWS, "text": ["x" * size] * ROWS}
    whole = to_ipc(pa.RecordBatch.from_pydict(place | table))
    _, message = pa.ipc.MessageReader.open_stream(pa.BufferReader(whole))
    head, body = bytearray(message.metadata), message.body.size
    end = 0
    for length in (4 * (ROWS + 1), size * ROWS):  # offsets and texts: their places, then sizes
        found = re.finditer(re.escape(struct.pack("<q", length)), bytes(head))
        places = [at.start() - 8 for at in found if at.start() % 8 == 0]
        assert len(places) == columns + 1
        first = head[places[0] : places[0] + 8]
        end = -(-(struct.unpack("<q", first)[0] + length) // 64) * 64
        for at in places:
            head[at : at + 8] = first
    head = head.replace(struct.pack("<q", body), struct.pack("<q", end))
    before = whole[: -body - 8 - len(head)]
    return before + head + whole[-body - 8 :][:end]


def test_columns_that_share_their_bytes_are_no_larger_than_a_request() -> None:
    """Few bytes would become many."""
    few, many = share_bytes(60, 997), share_bytes(300, 997)
    assert len(few) < len(many) < 100_000
    assert read(few) == ""
    assert re.match(r"batch\.arrow: columns of \d{7} bytes are over the limit batch_b", read(many))
