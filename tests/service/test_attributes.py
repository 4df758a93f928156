"""Attributes and payloads over a real port: what is published is what a match brings back."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest

from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.protocol.arrow_ipc import to_ipc
from ps2stream.v1 import (
    delivery_pb2,
    explain_pb2,
    pubsub_pb2,
    pubsub_pb2_grpc,
    query_pb2,
)
from ps2stream.v1.object_pb2 import Attributes, AttributeValue, Object, ObjectBatch, Payload

Stub = pubsub_pb2_grpc.PubSubStub
Pairs = dict[str, tuple[Attributes | None, Payload | None]]

VALUES = {
    "severity": AttributeValue(integer=-4),
    "depth": AttributeValue(number=0.5),
    "road": AttributeValue(text="Straße"),
    "closed": AttributeValue(boolean=False),
    "begun": AttributeValue(time_ms=1_795_521_600_000),
}
FULL = Attributes(values=VALUES)
JSON = Payload(json='{"a": 1}')
OBJECTS = [
    Object(id="both", lon=0, lat=0, text="flood", attributes=FULL, payload=JSON),
    Object(id="none", lon=0, lat=0, text="flood"),
    Object(id="bytes", lon=0, lat=0, text="flood", payload=Payload(bytes=b"\xed\xa0\x80\0")),
    Object(id="some", lon=0, lat=0, text="flood", attributes=Attributes(
        values={"road": AttributeValue(text="")}
    )),
]  # fmt: skip
WANT: Pairs = {o.id: (o.attributes, o.payload) for o in OBJECTS}


@contextmanager
def serving(data: Path) -> Iterator[Stub]:
    settings = Settings(runtime="local", port=0, workers=2, mergers=2, data_dir=data)
    with start(settings) as running, grpc.insecure_channel(running.targets[0]) as channel:
        yield pubsub_pb2_grpc.PubSubStub(channel)


@pytest.fixture(scope="module")
def stub(target: str) -> Iterator[Stub]:
    with grpc.insecure_channel(target) as channel:
        yield pubsub_pb2_grpc.PubSubStub(channel)


def insert(stub: Stub, session: str, expression: str = "flood") -> None:
    query = query_pb2.Query(id=session, expression=expression, session=session)
    stub.InsertQuery(pubsub_pb2.InsertQueryRequest(query=query), timeout=60)


def publish(stub: Stub, batch: ObjectBatch, **fields: Any) -> pubsub_pb2.PublishResponse:
    return stub.Publish(pubsub_pb2.PublishRequest(batch=batch, **fields), timeout=60)


def receive(stub: Stub, session: str, objects: int, **fields: bool) -> Pairs:
    """The attributes and the payload of each object that the session gets, by its id; None where
    the batch has no such column."""
    wanted = delivery_pb2.DeliverFields(**fields)
    requests = queue.SimpleQueue[delivery_pb2.DeliverRequest | None]()
    requests.put(
        delivery_pb2.DeliverRequest(start=delivery_pb2.Start(session=session, fields=wanted))
    )
    found: Pairs = {}
    call = stub.Deliver(iter(requests.get, None), timeout=60)
    for response in call:
        batch = response.batch
        none = [None] * len(batch.object_ids)
        both = zip(list(batch.attributes) or none, list(batch.payloads) or none, strict=True)
        found.update(zip(batch.object_ids, both, strict=True))
        if len(found) == objects:
            break
    requests.put(None)
    call.cancel()
    return found


def as_arrow() -> ObjectBatch:
    """The same objects; JSON and bytes need a batch each, as a column has one type."""
    columns: dict[str, Any] = {
        "lon": [0.0] * 2,
        "lat": [0.0] * 2,
        "text": ["flood"] * 2,
        "id": ["both", "some"],
        "severity": [-4, None],
        "depth": [0.5, None],
        "road": ["Stra\u00dfe", ""],
        "closed": [False, None],
        "begun": pa.array([1_795_521_600_000, None], pa.timestamp("ms", "UTC")),
        "payload": ['{"a": 1}', None],
    }
    return ObjectBatch(arrow=to_ipc(pa.RecordBatch.from_pydict(columns)))


def test_what_is_published_as_messages_is_delivered(stub: Stub) -> None:
    insert(stub, "messages")
    assert publish(stub, ObjectBatch(objects=OBJECTS)).accepted == 4
    assert receive(stub, "messages", 4, attributes=True, payload=True, text=True) == WANT
    for fields in ({"attributes": True}, {"payload": True}, {}):
        found = receive(stub, "messages", 4, **fields)
        has = [{each is None for each in column} for column in zip(*found.values(), strict=True)]
        assert has == [{"attributes" not in fields}, {"payload" not in fields}]


def test_what_is_published_as_arrow_is_delivered(stub: Stub) -> None:
    insert(stub, "arrow", "flood -storm")
    assert publish(stub, as_arrow()).accepted == 2
    found = receive(stub, "arrow", 2, attributes=True, payload=True)
    assert found == {id_: WANT[id_] for id_ in ("both", "some")}


def test_a_batch_without_any_has_no_columns(stub: Stub) -> None:
    insert(stub, "plain", "drought")
    publish(stub, ObjectBatch(objects=[Object(id="p", lon=0, lat=0, text="drought")]))
    assert receive(stub, "plain", 1, attributes=True, payload=True) == {"p": (None, None)}


def test_good_rows_keep_their_own(stub: Stub) -> None:
    insert(stub, "partial", "hail")
    bad = Object(lon=0, lat=0, text="hail", payload=Payload(json="{"))
    good = [
        Object(text="hail", payload=Payload(json=str(i)), lon=0, lat=0, id=f"{i}") for i in (1, 2)
    ]
    batch = ObjectBatch(objects=[bad, good[0], bad, good[1]])
    answer = publish(stub, batch, allow_partial=True)
    assert [(r.row, r.field) for r in answer.refused] == [(0, "payload"), (2, "payload")]
    found = receive(stub, "partial", 2, payload=True)
    assert found == {o.id: (None, o.payload) for o in good}


def test_a_repeat_with_other_attributes_is_another_batch(stub: Stub) -> None:
    first = publish(stub, ObjectBatch(objects=OBJECTS), producer="p", seq=1)
    assert publish(stub, ObjectBatch(objects=OBJECTS), producer="p", seq=1) == first
    changed = Object()
    changed.CopyFrom(OBJECTS[0])
    changed.attributes.values["severity"].integer = 5
    with pytest.raises(grpc.RpcError, match="another batch"):
        publish(stub, ObjectBatch(objects=[changed, *OBJECTS[1:]]), producer="p", seq=1)


def test_a_restart_keeps_them(tmp_path: Path) -> None:
    with serving(tmp_path) as stub:
        insert(stub, "kept")
        publish(stub, ObjectBatch(objects=OBJECTS))
    with serving(tmp_path) as stub:
        assert receive(stub, "kept", 4, attributes=True, payload=True) == WANT


def explain(stub: Stub, expression: str) -> explain_pb2.ExplainMatchResponse:
    """Explains what the first of OBJECTS and a query with this expression are to each other."""
    id = f"explained {expression}"[:100]
    insert(stub, id, expression)
    request = explain_pb2.ExplainMatchRequest(query_id=id, object=OBJECTS[0])
    found: explain_pb2.ExplainMatchResponse = stub.ExplainMatch(request, timeout=60)
    return found


@pytest.mark.parametrize(
    ("expression", "holds", "detail"),
    [
        ("severity < -3", True, "severity is -4"),
        ("severity >= -3.5", False, "severity is -4"),
        ('road IN ("A1", "Straße")', True, 'road is "Straße"'),
        ("road = 3", False, 'road is "Straße", a text, which is not compared with a number'),
        ("begun != 2026-11-25", True, "begun is 2026-11-24T12:00:00Z"),
        ("closed exists", True, "closed is false"),
        ("open = true", False, "the object has no attribute open"),
    ],
)
def test_predicates_are_explained(stub: Stub, expression: str, holds: bool, detail: str) -> None:
    found = explain(stub, f"calm OR {expression}")
    assert found.matches is holds
    clause = found.text.parts[1]
    assert (clause.kind, clause.text, clause.holds) == ("predicate", expression, holds)
    assert clause.detail == detail
    assert [unit.term for unit in found.units if unit.decides] == [
        unit.term for unit in found.units if unit.term != "calm" and unit.in_object
    ]
    assert found.HasField("worker") is holds
    assert explain(stub, f"NOT ({expression})").matches is not holds


def test_a_bad_object_is_not_explained(stub: Stub) -> None:
    bad = Object(lon=0, lat=0, attributes=Attributes(values={"x": AttributeValue()}))
    request = explain_pb2.ExplainMatchRequest(query_id="q", object=bad)
    with pytest.raises(grpc.RpcError) as caught:
        stub.ExplainMatch(request, timeout=60)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "object.attributes.x: has no value" in str(caught.value.details())


def test_refusals_name_the_attribute(call: Any) -> None:
    bad = Object(lon=0, lat=0, attributes=Attributes(values={"x": AttributeValue(text="t" * 1025)}))
    data = pubsub_pb2.PublishRequest(batch=ObjectBatch(objects=[bad])).SerializeToString()
    code, violations, _ = call("Publish", data)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert violations == {
        "batch.objects[0].attributes.x": "1025 bytes are over the limit attribute_text_bytes 1024"
    }
