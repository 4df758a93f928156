"""A flood of calls is refused where it is too much, and deletes pass it."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from ps2stream.client.client import Client
from ps2stream.service import server, tenants
from ps2stream.service.lanes import HELD_REFUSALS, REFUSAL_S, REFUSALS, CallLanes
from ps2stream.service.slots import StreamSlots
from ps2stream.v1 import explain_pb2, object_pb2, pubsub_pb2, pubsub_pb2_grpc, query_pb2
from tests.support.gateways import running

THREADS, WAITING, CALLS = 2, 3, 12


def refusal(error: Any) -> str:
    """What it says; every refusal says when to try again."""
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    details = rpc_status.from_call(error).details
    retry = error_details_pb2.RetryInfo()
    assert details[0].Unpack(retry)
    assert retry.retry_delay.ToMilliseconds() > 0
    return str(error.details())


def request() -> Any:
    batch = object_pb2.ObjectBatch(objects=[object_pb2.Object(lon=0.0, lat=0.0, text="word")])
    return pubsub_pb2.PublishRequest(batch=batch)


def test_calls_beyond_the_lane_are_refused_and_deletes_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CallLanes", lambda: CallLanes(THREADS, WAITING))
    go_on, entered = threading.Event(), threading.Semaphore(0)
    with running(tmp_path) as (target, _, edge), Client(target) as client:
        inner = edge.publish

        def publish(*args: Any) -> Future[Any]:
            entered.release()
            assert go_on.wait(60)
            found: Future[Any] = inner(*args)
            return found

        client.insert("kept", "word", session="s")
        monkeypatch.setattr(edge, "publish", publish)
        with grpc.insecure_channel(target) as channel:
            stub: Any = pubsub_pb2_grpc.PubSubStub(channel)
            first = [stub.Publish.future(request()) for _ in range(THREADS)]
            for _ in range(THREADS):
                assert entered.acquire(timeout=60)
            over: queue.SimpleQueue[Any] = queue.SimpleQueue()
            rest = [stub.Publish.future(request()) for _ in range(CALLS - THREADS)]
            for call in rest:
                call.add_done_callback(over.put)
            ended = [over.get(timeout=60) for _ in range(CALLS - THREADS - WAITING)]
            client.delete("kept")  # while all threads are taken
            for call in ended:
                assert (
                    refusal(call.exception()) == f"{WAITING} calls are waiting, the limit (calls)"
                )
            assert over.empty()
            go_on.set()
            taken = [call for call in (*first, *rest) if call not in ended]
            assert [call.result(60).accepted for call in taken] == [1] * (THREADS + WAITING)
        assert list(client.list()) == []


def test_a_flood_of_inquiries_holds_up_no_other_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CallLanes", lambda: CallLanes(THREADS, WAITING))
    go_on = threading.Event()
    with running(tmp_path) as (target, _, edge), Client(target) as client:

        def slow(_: object) -> None:
            assert go_on.wait(60)

        monkeypatch.setattr(edge, "price", slow)
        with grpc.insecure_channel(target) as channel:
            stub: Any = pubsub_pb2_grpc.PubSubStub(channel)
            ask = explain_pb2.PriceQueryRequest(query=query_pb2.Query(expression="word"))
            calls = [stub.PriceQuery.future(ask) for _ in range(CALLS)]
            client.insert("taken", "word")
            assert client.publish([{"lon": 0.0, "lat": 0.0, "text": "word"}]).accepted == 1
            assert not any(call.done() for call in calls)
            go_on.set()
            for call in calls:
                assert "no sample of recent objects" in call.exception(60).details()


def test_publishers_leave_streams_to_subscribers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        tenants, "StreamSlots", lambda limit, *rest: StreamSlots(limit // 512, *rest)
    )
    done = threading.Event()

    def one() -> Iterator[Any]:
        yield pubsub_pb2.PublishStreamRequest(batch=request().batch)
        assert done.wait(60)

    with running(tmp_path) as (target, _, _edge), Client(target) as client:
        client.insert("q", "word", session="s")
        with grpc.insecure_channel(target) as channel:
            stub: Any = pubsub_pb2_grpc.PubSubStub(channel)
            held = stub.PublishStream(one())
            assert next(held).accepted == 1
            with pytest.raises(grpc.RpcError) as caught:
                next(stub.PublishStream(one()))
            assert refusal(caught.value) == "1 streams are open, the limit (bulk_streams)"
            with client.subscribe("s") as matches:
                assert next(iter(matches)).query_id == "q"
            done.set()
            assert list(held) == []


def test_refusals_of_a_full_service_take_their_time_unless_many_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []

    async def note_sleep(seconds: float) -> None:
        slept.append(seconds)

    async def refuse() -> None:
        refusals = CallLanes().refusals
        assert await refusals.hold_back()
        assert slept == [REFUSAL_S]
        refusals.waiting = HELD_REFUSALS
        assert await refusals.hold_back()
        assert slept == [REFUSAL_S]
        refusals.waiting = REFUSALS
        assert not await refusals.hold_back()
        refusals.waiting = 0
        assert await refusals.hold_back()
        assert slept == [REFUSAL_S, REFUSAL_S]

    monkeypatch.setattr(asyncio, "sleep", note_sleep)
    asyncio.run(refuse())


def test_refusals_come_one_after_another() -> None:
    async def refuse_ten() -> float:
        refusals = CallLanes().refusals
        began = time.monotonic()
        await asyncio.gather(*(refusals.hold_back() for _ in range(10)))
        return time.monotonic() - began

    assert asyncio.run(refuse_ten()) >= 10 * REFUSAL_S
