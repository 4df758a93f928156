"""The messages of Publish and PublishStream: what a request says, and its answer."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from ps2stream.dispatcher.gateway import PublicationIdentity
from ps2stream.errors import invalid
from ps2stream.limits import BATCH_BYTES
from ps2stream.protocol.wire import encode_message
from ps2stream.protocol.wire_kernels import count_entries
from ps2stream.service.calls import OBJECT_ROWS, check_batch, name_problem, parse
from ps2stream.service.publication_outcomes import Level, PublishOutcome
from ps2stream.v1 import object_pb2, pubsub_pb2

MOST_FOLLOWING = 63
"""The requests that one may bring along."""

Answer = TypeVar("Answer", pubsub_pb2.PublishResponse, pubsub_pb2.PublishStreamResponse)
_FOLLOWING = pubsub_pb2.PublishStreamRequest.FOLLOWING_FIELD_NUMBER
_FOLLOWING_ANSWERS = pubsub_pb2.PublishStreamResponse.FOLLOWING_FIELD_NUMBER
_LEVELS = frozenset(object_pb2.PublishLevel.values())


def resolve_level(level: Level) -> Level:
    """Returns the level that takes effect for the requested one. Raises InvalidArgument for an
    unknown level."""
    if level == object_pb2.PUBLISH_LEVEL_UNSPECIFIED:
        return object_pb2.PUBLISH_LEVEL_DURABLE
    if level not in _LEVELS:
        raise invalid("level", f"unknown level {level}")
    return level


def identify_publication(
    request: pubsub_pb2.PublishRequest | pubsub_pb2.PublishStreamRequest,
) -> PublicationIdentity | None:
    """Returns what makes a repeat of the request the same publication; None if it has no producer.
    Raises InvalidArgument."""
    if not request.producer and not request.seq:
        return None
    if problem := name_problem(request.producer, "id"):
        raise invalid("producer", problem)
    if not request.seq:
        raise invalid("seq", "is missing; a producer numbers its publications from 1")
    content = request.batch.SerializeToString(deterministic=True)
    digest = hashlib.blake2b(content, digest_size=16).digest()
    return PublicationIdentity(request.producer, request.seq, digest)


def fill_answer(answer: Answer, outcome: PublishOutcome) -> Answer:
    """Writes the outcome of a batch into its answer, and returns that."""
    answer.level = outcome.level
    answer.accepted = outcome.accepted
    if outcome.at is not None:
        answer.partition, answer.first_offset, answer.lsn = outcome.at
    answer.refused.extend(r.to_proto() for r in outcome.refused)
    return answer


def join_answers(answers: Sequence[bytes]) -> bytes:
    """Returns the response of PublishStream to several batches, of their encoded responses."""
    following = (encode_message(_FOLLOWING_ANSWERS, answer) for answer in answers[1:])
    return b"".join((answers[0], *following))


def split_requests(data: bytes) -> deque[bytes]:
    """Returns the requests of a message of PublishStream, which may have brought others along.
    Raises InvalidArgument for too many of them, or for one that brings others along itself."""
    many = _count_following(data)
    if many <= 0 or len(data) > BATCH_BYTES:  # what is malformed or too large is refused later
        return deque((data,))
    if many > MOST_FOLLOWING:
        raise invalid("following", f"contains more than {MOST_FOLLOWING} requests")
    kind = pubsub_pb2.PublishStreamRequest
    check_batch(kind, data, OBJECT_ROWS)
    request = parse(kind, data, BATCH_BYTES, "batch_bytes")
    following = list(request.following)
    if any(_count_following(each) > 0 for each in following):
        raise invalid("following", "contains a request that has `following` itself")
    request.ClearField("following")
    return deque((request.SerializeToString(), *following))


def _count_following(data: bytes) -> int:
    return int(count_entries(np.frombuffer(data, np.uint8), 0, _FOLLOWING, MOST_FOLLOWING))
