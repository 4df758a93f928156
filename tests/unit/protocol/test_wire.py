"""The delivery encoder against the Protocol Buffers runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.protocol.frame import U8, U32, strings_to_column
from ps2stream.protocol.wire import (
    DeliveryColumns,
    DeliveryGap,
    DeliveryShed,
    deliver_batch,
    put_messages,
    put_strings,
    put_varints,
)
from ps2stream.v1 import delivery_pb2
from ps2stream.v1.object_pb2 import Attributes, AttributeValue, Payload

HANDLES = st.lists(st.integers(0, 2**63 - 1), max_size=20)
TEXTS = st.lists(st.text(max_size=200), max_size=20)
DOUBLES = st.lists(st.floats(width=64), max_size=20)


def parse(data: bytes) -> delivery_pb2.DeliverBatch:
    response = delivery_pb2.DeliverResponse.FromString(data)
    assert response.WhichOneof("event") == "batch"
    return response.batch


def clean(text: str) -> str:
    return "".join("\ufffd" if 0xD800 <= ord(c) <= 0xDFFF else c for c in text)


def test_an_empty_batch() -> None:
    none = np.zeros(0, np.uint64)
    text = strings_to_column([])
    batch = parse(
        deliver_batch(DeliveryColumns(1, none, text, none, np.zeros(0, np.uint32), text, none, 0))
    )
    assert batch == delivery_pb2.DeliverBatch(session_seq=1)


@settings(deadline=None)
@given(
    seq=st.integers(1, 2**63 - 1),
    handles=HANDLES,
    objects=st.lists(st.integers(0, 2**32 - 1), max_size=20),
    ids=TEXTS,
    partition=st.integers(0, 2**32 - 1),
    doubles=DOUBLES,
    times=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20),
    gap=st.none() | st.tuples(*[st.integers(0, 2**63 - 1)] * 3),
    shed=st.none()
    | st.tuples(st.integers(0, 2**32 - 1), *[st.integers(0, 2**63 - 1)] * 6, st.floats(0, 1)),
)
def test_it_is_what_the_runtime_reads(
    seq: int,
    handles: list[int],
    objects: list[int],
    ids: list[str],
    partition: int,
    doubles: list[float],
    times: list[int],
    gap: tuple[int, int, int] | None,
    shed: tuple[Any, ...] | None,
) -> None:
    column = np.array(handles, np.uint64)
    batch = parse(
        deliver_batch(
            DeliveryColumns(
                seq,
                column,
                strings_to_column(ids),
                column,
                np.array(objects, np.uint32),
                strings_to_column(ids[::-1]),
                column,
                partition,
                np.array(doubles),
                np.array(doubles[::-1]),
                np.array(times, np.int64),
                strings_to_column([i * 2 for i in ids]),
                None
                if gap is None
                else DeliveryGap(*gap, None if shed is None else DeliveryShed(*shed)),
            )
        )
    )
    want = [clean(i) for i in ids]
    assert batch.session_seq == seq
    assert list(batch.new_handles) == list(batch.pair_handles) == handles
    assert list(batch.object_offsets) == handles
    assert list(batch.new_query_ids) == want
    assert list(batch.object_ids) == want[::-1]
    assert list(batch.pair_objects) == objects
    assert batch.partition == partition
    np.testing.assert_array_equal(np.array(batch.lon), doubles)
    np.testing.assert_array_equal(np.array(batch.lat), doubles[::-1])
    assert list(batch.time_ms) == times
    assert list(batch.text) == [i * 2 for i in want]
    assert batch.HasField("gap") == (gap is not None)
    if gap is not None:
        assert (getattr(batch.gap, "from"), batch.gap.to, batch.gap.count) == gap
        assert batch.gap.HasField("shed") == (shed is not None)
        if shed is not None:
            names = DeliveryShed._fields
            assert tuple(getattr(batch.gap.shed, name) for name in names) == shed


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=5), st.binary(max_size=300))
def test_messages_are_those_that_the_runtime_reads(numbers: list[int], payload: bytes) -> None:
    none, ids = np.zeros(0, np.uint64), strings_to_column([""] * len(numbers))
    attributes = [
        Attributes(values={"n": AttributeValue(integer=n)} if n % 3 else {}) for n in numbers
    ]
    payloads = [Payload(bytes=payload * (n % 2)) for n in numbers]
    columns = [
        strings_to_column([m.SerializeToString() for m in each]) for each in (attributes, payloads)
    ]
    made = DeliveryColumns(
        0, none, strings_to_column([]), none, np.zeros(0, np.uint32), ids, none, 0,
        attributes=columns[0], payloads=columns[1],
    )  # fmt: skip
    batch = parse(deliver_batch(made))
    assert list(batch.attributes) == attributes
    assert list(batch.payloads) == payloads


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 2_100_000])
def test_length_prefixes_at_their_borders(size: int) -> None:
    none = np.zeros(0, np.uint64)
    ids = strings_to_column(["x" * size])
    data = deliver_batch(DeliveryColumns(0, none, ids, none, np.zeros(0, np.uint32), ids, none, 0))
    assert parse(data).object_ids == ["x" * size]


def test_lone_surrogates_become_the_replacement_character() -> None:
    none = np.zeros(0, np.uint64)
    ids = strings_to_column(["a\ud800b", "\udfff", "\ud7ff\ue000"])
    data = deliver_batch(DeliveryColumns(0, none, ids, none, np.zeros(0, np.uint32), ids, none, 0))
    assert parse(data).object_ids == ["a\ufffdb", "\ufffd", "\ud7ff\ue000"]


# --- kernels against their twins ---------------------------------------------------


def naive_varint(value: int) -> bytes:
    out = b""
    while value >= 128:
        out += bytes([value % 128 + 128])
        value //= 128
    return out + bytes([value])


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1) | st.sampled_from([127, 128, 2**28]), max_size=30))
def test_put_varints(values: list[int]) -> None:
    column: U32 = np.array(values, np.uint32)
    out: U8 = np.zeros(5 * len(values), np.uint8)
    size = put_varints(column, out)
    assert out[:size].tobytes() == b"".join(map(naive_varint, values))


@settings(deadline=None)
@given(TEXTS, st.integers(1, 127))
def test_put_strings(values: list[str], tag: int) -> None:
    off, data = strings_to_column(values)
    out: U8 = np.zeros(len(data) + 6 * len(values), np.uint8)
    size = put_strings(tag, off, data, out)
    raw = [clean(v).encode() for v in values]
    assert out[:size].tobytes() == b"".join(bytes([tag]) + naive_varint(len(r)) + r for r in raw)


@given(st.lists(st.binary(max_size=300), max_size=20), st.integers(1, 127))
def test_put_messages(values: list[bytes], tag: int) -> None:
    """Bytes that would be half of a character stay as they are."""
    values.append(b"\xed\xa0\x80")
    off, data = strings_to_column(values)
    out: U8 = np.zeros(len(data) + 6 * len(values), np.uint8)
    size = put_messages(tag, off, data, out)
    assert out[:size].tobytes() == b"".join(bytes([tag]) + naive_varint(len(v)) + v for v in values)
