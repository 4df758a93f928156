"""Publications that come in one message: each has its own answer, as if it had come alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import grpc
import pyarrow as pa
import pytest

from ps2stream.client.joining import RequestJoiner
from ps2stream.service.publication_messages import MOST_FOLLOWING
from ps2stream.v1 import object_pb2, pubsub_pb2
from tests.support.gateways import running

Request: TypeAlias = pubsub_pb2.PublishStreamRequest
Service: TypeAlias = tuple[grpc.Channel, Any, bool]
GOOD = {"lon": 1.0, "lat": 2.0, "text": "flood"}
BAD = {**GOOD, "lon": 999.0}
NOW = object_pb2.PUBLISH_LEVEL_ACCEPTED


@pytest.fixture(scope="module", params=[False, True], ids=["threads", "loop"])
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    with (
        running(folder, never_blocks=request.param) as (target, _, edge),
        grpc.insecure_channel(target) as channel,
    ):
        yield channel, edge, request.param


def make(*rows: dict[str, Any], arrow: bool = False, **fields: Any) -> Request:
    batch = object_pb2.ObjectBatch()
    if arrow:
        out = pa.BufferOutputStream()
        table = pa.RecordBatch.from_pylist(rows)
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_batch(table)
        batch.arrow = bytes(out.getvalue())
    else:
        batch.objects.extend(object_pb2.Object(**row) for row in rows)
    return Request(batch=batch, join_answers=True, **fields)


def join(requests: Sequence[Request]) -> list[bytes]:
    return list(RequestJoiner().join([request.SerializeToString() for request in requests]))


def publish(channel: grpc.Channel, messages: Sequence[bytes]) -> list[Any]:
    kind = pubsub_pb2.PublishStreamResponse
    send: Any = channel.stream_stream("/ps2stream.v1.PubSub/PublishStream", None, kind.FromString)
    answers = []
    for response in send(iter(messages), timeout=60):
        assert response.takes_following
        answers += [response, *response.following]
    return answers


CASES: dict[str, tuple[list[Request], list[int]]] = {
    "rows": ([make(GOOD), make(GOOD, GOOD), make(GOOD)], [1, 2, 1]),
    "columns": ([make(*[GOOD] * n, arrow=True) for n in (3, 1, 4)], [3, 1, 4]),
    "both": ([make(GOOD), make(GOOD, GOOD, arrow=True)], [1, 2]),
    "attributes beside none": (
        [make(GOOD), make({**GOOD, "color": "red"}, arrow=True), make(GOOD)], [1, 1, 1],
    ),
    "a bad row": ([make(GOOD), make(GOOD, BAD), make(GOOD)], [1, 0, 1]),
    "a bad row, allowed": ([make(GOOD), make(GOOD, BAD, allow_partial=True)], [1, 1]),
    "levels": ([make(GOOD), make(GOOD, level=NOW), make(GOOD)], [1, 1, 1]),
    "a producer": ([make(GOOD), make(GOOD, GOOD, producer="p", seq=1), make(GOOD)], [1, 2, 1]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_publication_has_its_own_answer(service: Service, name: str) -> None:
    requests, accepted = CASES[name]
    [message] = join(requests)
    answers = publish(service[0], [message])
    assert [answer.accepted for answer in answers] == accepted
    taken = [
        range(answer.first_offset, answer.first_offset + answer.accepted) for answer in answers
    ]
    places = [place for each in taken for place in each]
    assert len(set(places)) == len(places)
    for answer, request in zip(answers, requests, strict=True):
        assert answer.level == (request.level or object_pb2.PUBLISH_LEVEL_DURABLE)
        assert bool(answer.refused) == any(row.lon > 180 for row in request.batch.objects)


def test_what_comes_together_is_read_together(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, edge, on_loop = service
    inner, counts = edge.publish, list[int]()

    def count(rows: Any, *rest: Any) -> Any:
        counts.append(len(rows))
        return inner(rows, *rest)

    monkeypatch.setattr(edge, "publish", count)
    [message] = join([make(*[GOOD] * n, arrow=True) for n in (3, 1, 4)])
    answers = publish(channel, [message])
    assert counts == ([8] if on_loop else [3, 1, 4])
    first = answers[0].first_offset
    assert [answer.first_offset - first for answer in answers] == [0, 3, 4]


def test_a_full_service_refuses_each(service: Service) -> None:
    channel, edge, on_loop = service
    edge.refusals = 1 if on_loop else 3
    [message] = join([make(GOOD), make(GOOD), make(GOOD)])
    answers = publish(channel, [message, make(GOOD).SerializeToString()])
    assert [answer.accepted for answer in answers] == [0, 0, 0, 1]
    assert [answer.retry_after_ms > 0 for answer in answers] == [True, True, True, False]


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (
            Request(following=[b""] * (MOST_FOLLOWING + 1)).SerializeToString(),
            f"following: contains more than {MOST_FOLLOWING} requests",
        ),
        (
            Request(following=[Request(following=[b""]).SerializeToString()]).SerializeToString(),
            "following: contains a request that has `following` itself",
        ),
    ],
    ids=["too many", "nested"],
)
def test_what_is_no_such_message_ends_the_stream(
    service: Service, message: bytes, problem: str
) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        publish(service[0], [make(GOOD).SerializeToString(), message])
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert problem in str(raised.value.details())


def test_bad_bytes_among_good_publications_end_the_stream_after_those_before(
    service: Service,
) -> None:
    good = make(GOOD).SerializeToString()
    message = good + Request(following=[good, b"\xff", good]).SerializeToString()
    with pytest.raises(grpc.RpcError) as raised:
        publish(service[0], [message])
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
