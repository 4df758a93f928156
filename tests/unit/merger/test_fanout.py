"""The record of a batch's pairs, split by session, and the deliveries made of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.merger import fanout
from ps2stream.protocol.frame import column_to_strings, strings_to_column
from ps2stream.protocol.session_numbers import LEAP
from ps2stream.protocol.wire import deliver_batch
from ps2stream.v1 import delivery_pb2
from ps2stream.v1.object_pb2 import Attributes, AttributeValue, Payload
from tests.support.merging import (
    attach,
    credit,
    inserts,
    release,
    rig,
)

ATTRIBUTES = Attributes(values={"severity": AttributeValue(integer=3)})
PAYLOAD = Payload(json="{}")
PAYLOAD_BYTES = PAYLOAD.SerializeToString()


@settings(deadline=None)
@given(st.lists(st.text(), min_size=1), st.data())
def test_rows_of_a_string_column_are_taken_in_any_order(
    values: list[str], data: st.DataObject
) -> None:
    rows = data.draw(st.lists(st.integers(0, len(values) - 1)))
    out = fanout.take(strings_to_column(values), np.array(rows, np.int64))
    assert column_to_strings(*out) == [values[i] for i in rows]


@settings(deadline=None)
@given(st.lists(st.integers(0, 3) | st.integers(65_536, 65_539), min_size=1, max_size=60))
def test_a_record_has_each_session_apart(sessions: list[int]) -> None:
    n = len(sessions)
    rows = np.sort(np.arange(n, dtype=np.uint32) // 2 * 2)
    named = [(int(row), 0, 0) for row in {*rows, n}]  # one that the record has no pair of
    objects = release(100, n + 1, 1, named)
    record = fanout.matched(objects, rows, np.arange(n), np.array(sessions, np.int64), 7)
    want: dict[int, list[tuple[int, int]]] = {}
    for i, s in enumerate(sessions):
        want.setdefault(s, []).append((i, 100 + int(rows[i])))
    assert record.session.tolist() == sorted(want)
    for s, a, b in zip(record.session.tolist(), record.cut[:-1], record.cut[1:], strict=True):
        offsets = record.offset[record.index[a:b]].tolist()
        assert list(zip(record.handle[a:b].tolist(), offsets, strict=True)) == want[s]
    texts = column_to_strings(record.text_off, record.text)
    assert texts == [f"té{offset}" for offset in record.offset.tolist()]
    assert record.time.tolist() == (record.offset * 10).tolist()
    size = 48 + len("o100") + len("té100".encode())
    assert fanout.bytes_of(record) == [
        12 * len(pairs) + size * len({offset for _, offset in pairs})
        for _, pairs in sorted(want.items())
    ]


def pack(attributes: bytes, payload: bytes) -> bytes:
    """A row of an opaque column."""
    return len(attributes).to_bytes(4, "little") + attributes + payload


@pytest.mark.parametrize("fields", range(32))
def test_columns_come_as_asked_for(fields: int) -> None:
    r = rig()
    r.send(inserts(1, [3]), attach(3, fields=fields), release(0, 4, 1, [(1, 1, 3)]))
    [batch] = r.clients[3].batches
    assert len(batch.text) == bool(fields & fanout.FIELD_TEXT)
    assert len(batch.lon) == len(batch.lat) == bool(fields & fanout.FIELD_POSITION)
    assert len(batch.time_ms) == bool(fields & fanout.FIELD_TIME)
    assert len(batch.attributes) == len(batch.payloads) == 0
    opaque = [pack(ATTRIBUTES.SerializeToString(), b""), b""]
    r.send(release(4, 4, 1, [(1, 1, 3), (2, 1, 3)], opaque=opaque))
    r.send(release(8, 4, 1, [(1, 1, 3), (3, 1, 3)], opaque=["", pack(b"", PAYLOAD_BYTES)]))
    one, two = r.clients[3].batches[1:]
    wanted = bool(fields & fanout.FIELD_ATTRIBUTES), bool(fields & fanout.FIELD_PAYLOAD)
    assert list(one.attributes) == [ATTRIBUTES, Attributes()] * wanted[0]
    assert list(two.payloads) == [Payload(), PAYLOAD] * wanted[1]
    assert len(one.payloads) == len(two.attributes) == 0


@pytest.mark.parametrize("fields", [0, 7, 8, 31])
def test_a_delivery_of_all_pairs_of_a_record_is_as_one_of_some(fields: int) -> None:
    opaque = [pack(ATTRIBUTES.SerializeToString(), PAYLOAD_BYTES), b"", pack(b"", PAYLOAD_BYTES)]
    objects = [(1, 0, 0), (2, 0, 0), (3, 0, 0)]
    alone = release(100, 4, 1, objects[::2], opaque=opaque[::2])
    shared = release(100, 4, 1, objects, opaque=opaque)
    rows, handles, sessions = (1, 1, 2, 3), (7, 8, 9, 7), (5, 5, 6, 5)
    row, handle, session = np.array(rows, np.uint32), np.array(handles), np.array(sessions)
    of = session == 5
    names = np.array([7, 8]), strings_to_column(["seven", "eight"])
    made = [
        deliver_batch(fanout.make_delivery(record, 0, 3, 1, fields, *names))
        for record in (
            fanout.matched(alone, row[of], handle[of], session[of], 0),
            fanout.matched(shared, row, handle, session, 0),
        )
    ]
    assert made[0] == made[1]
    assert len(delivery_pb2.DeliverResponse.FromString(made[0]).batch.object_ids) == 2


def test_attributes_and_payloads_count_and_are_read_back() -> None:
    """A delivery that was waiting in the log has them, of its own objects; they count in the
    session's quota."""
    r = rig()
    r.send(inserts(1, [1, 2]))
    objects = [(row, 1 + row % 2, 1 + row % 2) for row in range(4)]
    payloads = [Payload(bytes=bytes([row]) * 300).SerializeToString() for row in range(4)]
    opaque = [pack(ATTRIBUTES.SerializeToString(), payload) for payload in payloads]
    made = release(0, 4, 2, objects, opaque=opaque)
    r.send(made)
    r.send(attach(2, fields=31))
    [batch] = r.clients[2].batches
    assert [payload.bytes[0] for payload in batch.payloads] == [1, 3]
    assert list(batch.attributes) == [ATTRIBUTES] * 2
    columns = np.arange(4, dtype=np.uint32), np.arange(1, 5), np.array([1, 2, 1, 2])
    plain = fanout.bytes_of(fanout.matched(release(0, 4, 2, objects), *columns, 7))
    sizes = fanout.bytes_of(fanout.matched(made, *columns, 7))
    assert [b - a for a, b in zip(plain, sizes, strict=True)] == [2 * len(opaque[0])] * 2
    [size] = fanout.bytes_of(fanout.matched(made, *columns[:2], np.ones(4, np.int64), 7))
    assert size == sum(sizes)


