"""The cursor is read also where the broker that is asked has not heard of its topic yet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from ps2stream.connectors import kafka_cursor
from ps2stream.connectors.kafka_cursor import CursorTopic
from ps2stream.errors import Unavailable

UNKNOWN = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
BROKEN = KafkaError(KafkaError.UNKNOWN)
END = KafkaError(KafkaError._PARTITION_EOF)


class Consumer:
    """Answers calls for the range of offsets, then for messages, with what it is given: errors, and
    for messages the value of one. The last answer is given again and again."""

    def __init__(self, ranges: list[Any], messages: list[Any]) -> None:
        self.ranges = ranges
        self.messages = messages
        self.closed = False

    def get_watermark_offsets(self, *_: object) -> tuple[int, int]:
        answer = self.ranges.pop(0) if len(self.ranges) > 1 else self.ranges[0]
        if isinstance(answer, KafkaError):
            raise KafkaException(answer)
        found: tuple[int, int] = answer
        return found

    def assign(self, _: object) -> None:
        pass

    def consume(self, *_: object) -> list[Any]:
        answer = self.messages.pop(0) if len(self.messages) > 1 else self.messages[0]
        error = answer if isinstance(answer, KafkaError) else None
        return [SimpleNamespace(error=lambda: error, value=lambda: answer)]

    def close(self) -> None:
        self.closed = True


def read(consumer: Consumer) -> bytes:
    kafka = SimpleNamespace(
        Consumer=lambda _: consumer,
        KafkaError=KafkaError,
        KafkaException=KafkaException,
        TopicPartition=confluent_kafka.TopicPartition,
    )
    return CursorTopic(kafka, {}, "out-cursor").read()


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the time takes a second."""
    seconds = iter(range(10_000))
    clock = SimpleNamespace(monotonic=lambda: next(seconds), sleep=lambda _: None)
    monkeypatch.setattr(kafka_cursor, "time", clock)


def test_news_of_the_topic_are_waited_for() -> None:
    consumer = Consumer([UNKNOWN, UNKNOWN, (0, 2)], [UNKNOWN, b"a", UNKNOWN, b"b", END])
    assert read(consumer) == b"b"
    assert consumer.closed


def test_a_topic_that_stays_unknown_is_an_error() -> None:
    with pytest.raises(Unavailable, match="topic out-cursor: Broker: Unknown topic"):
        read(Consumer([UNKNOWN], [END]))
    with pytest.raises(Unavailable, match="was not read to its end"):
        read(Consumer([(0, 2)], [UNKNOWN]))


def test_any_other_error_is_told_at_once() -> None:
    with pytest.raises(Unavailable, match="out-cursor"):
        read(Consumer([BROKEN, (0, 2)], [END]))
    with pytest.raises(Unavailable, match="out-cursor"):
        read(Consumer([(0, 2)], [b"a", BROKEN, END]))
