"""A topic that brokers have not heard of yet is waited for; every other error is told at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from ps2stream import kafka
from ps2stream.errors import FailedPrecondition, Unavailable
from ps2stream.kafka import check_topic

UNKNOWN = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
LEADERLESS = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)


class Handle:
    """Answers with what it is given, the last again and again: an error of the topic, the errors of
    its partitions, or an exception."""

    def __init__(self, *answers: KafkaError | list[KafkaError | None] | KafkaException) -> None:
        self.answers = answers
        self.asked = 0

    def list_topics(self, topic: str, _: float) -> Any:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if isinstance(answer, KafkaException):
            raise answer
        error, parts = (None, answer) if isinstance(answer, list) else (answer, [])
        partitions = {i: SimpleNamespace(error=e) for i, e in enumerate(parts)}
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error, partitions=partitions)})


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Time that passes in sleep alone."""
    now = SimpleNamespace(s=0.0)

    def sleep(seconds: float) -> None:
        now.s += seconds

    monkeypatch.setattr(kafka, "time", SimpleNamespace(monotonic=lambda: now.s, sleep=sleep))
    return now


@pytest.mark.parametrize("early", [UNKNOWN, LEADERLESS, [None, LEADERLESS]])
def test_a_new_topic_is_waited_for(early: KafkaError | list[KafkaError | None]) -> None:
    handle = Handle(early, early, [None, None])
    assert check_topic(handle, "new", "here:9092") == 2
    assert handle.asked == 3


def test_a_topic_that_never_comes_is_an_error(clock: SimpleNamespace) -> None:
    with pytest.raises(FailedPrecondition, match="topic no: Broker: Unknown topic"):
        check_topic(Handle(UNKNOWN), "no", "here:9092", 5.0)
    assert 5.0 <= clock.s < 6.0


def test_a_partition_without_a_leader_is_left_to_librdkafka(clock: SimpleNamespace) -> None:
    assert check_topic(Handle([None, LEADERLESS]), "old", "here:9092", 5.0) == 2
    assert 5.0 <= clock.s < 6.0


def test_any_other_error_is_told_at_once() -> None:
    handle = Handle(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), [None])
    with pytest.raises(FailedPrecondition, match="uthoriz"):
        check_topic(handle, "theirs", "here:9092")
    assert handle.asked == 1
    handle = Handle(KafkaException(KafkaError(KafkaError._TRANSPORT)), [None])
    with pytest.raises(Unavailable, match="no answer from Kafka at here:9092"):
        check_topic(handle, "far", "here:9092")
    assert handle.asked == 1
