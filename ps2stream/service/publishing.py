"""Publish and PublishStream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple, TypeAlias, TypeVar

import grpc
import numpy as np

from ps2stream.errors import (
    FailedPrecondition,
    InvalidArgument,
    OverQuota,
    ResourceExhausted,
    Unavailable,
    Violation,
)
from ps2stream.service.calls import in_time, parse_batch
from ps2stream.service.gateway import Gateway, Publication
from ps2stream.service.objects import Refusal, read_objects
from ps2stream.v1 import object_pb2, pubsub_pb2

STREAM_WAIT_S = 5.0
"""How long a full service holds a PublishStream back before it refuses the batch."""
UNARY_WAIT_S = 1.0
"""Of a call: more than its lane of threads takes, so that what was analysed is rarely refused."""

REASONS = ("invalid", "quota", "full", "unavailable", "shed")
"""shed: of level NONE, because the service was full."""

Request = pubsub_pb2.PublishRequest | pubsub_pb2.PublishStreamRequest
Answer = TypeVar("Answer", pubsub_pb2.PublishResponse, pubsub_pb2.PublishStreamResponse)
Level: TypeAlias = object_pb2.PublishLevel.ValueType


class Taken(NamedTuple):
    """What became of a batch; `at` is None where nothing of it was accepted."""

    level: Level
    at: Publication | None
    accepted: int
    refused: list[Refusal]


class Publishing:
    """Batches of objects into the gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.refused: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        """Objects by why they were not accepted."""

    def publish(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        request = parse_batch(pubsub_pb2.PublishRequest, data)
        in_time(context)
        taken = self._take(request, UNARY_WAIT_S)()
        if taken.refused and not request.allow_partial:
            raise InvalidArgument(
                [
                    Violation(f"batch.objects[{r.row}].{r.field}", r.description)
                    for r in taken.refused
                ]
            )
        return _answer(pubsub_pb2.PublishResponse(), taken).SerializeToString()

    def begin(self, data: bytes) -> Callable[[], bytes]:
        """One batch of a PublishStream, for `pipelined`."""
        request = parse_batch(pubsub_pb2.PublishStreamRequest, data)
        taking = self._take(request, STREAM_WAIT_S)

        def finish() -> bytes:
            answer = pubsub_pb2.PublishStreamResponse()
            try:
                _answer(answer, taking())
            except ResourceExhausted as error:
                answer.level = effective(request.level)
                answer.retry_after_ms = error.retry_after_ms
            return answer.SerializeToString()

        return finish

    def _take(self, request: Request, wait_s: float) -> Callable[[], Taken]:
        """Hand the good rows to the gateway; what is returned waits until they are routed."""
        level = effective(request.level)
        if request.producer or request.seq:
            raise FailedPrecondition("producer and seq are not yet available")
        objects = read_objects(request.batch, self._gateway.clock_ms())
        refused = objects.refusals()
        if refused:
            good = np.ones(len(objects), np.bool_)
            good[[r.row for r in refused]] = False
            partial = request.allow_partial and good.any()
            self.refused["invalid"] += len(refused) if partial else len(objects)
            if not partial:
                return lambda: Taken(level, None, 0, refused)
            objects = objects.take(np.flatnonzero(good))
        rows = objects.analyse(self._gateway.analyzer)
        routing = self._gateway.publish(
            rows, wait_s, durable=level == object_pb2.PUBLISH_LEVEL_DURABLE
        )

        def finish() -> Taken:
            try:
                return Taken(level, _routed(routing, wait_s), len(rows), refused)
            except ResourceExhausted as error:
                shed = level == object_pb2.PUBLISH_LEVEL_NONE
                reason = "quota" if isinstance(error, OverQuota) else "full"
                self.refused["shed" if shed else reason] += len(rows)
                if not shed:
                    raise
                return Taken(level, None, 0, refused)
            except Unavailable:
                self.refused["unavailable"] += len(rows)
                raise

        return finish


def _routed(routing: Future[Publication], wait_s: float) -> Publication:
    """Where the batch was accepted. Raises ResourceExhausted, with nothing accepted, when
    it still waits after `wait_s` seconds."""
    try:
        return routing.result(wait_s)
    except TimeoutError:
        if routing.cancel():
            raise ResourceExhausted(f"publish: not routed within {wait_s:g} s") from None
        return routing.result()


def effective(level: Level) -> Level:
    """The level that holds for the one asked for. Raises for a level that is not there."""
    if level == object_pb2.PUBLISH_LEVEL_UNSPECIFIED:
        return object_pb2.PUBLISH_LEVEL_DURABLE
    if level not in object_pb2.PublishLevel.values():
        raise InvalidArgument([Violation("level", f"there is no level {level}")])
    return level


def _answer(answer: Answer, taken: Taken) -> Answer:
    answer.level = taken.level
    answer.accepted = taken.accepted
    if taken.at is not None:
        answer.partition, answer.first_offset, answer.lsn = taken.at
    answer.refused.extend(r.to_proto() for r in taken.refused)
    return answer
