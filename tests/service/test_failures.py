"""When the ledger cannot be written, the service is full, or a subscriber is slow."""

from __future__ import annotations

import itertools
import queue
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from ps2stream import Client
from ps2stream.client.matches import Matches
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import ResourceExhausted, Unavailable
from ps2stream.v1 import delivery_pb2, object_pb2, pubsub_pb2
from tests.support.gateways import running

ROW: dict[str, Any] = {"lon": 0.0, "lat": 0.0, "text": "word"}


HASTY_S = 2.2  # the last try begins after 1.75 s, and has nearly half a second
"""A client that has this long tries again what is refused, and still gets its first answer."""


def start_of(session: str, batches: int = 0, size: int = 0) -> bytes:
    begin = delivery_pb2.Start(session=session, credit_batches=batches, credit_bytes=size)
    return delivery_pb2.DeliverRequest(start=begin).SerializeToString()


def test_what_a_closed_subscription_took_does_not_come_again_after_a_restart(
    tmp_path: Path,
) -> None:
    settings = Settings(runtime="local", port=0, workers=1, data_dir=tmp_path)
    with start(settings) as service, Client(service.targets[0]) as client:
        client.insert("q", "word", session="s")
        with client.subscribe("s") as matches:
            client.publish([ROW | {"id": "taken"}])
            assert matches.next(60).object_id == "taken"
        deadline = time.monotonic() + 30  # the service may hear of it later
        while service.status()["merger-0"]["lag"] and time.monotonic() < deadline:
            time.sleep(0.01)
    with start(settings) as service, Client(service.targets[0]) as client:
        client.publish([ROW | {"id": "new"}])
        with client.subscribe("s") as matches:
            assert matches.next(60).object_id == "new"


@pytest.mark.takes_turns
def test_a_full_disk_is_unavailable_and_loses_nothing(tmp_path: Path) -> None:
    with (
        running(tmp_path) as (target, disk, _),
        Client(target, timeout=90) as client,
        Client(target, timeout=HASTY_S) as hasty,
    ):
        client.insert("kept", "word", session="s")
        disk.full = True
        with pytest.raises(Unavailable, match="ledger could not be written"):
            hasty.insert("new", "word")
        with pytest.raises(Unavailable, match="ledger could not be written"):
            hasty.insert_many([("new", "word")])
        with pytest.raises(Unavailable, match="ledger could not be written"):
            hasty.delete("kept")
        with pytest.raises(Unavailable, match="ledger could not be written"):
            hasty.subscribe("another", reconnect=False)
        assert list(client.list("another")) == []
        with client.subscribe("s") as matches:
            client.publish([ROW])
            assert next(iter(matches)).query_id == "kept"
        deadline = time.monotonic() + 30  # the service hears a little later that a client has left
        while client.status()["streams"] and time.monotonic() < deadline:
            pass
        assert client.status()["streams"] == 0
        disk.full = False
        client.insert("new", "word", session="another")
        with client.subscribe("another") as matches:
            client.publish([ROW])
            assert next(iter(matches)).query_id == "new"
        assert [q.id for q in client.list()] == ["kept", "new"]


def test_a_full_service_is_tried_again(tmp_path: Path) -> None:
    with running(tmp_path) as (target, _, busy), Client(target, timeout=30) as client:
        busy.refusals = 3
        assert client.publish([ROW]).accepted == 1
        assert busy.refusals == 0
        busy.refusals = 1
        receipts = list(client.publish_stream([[ROW], [ROW]], in_flight=1))
        assert [(r.accepted, r.retry_after_ms) for r in receipts] == [(0, 10), (1, 0)]
        busy.refusals = 1
        assert client.publish([ROW], level="none").accepted == 0
        assert client.status()["shed_objects"] == 1


