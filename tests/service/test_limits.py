"""The limits: SECURITY.md lists those of the code, and each refusal names its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from ps2stream import limits
from ps2stream.client.client import Client
from ps2stream.dispatcher import watchers
from ps2stream.protocol import tokens
from ps2stream.protocol.messages.updates import UpdateStatus
from ps2stream.service import deliver_streams, half_open, lanes, server
from ps2stream.service.slots import StreamSlots
from ps2stream.v1 import delivery_pb2, object_pb2, pubsub_pb2, query_pb2

Code = grpc.StatusCode
LANES = lanes.CallLanes()
LIMITS = {
    "request_bytes": limits.REQUEST_BYTES,
    "query_bytes": limits.QUERY_BYTES,
    "batch_bytes": limits.BATCH_BYTES,
    "batch_rows": limits.BATCH_ROWS,
    "plan_bytes": limits.PLAN_BYTES,
    "text_bytes": limits.TEXT_BYTES,
    "folded_text_bytes": limits.FOLDED_TEXT_BYTES,
    "id_bytes": limits.ID_BYTES,
    "session_bytes": limits.SESSION_BYTES,
    "expression_bytes": limits.EXPRESSION_BYTES,
    "expression_terms": limits.EXPRESSION_TERMS,
    "expression_depth": limits.EXPRESSION_DEPTH,
    "polygon_vertices": limits.POLYGON_VERTICES,
    "credit_batches": deliver_streams.MAX_CREDIT_BATCHES,
    "credit_bytes": deliver_streams.MAX_CREDIT_BYTES,
    "streams": lanes.MAX_STREAMS,
    "bulk_streams": lanes.MAX_BULK_STREAMS,
    "calls": LANES.calls.waiting,
    "delete_calls": LANES.deletes.waiting,
    "inquiry_calls": LANES.inquiries.waiting,
    "peer_calls": LANES.calls.shares.limits.connection,
    "peer_delete_calls": LANES.deletes.shares.limits.connection,
    "peer_inquiry_calls": LANES.inquiries.shares.limits.connection,
    "peer_streams": lanes.CONNECTION_STREAMS,
    "handshake_s": int(server.HANDSHAKE_S),
    "half_open_s": int(half_open.HALF_OPEN_S),
    "half_open_calls": half_open.HALF_OPEN_CALLS,
    "waiting_updates": limits.WAITING_UPDATES,
    "waiting_bytes": limits.WAITING_BYTES,
    "waiting_questions": limits.WAITING_QUESTIONS,
    "tokens": tokens.MAX_TOKENS,
    "watchers": watchers.MAX_WATCHERS,
}


def insert(**fields: Any) -> tuple[str, bytes]:
    values = {"id": "q", "expression": "word", "session": "s"} | fields
    request = pubsub_pb2.InsertQueryRequest(query=query_pb2.Query(**values))
    return "InsertQuery", request.SerializeToString()


def publish(**fields: Any) -> tuple[str, bytes]:
    values: dict[str, Any] = {"lon": 0.0, "lat": 0.0, "text": "word"} | fields
    found = object_pb2.Object(**values)
    batch = object_pb2.ObjectBatch(objects=[found])
    return "Publish", pubsub_pb2.PublishRequest(batch=batch).SerializeToString()


def start(**fields: Any) -> tuple[str, bytes]:
    found = delivery_pb2.Start(**({"session": "s"} | fields))
    return "Deliver", delivery_pb2.DeliverRequest(start=found).SerializeToString()


BEYOND: dict[str, Callable[[int], tuple[str, bytes]]] = {
    "request_bytes": lambda n: ("GetQuery", b"\x0a" * (n + 1)),
    "query_bytes": lambda n: ("InsertQuery", b"\x0a" * (n + 1)),
    "batch_bytes": lambda n: ("Publish", b"\x0a" * (n + 1)),
    "batch_rows": lambda n: ("DeleteQueries", b"\x0a\x00" * (n + 1)),
    "text_bytes": lambda n: publish(text="w" * (n + 1)),
    "id_bytes": lambda n: insert(id="w" * (n + 1)),
    "session_bytes": lambda n: insert(session="w" * (n + 1)),
    "expression_bytes": lambda n: insert(expression="w" * (n + 1)),
    "expression_terms": lambda n: insert(expression=" ".join(f"t{i}" for i in range(n + 1))),
    "expression_depth": lambda n: insert(expression="(" * (n + 1) + "a" + ")" * (n + 1)),
    "credit_batches": lambda n: start(credit_batches=n + 1),
    "credit_bytes": lambda n: start(credit_bytes=n + 1),
}


def test_security_md_lists_the_limits_of_the_code(root: Path) -> None:
    text = (root / "SECURITY.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([\d,]+) \|", text, re.MULTILINE)
    assert {name: int(value.replace(",", "")) for name, value in rows} == LIMITS


@pytest.mark.parametrize("name", BEYOND)
def test_a_refusal_names_its_limit(call: Any, name: str) -> None:
    code, found, message = call(*BEYOND[name](LIMITS[name]))
    assert code == Code.INVALID_ARGUMENT
    said = " ".join(found.values())
    assert re.search(rf"\b{name}\b", said), message
    assert str(LIMITS[name]) in said


def test_polygons(client: Client) -> None:
    n = LIMITS["polygon_vertices"]
    points = [[i * 1e-4, (i % 2) * 1e-3] for i in range(n)]
    polygon = {"type": "Polygon", "coordinates": [[*points, points[0]]]}
    refused: list[Any] = []
    with pytest.raises(Exception, match=f"polygon_vertices {n}"):
        client.insert_many([("q", "", polygon)], refused=refused)


def test_streams_and_tokens() -> None:
    outer = StreamSlots(2, "streams")
    inner = StreamSlots(1, "the tenant's quota streams", outer)
    with inner.one(), outer.one():
        with pytest.raises(Exception, match=r"1 streams are open, the limit \(the tenant's"):
            inner.one().__enter__()
        with pytest.raises(Exception, match=r"2 streams are open, the limit \(streams\)"):
            outer.one().__enter__()
    with inner.one(), outer.one():
        pass
    held = [
        tokens.make(i.to_bytes(8, "big") + bytes(32), "", frozenset(), 0).token
        for i in range(LIMITS["tokens"] + 1)
    ]
    assert tokens.changed(held[1:], held[:1], "")[0] == UpdateStatus.RESOURCE_EXHAUSTED
    assert tokens.changed(held[2:], held[:1], "")[0] == UpdateStatus.OK
    assert tokens.changed(held[1:], held[1:2], "")[0] == UpdateStatus.ALREADY_EXISTS
