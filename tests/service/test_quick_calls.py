"""Small messages are handled on the service's loop where nothing blocks, with the same answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pyarrow as pa
import pytest

from ps2stream.service import publishing, pubsub
from ps2stream.space.regions import RECT_FIELDS
from ps2stream.v1 import object_pb2, pubsub_pb2, pubsub_pb2_grpc, query_pb2
from tests.support.gateways import running

LOOP = "ps2stream-service-loop"
GOOD = {"id": "o", "lon": 1.0, "lat": 2.0, "text": "flood"}


def publish(*rows: dict[str, Any], **fields: Any) -> pubsub_pb2.PublishRequest:
    batch = object_pb2.ObjectBatch(objects=[object_pb2.Object(**row) for row in rows])
    return pubsub_pb2.PublishRequest(batch=batch, **fields)


def encode_arrow(columns: dict[str, Any]) -> bytes:
    batch = pa.record_batch(columns)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(out.getvalue())


PUBLICATIONS = {
    "good": publish(GOOD),
    "level none": publish(GOOD, level=object_pb2.PUBLISH_LEVEL_NONE),
    "unknown level": publish(GOOD, level=77),
    "nothing": publish(),
    "a bad row": publish(GOOD, {**GOOD, "lon": 999.0}),
    "a bad row, allowed": publish(GOOD, {**GOOD, "lon": 999.0}, allow_partial=True),
    "only bad rows, allowed": publish({**GOOD, "lat": 999.0}, allow_partial=True),
    "a seq of nobody": publish(GOOD, seq=7),
    "a producer": publish(GOOD, producer="p", seq=7),
    "another content": publish({**GOOD, "text": "fire"}, producer="p", seq=7),
    "no message": b"\xff",
    "a large text": publish({**GOOD, "text": "x" * (publishing.QUICK_BYTES + 1)}),
}


@pytest.fixture(scope="module", params=[False, True], ids=["threads", "loop"])
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[grpc.Channel, Any, bool]]:
    folder = tmp_path_factory.mktemp("service")
    with (
        running(folder, never_blocks=request.param) as (target, _, edge),
        grpc.insecure_channel(target) as channel,
    ):
        yield channel, edge, request.param


def call(channel: grpc.Channel, name: str, message: Any) -> tuple[Any, ...]:
    """Returns what a unary call ends with, without what differs from call to call."""
    send: Callable[..., bytes] = channel.unary_unary(f"/{pubsub.SERVICE}/{name}")
    data = message if isinstance(message, bytes) else message.SerializeToString()
    try:
        answer = pubsub_pb2.PublishResponse.FromString(send(data, timeout=60))
    except grpc.RpcError as error:
        return error.code(), error.details()
    return answer.level, answer.accepted, [str(refused) for refused in answer.refused]


ANSWERS: dict[str, tuple[Any, ...]] = {}


@pytest.mark.parametrize("name", PUBLICATIONS)
def test_publications_are_answered_alike(
    service: tuple[grpc.Channel, Any, bool], name: str
) -> None:
    found = call(service[0], "Publish", PUBLICATIONS[name])
    assert ANSWERS.setdefault(name, found) == found


def note_threads(edge: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    inner: Callable[..., Any] = getattr(edge, name)
    names: list[str] = []

    def noted(*args: Any) -> Any:
        names.append(threading.current_thread().name)
        return inner(*args)

    monkeypatch.setattr(edge, name, noted, raising=False)
    return names


def test_only_small_publications_are_handled_on_the_loop(
    service: tuple[grpc.Channel, Any, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, edge, on_loop = service
    stub: Any = pubsub_pb2_grpc.PubSubStub(channel)
    names = note_threads(edge, "publish", monkeypatch)
    many = [dict(GOOD, text="word " * 20)] * (publishing.QUICK_BYTES // 100)
    stub.Publish(PUBLICATIONS["good"], timeout=60)
    stub.Publish(publish(*many), timeout=60)
    small, large = names
    assert (small == LOOP) is on_loop
    assert large != LOOP


def test_a_publication_that_has_to_wait_for_its_turn_waits_on_a_thread(
    service: tuple[grpc.Channel, Any, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, edge, _ = service
    names = note_threads(edge, "publish", monkeypatch)
    monkeypatch.setattr("ps2stream.service.gate.PublishGate.try_to_enter", lambda *_: None)
    assert call(channel, "Publish", PUBLICATIONS["good"])[1] == 1
    assert names != [LOOP]


def test_small_updates_are_handled_on_the_loop_and_give_the_same_answers(
    service: tuple[grpc.Channel, Any, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, edge, on_loop = service
    stub: Any = pubsub_pb2_grpc.PubSubStub(channel)
    names = note_threads(edge, "update", monkeypatch)

    def columns(count: int) -> dict[str, list[Any]]:
        sides = dict.fromkeys(RECT_FIELDS, [0.0] * count)
        ids = [f"q{i}" for i in range(count)]
        return {"id": ids, "expression": ["flood"] * count, **sides}

    batch = query_pb2.QueryBatch(session="s", arrow=encode_arrow(columns(2)))
    large = query_pb2.QueryBatch(session="s", arrow=encode_arrow(columns(5000)))
    world = query_pb2.Query(id="m", session="s", expression="flood")
    several = query_pb2.QueryBatch(session="s", queries=[world] * 400)
    inserts = [pubsub_pb2.InsertQueriesRequest(batch=b) for b in (batch, large, several)]
    answers = list(stub.InsertQueries(iter(inserts), timeout=60))
    assert [len(answer.lsns) for answer in answers] == [2, 5000, 400]
    assert not answers[0].errors
    deletes = [
        pubsub_pb2.DeleteQueriesRequest(ids=ids)
        for ids in (["q0", "q1", "nobody"], [f"q{i}".ljust(20) for i in range(5000)], ["m"])
    ]
    answers = list(stub.DeleteQueries(iter(deletes), timeout=60))
    assert [str(error) for error in answers[0].errors] == [str(answers[0].errors[0])]
    assert [name == LOOP for name in names] == [
        on_loop, False, False, on_loop, False, on_loop
    ]  # fmt: skip


def test_texts_that_take_long_are_left_to_a_thread(
    service: tuple[grpc.Channel, Any, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, edge, on_loop = service
    slow = publish(*[{**GOOD, "text": "\ufdfa" * 900}] * 60)
    assert slow.ByteSize() < publishing.QUICK_BYTES
    normal = publish(*[{**GOOD, "text": "flood " * 60}] * 200)
    for _ in range(50):  # whatever was slow before, if only for want of a processor, is forgotten
        call(channel, "Publish", normal)
    names = note_threads(edge, "publish", monkeypatch)
    for message in (normal, slow, slow, normal):
        assert call(channel, "Publish", message)[1] == len(message.batch.objects)
    assert [name == LOOP for name in names] == [on_loop, False, False, False]
    for _ in range(50):
        call(channel, "Publish", normal)
    assert (names[-1] == LOOP) is on_loop


def test_what_begins_anew_on_a_thread_counts_once(
    service: tuple[grpc.Channel, Any, bool],
) -> None:
    channel, edge, _ = service
    bad = {**GOOD, "lon": 999.0}
    slow = publish(*[{**GOOD, "text": "\ufdfa" * 900}] * 60, bad, allow_partial=True)
    before = edge.server_status()["refused_objects"]["invalid"]
    assert call(channel, "Publish", slow)[1] == 60
    assert edge.server_status()["refused_objects"]["invalid"] == before + 1