def test_a_full_service_says_when_to_come_again(tmp_path: Path) -> None:
    batch = object_pb2.ObjectBatch(objects=[object_pb2.Object(**ROW)])
    data = pubsub_pb2.PublishRequest(batch=batch).SerializeToString()
    with running(tmp_path) as (target, _, busy), grpc.insecure_channel(target) as channel:
        busy.refusals = 1
        call: Any = channel.unary_unary("/ps2stream.v1.PubSub/Publish")
        with pytest.raises(grpc.RpcError) as caught:
            call(data)
        status = rpc_status.from_call(caught.value)
        retry = error_details_pb2.RetryInfo()
        assert status.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
        assert status.details[0].Unpack(retry)
        assert retry.retry_delay.ToMilliseconds() == 10


def test_giving_up_names_the_full_service(tmp_path: Path) -> None:
    with running(tmp_path) as (target, _, busy), Client(target, timeout=HASTY_S) as client:
        busy.refusals = 1_000_000
        with pytest.raises(ResourceExhausted, match="in flight, the limit"):
            client.publish([ROW])


def whole(batches: Iterator[Matches], last: int) -> tuple[int, int]:
    """(pairs delivered, pairs in gaps) up to pair `last`; every number occurs once."""
    expected, pairs, lost = 1, 0, 0
    for batch in batches:
        first = batch.gap.first if batch.gap is not None else batch.first
        assert first == expected
        expected = batch.last + 1
        if batch.gap is not None:
            assert batch.gap.count == batch.last - first + 1
            lost += batch.gap.count
        else:
            pairs += len(batch)
        if batch.last == last:
            return pairs, lost
    raise AssertionError("the stream ended early")


def test_nobody_listens_until_the_backlog_is_full(tmp_path: Path) -> None:
    with running(tmp_path) as (target, _, _), Client(target) as client:
        client.insert("q", "word", session="away")
        for _ in range(40):
            client.publish([{**ROW, "text": "word " * 1000}])
        with client.subscribe("away") as matches:
            pairs, lost = whole(matches.batches(), 40)
        assert pairs
        assert lost == matches.missed == 40 - pairs


@pytest.mark.takes_turns
def test_a_slow_subscriber_sees_a_gap_and_holds_nobody_up(tmp_path: Path) -> None:
    with running(tmp_path) as (target, _, _), Client(target) as client:
        client.insert("slow", "word", session="slow")
        client.insert("quick", "word", session="quick")
        slow, quick = client.subscribe("slow"), client.subscribe("quick")
        taken = quick.batches()
        for _ in range(400):  # twice the credits of 1 MiB
            client.publish([{**ROW, "text": "word " * 1000}])
            next(taken)
        assert quick.missed == 0
        pairs, lost = whole(slow.batches(), 400)
        assert pairs + lost == 400
        assert lost == slow.missed > 0
        slow.close()
        quick.close()


def test_no_more_is_sent_than_credits_allow(tmp_path: Path) -> None:
    with running(tmp_path) as (target, _, _), Client(target) as client:
        client.insert("q", "word", session="c")
        upward: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        upward.put(start_of("c", batches=2))
        with grpc.insecure_channel(target) as channel:
            method: Any = channel.stream_stream("/ps2stream.v1.PubSub/Deliver")
            call = method(iter(upward.get, None), timeout=60)
            event = delivery_pb2.DeliverResponse.FromString
            assert event(next(call)).HasField("started")
            for _ in range(5):
                client.publish([ROW])
            numbers = [event(next(call)).batch.session_seq for _ in range(2)]
            huge = delivery_pb2.Credit(batches=2**32 - 1, bytes=2**64 - 1, ack=2)
            upward.put(delivery_pb2.DeliverRequest(credit=huge).SerializeToString())
            # Credits beyond what was sent count for nothing: two more, and no third.
            numbers += [event(next(call)).batch.session_seq for _ in range(2)]
            upward.put(None)
            assert not list(call)
        assert numbers == [1, 2, 3, 4]
        with client.subscribe("c") as matches:
            assert next(matches.batches()).first == 3


