"""Small publications of one stream: they are answered together where the client allows it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import grpc
import pytest

from ps2stream import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.v1 import object_pb2, pubsub_pb2, pubsub_pb2_grpc

MANY = 300


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("data")
    with start(Settings(runtime="local", port=0, workers=1, data_dir=data)) as running:
        yield running.targets[0]


def make_request(text: str, *, join: bool, lon: float = 1.0) -> pubsub_pb2.PublishStreamRequest:
    rows = [object_pb2.Object(lon=lon, lat=1.0, text=text) for _ in range(2)]
    batch = object_pb2.ObjectBatch(objects=rows)
    return pubsub_pb2.PublishStreamRequest(batch=batch, join_answers=join)


def publish(
    target: str, requests: list[pubsub_pb2.PublishStreamRequest]
) -> list[pubsub_pb2.PublishStreamResponse]:
    with grpc.insecure_channel(target) as channel:
        return list(pubsub_pb2_grpc.PubSubStub(channel).PublishStream(iter(requests)))


def check_order(answers: list[pubsub_pb2.PublishStreamResponse], count: int) -> None:
    assert [a.accepted for a in answers] == [2] * count
    assert all(b.first_offset == a.first_offset + 2 for a, b in pairwise(answers))


def test_a_client_that_does_not_ask_has_a_response_for_each(target: str) -> None:
    answers = publish(target, [make_request(f"dry {i}", join=False) for i in range(MANY)])
    assert not any(answer.following for answer in answers)
    check_order(answers, MANY)


def test_every_batch_has_one_answer_in_order(target: str) -> None:
    responses = publish(target, [make_request(f"wet {i}", join=True) for i in range(MANY)])
    assert not any(each.following for r in responses for each in r.following)
    check_order([each for r in responses for each in (r, *r.following)], MANY)


def test_a_batch_that_does_not_allow_it_begins_a_response(target: str) -> None:
    requests = [make_request(f"mixed {i}", join=i % 3 != 0) for i in range(MANY)]
    answered = 0
    for response in publish(target, requests):
        for number in range(len(response.following) + 1):
            assert number == 0 or requests[answered].join_answers
            answered += 1
    assert answered == MANY


def test_a_refused_batch_ends_the_stream_after_the_answers_before_it(target: str) -> None:
    requests = [make_request(f"good {i}", join=True) for i in range(20)]
    requests.append(make_request("bad", join=True, lon=500.0))
    requests += [make_request("late", join=True) for _ in range(20)]
    found = 0
    for response in publish(target, requests):
        for answer in (response, *response.following):
            if found == 20:
                assert (answer.accepted, answer.refused[0].field) == (0, "lon")
            else:
                assert answer.accepted == 2
            found += 1
    assert found == 41


@pytest.mark.takes_turns
def test_the_client_yields_a_receipt_for_each_batch(target: str) -> None:
    batches = [[{"lon": 1.0, "lat": 1.0, "text": f"client {i}"}] for i in range(MANY)]
    with Client(target) as client:
        receipts = list(client.publish_stream(batches, in_flight=None))
        named = list(client.publish_stream(batches, producer="joined"))
        again = list(client.publish_stream(batches[-100:], producer="joined", first_seq=201))
    for found in (receipts, named):
        assert [r.accepted for r in found] == [1] * MANY
        assert len({r.first_offset for r in found}) == MANY
    assert again == named[-100:]
