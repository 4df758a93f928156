"""The budget of publications on their way: refused by name, held by no one in the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from ps2stream.client.client import Client
from ps2stream.client.failures import rpc_error
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.limits import BATCH_BYTES
from ps2stream.service.admission import AdmissionTicket
from ps2stream.service.gate import REFUSED_BYTES_PER_S, PublishGate
from ps2stream.v1 import object_pb2, pubsub_pb2

ROW = {"lon": 0.0, "lat": 0.0, "text": "word"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    settings = Settings(
        runtime="local",
        port=0,
        workers=1,
        intake_bytes=16 << 20,
        data_dir=Path(tmp_path_factory.mktemp("data")),
    )
    with start(settings) as running:
        yield running


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch, service: RunningService) -> PublishGate:
    """That of the server, seen as it is entered."""
    found: list[PublishGate] = []
    enter = PublishGate.enter

    def entered(self: PublishGate, *args: Any) -> Any:
        found.append(self)
        return enter(self, *args)

    monkeypatch.setattr(PublishGate, "enter", entered)
    with Client(service.targets[0]) as client:
        client.publish([ROW])
    monkeypatch.undo()
    return found[0]


def hold_two(gate: PublishGate) -> list[AdmissionTicket]:
    """Two large publications that are analysed, and not routed."""
    held = []
    for peer in ("first", "second"):
        held.append(gate.enter(peer, 3_900_000, 0.0))
        gate.end_turn(held[-1])
    return held


def large(level: int = object_pb2.PUBLISH_LEVEL_DURABLE) -> bytes:
    rows = [object_pb2.Object(lon=1, lat=1, text="word " * 12_000)] * 60
    batch = object_pb2.ObjectBatch(objects=rows)
    request = pubsub_pb2.PublishRequest(batch=batch)
    request.level = level  # type: ignore[assignment]
    return request.SerializeToString()


def test_a_full_budget_refuses_by_name_and_small_ones_pass(
    service: RunningService, gate: PublishGate
) -> None:
    held = hold_two(gate)
    channel: Any = grpc.insecure_channel(service.targets[0])
    publish = channel.unary_unary("/ps2stream.v1.PubSub/Publish")
    with channel:
        with pytest.raises(grpc.RpcError) as refused:
            publish(large(), timeout=60)
        error: Any = rpc_error(refused.value)
        assert "(intake_bytes)" in str(error)
        assert error.retry_after_ms > 0
        none = publish(large(object_pb2.PUBLISH_LEVEL_NONE), timeout=60)
        assert pubsub_pb2.PublishResponse.FromString(none).accepted == 0
        status = service.status()["dispatcher-0"]
        assert status["refused_objects"]["shed"] == 60
        assert status["refused_objects"]["full"] == 60
        with Client(service.targets[0]) as client:
            assert client.publish([ROW]).accepted == 1
        for ticket in held:
            gate.leave(ticket)
        assert publish(large(), timeout=60)
    assert gate.held_bytes == 0


@pytest.mark.takes_turns
@pytest.mark.parametrize("method", ["Publish", "PublishStream"])
def test_a_refusal_is_told_before_the_deadline(
    service: RunningService, gate: PublishGate, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    begin = PublishGate.begin_refusal
    monkeypatch.setattr(PublishGate, "begin_refusal", lambda *them: 60 + begin(*them))
    monkeypatch.setattr("ps2stream.service.admission.FairAdmission.request", lambda *_: None)
    with grpc.insecure_channel(service.targets[0]) as opened:
        channel: Any = opened
        name = f"/ps2stream.v1.PubSub/{method}"
        if method == "Publish":
            with pytest.raises(grpc.RpcError, match="intake_bytes"):
                channel.unary_unary(name)(large(), timeout=10)
        else:
            [answer] = channel.stream_stream(name)(iter([large()]), timeout=10)
            assert pubsub_pb2.PublishStreamResponse.FromString(answer).retry_after_ms > 0
    assert gate.begin_refusal(1) == 1 / REFUSED_BYTES_PER_S + 60  # none is held back any more
    gate.end_refusal()


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (b"x" * (BATCH_BYTES + 1), "batch_bytes"),
        (b"\x0a\x04\x0a\x02\x2a\x05" + b"\x0a\x00" * 100_000, "is not a"),
        (b"\x0a\x00" * 1_000_000, "contains no objects"),
        (large() + pubsub_pb2.PublishRequest(producer="p").SerializeToString(), "producer"),
        (large(7), "unknown level 7"),
        (large().replace(b"word", b"\xff\xff\xff\xff"), "is not a"),
    ],
)
@pytest.mark.parametrize("method", ["Publish", "PublishStream"])
def test_what_is_wrong_with_a_large_batch_is_held_back_too(
    service: RunningService,
    gate: PublishGate,
    monkeypatch: pytest.MonkeyPatch,
    request_: bytes,
    problem: str,
    method: str,
) -> None:
    begun: list[int] = []
    begin = PublishGate.begin_refusal

    def noted(self: PublishGate, size_bytes: int) -> float:
        begun.append(size_bytes)
        return begin(self, size_bytes)

    monkeypatch.setattr(PublishGate, "begin_refusal", noted)
    with grpc.insecure_channel(service.targets[0]) as opened:
        channel: Any = opened
        name = f"/ps2stream.v1.PubSub/{method}"
        call = (
            partial(channel.unary_unary(name), request_)
            if method == "Publish"
            else partial(next, channel.stream_stream(name)(iter([request_])))
        )
        with pytest.raises(grpc.RpcError, match=problem):
            call()
    assert begun == [len(request_)]
    assert (gate.held_bytes, gate.begin_refusal(1)) == (0, 1 / REFUSED_BYTES_PER_S)
    gate.end_refusal()


def test_who_waits_comes_in_once_another_leaves(gate: PublishGate) -> None:
    held = hold_two(gate)
    waits = threading.Event()
    with ThreadPoolExecutor(1) as pool:

        def enter() -> Any:
            waits.set()
            return gate.enter("late", 3_900_000, 60.0)

        waiting: Future[Any] = pool.submit(enter)
        assert waits.wait(60)
        gate.leave(held[0])
        held[0] = waiting.result(60)
    for ticket in held:
        gate.leave(ticket)
    assert gate.held_bytes == 0


@pytest.mark.parametrize(
    "request_",
    [
        pubsub_pb2.PublishRequest(producer="p", batch=object_pb2.ObjectBatch(arrow=b"x")),
        pubsub_pb2.PublishRequest(batch=object_pb2.ObjectBatch(arrow=b"no arrow")),
        pubsub_pb2.PublishRequest(batch=object_pb2.ObjectBatch(objects=[object_pb2.Object()])),
    ],
)
def test_a_bad_batch_holds_nothing(
    service: RunningService, gate: PublishGate, request_: Any
) -> None:
    with grpc.insecure_channel(service.targets[0]) as opened:
        channel: Any = opened
        with pytest.raises(grpc.RpcError):
            channel.unary_unary("/ps2stream.v1.PubSub/Publish")(request_.SerializeToString())
    assert gate.held_bytes == 0