def test_cancelled_streams_leave_nothing_behind(tmp_path: Path) -> None:
    with running(tmp_path) as (target, _, _), Client(target) as client:
        with grpc.insecure_channel(target) as channel:
            for i in range(50):
                method: Any = channel.stream_stream("/ps2stream.v1.PubSub/Deliver")
                forever: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
                forever.put(start_of(f"s{i}"))
                call = method(iter(forever.get, None))
                next(call)
                call.cancel()
                forever.put(None)
        deadline = time.monotonic() + 60
        while client.status()["streams"] and time.monotonic() < deadline:
            time.sleep(0.01)
        assert client.status()["streams"] == 0


def test_a_stream_ends_though_its_dispatcher_may_say_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lapsed(_: Any) -> None:
        raise Unavailable("this actor's lease has run out")

    with running(tmp_path) as (target, _, edge), grpc.insecure_channel(target) as channel:
        upward: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        upward.put(start_of("s"))
        method: Any = channel.stream_stream("/ps2stream.v1.PubSub/Deliver")
        call = method(iter(upward.get, None), timeout=60)
        next(call)
        monkeypatch.setattr(edge.machine.streams, "close", lapsed)
        upward.put(None)
        assert not list(call)
        monkeypatch.undo()


def test_open_streams_keep_no_threads(tmp_path: Path) -> None:
    def threads() -> int:
        return sum(t.name.startswith("ps2stream-stream_calls") for t in threading.enumerate())

    with running(tmp_path) as (target, _, _), Client(target) as client:
        before = threads()
        taking = []
        for i in range(60):
            client.insert(f"q{i}", "word", session=f"s{i}")
            taking.append(client.subscribe(f"s{i}"))
        assert threads() < before + 20
        client.publish([{**ROW, "id": "x"}])
        for matches in taking:
            assert next(iter(matches)).object_id == "x"
            matches.close()


def test_streams_that_never_speak_keep_no_threads(tmp_path: Path) -> None:
    """Not even those that may be silent for as long as they like."""
    silence = threading.Event()

    def nothing() -> Iterator[bytes]:
        silence.wait(60)
        yield from ()

    with running(tmp_path) as (target, _, _), Client(target) as client:
        assert client.publish([ROW]).accepted == 1
        before = sum(t.name.startswith("ps2stream-") for t in threading.enumerate())
        channels = [
            grpc.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)]) for _ in range(2)
        ]
        methods: list[Any] = [
            channel.stream_stream(f"/ps2stream.v1.PubSub/{name}")
            for channel in channels
            for name in ("PublishStream", "InsertQueries", "DeleteQueries")
        ]
        calls = [method(nothing()) for method in methods for _ in range(50)]
        assert client.publish([ROW]).accepted == 1
        [receipt] = client.publish_stream([[ROW]])
        assert receipt.accepted == 1
        after = sum(t.name.startswith("ps2stream-") for t in threading.enumerate())
        assert after < before + 20
        assert not any(call.done() for call in calls)
        silence.set()
        for call in calls:
            assert list(call) == []
        for channel in channels:
            channel.close()


@pytest.mark.takes_turns
def test_a_bulk_insert_lives_through_a_restart(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    settings = Settings(runtime="local", port=port, workers=1, data_dir=tmp_path / "data")
    service = start(settings)

    def rows() -> Iterator[tuple[str, str]]:
        nonlocal service
        for i in range(20_000):
            if i in (7_000, 16_000):
                service.stop()
                service = start(settings)
            yield f"q{i}", f"word{i}"

    try:
        with Client(f"127.0.0.1:{port}", timeout=60) as client:
            lsns = client.insert_many(rows())
            assert lsns == list(range(1, 20_001))
            assert [q.id for q in client.list(page_size=1000)] == [f"q{i}" for i in range(20_000)]

            def ids() -> Iterator[str]:
                nonlocal service
                for i in range(20_000):
                    if i == 9_000:
                        service.stop()
                        service = start(settings)
                    yield f"q{i}"

            assert client.delete_many(ids()) == list(range(20_001, 40_001))
            assert list(itertools.islice(client.list(), 1)) == []
    finally:
        service.stop()
