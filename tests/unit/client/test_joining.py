"""Publications that wait to be sent: they leave in as few messages as may be, in order."""

from __future__ import annotations

import queue

from ps2stream.client.channel import take_requests
from ps2stream.client.joining import JOINED_BYTES, JOINED_REQUESTS, RequestJoiner
from ps2stream.v1 import pubsub_pb2


def split(message: bytes) -> list[bytes]:
    request = pubsub_pb2.PublishStreamRequest.FromString(message)
    following = list(request.following)
    request.ClearField("following")
    return [request.SerializeToString(), *following]


def make(producer: str) -> bytes:
    return pubsub_pb2.PublishStreamRequest(producer=producer).SerializeToString()


def join(requests: list[bytes]) -> list[list[bytes]]:
    return [split(message) for message in RequestJoiner().join(requests)]


def test_requests_are_joined_in_order() -> None:
    requests = [make(f"p{i}") for i in range(5)]
    assert join(requests) == [requests]
    assert join([]) == []
    assert list(RequestJoiner().join(requests[:1])) == requests[:1]


def test_a_message_has_no_more_than_the_service_takes() -> None:
    requests = [make(f"p{i}") for i in range(2 * JOINED_REQUESTS + 1)]
    assert list(map(len, join(requests))) == [JOINED_REQUESTS, JOINED_REQUESTS, 1]


def test_large_requests_leave_alone() -> None:
    small, large = make("p" * 100), make("p" * JOINED_BYTES)
    assert join([large, small, small, large, small]) == [[large], [small, small], [large], [small]]


def test_nothing_is_joined_before_the_service_takes_it() -> None:
    outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    joiner = RequestJoiner()
    joiner.is_allowed = True  # as an earlier stream has left it
    requests = [make(f"p{i}") for i in range(5)]
    for request in (*requests, None):
        outbox.put(request)
    sent = take_requests(outbox, joiner)
    assert [next(sent), next(sent)] == requests[:2]
    joiner.is_allowed = True
    assert [split(message) for message in sent] == [requests[2:]]
    assert outbox.empty()