def test_a_delivery_is_split_for_payloads_that_the_stream_wants() -> None:
    payload = Payload(bytes=b"x" * 60_000).SerializeToString()
    opaque = [pack(b"", payload)] * 40
    for fields, batches in ((fanout.FIELD_TEXT, 1), (fanout.FIELD_PAYLOAD, 3)):
        r = rig()
        r.send(inserts(1, [1]), attach(1, fields=fields))
        r.send(release(0, 40, 1, [(row, 1, 1) for row in range(40)], opaque=opaque))
        assert len(r.clients[1].batches) == batches
        assert len(r.clients[1].pairs) == 40


def test_a_large_delivery_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "MAX_BYTES", 2_000)
    r = rig()
    r.send(inserts(1, [1] * 3), attach(1, fields=7, batches=4))
    pairs = [(row, h, 1) for row in range(30) for h in (1, 2, 3)]
    r.send(release(0, 30, 3, pairs, text="x" * 500))
    client = r.clients[1]
    assert len(client.batches) == 4
    r.send(credit(1, 1, 99, 0, 0))  # the rest is read back
    assert 10 <= len(client.batches) <= 12
    assert client.gapless()
    assert len(set(client.pairs.values())) == 90
    assert client.size / len(client.batches) < 4_000


def test_a_gap_stands_where_the_next_pair_does_and_counts_what_is_lost() -> None:
    batch = delivery_pb2.DeliverResponse.FromString(deliver_batch(fanout.gap(3, 12))).batch
    assert batch.session_seq == 13
    assert (getattr(batch.gap, "from"), batch.gap.to, batch.gap.count) == (3, 12, 10)
    assert not batch.pair_handles
    leap = delivery_pb2.DeliverResponse.FromString(deliver_batch(fanout.gap(1, LEAP))).batch
    assert leap.gap.count == 0


def test_a_record_of_some_pairs_does_not_end_its_batch() -> None:
    columns = np.zeros(1, np.uint32), np.ones(1, np.int64), np.ones(1, np.int64)
    for whole, end in ((True, 104), (False, 100)):
        objects = release(100, 4, 1, [(0, 1, 1)], whole=whole)
        assert fanout.matched(objects, *columns, 7).end == end
