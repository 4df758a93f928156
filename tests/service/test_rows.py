"""Batches of too many rows: refused by name before anything is built for their rows."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.benchmarks import memory
from ps2stream.client.client import Client
from ps2stream.cluster.running_service import RunningService
from ps2stream.limits import BATCH_BYTES, BATCH_ROWS, VIOLATIONS
from ps2stream.posts.readers import sized
from ps2stream.protocol.arrow_ipc import to_ipc
from ps2stream.protocol.wire_kernels import BAD, count_entries
from ps2stream.v1 import object_pb2, pubsub_pb2

Code = grpc.StatusCode
MIB = 1 << 20
EMPTY = b"\x0a\x00"  # field 1, no bytes: an object, a query or an id
LIMIT = f"batch_rows {BATCH_ROWS}"


def batched(rows: bytes) -> bytes:
    """A request whose field 1 is a batch of these rows."""
    return b"\x0a" + _varint(len(rows)) + rows


def _varint(value: int) -> bytes:
    return bytes([*(value >> shift & 127 | 128 for shift in (0, 7, 14)), value >> 21])


def one_column(rows: int, copies: int = 1) -> bytes:
    batch = pa.RecordBatch.from_pydict(
        {"lon": np.zeros(rows), "lat": np.zeros(rows), "text": pa.array([""] * rows, pa.string())}
    )
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        for _ in range(copies):
            writer.write_batch(batch)
    arrow = object_pb2.ObjectBatch(arrow=sink.getvalue())
    return pubsub_pb2.PublishRequest(batch=arrow).SerializeToString()


MANY = BATCH_BYTES // len(EMPTY) - 8
HOSTILE: dict[str, tuple[str, Callable[[], bytes], str, str]] = {
    "objects": ("Publish", lambda: batched(EMPTY * MANY), "batch.objects", LIMIT),
    "streamed": ("PublishStream", lambda: batched(EMPTY * MANY), "batch.objects", LIMIT),
    "parts": ("Publish", lambda: b"\x0a\x02\x0a\x00" * (MANY // 2), "batch.objects", LIMIT),
    "queries": ("InsertQueries", lambda: batched(EMPTY * MANY), "batch.queries", LIMIT),
    "ids": ("DeleteQueries", lambda: EMPTY * MANY, "ids", LIMIT),
    "arrow": ("Publish", lambda: one_column(BATCH_ROWS + 1), "batch.arrow", LIMIT),
    "arrow_batches": ("Publish", lambda: one_column(0, 9000), "batch.arrow", "one record batch"),
}


@pytest.mark.parametrize("shape", HOSTILE)
def test_too_many_rows_cost_no_memory(service: RunningService, call: Any, shape: str) -> None:
    method, build, field, problem = HOSTILE[shape]
    data = build()
    call(method, data[:9])  # what comes with a first call
    before = memory.resident(service)["service"]
    memory.reset(service)
    code, violations, _ = call(method, data)
    growth = memory.peak(service)["service"] - before
    assert code == Code.INVALID_ARGUMENT
    assert problem in violations[field]
    assert growth <= 10 * len(data) + 32 * MIB


def test_as_many_rows_as_the_limit_are_taken(client: Client) -> None:
    rows = [{"lon": 0.0, "lat": 0.0, "text": ""}] * BATCH_ROWS
    assert client.publish(rows).accepted == BATCH_ROWS
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    assert client.publish(columns).accepted == BATCH_ROWS


def test_a_large_record_batch_is_sent_in_parts() -> None:
    batch = pa.RecordBatch.from_pydict({"lon": np.zeros(3 * BATCH_ROWS)})
    parts = list(sized(batch))
    assert pa.Table.from_batches(parts).num_rows == 3 * BATCH_ROWS
    assert max(map(len, parts)) <= BATCH_ROWS


def test_violations_are_collected_up_to_a_bound(target: str) -> None:
    bad = object_pb2.Object(text="no position")
    request = pubsub_pb2.PublishStreamRequest(
        batch=object_pb2.ObjectBatch(objects=[bad] * (VIOLATIONS + 1))
    )
    with grpc.insecure_channel(target) as opened:
        publish: Any = opened.stream_stream("/ps2stream.v1.PubSub/PublishStream")
        for partial, count in ((False, VIOLATIONS), (True, 2 * (VIOLATIONS + 1))):
            request.allow_partial = partial
            [data] = publish(iter([request.SerializeToString()]), timeout=60)
            answer = pubsub_pb2.PublishStreamResponse.FromString(data)
            assert (answer.accepted, len(answer.refused)) == (0, count)
            assert [r.field for r in answer.refused[:3]] == ["lat", "lon", "lat"]


ROWS = st.lists(
    st.builds(
        object_pb2.Object,
        id=st.text(max_size=3),
        lon=st.none() | st.floats(),
        time_ms=st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
    ),
    max_size=9,
)


def counted(data: bytes, outer: int, inner: int, limit: int = 1000) -> int:
    return count_entries(np.frombuffer(data, np.uint8), outer, inner, limit)


@given(st.lists(ROWS, max_size=4), st.text(max_size=200), st.booleans())
def test_rows_are_counted_as_they_are_parsed(parts: list[Any], name: str, flag: bool) -> None:
    requests = [
        pubsub_pb2.PublishRequest(
            batch=object_pb2.ObjectBatch(objects=rows), producer=name, allow_partial=flag
        )
        for rows in parts
    ]
    data = b"".join(r.SerializeToString() for r in requests)  # messages merge end to end
    rows = sum(map(len, parts))
    assert len(pubsub_pb2.PublishRequest.FromString(data).batch.objects) == rows
    assert counted(data, 1, 1) == rows
    assert counted(data, 0, 1) == len(parts)
    assert counted(data, 1, 1, 5) == min(rows, 6)


@given(st.binary(max_size=60))
def test_no_row_is_missed_in_what_parses(data: bytes) -> None:
    try:
        parsed = pubsub_pb2.PublishRequest.FromString(data)
    except Exception:  # noqa: BLE001
        return
    found = counted(data, 1, 1)
    assert found == BAD or found >= len(parsed.batch.objects)


def test_bytes_that_end_early_are_refused() -> None:
    whole = pubsub_pb2.PublishRequest(
        batch=object_pb2.ObjectBatch(arrow=to_ipc(pa.RecordBatch.from_pydict({"lon": [0.0]}))),
        seq=1 << 40,
    ).SerializeToString()
    assert counted(whole, 1, 1) == 0
    assert {counted(whole[:n], 1, 1) for n in range(1, len(whole))} <= {0, BAD}
    assert counted(whole[:-3], 1, 1) == counted(whole[:99], 1, 1) == BAD
