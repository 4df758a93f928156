"""Reading deliveries: against Protocol Buffers, and the receiver's rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.client.matches import Gap, MatchReceiver, read_batch
from ps2stream.errors import Ps2StreamError
from ps2stream.v1 import delivery_pb2

U64 = st.integers(0, 2**64 - 1)
DEGREES = st.floats(-180, 180)


@st.composite
def batches(draw: st.DrawFn) -> delivery_pb2.DeliverBatch:
    """Any well-formed batch."""
    n = draw(st.integers(0, 5))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=n, max_size=n))

    handles = draw(st.lists(U64, max_size=8, unique=True))
    pairs = st.tuples(st.sampled_from(handles), st.integers(0, n - 1)) if handles and n else None
    found = draw(st.lists(pairs, max_size=300)) if pairs is not None else []
    return delivery_pb2.DeliverBatch(
        session_seq=draw(st.integers(0, 2**63 - 1)),
        new_handles=handles,
        new_query_ids=[draw(st.text(max_size=200)) for _ in handles],
        pair_handles=[h for h, _ in found],
        pair_objects=[o for _, o in found],
        object_ids=column(st.text(max_size=5)),
        object_offsets=column(U64),
        partition=draw(st.integers(0, 2**32 - 1)),
        lon=column(DEGREES) if draw(st.booleans()) else None,
        lat=column(DEGREES) if draw(st.booleans()) else None,
        time_ms=column(st.integers(-(2**63), 2**63 - 1)) if draw(st.booleans()) else None,
        text=column(st.text()) if draw(st.booleans()) else None,
    )


def encode(batch: delivery_pb2.DeliverBatch) -> bytes:
    return delivery_pb2.DeliverResponse(batch=batch).SerializeToString()


@settings(max_examples=100, deadline=None)
@given(batches())
def test_reads_what_protocol_buffers_wrote(batch: delivery_pb2.DeliverBatch) -> None:
    names: dict[int, str] = {}
    found = read_batch(encode(batch), names)
    assert names == dict(zip(batch.new_handles, batch.new_query_ids, strict=True))
    assert (found.first, found.partition) == (batch.session_seq, batch.partition)
    assert found.handles.tolist() == list(batch.pair_handles)
    assert found.objects.tolist() == list(batch.pair_objects)
    assert found.offsets.tolist() == list(batch.object_offsets)
    assert found.object_ids == list(batch.object_ids)
    for mine, theirs in (
        (found.lon, batch.lon),
        (found.lat, batch.lat),
        (found.time, batch.time_ms),
    ):
        assert (mine.tolist() if mine is not None else []) == list(theirs)
    assert (found.texts or []) == list(batch.text)
    rows = list(found)
    assert [(m.query_id, m.object_id) for m in rows] == [
        (names[h], batch.object_ids[o])
        for h, o in zip(batch.pair_handles, batch.pair_objects, strict=True)
    ]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damage_is_an_error_and_nothing_else(data: st.DataObject) -> None:
    raw = bytearray(encode(data.draw(batches())))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        list(read_batch(bytes(raw), {}))
    except (Ps2StreamError, KeyError):
        return


def pairs(first: int, count: int, **fields: Any) -> bytes:
    """A batch of `count` pairs of query 7 and one object."""
    return encode(
        delivery_pb2.DeliverBatch(
            session_seq=first,
            pair_handles=[7] * count,
            pair_objects=[0] * count,
            object_ids=["o"],
            object_offsets=[1],
            **fields,
        )
    )


def started(incarnation: int) -> bytes:
    event = delivery_pb2.Started(session=1, epoch=2, incarnation=incarnation)
    return delivery_pb2.DeliverResponse(started=event).SerializeToString()


def test_what_was_taken_is_dropped_when_it_comes_again() -> None:
    receiver = MatchReceiver("s")
    assert receiver.on(started(5)) is None
    one = receiver.on(pairs(1, 3, new_handles=[7], new_query_ids=["q"]))
    assert one is not None
    receiver.took(one.last)
    receiver.on(started(5))
    assert receiver.on(pairs(1, 3)) is None
    partly = receiver.on(pairs(2, 4))
    assert partly is not None
    assert (partly.first, partly.last, partly.query_ids) == (4, 5, ["q", "q"])
    receiver.on(started(6))
    assert receiver.on(pairs(1, 3)) is not None, "numbers have begun anew"


def test_credits_come_by_the_quarter_and_carry_the_acknowledgement() -> None:
    receiver = MatchReceiver("s", credit_batches=8)
    receiver.start()
    assert receiver.credit(flush=True) is None
    sent = 0
    for i in range(4):
        data = pairs(1 + i, 1, new_handles=[7], new_query_ids=["q"])
        found = receiver.on(data)
        assert found is not None
        receiver.took(found.last)
        sent += len(data)
        credit = receiver.credit()
        if i % 2 == 0:
            assert credit is None
        else:
            assert credit is not None
            event = delivery_pb2.DeliverRequest.FromString(credit).credit
            assert (event.batches, event.bytes, event.ack) == (2, sent, 1 + i)
            sent = 0


def test_a_gap_is_counted() -> None:
    receiver = MatchReceiver("s")
    gap = delivery_pb2.Gap(**dict[str, Any]({"from": 1, "to": 9, "count": 9}))
    found = receiver.on(encode(delivery_pb2.DeliverBatch(session_seq=10, gap=gap)))
    assert found is not None
    assert (len(found), found.gap, found.last) == (0, Gap(1, 9, 9), 9)
    assert receiver.missed == 9


def test_a_gap_over_pairs_that_were_taken_counts_the_others() -> None:
    receiver = MatchReceiver("s")
    receiver.took(4)
    gap = delivery_pb2.Gap(**dict[str, Any]({"from": 1, "to": 9, "count": 9}))
    found = receiver.on(encode(delivery_pb2.DeliverBatch(session_seq=10, gap=gap)))
    assert found is not None
    assert (found.gap, receiver.missed) == (Gap(5, 9, 5), 5)
    receiver.took(9)
    assert receiver.on(encode(delivery_pb2.DeliverBatch(session_seq=10, gap=gap))) is None


def test_large_indexes() -> None:
    n = 70_000
    batch = delivery_pb2.DeliverBatch(
        session_seq=1,
        new_handles=[1],
        new_query_ids=["q"],
        pair_handles=[1] * n,
        pair_objects=range(n),
        object_ids=[""] * n,
        object_offsets=range(n),
    )
    found = read_batch(encode(batch), {})
    assert np.array_equal(found.objects, np.arange(n))


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\x05\x08", b"\x0a\x02\x0d\x01"])
def test_malformed(data: bytes) -> None:
    with pytest.raises(Ps2StreamError, match="malformed"):
        read_batch(data, {})
